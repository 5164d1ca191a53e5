"""Tables as papers print them: a line for each pair, a column for each number.

The lines of the catalogue become grids. What a row is called gives its first columns:
"code_target with code_small, T = 0, batch 8" has the columns T and batch. A column of
published numbers stands before ours. Machine and dates are said once for the table,
rows that differ from them and all that a reader must know are footnotes, and rows that
were not run are counted by their reasons.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments.records import kernel_times, markup, records
from experiments.records.table import Line, Records, Table
from experiments.report import details, estimators, names, numbers, walltime
from experiments.report.typeset import NONE, Grid, Notes, Printed, order_notes

WORD = 24  # characters of a word that may stand for a number
MARKED = {  # what stands behind a number, by its sign
    "±": "± is one standard error",
    "[": "brackets hold 95 % intervals",
    "(sd ": "in parentheses is the standard deviation of one round",
}
THEIRS = "the paper's models: "  # how labels begin
PUBLISHED = "Published numbers of rows that were not run here"
ERRORLESS = "the record has no error of this number"
NO_SECONDS = "the interval is as recorded: the record has no seconds of each text"
FEW_TIMES = "too few times for an interval"
ALONE = "of a single text, so without an error"
DIFFERS = "DIFFERS from the paper's rounding"
EXACT = "token"  # Algorithm 1
CHOSEN = (
    "gamma is the fastest on the texts that were timed, which makes the speed somewhat"
    " too high"
)
MIXED = (
    "Shares kept and means of beta answer two questions; compare only within a column."
)
RULED = "alpha, ", "share", "tokens a call"  # how columns begin that a rule decides
GENERIC = {"target", "draft", "folder"}  # names of folders that say nothing
TASKS = {"docs": "CNN/DM"}  # our task -> that of the paper whose numbers are beside it
VERIFIED = "Algorithm 1 (`token`) verified where a row or a footnote names no other."
COUNTED = "n counts tokens."
LAW = "Computed as the page is rendered"


class Row(NamedTuple):
    """A row of a printed table.

    Attributes:
        label: what it is called.
        record: where its numbers are.
        lines: its numbers, by column.
    """

    label: str
    record: dict
    lines: dict[str, Line]


def print_table(table: Table, results: Records) -> Printed:
    """Returns a table in the form in which it is printed."""
    rows, notes = recorded_rows(table, results), Notes()
    usual = usual_place(rows)
    remarks = [row_remarks(row, usual) for row in rows]
    first = remarks[0] if remarks else []
    common = [text for text in first if all(text in own for own in remarks)]
    marks = [
        notes.marks([text for text in own if text not in common]) for own in remarks
    ]
    grids = make_grids(rows, marks, notes)
    grids += published_grids(table, results)
    wider = [
        with_footnotes(grid, notes)
        for grid in details.detail_tables(table.name, results)
    ]
    every = (cell for grid in [*grids, *wider] for row in grid.rows for cell in row)
    text = " ".join(every)
    shown = [words for sign, words in MARKED.items() if sign in text]
    said = [
        *origin(rows),
        *about_rules(rows),
        *(f"Every row: {text}." for text in common),
    ]
    said += about_estimators([*grids, *wider]) + about_errors(rows)
    said += about_files(table, results)
    if "n counts" not in table.note and any("n" in grid.head for grid in grids):
        said.append(COUNTED)
    said += [f"{'; '.join(shown)}.".capitalize()] if shown else []
    grids, texts = order_notes([*grids, *wider], notes.texts)
    return Printed(
        table.title,
        table.about,
        grids[: len(grids) - len(wider)],
        grids[len(grids) - len(wider) :],
        texts,
        said,
        missing_row_lines(table, results),
        table.note,
        table.command,
        table.name if table.name.startswith("figure") else None,
    )


def make_grids(rows: Sequence[Row], marks: Sequence[str], notes: Notes) -> list[Grid]:
    """Returns the numbers of rows as grids.

    Args:
        marks: the footnotes of each row.
    """
    grids = []
    for columns, members in groups(rows):
        own = [rows[at] for at in members]
        errors = columns_with_errors(own, columns)
        errors -= mostly_errorless(own, errors)
        body = [cells(row, columns, errors, notes) for row in own]
        labels = [row.label for row in own]
        grids.append(make_grid(labels, [marks[at] for at in members], columns, body))
    return grids


def columns_with_errors(rows: Sequence[Row], columns: Sequence[str]) -> set[str]:
    """Returns the columns in which some number has an error; a column without a name,
    whose numbers differ by row, is none of them."""
    named = filter(None, columns)
    return {name for name in named if any(has_error(row, name) for row in rows)}


def mostly_errorless(rows: Sequence[Row], columns: set[str]) -> set[str]:
    """Returns the columns in which most numbers have no error because their records
    have none."""

    def lacks(row: Row, name: str) -> bool:
        if not errorless(row, name):
            return False
        return why_errorless(row, row.lines[name].quantity) == ERRORLESS

    def share(name: str) -> float:
        there = [row for row in rows if name in row.lines]
        return sum(lacks(row, name) for row in there) / len(there)

    return {name for name in columns if share(name) > 0.5}


def about_errors(rows: Sequence[Row]) -> list[str]:
    """Returns the sentence about columns in which most numbers have no error."""
    found: dict[str, None] = {}
    for columns, members in groups(rows):
        own = [rows[at] for at in members]
        lacking = mostly_errorless(own, columns_with_errors(own, columns))
        found |= dict.fromkeys(name for name in columns if name in lacking)
    if not found:
        return []
    named = " or ".join(f"`{name}`" for name in found)
    return [f"Where a number under {named} has no error, its record has none."]


def about_rules(rows: Sequence[Row]) -> list[str]:
    """Returns the sentence about the rule of rows that name none."""
    rules = {estimators.rule(row.record["measured"]) for row in rows if is_ruled(row)}
    return [VERIFIED] if EXACT in rules else []


def about_estimators(grids: Sequence[Grid]) -> list[str]:
    """Returns the sentence about two estimators of alpha that stand on one page."""
    head = " ".join(name for grid in grids for name in grid.head)
    both = (estimators.NAMES[key] in head for key in ("counts", "rao_blackwell"))
    return [MIXED] if all(both) else []


def about_files(table: Table, results: Records) -> list[str]:
    """Returns the sentence about files with more numbers that its note does not
    name."""
    ends = details.long_tables(table.name, results)
    files = [f"{table.name}_{end}.csv" for end in ends]
    unnamed = [file for file in files if file not in table.note]
    if not unnamed or f"{table.name}_*.csv" in table.note:
        return []
    return [f"More numbers: {', '.join(unnamed)}, which `make tables` writes."]


def with_footnotes(grid: Grid, notes: Notes) -> Grid:
    """Returns a grid in which what an older record lacks is a footnote."""
    ending = f" {walltime.RECORDED}"

    def shorten(text: str) -> str:
        if text in (walltime.BEFORE, walltime.LAWLESS):
            return NONE + notes.mark(text)
        if text.endswith(ending):
            return text.removesuffix(ending) + notes.mark(NO_SECONDS)
        return text

    return grid._replace(rows=[[*map(shorten, row)] for row in grid.rows])


def recorded_rows(table: Table, results: Records) -> list[Row]:
    """Returns the rows that have a record, in the order of the catalogue."""
    rows: dict[tuple[str, str, str], Row] = {}
    for line in table.lines:
        if record := results.get(line.folder, {}).get(line.row):
            key = line.folder, line.row, line.label
            row = rows.setdefault(key, Row(line.label, record, {}))
            row.lines[column_name(line, record)] = line
    return with_one_estimator(list(rows.values()))


def column_name(line: Line, record: dict) -> str:
    """Returns the name of a number's column; for an alpha, with its estimator."""
    estimator = estimators.name(record["measured"], line.quantity)
    if estimator and line.column in ("", "alpha"):
        return f"alpha, {estimator}"
    return line.column


