"""Which record of a row counts, whether it is out of date, and what made it.

Records are lines of JSON (`specjax.bench.jsonl`).
"""

import functools
import subprocess
from collections.abc import Iterable
from pathlib import Path

from experiments.records import fingerprint, loaded
from specjax.bench.row import Measurement, conditions

ROOT = Path(__file__).resolve().parents[2]


def find(
    records: Iterable[dict], row: str, config: str, fingerprint: str
) -> dict | None:
    """The latest record of a row with this operative config and these sources."""
    for record in reversed(list(records)):
        origin = record["provenance"]
        same = origin["config"] == config and origin["fingerprint"] == fingerprint
        if record["row"] == row and same:
            return record
    return None


def latest(records: Iterable[dict]) -> dict[str, dict]:
    """The last record of each row."""
    return {record["row"]: record for record in records}


def stale(record: dict) -> bool:
    """Whether the sources that made a record are no longer today's."""
    origin = record["provenance"]
    return origin["fingerprint"] != fingerprint.today(origin)


def provenance(measurement: Measurement, config: str, seconds: float) -> dict:
    """Who made a number: sources, versions, device, settings, time."""
    origin = sources(measurement, config)
    return {**commit(), **conditions(measurement, seconds), **origin}


def sources(measurement: Measurement, config: str) -> dict:
    """What a number depends on: definitions, files and settings, and their hash."""
    origin = {
        "config": config,
        "module": measurement.module,
        "reaches": [*measurement.reaches, *loaded.reaches(measurement.inputs)],
        "inputs": fingerprint.inputs_of(measurement.inputs),
    }
    return origin | {"fingerprint": fingerprint.of(origin)}


def device(record: dict) -> str:
    """What a record was measured on, in words."""
    if record["scale"] == "closed form":
        return "none (closed form)"
    if record["scale"] == "compiled":
        return f"none (compiled for {record['measured']['device']})"
    device = record["provenance"]["device"]
    cores = f", {device['host_cores']} cores" if device["platform"] == "cpu" else ""
    return f"{device['count']} x {device['kind']}{cores}"


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
