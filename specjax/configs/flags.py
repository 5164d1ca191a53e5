"""The flags that name rows: files, and the flags that users of T5X know."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specjax import configs
from specjax.configs import ConfigError, RowFile, grid
from specjax.runtime import console

GIN_PREFIX = "--gin."
EPILOG = """--gin.NAME=VALUE sets a macro or a parameter, after all files; write a text
in quotes of its own: --gin.VERIFIER="'block'"."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds `FILE.gin[:ROW] ...`, `--rows`, `--list`, and the flags of T5X."""
    parser.epilog = EPILOG
    flag = parser.add_argument
    flag(
        "files",
        nargs="*",
        metavar="FILE.gin[:ROW]",
        help="a gin file, or one of its rows",
    )
    flag("--rows", metavar="ROW[,ROW]", help="only these rows of the files")
    flag("--list", action="store_true", help="print the rows, and measure none")
    flag(
        "--json",
        action="store_true",
        help="with --list, print them as one JSON document",
    )
    several: dict[str, Any] = dict(action="append", default=[])
    of_file = "a file to read after every row; without rows, the first one is the row"
    flag("--gin_file", **several, metavar="FILE.gin", help=of_file)
    of_paths = "folders to search for included files, after the current folder"
    flag("--gin_search_paths", **several, metavar="DIR[,DIR]", help=of_paths)
    of_set = "NAME = VALUE, the same as --gin.NAME=VALUE"
    flag("--set", "--gin_bindings", **several, metavar="BINDING", help=of_set)


def add_out(parser: argparse.ArgumentParser, default: Path) -> None:
    """Adds `--out` and `--again`."""
    of_out = "folder of the records; default %(default)s"
    parser.add_argument("--out", type=Path, default=default, help=of_out)
    of_again = "measure rows again that have a record, and replace the record"
    parser.add_argument("--again", action="store_true", help=of_again)


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[argparse.Namespace, list[RowFile]]:
    """Returns the flags, and the rows that they name."""
    typed = [text for text in arguments if text.startswith(GIN_PREFIX)]
    flags = parser.parse_args([text for text in arguments if text not in typed])
    pairs = [text.removeprefix(GIN_PREFIX).partition("=") for text in typed]
    bindings = (*flags.set, *(f"{name} = {value}" for name, _, value in pairs))
    search = tuple(x for paths in flags.gin_search_paths for x in paths.split(","))
    files, over = list(flags.files), tuple(flags.gin_file)
    if not files:
        files, over = list(over[:1]), over[1:]
    if not files:
        parser.error("name a row: a .gin file")
    if flags.json and not flags.list:
        parser.error(
            "--json is for --list: write both; records in --out are JSON lines"
        )
    rows = [
        RowFile(path, over, bindings, search, row) for path, row in map(split, files)
    ]
    try:
        every = [*expand_folders(rows)]
        if flags.rows or flags.list:
            every = select_rows(configs.all_rows(every), flags.rows)
    except (ConfigError, ValueError) as error:
        parser.error(str(error))
    if flags.list:
        if flags.json:
            console.print_json({"rows": [*map(entry, every)]})
        else:
            print("\n".join(map(str, every)))
        parser.exit()
    return flags, every


def expand_folders(rows: Sequence[RowFile]) -> Iterator[RowFile]:
    """Yields the rows, with a folder replaced by its files. Raises ValueError for an
    empty folder."""
    for row in rows:
        if not row.path.is_dir():
            yield row
            continue
        files = sorted(row.path.glob("*.gin"))
        if not files:
            raise ValueError(f"{row.path} has no .gin files: name a folder with rows")
        yield from (row._replace(path=path) for path in files)


def entry(row: RowFile) -> dict:
    """Returns the entry of a row for --list --json. name: the form that commands
    accept."""
    return {"name": str(row), "table": row.table, "row": row.row, "file": str(row.path)}


def split(text: str) -> tuple[Path, str | None]:
    """Splits FILE.gin:ROW into the file and the row, which is None in FILE.gin."""
    path, mark, row = text.rpartition(".gin:")
    return (Path(f"{path}.gin"), row) if mark else (Path(text), None)


def select_rows(every: list[RowFile], names: str | None) -> list[RowFile]:
    """Returns the rows in `names`, in the order of their files."""
    if not names:
        return every
    wanted = names.split(",")
    for name in wanted:
        grid.refuse_unknown(name, [file.row or "" for file in every])
    return [file for file in every if file.row in wanted]