def with_one_estimator(rows: list[Row]) -> list[Row]:
    """Returns rows whose numbers can be compared: where some have the share of kept
    tokens as alpha and others another estimator, all show the share too."""
    kept, mean = (f"alpha, {estimators.NAMES[x]}" for x in ("counts", "rao_blackwell"))
    if not any(kept in row.lines for row in rows):
        return rows
    for row in rows:
        if mean in row.lines and estimators.KEPT in row.record["measured"]:
            line = row.lines[mean]
            row.lines[kept] = line._replace(
                quantity=estimators.KEPT, published=None, error=None
            )
    return rows


def groups(rows: Sequence[Row]) -> list[tuple[list[str], list[int]]]:
    """Returns the columns of each grid, and the places of its rows: rows that share at
    least half of their columns are in one grid."""
    found: list[tuple[list[str], list[int]]] = []
    for at, row in enumerate(rows):
        for columns, members in found:
            shared = row.lines.keys() & {*columns}
            if 2 * len(shared) >= min(len(columns), len(row.lines)):
                columns += [name for name in row.lines if name not in shared]
                members.append(at)
                break
        else:
            found.append(([*row.lines], [at]))
    return found


def row_remarks(row: Row, usual_device: str) -> list[str]:
    """Returns what a reader must know about a row.

    Args:
        usual_device: where most rows were measured.
    """
    record = row.record
    found = ["recorded earlier"] if "earlier" in record else []
    lines = row.lines.values()
    for line in lines:
        notes_of_times = kernel_times.note(record["measured"], line.quantity)
        found += [f"{text} (times of programs)" for text in notes_of_times]
        if numbers.contradicts_published(line, record):
            name = line.column or line.label
            found.append(f"{name}: {DIFFERS}")
    found += records.notes(record)
    if is_chosen_on_what_was_timed(record["measured"]):
        found.append(CHOSEN)
    rule = estimators.rule(record["measured"])
    if rule not in ("", EXACT) and rule not in row.label:
        found.append(f"verified by `{rule}`")
    if models := unnamed_models(row):
        found.append(models)
    if place(record) not in ("", usual_device):
        found.append(f"{place(record)}, {record['provenance']['date'][:10]}")
    return list(dict.fromkeys(found))


