"""The records of closed forms and certificates, computed whenever they are shown and
stored nowhere.

Their rows are gin files like any other. Their numbers depend on the code alone, and
tests assert them. All of them take five minutes of one core, most of it for the
certificates, which run in two processes.
"""

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor

from experiments import catalogue
from experiments.records import compilation, records
from experiments.records.table import Records
from specjax import configs
from specjax.configs import RowFile
from specjax.measure import provenance
from specjax.runtime import console

CLOSED_FORMS = ("table1", "figure2", "figure3", "figure4")
ENUMERATED = ("certificate", "conformance")
FOLDERS = (*CLOSED_FORMS, *ENUMERATED)
PROCESSES = 2


def compute(
    folders: Iterable[str] = FOLDERS, wanted: Callable[[str], bool] = lambda row: True
) -> Records:
    """Computes the records of every law's row; they have no day.

    Args:
        wanted: selects rows, by folder/row.
    """
    found: Records = {folder: {} for folder in folders}
    rows = [
        row
        for folder in folders
        for row in records.rows(folder).values()
        if wanted(f"{folder}/{row.row}")
    ]
    long = [row for row in rows if row.table in ENUMERATED]
    for record in (*map(law, (x for x in rows if x not in long)), *at_once(long)):
        found[record["table"]][record["row"]] = record
    return found


def at_once(rows: list[RowFile]) -> Iterable[dict]:
    """Computes laws in separate processes; yields their records in the order of
    `rows`.
    """
    if not rows:
        return
    fresh = multiprocessing.get_context("spawn")  # a fork of JAX's threads may hang
    with ProcessPoolExecutor(PROCESSES, mp_context=fresh) as pool:
        found = zip(rows, pool.map(law, rows), strict=True)
        for number, (row, record) in enumerate(found, 1):
            label = f"computing [{number}/{len(rows)}] {row.table}/{row.row}"
            console.begin_line(label)
            console.end_line(label, "done")
            yield record


def law(file: RowFile) -> dict:
    """Computes the record of one row."""
    compilation.keep()
    built = configs.build(file)
    row = built.row
    origin = provenance.of(row.measurement, built.config, 0.0) | {"date": "now"}
    it = {"row": file.row, "table": file.table, "scale": row.scale, "kind": row.kind}
    it |= {"measured": row.measurement.run(), "provenance": origin}
    return it | {"published": catalogue.published(file.table, file.row)}
