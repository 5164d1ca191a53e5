"""Which record of a row counts, and what its reader must know beside its numbers.

Records are lines of JSON (`specjax.measure.jsonl`). There are three kinds of numbers. A
law is computed whenever it is shown (`experiments.report.laws`). A count is the same on
every machine; tests/golden guards it, and a record from before a golden was moved says
so. A time is a dated snapshot and valid for its day.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from specjax import configs
from specjax.configs import ConfigError, RowFile
from specjax.measure import provenance

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "gin_configs"


def latest(records: Iterable[dict]) -> dict[str, dict]:
    """The last record of each row."""
    return {record["row"]: record for record in records}


def notes(record: dict) -> list[str]:
    """What sets a record apart from one that would be measured today."""
    origin = record.get("provenance", {})
    told = [origin["note"]] if origin.get("note") else []
    if origin.get("goldens", provenance.GOLDENS) < provenance.GOLDENS:
        told.append(f"from before goldens {provenance.GOLDENS}")
    if names := changed(record):
        told.append(f"its row sets another {', '.join(names)} today")
    if names := provenance.changed_inputs(origin, digest):
        told.append(f"{', '.join(names)} changed since")
    return told


def changed(record: dict) -> list[str]:
    """The settings that the file of a record's row has otherwise today."""
    origin = record.get("provenance", {})
    if not origin.get("config"):
        return []
    config, own = today(record["table"], record["row"], tuple(origin.get("typed", ())))
    return provenance.changed_settings(origin.get("config", ""), config, own)


@cache
def today(table: str, row: str, typed: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """What the file of a row sets now, and which names by itself; nothing of no row."""
    file = rows(table).get(row)
    if file is None:
        return "", ()
    try:
        return configs.read(file._replace(bindings=typed))
    except ConfigError:  # a binding of then that no file knows now
        return configs.read(file)


@cache
def rows(table: str) -> dict[str, RowFile]:
    """By name every row of a folder of `gin_configs`, in the order of its files. Raises
    ConfigError for a row that two files have."""
    files = sorted((CONFIGS / table).glob("*.gin"))
    return {file.row: file for file in configs.all_rows(map(RowFile, files))}


def row(table: str, name: str, bindings: Iterable[str] = ()) -> RowFile:
    """A row of `gin_configs` by its name. Raises KeyError where there is none."""
    return rows(table)[name]._replace(bindings=tuple(bindings))


@cache
def digest(path: Path) -> str:
    return provenance.digest(path)


def device(record: dict) -> str:
    """What a record was measured on, in words."""
    if record["scale"] == "closed form":
        return "none (closed form)"
    if record["scale"] == "compiled":
        return f"none (compiled for {record['measured']['device']})"
    device = record["provenance"]["device"]
    kind, cores = device["kind"], ""
    if device["platform"] == "cpu":
        kind = device.get("processor", {}).get("model", kind)
        cores = f", {device['host_cores']} cores"
    return f"{device['count']} x {kind}{cores}"
