"""Local files as examples: TSV, JSON lines, parallel plain text; also `.gz` and `.xz`.

A line ends with "\n" only, because other characters that Python takes for line ends
occur within sentences. Every reader gives a `Line` for each line, lazily, and raises
ValueError with file and line.
"""

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from experiments.tasks.recipes import Line

OPEN = {".gz": gzip.open, ".xz": lzma.open}


def tsv(path: Path) -> Iterator[Line]:
    """Yields the two columns of each line, separated by a tab: an input and its
    target."""
    for text, where in lines(path):
        columns = text.split("\t")
        if len(columns) != 2:
            raise ValueError(
                f"{where}: {len(columns)} columns, not 2: one tab between an input and"
                " its target, none within them"
            )
        for column in columns:
            check(column, where)
        yield Line(tuple(columns), where)


def jsonl(path: Path, fields: Sequence[str]) -> Iterator[Line]:
    """Yields the strings in the JSON object on each line; `fields` names one or two of
    them, in that order.
    """
    for text, where in lines(path):
        try:
            record = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{where}: not JSON ({error})") from None
        if not isinstance(record, dict):
            raise ValueError(f"{where}: not a JSON object, {{...}}")
        for field in fields:
            if field not in record:
                raise ValueError(
                    f"{where}: no field {field!r}, only {', '.join(record) or 'none'}"
                )
            if not isinstance(record[field], str):
                raise ValueError(f"{where}: the field {field!r} is not a string")
            check(record[field], f"{where}, field {field!r}")
        yield Line(tuple(record[field] for field in fields), where)


def read_parallel(paths: Sequence[Path]) -> Iterator[Line]:
    """Yields the lines of one file, or of two files whose lines with equal numbers
    belong together.
    """
    for number, row in enumerate(zip_longest(*map(lines, paths)), start=1):
        if None in row:
            short, other = (paths[i] for i in (row.index(None), 1 - row.index(None)))
            raise ValueError(
                f"{short} ends after line {number - 1}, {other} has a line {number}:"
                " the files must have as many lines as each other"
            )
        yield Line(tuple(text for text, _ in row), " and ".join(at for _, at in row))


def lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the text of each line, without its line break, and its place."""
    where = str(path)
    try:
        with OPEN.get(path.suffix, open)(path, "rb") as file:
            for number, content in enumerate(file, start=1):
                where = f"{path}, line {number}"
                text = content.removesuffix(b"\n").decode()
                check(text, where)
                yield text, where
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: not UTF-8 ({error.reason})") from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"cannot read {where}: {error}") from None


def check(text: str, where: str) -> None:
    """Raises ValueError for a text that cannot be tokenized as one line."""
    if not text.strip():
        raise ValueError(f"{where}: empty; remove it, from parallel files too")
    if text.startswith("\ufeff"):
        raise ValueError(f"{where}: begins with a byte order mark; save without one")
    if text.endswith("\r"):
        raise ValueError(f"{where}: ends with a carriage return; save with \\n alone")
