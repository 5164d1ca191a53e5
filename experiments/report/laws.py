"""Closed forms and certificates: computed whenever they are shown, kept nowhere.

Their rows are gin files like any other; what they give depends on the code alone, and
tests assert it. All of them take two minutes, most of that for the certificates.
"""

from collections.abc import Iterable

from experiments import catalogue, run
from experiments.records import compilation, records
from experiments.records.table import Records
from specjax import console
from specjax.measure import provenance

CLOSED_FORMS = ("table1", "figure2", "figure3", "figure4")
FOLDERS = (*CLOSED_FORMS, "certificate", "conformance")


def computed(folders: Iterable[str] = FOLDERS) -> Records:
    """The records of every law's row, with no day: they are of now."""
    compilation.keep()
    return {folder: rows_of(folder) for folder in folders}


def rows_of(folder: str) -> dict[str, dict]:
    rows, kept = {}, {}
    for name, file in records.rows(folder).items():
        console.begin(f"computing {folder}/{name}")
        row, config = run.build(file.path, row=name)[2:4]
        sharing = {"kept": kept} if row.measurement.shares else {}
        measured = row.measurement.run(**sharing)
        origin = provenance.of(row.measurement, config, 0.0) | {"date": "now"}
        rows[name] = {
            "row": name,
            "table": folder,
            "scale": row.scale,
            "kind": row.kind,
            "measured": measured,
            "published": catalogue.published(folder, name),
            "provenance": origin,
        }
        console.end(f"computing {folder}/{name}", "done")
    return rows
