"""Typesets grids of cells as Markdown and LaTeX, each within the width of its page.

A grid that is too wide for a line puts its long cells into numbered footnotes, then
turns around if it has few rows, and is cut into panels otherwise; each panel repeats
the columns that name a row.
"""

import itertools
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from experiments.records import markup

LIMIT = 200  # characters of a line of Markdown
PROSE = 100  # characters of a line of running text
LONG = 36  # characters of a cell that may become a footnote
FEW = 4  # rows of a grid that is turned around
EQUATED = "T", "l", "gamma", "alpha", "c"  # parts of names with a sign of equality
NONE = "\N{EN DASH}"  # a cell with nothing to say
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
LOWERED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
MARK = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹]+(?:,[⁰¹²³⁴⁵⁶⁷⁸⁹]+)*")  # of one or more footnotes


class Grid(NamedTuple):
    """A table of cells.

    Attributes:
        title: the title of this grid on a page with several; may be empty.
        head: the name of each column.
        rows: as many cells each as the head has.
        keys: the number of first columns that name a row.
    """

    title: str
    head: list[str]
    rows: list[list[str]]
    keys: int = 1


class Notes:
    """The numbered footnotes of a page; equal texts have one number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, text: str) -> str:
        """Returns the raised number of a footnote, which is added if it is new."""
        return self.marks([text])

    def number(self, text: str) -> int:
        """Returns the number of a footnote, which is added if it is new."""
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1

    def marks(self, several: Sequence[str]) -> str:
        """Returns the raised numbers of several footnotes."""
        return superscript(map(self.number, several))


def superscript(numbers: Iterable[int]) -> str:
    """Returns the numbers of footnotes as raised digits, in their order."""
    return ",".join(str(number).translate(RAISED) for number in sorted(numbers))


def marked_notes(text: str) -> list[int]:
    """Returns the numbers of the footnotes that a text has, in their order."""
    marks = MARK.findall(text)
    return [int(x.translate(LOWERED)) for mark in marks for x in mark.split(",")]


def order_notes(
    grids: Sequence[Grid], notes: Sequence[str]
) -> tuple[list[Grid], list[str]]:
    """Returns grids whose footnotes are numbered in the order in which a reader comes
    to them, and the footnotes in that order, without those that nothing refers to."""
    order = dict.fromkeys(
        at
        for grid in grids
        for text in (grid.title, *grid.head, *itertools.chain(*grid.rows))
        for at in marked_notes(text)
        if at <= len(notes)
    )
    places = {old: new for new, old in enumerate(order, 1)}

    def renumber(text: str) -> str:
        return MARK.sub(
            lambda mark: superscript(
                places.get(at, at) for at in marked_notes(mark[0])
            ),
            text,
        )

    renumbered = [
        Grid(
            renumber(grid.title),
            [*map(renumber, grid.head)],
            [[*map(renumber, row)] for row in grid.rows],
            grid.keys,
        )
        for grid in grids
    ]
    return renumbered, [notes[at - 1] for at in order]


class Printed(NamedTuple):
    """A table in the form in which it is printed.

    Attributes:
        title: its heading.
        about: what it is about, in one plain sentence.
        grids: its numbers.
        wider: more numbers of the same records.
        notes: the footnotes of its grids, by their number from 1 on.
        origin: sentences on the machines, the dates and what holds for all rows.
        absent: a line for each reason why rows were not run.
        remarks: what a reader must know to compare the numbers.
        command: what measures its rows.
        drawing: the name of its drawing, without the ending, where it has one.
    """

    title: str
    about: str
    grids: list[Grid]
    wider: list[Grid]
    notes: list[str]
    origin: list[str]
    absent: list[str]
    remarks: str
    command: str
    drawing: str | None = None


def markdown(page: Printed) -> str:
    """Returns a page in Markdown; no line has more than LIMIT characters."""
    parts = [f"# {page.title}", wrap(page.about)]
    if page.drawing:
        parts.append(f"![{page.title}]({page.drawing}.svg)")
    sections, texts = grid_sections(page)
    parts += sections
    if texts:
        lines = (wrap(text, f"{at}. ") for at, text in enumerate(texts, 1))
        parts.append("\n".join(lines))
    parts += [wrap(" ".join(page.origin))] if page.origin else []
    if page.absent:
        parts.append("\n".join(wrap(text, "* ") for text in page.absent))
    parts += [wrap(page.remarks)] if page.remarks else []
    parts += [f"`{page.command}`"] if page.command else []
    return "\n\n".join(parts) + "\n"


def grid_sections(page: Printed) -> tuple[list[str], list[str]]:
    """Returns the titles and the grids of a page in Markdown, and its footnotes."""
    notes = Notes()
    notes.texts += page.notes
    fitted = [fit(each, notes) for each in (*page.grids, *page.wider)]
    ordered, texts = order_notes([*itertools.chain(*fitted)], notes.texts)
    parts, rest = [], iter(ordered)
    for at, cut in enumerate(fitted):
        several = [*itertools.islice(rest, len(cut))]
        title = several[0].title
        if at >= len(page.grids):
            parts.append(f"## {title}")
        elif title:
            parts.append(f"**{title}**")
        parts += map(grid_markdown, several)
    return parts, texts


def wrap(text: str, first: str = "") -> str:
    """Returns running text in lines of PROSE characters, none of which looks like the
    beginning of a list.

    Args:
        first: what the text begins with, under which its other lines are indented.
    """
    held = re.sub(r" (?=(?:[-+*>#%]+|\d+[.)])(?:\W|$))", "\N{NO-BREAK SPACE}", text)
    held = re.sub(
        r"`[^`]+`", lambda code: code[0].replace(" ", "\N{NO-BREAK SPACE}"), held
    )
    lines = textwrap.fill(
        held,
        PROSE,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace("\N{NO-BREAK SPACE}", " ")


def grid_markdown(grid: Grid) -> str:
    """Returns the lines of a grid in Markdown, without fitting it to a width."""
    sides = alignments(grid)
    rule = ["--:" if side == "r" else "---" for side in sides]
    return markup.markdown_grid(grid.head, grid.rows, rule=rule)


def alignments(grid: Grid) -> str:
    """Returns "r" for each column of numbers and "l" for each other column, as one
    string."""

    def numeric(text: str) -> bool:
        bare = text.lstrip("-+")
        return bare in ("", "not run") or bare[0] in f"0123456789.{NONE}"

    columns = list(zip(*grid.rows, strict=True)) or [()] * len(grid.head)
    return "".join(
        "r" if at and any(column) and all(map(numeric, column)) else "l"
        for at, column in enumerate(columns)
    )


def fit(grid: Grid, notes: Notes, limit: int = LIMIT) -> list[Grid]:
    """Returns a grid as one or more grids whose lines have at most `limit`
    characters."""
    grid = shorten(trim(grid), notes, limit)
    if line_width(grid) <= limit:
        return [grid]
    turned = transpose(grid)
    if len(grid.rows) <= FEW and line_width(turned) <= limit:
        return [turned]
    return panels(grid, limit)


def trim(grid: Grid) -> Grid:
    """Returns a grid without the columns in which no row has a value."""
    filled = [any(row[at] for row in grid.rows) for at in range(len(grid.head))]
    columns = [at for at, found in enumerate(filled) if found or at < grid.keys]
    return choose(grid, columns)


def line_width(grid: Grid) -> int:
    """Returns the number of characters in the longest line."""
    return max(len(markup.markdown_line(cells)) for cells in (grid.head, *grid.rows))


def shorten(grid: Grid, notes: Notes, limit: int) -> Grid:
    """Returns a grid whose long cells are replaced by footnotes, the longest columns
    first, until it fits or no cell is long."""
    rows = [list(row) for row in grid.rows]

    def longest_cell(at: int) -> int:
        return max((len(row[at]) for row in rows), default=0)

    while line_width(grid._replace(rows=rows)) > limit:
        at = max(range(grid.keys, len(grid.head)), key=longest_cell, default=0)
        if at == 0 or longest_cell(at) <= LONG:
            break
        for row in rows:
            if len(row[at]) > LONG:
                row[at] = NONE + notes.mark(row[at].replace("\n", "; "))
    return grid._replace(rows=rows)


def transpose(grid: Grid) -> Grid:
    """Returns a grid with a row for each column, and a column for each row."""
    names = []
    for first, *others in (row[: grid.keys] for row in grid.rows):
        named = zip(grid.head[1 : grid.keys], others, strict=True)
        names.append(
            ", ".join([first, *(spell_part(*each) for each in named if each[1])])
        )
    columns = zip(*(row[grid.keys :] for row in grid.rows), strict=True)
    rows = [
        [name, *cells]
        for name, cells in zip(grid.head[grid.keys :], columns, strict=True)
    ]
    return Grid(grid.title, ["", *names], rows)


def spell_part(key: str, value: str) -> str:
    """Returns a part of a row's name, such as "T = 1" or "batch 8"."""
    return f"{key} = {value}" if key in EQUATED else f"{key} {value}"


def panels(grid: Grid, limit: int) -> list[Grid]:
    """Returns a grid cut into grids with some of its columns, each including the
    keys."""
    found: list[list[int]] = []
    keys = [*range(grid.keys)]
    for at in range(grid.keys, len(grid.head)):
        if found and line_width(choose(grid, [*keys, *found[-1], at])) <= limit:
            found[-1].append(at)
        else:
            found.append([at])
    cut = [choose(grid, [*keys, *columns]) for columns in found]
    return [
        panel._replace(rows=[row for row in panel.rows if any(row[grid.keys :])])
        for panel in cut
    ]


def choose(grid: Grid, columns: Sequence[int]) -> Grid:
    """Returns a grid with only some of the columns."""
    rows = [[row[at] for at in columns] for row in grid.rows]
    return grid._replace(head=[grid.head[at] for at in columns], rows=rows)
