"""Measures every row that needs no more than a laptop, then renders the tables.

`experiments.quick` and `experiments.full` are this with their sizes. Stopped at any
moment, the same command goes on.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from experiments import catalogue, markup, page, run, tables

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("table1", "figure2", "figure3", "figure4", "certificate", "conformance")
FOLDERS += ("audit", "microscope", "figure1")
FOLDERS += ("figure5", "table2", "operations", "table3", "table5", "quality")
FOLDERS += ("wagner_time", "wagner_text", "wagner_scale")
SHOWN = (0, 1, 2, 3, 7)  # columns of tables.HEAD


def reproduce(
    out: Path,
    bindings: Iterable[str] = (),
    wanted: Callable[[str], bool] = lambda row: True,
    earlier: Path | None = None,
) -> None:
    """Rows of FOLDERS into `out`, tables beside them, and a short version on screen.

    wanted: which rows, as folder/row. earlier: records that fill the others' lines.
    """
    files = [file for name in FOLDERS for file in rows_of(name)]
    files = [file for file in files if wanted(f"{file.parent.name}/{file.stem}")]
    with run.stopped_politely():
        run.run(files, out, bindings)
    page.render(out, earlier)
    found = tables.collect(out, earlier)
    for table in catalogue.tables():
        print(f"\n{table.title}\n{short(table, found)}", end="")
    print(f"\nAll of it, with the figures: {out / 'index.html'}")


def rows_of(folder: str) -> list[Path]:
    return sorted((catalogue.CONFIGS / folder).glob("*.gin"))


def short(table: catalogue.Table, found: tables.Records) -> str:
    """The lines that were measured, without the columns that are all alike."""
    lines = tables.rows(table, found)
    absent = "not run here"
    here = [line for line in lines if not line[-1].startswith(absent)]
    head = [tables.HEAD[i] for i in SHOWN]
    text = markup.plain(head, [[line[i] for i in SHOWN] for line in here])
    missing = len(lines) - len(here)
    return text + (f"{missing} more lines {absent}\n" if missing else "")
