"""Closed forms and certificates: computed whenever they are shown, kept nowhere.

Their rows are gin files like any other; what they give depends on the code alone, and
tests assert it. All of them take a minute and a half of one core, most of that for the
certificates, and run in two processes.
"""

import multiprocessing
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from experiments import catalogue, run
from experiments.records import compilation
from experiments.records.table import Records
from specjax import console
from specjax.measure import provenance

CLOSED_FORMS = ("table1", "figure2", "figure3", "figure4")
ENUMERATED = ("certificate", "conformance")
FOLDERS = (*CLOSED_FORMS, *ENUMERATED)
PROCESSES = 2


def computed(folders: Iterable[str] = FOLDERS) -> Records:
    """The records of every law's row, with no day: they are of now."""
    paths = [path for folder in folders for path in rows_of(folder)]
    long = [path for path in paths if path.parent.name in ENUMERATED]
    records: Records = {folder: {} for folder in folders}
    for record in (*map(law, (x for x in paths if x not in long)), *at_once(long)):
        records[record["table"]][record["row"]] = record
    return records


def rows_of(folder: str) -> list[Path]:
    return sorted((catalogue.CONFIGS / folder).glob("*.gin"))


def at_once(paths: list[Path]) -> Iterable[dict]:
    """Laws in processes of their own, in the order of `paths`."""
    if not paths:
        return
    fresh = multiprocessing.get_context("spawn")  # a fork of JAX's threads may hang
    with ProcessPoolExecutor(PROCESSES, mp_context=fresh) as pool:
        for path, record in zip(paths, pool.map(law, paths), strict=True):
            console.begin(f"computing {path.parent.name}/{path.stem}")
            console.end(f"computing {path.parent.name}/{path.stem}", "done")
            yield record


def law(path: Path) -> dict:
    """The record of one row."""
    compilation.keep()
    row, config = run.build(path)[2:4]
    return {
        "row": path.stem,
        "table": path.parent.name,
        "scale": row.scale,
        "kind": row.kind,
        "measured": row.measurement.run(),
        "published": catalogue.published(path.parent.name, path.stem),
        "provenance": provenance.of(row.measurement, config, 0.0) | {"date": "now"},
    }