def is_chosen_on_what_was_timed(measured: Mapping) -> bool:
    """Returns whether the best of several gammas was chosen on the texts whose speed is
    given."""
    gammas = measured.get("gamma")
    several = isinstance(gammas, list) and len(gammas) > 2  # the target alone is one
    return several and "exp" in measured and not measured.get("chosen_on")


def is_ruled(row: Row) -> bool:
    """Returns whether a row has a number that the verifying rule decides."""
    return any(name.startswith(RULED) for name in row.lines)


def unnamed_models(row: Row) -> str:
    """Returns the models of a row whose files differ from machine to machine, unless
    its name contains them."""
    if not any(line.needs for line in row.lines.values()):
        return ""
    measured = row.record["measured"]
    target, draft = measured.get("target"), measured.get("draft")
    if not isinstance(target, str) or not isinstance(draft, str):
        return ""  # sizes
    if {side.partition(",")[0] for side in (target, draft)} <= GENERIC:
        return ""
    sides = {target: names.model(target), draft: names.draft_words(target, draft)}
    label = row.label.lower()
    said = all(x.lower() in label or y.lower() in label for x, y in sides.items())
    return "" if said else f"measured with {' and '.join(sides.values())}"


def place(record: dict) -> str:
    """Returns the device that a record was measured on; "" if no device was
    involved."""
    if record.get("kind") == "law" or record["scale"] == "closed form":
        return ""
    if record["scale"] == "compiled":
        return "compiled, not run, for the device of each row"
    return f"measured on {records.device(record)}"


def usual_place(rows: Sequence[Row]) -> str:
    """Returns the device that most rows were measured on."""
    places = Counter(place(row.record) for row in rows)
    return places.most_common(1)[0][0] if places else ""


