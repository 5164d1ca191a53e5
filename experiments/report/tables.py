"""Renders records as tables: `python -m experiments.report.tables [DIR]`.

The tables of a page become DIR/<page>.md, every table DIR/tables/<table>.tex and all of
its numbers DIR/<table>.csv, a figure also .svg. DIR/README.md says which command makes
which table. The tables show the records, the catalogue, and laws that are computed now.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from experiments import catalogue
from experiments.records import kernel_times, markup, records
from experiments.records.table import Line, Records, Table, command
from experiments.report import (
    derived,
    details,
    latex,
    laws,
    methods,
    numbers,
    printed,
    typeset,
    walltime,
)
from experiments.report.typeset import Grid
from specjax.measure import jsonl

# Columns of the files with every number.
HEAD = ["what", "published (paper's model)", "ours", "standard error"]
HEAD += ["standard deviation", "interval from", "to"]
HEAD += ["n", "hardware", "date", "state", "record", "commit"]
OWN = "This table has every number of rows outside the catalogue, by its name."
PAGES = {  # what a page of several tables is called, and what it is about
    "open_questions": (
        "Six open questions about speculative decoding",
        "This page says what was asked about six questions that the papers leave open,"
        " what was predicted, and what the measurements decided.",
    ),
}
INDEX = (
    "Rendered from the records beside this file. `make site` builds the page index.html"
    " here, with a page behind it for each table. `make tables` also writes each table"
    " as LaTeX (tables/) and every number as CSV. Published numbers of rows that cannot"
    " be run here have a grid of their own on a page: none is in a column of ours. To"
    " follow a number: its line in the CSV names the record FOLDER/ROW, a line of"
    " FOLDER.jsonl with commit, machine and configuration."
)
SPEEDS = "Every measured speed, in one drawing"
RENDER = "python -m experiments.report.tables"


def collect(
    folder: Path, earlier: Path | None = None, laws: Records | None = None
) -> Records:
    """Returns the latest record of each row of each file.

    The files of a further run (runs/NAME/FILE.jsonl) have the key NAME/FILE.

    Args:
        earlier: a folder whose records replace rows that this one does not have; they
            are marked.
        laws: records of laws, which no folder has (`experiments.report.laws`).
    """
    files = {path.stem: path for path in sorted(folder.glob("*.jsonl"))}
    for path in sorted(folder.glob("runs/*/*.jsonl")):
        files[f"{path.parent.name}/{path.stem}"] = path
    results = {
        key: records.latest_records(jsonl.read(path)) for key, path in files.items()
    }
    for record in (record for rows in results.values() for record in rows.values()):
        measured = walltime.update_record(record["measured"])
        measured = kernel_times.update_record(measured)
        measured = methods.update_record(measured)
        record["measured"] = derived.update_record(measured)
    for name, rows in collect(earlier).items() if earlier else ():
        marked = {row: {**record, "earlier": True} for row, record in rows.items()}
        results[name] = marked | results.get(name, {})
    return results | (laws or {})


def cells(line: Line, results: Records) -> list[str]:
    """Returns one line in the columns of HEAD; "ours" stays empty if nothing was
    measured.
    """
    published = numbers.format_published(line)
    record = results.get(line.folder, {}).get(line.row)
    if record is None:
        needs = f"not run here: needs {line.needs}" if line.needs else "not run"
        blank = dict.fromkeys(HEAD, "")
        named = {"what": line.what, HEAD[1]: published, "state": needs}
        return [*(blank | named).values()]
    measured = record["measured"]
    ends = numbers.interval(measured, line.quantity) or (None, None)
    spread = numbers.error_of(line, measured), numbers.deviation(line, measured), *ends
    count = measured.get("tokens")
    return [
        line.what,
        published,
        markup.number(numbers.value(measured, line.quantity)),
        *map(markup.number_or_blank, spread),
        "" if count is None else str(count),
        records.device(record),
        record["provenance"]["date"][:10],
        state(line, record),
        f"{line.folder}/{line.row}",
        (record["provenance"].get("commit") or "")[:8],
    ]


def state(line: Line, record: dict) -> str:
    """Returns "ok" with the notes for a reader, or the problem of a record: the row
    failed, or its number differs from the published one.
    """
    why = numbers.value(record["measured"], line.quantity)
    if why in numbers.REASONS:
        return str(why)
    if numbers.contradicts_published(line, record):
        return printed.DIFFERS
    verdict = "ok, recorded earlier" if "earlier" in record else "ok"
    own = kernel_times.note(record["measured"], line.quantity)
    notes = "; ".join([*own, *records.notes(record)])
    return f"{verdict}, with a note: {notes}" if notes else verdict


def all_tables(results: Records) -> list[Table]:
    """Returns the tables of the catalogue, and one for each folder of rows that the
    catalogue does not name.

    Such a table has every number of these rows, by its name in the record.
    """
    known = {(line.folder, line.row) for t in catalogue.tables() for line in t.lines}
    own = []
    for folder, there in sorted(results.items()):
        lines = [
            Line(folder, row, f"{row}: {key}", key, label=row, column=key)
            for row, record in sorted(there.items())
            if (folder.rpartition("/")[2], row) not in known
            for key in number_names(record["measured"])
        ]
        if lines:
            title = f"Own rows: {folder}"
            name = f"own_{folder}".replace("/", "_")
            own.append(Table(name, title, OWN, "", command(folder), lines, name))
    return [*catalogue.tables(), *own]


def number_names(measured: dict) -> list[str]:
    """Returns the names of all numbers, without standard errors, which are shown beside
    their numbers.
    """
    names = [key for key, x in measured.items() if type(x) in (int, float)]
    return [key for key in names if key.removesuffix("_se") not in {*names} - {key}]


def rows(table: Table, results: Records) -> list[list[str]]:
    return [cells(line, results) for line in table.lines]


def is_figure(table: Table) -> bool:
    return table.name.startswith("figure")


def points(table: Table, results: Records) -> str:
    """Returns all points of a figure's curves as CSV."""
    names = list(dict.fromkeys(line.quantity.partition("@")[0] for line in table.lines))
    known = results.get(table.name, {})
    lines = []
    for row in dict.fromkeys(line.row for line in table.lines if line.row in known):
        measured = known[row]["measured"]
        columns = [measured["alpha"], *(measured.get(name, []) for name in names)]
        for point in zip(*columns, strict=True):
            lines.append([row, *("" if x is None else f"{x:g}" for x in point)])
    return markup.comma_separated(["curve", "alpha", *names], lines)


