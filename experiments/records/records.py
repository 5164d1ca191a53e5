"""Selects the record of a row that is shown, and the notes that its reader needs.

Records are lines of JSON (`specjax.measure.jsonl`). There are three kinds of numbers. A
law is computed whenever it is shown (`experiments.report.laws`). A count is the same on
every machine; tests/golden guards it, and a record from before a golden changed has a
note. A time is a dated snapshot and valid for its day.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from specjax import configs
from specjax.configs import ConfigError, RowFile
from specjax.measure import provenance

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "gin_configs"
EDITED = "edited since"  # in the note of a record whose code changed
NATIVE = "specjax/native/"  # how the names of native code begin
OLDER = "older than today's code; not measured again"
# Notes that are in records, and the words that a page shows instead.
NOTES = {
    "code edited since; programs of like rows compared, not measured again": OLDER,
    "code edited since, not measured again": OLDER,
    "its machine's git knew an earlier commit; its files were those of this one": (
        "the machine's git was at an earlier commit; the files were those of this one"
    ),
    "its copies are 20 that were counted as 19: their speed is 20/19 of what is"
    " shown": (
        "20 copies were counted as 19: their true speed is 20/19 of the value shown"
    ),
}


def latest_records(records: Iterable[dict]) -> dict[str, dict]:
    """Returns the last record of each row."""
    return {record["row"]: record for record in records}


def is_older(record: dict) -> bool:
    """Returns whether the code or the inputs of a record have changed since it was
    made."""
    origin = record.get("provenance", {})
    return bool(
        EDITED in origin.get("note", "")
        or origin.get("goldens", provenance.GOLDENS) < provenance.GOLDENS
        or provenance.changed_inputs(origin, digest)
    )


def notes(record: dict) -> list[str]:
    """Returns how a record differs from one that would be measured today, in words."""
    origin = record.get("provenance", {})
    found = [update_note(origin["note"])] if origin.get("note") else []
    if origin.get("goldens", provenance.GOLDENS) < provenance.GOLDENS:
        found.append(f"older than goldens {provenance.GOLDENS}")
    if names := changed_settings(record):
        found.append(f"the row file has changed since: {', '.join(names)}")
    if names := provenance.changed_inputs(origin, digest):
        found += input_notes(names)
    if origin.get("dirty") and record.get("kind") != "law":
        commit = origin["commit"][:8]
        found.append(f"measured in a tree with uncommitted changes (commit {commit})")
    return found


def input_notes(names: Iterable[str]) -> list[str]:
    """Returns which of its input files have changed since a record was made, in
    words."""
    names = list(names)
    native = [name for name in names if name.startswith(NATIVE)]
    others = [name for name in names if name not in native]
    found = []
    if native:
        count = f"{len(native)} file{'s' * (len(native) > 1)}"
        found.append(f"timed before the native code changed ({count})")
    if others:
        found.append(f"{list_files(others)} changed since")
    return found


def list_files(names: Iterable[str]) -> str:
    """Returns the names of files in words; of several in a folder, their number."""
    folders: dict[str, list[str]] = {}
    for name in names:
        folders.setdefault(name.rpartition("/")[0], []).append(name)
    return ", ".join(
        each[0] if len(each) == 1 else f"{len(each)} files of {folder}"
        for folder, each in folders.items()
    )


def update_note(note: str) -> str:
    """Returns the note of a record in the words that are used today."""
    for recorded, words in NOTES.items():
        note = note.replace(recorded, words)
    return note


def changed_settings(record: dict) -> list[str]:
    """Returns the settings to which a record's row file gives another value today."""
    origin = record.get("provenance", {})
    config = origin.get("config")
    if not config:
        return []
    typed = tuple(origin.get("typed", ()))
    return list(settings_changed_since(config, record["table"], record["row"], typed))


@cache
def settings_changed_since(
    config: str, table: str, row: str, bindings: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns the settings to which a row's file gives another value now than a
    recorded configuration did. It is cached, because every page asks for it."""
    return tuple(
        provenance.changed_settings(config, *current_config(table, row, bindings))
    )


def current_config(
    table: str, row: str, typed: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """Returns the configuration that a row's file sets now, and the names that it sets
    itself; empty if there is no such row.
    """
    file = rows(table).get(row)
    if file is None:
        return "", ()
    return row_configs(file.path, typed)[row]


@cache
def row_configs(
    path: Path, typed: tuple[str, ...]
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Returns the configuration of each row of a file, and the names that it sets."""
    file = RowFile(path)
    try:
        return configs.read_rows(file._replace(bindings=typed))
    except ConfigError:  # a binding of then that no file knows now
        return configs.read_rows(file)


@cache
def rows(table: str) -> dict[str, RowFile]:
    """Returns every row of a folder of `gin_configs` by name, in the order of its
    files.

    Raises:
        ConfigError: two files have a row of the same name.
    """
    files = sorted((CONFIGS / table).glob("*.gin"))
    return {file.row: file for file in configs.all_rows(map(RowFile, files))}


def row(table: str, name: str, bindings: Iterable[str] = ()) -> RowFile:
    """Returns a row of `gin_configs` by its name. Raises KeyError if there is none."""
    return rows(table)[name]._replace(bindings=tuple(bindings))


@cache
def digest(path: Path) -> str:
    return provenance.digest(path)


def device(record: dict) -> str:
    """Returns in words the device that a record was measured on."""
    if record["scale"] == "closed form":
        return "none (closed form)"
    if record["scale"] == "compiled":
        return f"none (compiled for {record['measured']['device']})"
    return device_words(record["provenance"]["device"])


def device_words(device: dict) -> str:
    """Returns a device in words: the model and the cores of a CPU, or the number and
    the model of accelerators."""
    count = device["count"]
    if device["platform"] != "cpu":
        return f"{count} x {device['kind']}"
    cores = f"{device['host_cores']} cores"
    parts = f", divided into {count} devices" * (count > 1)
    if model := device.get("processor", {}).get("model"):
        return f"{model}, {cores}{parts}"
    return f"a CPU of {cores} whose model was not recorded{parts}"
