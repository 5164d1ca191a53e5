"""Records as JSON lines: written whole, never changed, never lost.

A record is one measured row: {row, table, scale, measured, published, provenance}.
A line that a kill or a power cut left unfinished is told, set aside and gone past.
"""

import contextlib
import fcntl
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specjax.console import shortened


def prepare(path: Path) -> None:
    """Tries whether a record can be appended, before there is any; makes no file."""
    shown = shortened(str(path), 80)

    def tried(descriptor: int) -> None:
        set_aside(descriptor, path)
        if new and not os.fstat(descriptor).st_size:
            path.unlink()

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "no ordinary file"
            raise ValueError(f"{shown} is {what}: name a .jsonl file")
        new = not path.exists()
        locked(path, tried)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(
            f"cannot write {shown} ({reason}): name another .jsonl file"
        ) from None


def append(path: Path, record: dict) -> None:
    """Adds a line and waits until it is on the disk."""
    line = json.dumps(record, sort_keys=True, allow_nan=False).encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)

    def add(descriptor: int) -> None:
        set_aside(descriptor, path)
        end = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            write(descriptor, line)
        except OSError:
            os.ftruncate(descriptor, end)
            raise

    locked(path, add)


def put(path: Path, record: dict) -> None:
    """Adds a record in the place of those of its row. What it replaces is first
    appended to FILE.replaced beside, so that nothing is lost. Raises as `append`."""
    old = [each for each in read(path) if each.get("row") == record["row"]]
    for each in old:
        append(path.with_name(f"{path.name}.replaced"), each)
    append(path, record)
    if not old:
        return

    def drop(descriptor: int) -> None:
        left, gone = [], list(old)
        for line in path.read_bytes().splitlines(keepends=True):
            each = parse(line) if line.strip() else None
            if each in gone:  # once: the new one may be equal, and comes last
                gone.remove(each)
            else:
                left.append(line)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_bytes(b"".join(left))
        os.replace(fresh, path)

    locked(path, drop)


def locked(path: Path, change: Callable[[int], None]) -> None:
    """Runs `change` on the open file while nobody else has it."""
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
    """All of it, onto the disk: a full one takes a part and says nothing."""
    while content:
        content = content[os.write(descriptor, content) :]
    os.fsync(descriptor)


def set_aside(descriptor: int, path: Path) -> None:
    """Moves a torn last line to a file beside, and says so; a whole one is ended."""
    content = path.read_bytes()
    last = content[whole(content) :]
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
    os.ftruncate(descriptor, whole(content))
    tell(path, content, f"set aside in {beside}")


def whole(content: bytes) -> int:
    """How many bytes belong to lines that were written to their end."""
    return content.rfind(b"\n") + 1


def tell(path: Path, content: bytes, what: str) -> None:
    number = content.count(b"\n") + 1
    torn = "torn, as a kill or a power cut leaves it"
    print(f"{path}, line {number}: {torn}; {what}", file=sys.stderr, flush=True)


def read(path: Path) -> list[dict]:
    """The records of a file, oldest first; none if there is no file."""
    return [record for _, record in numbered(path)]


def numbered(path: Path) -> list[tuple[int, dict]]:
    """(line, record) of each record, oldest first; none if there is no file."""
    if not path.exists():
        return []
    content, records = path.read_bytes(), []
    end = whole(content)
    if content[end:].strip():
        try:
            parse(content[end:])
            end = len(content)
        except ValueError:
            tell(path, content, "left out")
    for number, line in enumerate(content[:end].split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            records.append((number, parse(line)))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not a record ({error})") from None
    return records


def parse(line: bytes) -> dict[str, Any]:
    """The record of a line. Raises ValueError for what is none."""
    try:
        record = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("want an object: {...}")
    for name, value in record.items():
        finite(value, name)
    return record


def finite(value: Any, place: str, depth: int = 50) -> None:
    """Raises ValueError, naming the field, for a number that JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place} is {value}, no finite number")
    if depth == 0:
        raise ValueError(f"{place.partition('.')[0]} is nested too deeply")
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for name, item in inner:
        finite(item, f"{place}.{name}", depth - 1)