def states(table: Table, results: Records) -> str:
    """Returns how many numbers of a table have each state."""
    at = HEAD.index("state")
    counts = Counter(row[at].partition(":")[0] for row in rows(table, results))
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def index(results: Records) -> str:
    """Returns the page that lists the command and the files of each table."""
    lines = []
    for table in all_tables(results):
        files = f"[md]({table.page}.md)"
        files += f" [svg]({table.name}.svg)" * is_figure(table)
        lines.append([table.title, f"`{table.command}`", files])
    lines.append([SPEEDS, f"`{RENDER}`", "[svg](speeds.svg)"])
    head = ["table", "command", "files"]
    text = typeset.grid_markdown(Grid("", head, lines))
    return f"# Results\n\n{typeset.wrap(INDEX)}\n\n{text}\n"


def texts(results: Records) -> dict[str, str]:
    """Returns every file but the drawings, by name."""
    files: dict[str, str] = {}
    for table in all_tables(results):
        page, name = printed.print_table(table, results), f"{table.page}.md"
        above = f"{files[name]}\n" if name in files else page_head(table.page)
        files[name] = above + typeset.markdown(page)
        files[f"tables/{table.name}.tex"] = latex.latex(table.name, page)
        curves = any("@" in line.quantity for line in table.lines)
        flat = markup.comma_separated(HEAD, rows(table, results))
        files[f"{table.name}.csv"] = points(table, results) if curves else flat
        for end, it in details.long_tables(table.name, results).items():
            lines = markup.comma_separated(it.head, it.rows)
            files[f"{table.name}_{end}.csv"] = lines
    return files | {"README.md": index(results)}


def page_head(page: str) -> str:
    """Returns the title of a page of several tables and the list of these; "" for a
    page that has the title of its table."""
    if page not in PAGES:
        return ""
    title, about = PAGES[page]
    names = [table.title for table in catalogue.tables() if table.page == page]
    lines = "\n".join(typeset.wrap(name, "* ") for name in names)
    return f"# {title}\n\n{typeset.wrap(about)}\n\n{lines}\n\n"


def render(folder: Path, results: Records) -> None:
    """Writes the tables, and the figures if matplotlib is installed."""
    (folder / "tables").mkdir(exist_ok=True)
    for name, text in texts(results).items():
        (folder / name).write_text(text, "utf-8")
    try:
        from experiments.report import figures
    except ImportError:
        print("figures not drawn: install the extra `plots`")
        return
    for name in figures.NAMES:
        figures.draw(name, results, folder / f"{name}.svg")


def main(
    arguments: list[str] | None = None,
    *,
    render: Callable[[Path, Records], None] = render,
    prog: str = "python -m experiments.report.tables",
    shown: str = "README.md",
) -> None:
    """Renders the records of a folder, as tables or with another function `render`."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results"))
    folder = parser.parse_args(arguments).folder
    if not folder.is_dir():
        parser.error(f"no folder {folder}: measure something first")
    render(folder, collect(folder, laws=laws.compute()))
    print(f"rendered {folder / shown}")


if __name__ == "__main__":
    main()
