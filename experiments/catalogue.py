"""Which tables there are: the lines of each, and what it shows beside them.

A line names the record that fills it (folder of `gin_configs`, row, quantity) and the
number that was published for it. What no file here can run says what it would need.
A new table is one entry of TABLES.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from experiments.exactness import (
    audit_table,
    certificate_table,
    conformance_table,
    microscope_table,
)
from experiments.gpu.aot import kernels_table as compiled
from experiments.gpu.aot import launches_table
from experiments.gpu.kernels import table as kernels
from experiments.gpu.paper_size import table as chip
from experiments.gpu.paper_size import today_table
from experiments.kinds import table as kinds
from experiments.papers.chen import table as chen
from experiments.papers.leviathan import (
    alpha_table,
    closed_forms_table,
    figure1_table,
    lenience_table,
    operations_table,
    quality_table,
    walltime_details,
    walltime_table,
)
from experiments.papers.wagner import table as wagner
from experiments.papers.wagner.decoders_table import beside
from experiments.papers.wagner.speech import side_by_side
from experiments.papers.wagner.speech import table as listening
from experiments.records.table import Records, Table
from experiments.rivals import table as engines
from experiments.training.drafts import comparison_table

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "gin_configs"

Wide = tuple[str, list[str], list[list[str]]]  # title, head, rows


class Entry(NamedTuple):
    """`lines` makes the table; `wider` makes of all records what a line cannot hold."""

    lines: Callable[[], Table]
    wider: Callable[[Records], list[Wide]] | None = None


def of(folder: str, wider: Callable[[Mapping], list[Wide]]) -> Callable:
    """A `wider` that is made of the records of one folder, by row."""
    return lambda records: wider(records.get(folder, {}))


# In the order of the paper; its own name is also that of its files.
TABLES = {
    "figure1": Entry(figure1_table.figure1),
    "table1": Entry(closed_forms_table.table1),
    "figure2": Entry(closed_forms_table.figure2),
    "figure3": Entry(closed_forms_table.figure3),
    "figure4": Entry(closed_forms_table.figure4),
    "figure5": Entry(walltime_table.figure5),
    "figure5_ende": Entry(walltime_table.figure5_ende),
    "table2": Entry(walltime_table.table2, of("table2", walltime_details.gammas)),
    "table3": Entry(alpha_table.table3, alpha_table.wider),
    "table4": Entry(walltime_table.table4, walltime_details.wider),
    "table5": Entry(lenience_table.table5, lenience_table.wider),
    "kinds": Entry(kinds.kinds, kinds.wider),
    "quality": Entry(quality_table.quality),
    "operations": Entry(operations_table.operations),
    "distillation": Entry(comparison_table.distillation),
    "certificate": Entry(
        certificate_table.certificate, of("certificate", certificate_table.wider)
    ),
    "conformance": Entry(
        conformance_table.conformance, of("conformance", conformance_table.wider)
    ),
    "audit": Entry(audit_table.audit),
    "microscope": Entry(
        microscope_table.microscope, of("microscope", microscope_table.wider)
    ),
    "chip": Entry(chip.chip),
    "kernels": Entry(kernels.kernels, of("kernels", kernels.wider)),
    "kernels_aot": Entry(compiled.kernels_aot, of("kernels_aot", compiled.wider)),
    "launches": Entry(launches_table.launches),
    "figure_wagner": Entry(wagner.figure_wagner),
    "wagner_text": Entry(wagner.wagner_text, beside("wagner_text", wagner.wider)),
    "wagner_scale": Entry(wagner.wagner_scale, beside("wagner_scale", wagner.wider)),
    "chen": Entry(chen.chen, chen.wider),
    "today": Entry(today_table.today, of("today_paper", walltime_details.gammas)),
    "speech": Entry(listening.speech, side_by_side.wider),
    "bench": Entry(engines.bench, of("bench", engines.wider)),
}


@cache
def tables() -> tuple[Table, ...]:
    """Every table and figure, in the order of the paper."""
    return tuple(entry.lines() for entry in TABLES.values())


def wider(name: str, records: Records) -> list[Wide]:
    """What the records say beside the lines of a table; nothing for a name unknown."""
    entry = TABLES.get(name)
    return entry.wider(records) if entry and entry.wider else []


def published(folder: str, row: str) -> dict[str, float] | None:
    """The published numbers of a row by quantity, None if there are none."""
    numbers = {
        line.quantity: line.published
        for table in tables()
        for line in table.lines
        if (line.folder, line.row) == (folder, row) and line.published is not None
    }
    return numbers or None
