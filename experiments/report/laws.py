"""The records of closed forms and certificates, which are computed whenever they are
shown and never stored.

Their rows are gin files like any other. Their numbers depend on the code alone, and
tests assert them. All of them take five minutes of one core, most of it for the
certificates, which run in two processes.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from experiments import catalogue
from experiments.records import compilation, records
from experiments.records.table import Records
from experiments.report import processes
from specjax import configs
from specjax.configs import RowFile
from specjax.measure import provenance

CLOSED_FORMS = ("table1", "figure2", "figure3", "figure4")
ENUMERATED = ("certificate", "conformance")
FOLDERS = (*CLOSED_FORMS, *ENUMERATED)


def compute(
    folders: Iterable[str] = FOLDERS,
    is_wanted: Callable[[str], bool] = lambda row: True,
    other_work: Mapping[str, Callable[[], Any]] | None = None,
) -> Records:
    """Computes the records of every law's row; they have no date.

    Args:
        is_wanted: selects rows, by folder/row.
        other_work: work for the processes that compute laws, by its name.
    """
    found: Records = {folder: {} for folder in folders}
    rows = [
        row
        for folder in folders
        for row in records.rows(folder).values()
        if is_wanted(f"{folder}/{row.row}")
    ]
    long = {f"{x.table}/{x.row}": partial(law, x) for x in rows if is_long(x)}
    # The first leaves programs on the disk that the others share, so these come last.
    first = dict([*long.items()][:1])
    done = processes.run(
        {**first, **(other_work or {}), **dict(reversed(long.items()))}
    )
    made = [law(row) for row in rows if not is_long(row)]
    for record in [*made, *(done[name] for name in long)]:
        found[record["table"]][record["row"]] = record
    return found


def is_long(row: RowFile) -> bool:
    """Returns whether a law is enumerated, which takes longer than starting a
    process."""
    return row.table in ENUMERATED


def law(file: RowFile) -> dict:
    """Computes the record of one row."""
    compilation.keep()
    built = configs.build(file)
    row = built.row
    origin = provenance.describe(row.measurement, built.config, 0.0) | {"date": "now"}
    it = {"row": file.row, "table": file.table, "scale": row.scale, "kind": row.kind}
    it |= {"measured": row.measurement.run(), "provenance": origin}
    return it | {"published": catalogue.published_numbers(file.table, file.row)}
