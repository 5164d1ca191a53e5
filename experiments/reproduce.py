"""Reproduces every table and figure: `python -m experiments.reproduce [--quick |
--full]`.

--quick measures the rows of CHOSEN at a smaller size, into results/quick; all other
lines are filled from results/ and say that they were recorded earlier. It takes five
minutes on two cores: what is timed has the machine to itself, all else runs in two
processes. --full measures every row that a laptop can run, into results/,
which nothing else writes. After an interruption the same command continues.
"""

import argparse
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import jax

from experiments import run
from experiments.records import markup, records
from experiments.records.table import Records, Table
from experiments.report import laws, page, printed, tables, typeset
from specjax import configs
from specjax.configs import RowFile
from specjax.measure import provenance
from specjax.runtime import console

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
FOLDERS = ("audit", "microscope", "figure1")
FOLDERS += ("figure5", "table2", "operations", "table3", "table5", "kinds")
FOLDERS += ("quality", "wagner_time", "wagner_text", "wagner_scale", "speech")
# The quick way: alpha on 16 texts of the target, at least 600 tokens, instead of 10,000
# tokens; walltime on a quarter of the texts and at fewer gammas. Of a folder, or of one
# row of it. Texts of one length have the same programs, which are compiled once.
REDUCED = {
    "table2": ("TEXTS = 5", "OTHERS = 2", "GAMMAS = (0, 7)", "ROUNDS = 2"),
    "table2/correct_small_t0": ("GAMMAS = (0, 3)",),
    "table3": ("TOKENS = 600", "BATCH = 16"),
    "table3/gpt_small_t0": ("NEW_TOKENS = 128",),
}
WHOLE = ("figure1", "speech", *laws.CLOSED_FORMS, "conformance")
CHOSEN = ("table2/small_t0_b1", "table2/correct_small_t0", "quality/ende_t5_target")
CHOSEN += ("table3/gpt_small_t0", "table3/gpt_small_t1")
CHOSEN += ("table3/ende_small_t0", "table3/ende_small_t1")
CERTIFIED = ("certificate/block", "certificate/token")  # of the papers
Reduced = dict[str, Iterable[str]]  # folder, or folder/row -> bindings


def main(arguments: list[str] | None = None) -> None:
    """Reads the flags (of `sys.argv` if None), measures, renders, prints."""
    parser = argparse.ArgumentParser(prog="python -m experiments.reproduce")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--quick", action="store_true", help="five minutes, two cores")
    which.add_argument("--full", action="store_true", help="hours; writes results/")
    if parser.parse_args(arguments).quick:
        reproduce(
            RESULTS / "quick",
            reduced_bindings=REDUCED,
            is_wanted=is_chosen,
            earlier=RESULTS,
            at_once=jax.default_backend() == "cpu",
        )
    else:
        reproduce(RESULTS)


def is_chosen(row: str) -> bool:
    """Returns whether the quick run measures a row, folder/row, or computes its law."""
    return row.split("/")[0] in WHOLE or row in (*CHOSEN, *CERTIFIED)


def reproduce(
    out: Path,
    *,
    reduced_bindings: Reduced | None = None,
    is_wanted: Callable[[str], bool] = lambda row: True,
    earlier: Path | None = None,
    at_once: bool = False,
) -> None:
    """Measures the rows of FOLDERS into `out`, renders the tables beside them, and
    prints a summary.

    Args:
        reduced_bindings: gin bindings of a folder's rows, or of a row.
        is_wanted: selects rows, by folder/row.
        earlier: the folder of records that fill the lines of the other rows.
        at_once: measure the rows that are not timed beside the laws, in processes.
    """
    reduced_bindings, files = reduced_bindings or {}, []
    for name in FOLDERS:
        for row, file in folder_rows(name).items():
            bindings = *reduced_bindings.get(name, ()), *reduced_bindings.get(row, ())
            files += [file._replace(bindings=bindings)] if is_wanted(row) else []
    beside = group([file for file in files if not is_timed(file)]) if at_once else {}
    together = {*itertools.chain(*beside.values())}
    with run.handle_stops():
        computed = laws.compute(
            is_wanted=is_wanted,
            other_work={
                x: partial(run.measure, rows, out) for x, rows in beside.items()
            },
        )
        run.measure([file for file in files if file not in together], out)
    results = tables.collect(out, earlier, computed)
    page.render(out, results)
    for table in tables.all_tables(results):
        print(summarize(table, results), end="")
    print(f"\nAll of it, with the figures: {out / 'index.html'}")


def is_timed(file: RowFile) -> bool:
    """Returns whether a row's numbers are times, which no other work may disturb."""
    settings = provenance.settings(configs.read(file)[0])
    return "time" in settings.get("TableRow.kind", "")


def group(rows: Iterable[RowFile]) -> dict[str, list[RowFile]]:
    """Returns rows grouped by name, each group for one process, the largest group
    first.

    Rows of a file share their models and programs.
    """
    files = itertools.groupby(rows, key=lambda row: row.path)
    several = sorted((list(own) for _, own in files), key=len, reverse=True)
    return {", ".join(f"{x.table}/{x.row}" for x in own): own for own in several}


def folder_rows(folder: str) -> dict[str, RowFile]:
    """Returns the rows of a folder by folder/row."""
    return {f"{folder}/{name}": file for name, file in records.rows(folder).items()}


def summarize(table: Table, results: Records) -> str:
    """Returns the rows that were measured in this run as text; all other numbers are
    summarized in one line.
    """
    now = {
        folder: {row: it for row, it in rows.items() if "earlier" not in it}
        for folder, rows in results.items()
    }
    rows = printed.recorded_rows(table, now)
    text = f"\n{table.title}\n" if rows else f"{table.title}: "
    notes = typeset.Notes()
    for grid in printed.make_grids(rows, [""] * len(rows), notes):
        text += f"{grid.title}\n" if grid.title else ""
        text += markup.text_table(grid.head, grid.rows)
    lines = zip(table.lines, tables.rows(table, results), strict=True)
    states = [
        row[tables.HEAD.index("state")].removeprefix("ok, ")
        for line, row in lines
        if line.row not in now.get(line.folder, {})
    ]
    counts = Counter(state.partition(":")[0] for state in states).items()
    rest = ", ".join(f"{count} numbers {state}" for state, count in counts)
    return text + rest + "\n" * bool(rest)


if __name__ == "__main__":
    console.command(main)
