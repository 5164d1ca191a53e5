"""What names rows on a command line: files, and the flags that T5X's users know."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from specjax import configs
from specjax.configs import ConfigError, RowFile, grid
from specjax.runtime import console

OWN = "--gin."
EPILOG = """--gin.NAME=VALUE sets a macro or a parameter, after all files; a text has
quotes of its own: --gin.VERIFIER="'block'"."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds `FILE.gin[:ROW] ...`, `--rows`, `--list`, and the flags of T5X."""
    parser.epilog = EPILOG
    flag = parser.add_argument
    flag("files", nargs="*", metavar="FILE.gin[:ROW]", help="all of its rows, or one")
    flag("--rows", metavar="ROW[,ROW]", help="only these rows of the files")
    flag("--list", action="store_true", help="print the rows, and measure none")
    flag("--json", action="store_true", help="with --list, one JSON document of them")
    several = dict(action="append", default=[])
    of_file = "read after every row; the first is the row where no other is named"
    flag("--gin_file", **several, metavar="FILE.gin", help=of_file)
    of_paths = "where includes are looked for, after the current folder"
    flag("--gin_search_paths", **several, metavar="DIR[,DIR]", help=of_paths)
    of_set = "NAME = VALUE, as --gin.NAME=VALUE"
    flag("--set", "--gin_bindings", **several, metavar="BINDING", help=of_set)


def add_out(parser: argparse.ArgumentParser, default: Path) -> None:
    """Adds `--out` and `--again`."""
    of_out = "folder of the records; default %(default)s"
    parser.add_argument("--out", type=Path, default=default, help=of_out)
    of_again = "measure anew what is there already, in its place"
    parser.add_argument("--again", action="store_true", help=of_again)


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[argparse.Namespace, list[RowFile]]:
    """The flags, and the rows that they name."""
    typed = [text for text in arguments if text.startswith(OWN)]
    flags = parser.parse_args([text for text in arguments if text not in typed])
    pairs = [text.removeprefix(OWN).partition("=") for text in typed]
    bindings = (*flags.set, *(f"{name} = {value}" for name, _, value in pairs))
    search = tuple(x for paths in flags.gin_search_paths for x in paths.split(","))
    files, over = list(flags.files), tuple(flags.gin_file)
    if not files:
        files, over = list(over[:1]), over[1:]
    if not files:
        parser.error("name a row: a .gin file")
    if flags.json and not flags.list:
        parser.error("--json is of --list: name both; records are JSON lines in --out")
    named = map(split, files)
    each = [RowFile(path, over, bindings, search, row) for path, row in named]
    try:
        every = [*within(each)]
        if flags.rows or flags.list:
            every = picked(configs.every(every), flags.rows)
    except (ConfigError, ValueError) as error:
        parser.error(str(error))
    if flags.list:
        if flags.json:
            console.tell({"rows": [*map(entry, every)]})
        else:
            print("\n".join(map(str, every)))
        parser.exit()
    return flags, every


def within(rows: Sequence[RowFile]) -> Iterator[RowFile]:
    """Rows of the files in a folder, where one was named. Raises ValueError for a
    folder without any."""
    for row in rows:
        if not row.path.is_dir():
            yield row
            continue
        files = sorted(row.path.glob("*.gin"))
        if not files:
            raise ValueError(f"{row.path} has no .gin files: name a folder with rows")
        yield from (row._replace(path=path) for path in files)


def entry(row: RowFile) -> dict:
    """What --list --json tells of a row. name: by which a command takes it."""
    return {"name": str(row), "table": row.table, "row": row.row, "file": str(row.path)}


def split(text: str) -> tuple[Path, str | None]:
    """FILE.gin or FILE.gin:ROW -> the file, and the row or None."""
    path, mark, row = text.rpartition(".gin:")
    return (Path(f"{path}.gin"), row) if mark else (Path(text), None)


def picked(every: list[RowFile], names: str | None) -> list[RowFile]:
    """Those of `names`, in the order of their files."""
    if not names:
        return every
    wanted = names.split(",")
    for name in wanted:
        grid.refuse_unknown(name, [file.row for file in every])
    return [file for file in every if file.row in wanted]