def origin(rows: Sequence[Row]) -> list[str]:
    """Returns the sentences about the machine and the dates of most rows."""
    if not rows:
        return []
    usual = usual_place(rows)
    if not usual:
        return [f"{LAW}."]
    here = [row.record for row in rows if place(row.record) == usual]
    days = sorted(record["provenance"]["date"][:10] for record in here)
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    but = ", where no footnote names another" if len(here) < len(rows) else ""
    return [f"{usual[0].upper()}{usual[1:]}, {when}{but}."]


def missing_row_lines(table: Table, results: Records) -> list[str]:
    """Returns a line for each reason why rows have no record, with their number."""
    found = []
    for needs, lines in missing_lines(table, results).items():
        rows = len({(line.folder, line.row) for line in lines})
        count = f"{rows} row{'s' * (rows > 1)}"
        count += f" ({len(lines)} number{'s' * (len(lines) > 1)})"
        found.append(f"Not run: {count}" + (f"; needs {needs}" if needs else "") + ".")
    return found


def missing_lines(table: Table, results: Records) -> dict[str | None, list[Line]]:
    """Returns the lines whose rows have no record, by what these would need."""
    reasons: dict[str | None, list[Line]] = {}
    for line in table.lines:
        if line.row not in results.get(line.folder, {}):
            reasons.setdefault(line.needs, []).append(line)
    return reasons


def published_grids(table: Table, results: Records) -> list[Grid]:
    """Returns the published numbers of rows that cannot be run here, as one grid,
    without those that stand beside ours."""
    beside = {
        published_place(line)
        for row in recorded_rows(table, results)
        for line in row.lines.values()
    }
    rows: dict[str, dict[str, str]] = {}
    for needs, lines in missing_lines(table, results).items():
        for line in lines if needs else ():
            place = published_place(line)
            if line.published is not None and place not in beside:
                label = line.label.removeprefix(THEIRS)
                rows.setdefault(label, {})[place.column] = numbers.format_published(
                    line
                )
    if not rows:
        return []
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    labels, parts = names.split([*rows])
    body = [
        [label, *own, *(row.get(x, "") for x in columns)]
        for label, own, row in zip(labels, parts.rows, rows.values(), strict=True)
    ]
    head = [head_of_names(labels), *parts.head, *columns]
    title = ", ".join(filter(None, [PUBLISHED, parts.title]))
    return [Grid(title, head, body, 1 + len(parts.head))]


class Place(NamedTuple):
    """The place of a published number: its column, what was decoded and how."""

    column: str
    value: float | None
    temperature: str | None
    tasks: tuple[str, ...]


def published_place(line: Line) -> Place:
    """Returns the place of a line's published number, the same for the paper's row and
    for ours that stands beside it."""
    label, parts = names.split_parts(line.label)
    column = line.column or line.quantity.partition("_")[0]
    tasks = tuple(TASKS.get(task, task) for task in re.findall(r"\((.+?)\)", label))
    return Place(column, line.published, parts.get("T"), tasks)


def head_of_names(labels: Sequence[str]) -> str:
    """Returns the head of the column of names: "pair" where each is of a target with a
    draft."""
    firsts = (re.split("[:,]", label)[0] for label in labels)
    return "pair" if all(" with " in first for first in firsts) else "what"


def has_error(row: Row, column: str) -> bool:
    """Returns whether the number of a row in a column has an interval or a standard
    error."""
    line, it = row.lines.get(column), row.record["measured"]
    if line is None or not isinstance(numbers.value(it, line.quantity), float):
        return False
    both = numbers.interval(it, line.quantity), numbers.error_of(line, it)
    return any(each is not None for each in both)


def cells(
    row: Row, columns: Sequence[str], errors: set[str], notes: Notes
) -> list[tuple[str, str]]:
    """Returns the published number and ours for each column.

    Args:
        errors: the columns in which other rows have an error; a number without one has
            a footnote there.
    """
    found = []
    for name in columns:
        line = row.lines.get(name)
        published = (
            ""
            if line is None or line.published is None
            else numbers.format_published(line)
        )
        ours = "" if line is None else format_measured(line, row.record, notes)
        if errorless(row, name) and (name in errors or had_few_times(row, name)):
            ours += notes.mark(why_errorless(row, row.lines[name].quantity))
        found.append((published, ours))
    size = row.record["measured"].get("tokens")
    return [*found, ("", "" if size is None else str(size))]


