"""Records as JSON lines: appended whole, never changed.

A record is one measured row: {row, table, scale, measured, published, provenance}.
"""

import fcntl
import json
import os
from pathlib import Path


def append(path: Path, record: dict) -> None:
    """Adds a line and waits until it is on the disk.

    A kill leaves the whole line or a torn one, which `read` ignores and the next
    `append` removes.
    """
    line = json.dumps(record, sort_keys=True, allow_nan=False).encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, whole(path.read_bytes()))
        os.lseek(descriptor, 0, os.SEEK_END)
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def whole(content: bytes) -> int:
    """How many bytes belong to lines that were written to their end."""
    return content.rfind(b"\n") + 1


def read(path: Path) -> list[dict]:
    """The records of a file, oldest first; none if there is no file.

    Raises ValueError, naming the line, for one that is whole but no record.
    """
    if not path.exists():
        return []
    content, found = path.read_bytes(), []
    for number, line in enumerate(content[: whole(content)].splitlines(), start=1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not a record ({error})") from None
    return found
