"""Results as JSON lines: appended whole, never changed, read back by the tables.

A record is one measured row: {row, table, scale, measured, published, provenance}.
"""

import datetime
import fcntl
import functools
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import jax

from experiments import fingerprint
from experiments.row import Measurement

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("jax", "jaxlib", "flax", "numpy", "specjax")


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


def find(
    records: Iterable[dict], row: str, config: str, fingerprint: str
) -> dict | None:
    """The latest record of a row with this operative config and these sources."""
    for record in reversed(list(records)):
        made = record["provenance"]
        same = made["config"] == config and made["fingerprint"] == fingerprint
        if record["row"] == row and same:
            return record
    return None


def latest(records: Iterable[dict]) -> dict[str, dict]:
    """The last record of each row."""
    return {record["row"]: record for record in records}


def stale(record: dict) -> bool:
    """Whether the sources that made a record are no longer today's."""
    made = record["provenance"]
    return made["fingerprint"] != fingerprint.today(made)


def provenance(measurement: Measurement, config: str, seconds: float) -> dict:
    """Who made a number: sources, versions, device, settings, time."""
    inputs = fingerprint.inputs_of(measurement.inputs)
    devices = jax.devices()
    return {
        **commit(),
        "versions": versions(),
        "device": {
            "platform": devices[0].platform,
            "kind": devices[0].device_kind,
            "count": len(devices),
            "host_cores": os.cpu_count(),
        },
        "dtype": measurement.dtype,
        "seed": measurement.seed,
        "config": config,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 2),
        "module": measurement.module,
        "inputs": inputs,
        "fingerprint": fingerprint.of(measurement.module, inputs),
    }


def versions() -> dict[str, str | None]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # used from its sources
            found[name] = None
    return found


@functools.cache
def commit() -> dict:
    """The commit, and whether files other than results differ from it; None outside
    of a git checkout."""
    changed = ["status", "--porcelain", "--", ".", ":(exclude)results"]
    try:
        head, status = (git(*command) for command in (["rev-parse", "HEAD"], changed))
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}
    return {"commit": head.strip(), "dirty": bool(status.strip())}


def git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout
