"""Records as lines of JSON, which are written whole, and are neither changed nor lost.

A record is one measured row: {row, table, scale, measured, published, provenance}. A
line that a kill or a power cut left unfinished is reported, moved to another file and
skipped.
"""

import contextlib
import fcntl
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from specjax.prompts.text_files import MARK
from specjax.runtime import writing
from specjax.runtime.console import shorten
from specjax.runtime.writing import name_path

LONGEST = 2**28  # bytes of a record: the largest have the times of every turn
BLOCK = 2**16  # bytes that are read at once, from the end of a file
NO_RECORDS = "holds no records, a JSON object a line: name another .jsonl file"


def prepare(path: Path) -> None:
    """Checks that a record can be appended, before there is one; leaves no new file
    behind.

    Raises ValueError if it cannot.
    """
    shown = shorten(str(path), 80)

    def check_writable(descriptor: int) -> None:
        move_torn_line(descriptor, path)
        if new and not os.fstat(descriptor).st_size:
            path.unlink()

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "not an ordinary file"
            raise ValueError(f"{shown} is {what}: name a .jsonl file")
        new = not path.exists()
        with_lock(path, check_writable)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(
            f"cannot write {shown} ({reason}): name another .jsonl file"
        ) from None


def append(path: Path, record: dict) -> None:
    """Appends a line and waits until it is on the disk. Raises OSError as `naming`
    does.

    record: plain values, without nan.
    """
    line = json.dumps(record, sort_keys=True, allow_nan=False).encode() + b"\n"

    def add(descriptor: int) -> None:
        move_torn_line(descriptor, path)
        end = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            write(descriptor, line)
        except OSError:
            os.ftruncate(descriptor, end)
            raise

    with name_path(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with_lock(path, add)


def put(path: Path, record: dict) -> None:
    """Puts a record in the place of earlier records of the same row.

    The replaced records are first appended to FILE.replaced next to it, so that nothing
    is lost. Raises like `append`.
    """
    old = [each for each in read(path) if each.get("row") == record["row"]]
    for each in old:
        append(path.with_name(f"{path.name}.replaced"), each)
    append(path, record)
    if not old:
        return

    def drop(descriptor: int) -> None:
        gone = list(old)

        def lines_left() -> Iterator[bytes]:
            for line in lines(descriptor, path):
                each = parse(line) if line.strip() else None
                if each in gone:  # once: the new one may be equal, and comes last
                    gone.remove(each)
                else:
                    yield line

        writing.write_whole(path, lines_left())

    with_lock(path, drop)


def with_lock(path: Path, change: Callable[[int], None]) -> None:
    """Runs `change` on the open file while no other process can write it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Another file may have come into its place while this one waited.
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return change(descriptor)
        finally:
            os.close(descriptor)


def write(descriptor: int, content: bytes) -> None:
    """Writes all of the content to the disk.

    A full disk may take only a part without an error.
    """
    while content:
        content = content[os.write(descriptor, content) :]
    os.fsync(descriptor)


def lines(descriptor: int, path: Path) -> Iterator[bytes]:
    """Yields the lines of an open file with their ends, one in memory at a time.

    Raises ValueError for a line that is longer than any record.
    """
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        while line := file.readline(LONGEST + 1):
            if len(line) > LONGEST:
                raise ValueError(f"{path} {NO_RECORDS}")
            yield line


def last_line(descriptor: int, path: Path) -> tuple[int, bytes]:
    """Returns where the text after the last complete line begins, and that text.

    The text is empty if the file is complete. The file is read from its end. Raises
    like `lines`.
    """
    start, last = os.fstat(descriptor).st_size, b""
    while start and b"\n" not in last:
        size = min(start, max(BLOCK, len(last)))
        start -= size
        last = os.pread(descriptor, size, start) + last
        if len(last) > LONGEST and b"\n" not in last:
            raise ValueError(f"{path} {NO_RECORDS}")
    cut = last.rfind(b"\n") + 1
    return start + cut, last[cut:]


def move_torn_line(descriptor: int, path: Path) -> None:
    """Moves a torn last line to another file, and ends a last line that lacks only its
    line break.

    Raises ValueError for a file that holds no records; that file stays as it is.
    """
    check_head(os.pread(descriptor, BLOCK, 0), path)
    start, last = last_line(descriptor, path)
    if not last:
        return
    with contextlib.suppress(ValueError):
        parse(last)
        os.lseek(descriptor, 0, os.SEEK_END)
        return write(descriptor, b"\n")
    beside = path.with_name(f"{path.name}.torn")
    torn = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        write(torn, last + b"\n")
    finally:
        os.close(torn)
    number = 1 + sum(line.endswith(b"\n") for line in lines(descriptor, path))
    os.ftruncate(descriptor, start)
    tell(path, number, f"set aside in {beside}")


def check_head(head: bytes, path: Path) -> None:
    """Raises ValueError for a file that does not begin like a file of records."""
    head = head.removeprefix(MARK).lstrip()
    if head and not head.startswith(b"{"):
        raise ValueError(f"{path} {NO_RECORDS}")


def tell(path: Path, number: int, what: str) -> None:
    torn = "torn, as a kill or a power cut leaves it"
    print(f"{path}, line {number}: {torn}; {what}", file=sys.stderr, flush=True)


def read(path: Path) -> list[dict]:
    """Returns the records of a file, oldest first; [] if the file does not exist."""
    return [record for _, record in numbered_records(path)]


def numbered_records(path: Path) -> list[tuple[int, dict]]:
    """Returns (line number, record) of each record, oldest first; [] if the file does
    not exist."""
    if not path.exists():
        return []
    records = []
    with path.open("rb") as file:
        check_head(os.pread(file.fileno(), BLOCK, 0), path)
        for number, line in enumerate(lines(file.fileno(), path), start=1):
            if not line.strip():
                continue
            try:
                records.append((number, parse(line)))
            except ValueError as error:
                if line.endswith(b"\n"):
                    said = f"{path}, line {number}: not a record ({error})"
                    raise ValueError(said) from None
                tell(path, number, "left out")
    return records


def parse(line: bytes) -> dict[str, Any]:
    """Returns the record in a line. Raises ValueError for a line that is not a
    record."""
    try:
        record = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("want an object: {...}")
    for name, value in record.items():
        check_finite(value, name)
    return record


def check_finite(value: Any, place: str, depth: int = 50) -> None:
    """Raises ValueError, with the field's name, for a number that JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place} is {value}, no finite number")
    if depth == 0:
        raise ValueError(f"{place.partition('.')[0]} is nested too deeply")
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for name, item in inner:
        check_finite(item, f"{place}.{name}", depth - 1)