def had_few_times(row: Row, column: str) -> bool:
    """Returns whether the interval of a row's number was left out, because of too few
    times."""
    return f"{row.lines[column].quantity}_ci" in row.record["measured"]


def why_errorless(row: Row, quantity: str) -> str:
    """Returns why a number of a row has no error."""
    it = row.record["measured"]
    if 1 in (it.get("recordings"), it.get("sequences"), it.get("texts")):
        return ALONE
    return FEW_TIMES if f"{quantity}_ci" in it else ERRORLESS


def errorless(row: Row, column: str) -> bool:
    """Returns whether a row has a measured number in a column, and no error of it."""
    line, it = row.lines.get(column), row.record["measured"]
    if line is None or has_error(row, column):
        return False
    return isinstance(numbers.value(it, line.quantity), float)


def format_measured(line: Line, record: dict, notes: Notes) -> str:
    """Returns our number with its interval, its standard error or its deviation; if
    there is none, the reason as a footnote."""
    it = record["measured"]
    x = numbers.value(it, line.quantity)
    if isinstance(x, str):
        return x if len(x) <= WORD else NONE + notes.mark(x)
    if x is None:
        return markup.number(x)
    ends = numbers.interval(it, line.quantity)
    if ends is not None and not isinstance(x, int):
        return markup.interval(x, ends)
    if (spread := numbers.deviation(line, it)) is not None:
        value, deviation = markup.with_same_decimals(spread, (x, spread))
        return f"{value} (sd {deviation})"
    return markup.number_with_error(x, numbers.error_of(line, it))


def make_grid(
    labels: Sequence[str],
    marks: Sequence[str],
    columns: Sequence[str],
    body: Sequence[Sequence[tuple[str, str]]],
) -> Grid:
    """Returns the grid of some rows.

    Args:
        marks: the footnotes of each row.
        body: the published number and ours of each of `columns`, and then n.
    """
    head, lines = make_head(columns, body)
    if len(labels) == 1 and len(head) > 2:
        title = labels[0] + marks[0]
        rows = [
            [name, *pair] for name, pair in zip([*columns, "n"], body[0], strict=True)
        ]
        rows = [row for row in rows if any(row[1:])]
        if not any(row[1] for row in rows):
            return Grid(title, ["what", "ours"], [[row[0], row[2]] for row in rows])
        return Grid(title, ["what", "published", "ours"], rows)
    labels, parts = names.split(labels)
    rows = [
        [label, *own, *line]
        for label, own, line in zip(labels, parts.rows, lines, strict=True)
    ]
    keys = 1 + len(parts.head)
    head = [head_of_names(labels), *parts.head, *head]
    if not any(labels):
        rows, head, keys = [row[1:] for row in rows], head[1:], keys - 1
    for row, mark in zip(rows, marks, strict=True):
        row[0] += mark
    return Grid(parts.title, head, rows, keys)


def make_head(
    columns: Sequence[str], body: Sequence[Sequence[tuple[str, str]]]
) -> tuple[list[str], list[list[str]]]:
    """Returns the head and the cells of columns: a column of published numbers precedes
    ours where there are some; n is last, if a row has it."""
    head: list[str] = []
    kept: list[tuple[int, int]] = []
    for at, name in enumerate(columns):
        has_published = any(row[at][0] for row in body)
        head += [f"{name}, published" if name else "published"] if has_published else []
        head.append(f"{name}, ours" if has_published and name else name or "ours")
        kept += [(at, 0), (at, 1)] if has_published else [(at, 1)]
    if any(row[-1][1] for row in body):
        head.append("n")
        kept.append((-1, 1))
    return head, [[row[at][side] for at, side in kept] for row in body]
