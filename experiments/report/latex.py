"""Typesets tables in LaTeX with booktabs, each as wide as one column of a paper.

A cell with an interval or an error is a stack: the number, and the rest under it in
small type. Names of rows are broken into lines. What is still too wide is cut into
panels, and what is too long for a page into several tables. Widths are estimated in
points of Computer Modern, the widest of the usual types: in Times a table is narrower.
"""

import math
import re
import textwrap
from collections.abc import Sequence

from experiments.report import typeset
from experiments.report.typeset import LOWERED, Grid, Notes, Printed, trim

COLUMN = 234.0  # points, of a page of two columns
LEAST = 56.0  # points that names of rows have
LARGE, SMALL = 4.0, 3.4  # points of a character in \scriptsize and \tiny
APART = 4.0  # points between columns
WORDS = 11  # characters of a line of a head
WIDE = 1.3  # characters as wide as a capital letter
HEIGHT, LEAD = 480.0, 8.5  # points of the rows of a page, and of a line of them
APART_ROWS = 2  # points between rows, whose boxes would touch
ABOVE = 34.0  # points of the head of a panel and the space around it
FOOT, FOOT_LEAD = 95, 6.2  # characters of a line of footnotes, and its points
ROOM_BELOW = 75.0  # points below the rows of a full page
FEW = 6  # rows of a table whose panels share a page
ROOM = 70  # characters of a line whose cells are short enough
PAPER, OURS = "paper", "ours"  # under the quantity of a pair of columns
STACK = re.compile(r"(\S+) (\[.*\]\S*|± .*|\(sd .*)")
ESCAPED = {c: f"\\{c}" for c in "&%$#_{}"}
ESCAPED |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
ESCAPED |= {"^": r"\textasciicircum{}", "`": "", "±": r"$\pm$", "µ": r"$\mu$"}
ESCAPED |= {c: f"${c}$" for c in "<>|"}
ESCAPED |= {"\N{EN DASH}": "--", "\N{LEFT DOUBLE QUOTATION MARK}": "``"}
ESCAPED |= {"\N{RIGHT DOUBLE QUOTATION MARK}": "''"}


def escape(text: str) -> str:
    """Returns text as LaTeX, including the raised numbers of footnotes."""
    written = "".join(ESCAPED.get(character, character) for character in text)
    return re.sub(
        "[⁰¹²³⁴⁵⁶⁷⁸⁹][⁰¹²³⁴⁵⁶⁷⁸⁹,]*",
        lambda raised: rf"\textsuperscript{{{raised[0].translate(LOWERED)}}}",
        written,
    )


def latex(name: str, page: Printed) -> str:
    """Returns the tables of a page, for a document that loads booktabs.

    Args:
        name: what \\label is made of.
    """
    notes = Notes()
    notes.texts += page.notes
    short = [typeset.shorten(grid, notes, ROOM) for grid in page.grids]
    cut, notes.texts = typeset.order_notes(short, notes.texts)
    parts = [(grid, several) for grid in cut for several in pages(panels(trim(grid)))]
    footer = page_footer(page, notes)
    below = FOOT_LEAD * math.ceil(len(footer) / FOOT)
    if not parts or below + sum(map(height, parts[-1][1])) > HEIGHT + ROOM_BELOW:
        parts.append((Grid("notes", [], []), []))
    tables = []
    for place, (grid, several) in enumerate(parts):
        title = ": ".join(filter(None, [page.title, grid.title]))
        title += " (continued)" if place and parts[place - 1][0] is grid else ""
        first = f" {page.about}" if place == 0 else ""
        said = footer if place == len(parts) - 1 else ""
        label = f"tab:{name}" + (f"-{place + 1}" if place else "")
        body = "\n\\par\\smallskip\n".join(map(tabular, several))
        tables.append(
            "\\begin{table}[t]\n"
            f"\\caption{{{escape(title)}.{escape(first)}}}\n\\label{{{label}}}\n"
            "\\centering\\scriptsize\\setlength{\\tabcolsep}{2pt}\\smallskip\n"
            f"{body}\n{said}\\end{{table}}\n"
        )
    return "% Needs \\usepackage{booktabs}.\n" + "\n".join(tables)


def pages(grids: list[Grid]) -> list[list[Grid]]:
    """Returns the panels of each page: several if they are short, else parts of
    one."""
    found: list[list[Grid]] = []
    if len(grids[0].rows) <= FEW:
        for panel in grids:
            if found and sum(map(height, [*found[-1], panel])) <= HEIGHT:
                found[-1].append(panel)
            else:
                found.append([panel])
        return found
    for panel in grids:
        room = max(name_width(panel), LEAST)
        rows: list[list[str]] = []
        taken = 0.0
        for row in panel.rows:
            own = row_height(row, room)
            if taken + own > HEIGHT:
                found.append([trim(panel._replace(rows=rows))])
                rows, taken = [], 0.0
            rows.append(row)
            taken += own
        found.append([trim(panel._replace(rows=rows))])
    return found


def height(panel: Grid) -> float:
    """Returns the height of a panel in points."""
    room = max(name_width(panel), LEAST)
    return ABOVE + sum(row_height(row, room) for row in panel.rows)


def row_height(row: Sequence[str], room: float) -> float:
    """Returns the height of a row in points; its name may take several lines.

    Args:
        room: the points of such a line.
    """
    named = math.ceil(text_width(row[0]) / room)
    lines = max(named, *(1 + bool(STACK.fullmatch(cell)) for cell in row))
    return LEAD * lines + APART_ROWS


def page_footer(page: Printed, notes: Notes) -> str:
    """Returns the footnotes and the origin of the numbers, as one paragraph."""
    said = [
        rf"\textsuperscript{{{at}}}{escape(text)}."
        for at, text in enumerate(notes.texts, 1)
    ]
    said += [escape(text) for text in (*page.origin, *page.absent)]
    text = textwrap.fill(" ".join(said), 88, break_long_words=False)
    return f"\\par\\smallskip\\raggedright\\tiny\n{text}\n" if said else ""


def panels(grid: Grid) -> list[Grid]:
    """Returns a grid cut into grids that are no wider than a column, each with the rows
    that have a value there; a published number and ours stay together."""
    keys, widths = [*range(grid.keys)], column_widths(grid)
    found: list[list[int]] = []
    for at in units(grid):
        if found and width([widths[x] for x in (*keys, *found[-1], *at)]) <= COLUMN:
            found[-1] += at
        else:
            found.append([*at])
    cut = [typeset.choose(grid, [*keys, *columns]) for columns in found] or [grid]
    return [
        panel._replace(rows=[row for row in panel.rows if any(row[grid.keys :])])
        if len(cut) > 1
        else panel
        for panel in cut
    ]


def units(grid: Grid) -> list[list[int]]:
    """Returns the columns behind those that name a row, by what may not be cut
    apart."""
    found: list[list[int]] = []
    for at in range(grid.keys, len(grid.head)):
        if found and is_pair(grid.head, at - 1):
            found[-1].append(at)
        else:
            found.append([at])
    return found


def is_pair(head: Sequence[str], at: int) -> bool:
    """Returns whether a column of published numbers and the next one are a pair."""
    of, published, _ = head[at].rpartition(", published")
    return bool(published) and at + 1 < len(head) and head[at + 1] == f"{of}, ours"


def width(widths: Sequence[float]) -> float:
    """Returns the width in points of columns, if the names of their rows are broken
    into lines."""
    first, *rest = widths
    return min(first, LEAST) + sum(rest) + APART * len(rest)


def name_width(grid: Grid) -> float:
    """Returns the width in points that is left for the names of rows."""
    _, *rest = column_widths(grid)
    return COLUMN - sum(rest) - APART * len(rest)


def column_widths(grid: Grid) -> list[float]:
    """Returns the width in points of each column; only the words of heads may be broken
    into lines."""
    widths = head_widths(grid.head)
    for row in grid.rows:
        widths = [max(x, cell_width(text)) for x, text in zip(widths, row, strict=True)]
    return widths


def head_widths(head: Sequence[str]) -> list[float]:
    """Returns the width in points of each head; for a pair of columns, the share of
    each."""
    widths = [max(map(text_width, head_lines(name))) for name in head]
    for at, name in enumerate(head):
        if is_pair(head, at):
            above = max(map(text_width, head_lines(name.rpartition(", ")[0])))
            widths[at] = text_width(PAPER, SMALL)
            widths[at + 1] = max(text_width(OURS, SMALL), above - widths[at])
    return widths


def text_width(text: str, each: float = LARGE) -> float:
    """Returns the width in points of text on one line.

    Args:
        each: points of a character that is no capital letter.
    """
    return each * sum(WIDE if c.isupper() or c in "mw%" else 1 for c in text)


def cell_width(text: str) -> float:
    if stack := STACK.fullmatch(text):
        return max(text_width(stack[1]), text_width(stack[2], SMALL))
    return text_width(text)


def head_lines(name: str) -> list[str]:
    """Returns the lines of a head."""
    return textwrap.wrap(name, WORDS, break_long_words=False) or [""]


def tabular(grid: Grid) -> str:
    """Returns one panel as LaTeX; names that are too long stand in boxes, whose last
    lines are level with the cells."""
    room = max(name_width(grid), LEAST)

    def name_box(text: str) -> str:
        name = cell(text)
        if text_width(text) <= room:
            return name
        return rf"\parbox[b]{{{room:.0f}pt}}{{\raggedright {name}\strut}}"

    sides = "l" + typeset.alignments(grid)[1:]
    body = "".join(
        f"{' & '.join([name_box(first), *map(cell, rest)])} \\\\[{APART_ROWS}pt]\n"
        for first, *rest in grid.rows
    )
    return (
        f"\\begin{{tabular}}{{@{{}}{sides}@{{}}}}\n\\toprule\n"
        f"{head_rows(grid.head)}\\midrule\n{body}\\bottomrule\n\\end{{tabular}}"
    )


def head_rows(head: Sequence[str]) -> str:
    """Returns the rows of the head; a published number and ours share the quantity
    above them."""
    above, rules, below = [], [], []
    at = 0
    while at < len(head):
        if is_pair(head, at):
            of = head[at].rpartition(", ")[0]
            above.append(rf"\multicolumn{{2}}{{c}}{{{stack_lines(head_lines(of))}}}")
            rules.append(rf"\cmidrule(lr){{{at + 1}-{at + 2}}}")
            below += [rf"\tiny {word}" for word in (PAPER, OURS)]
            at += 2
        else:
            above.append("")
            below.append(stack_lines(head_lines(head[at])))
            at += 1
    last = f"{' & '.join(below)} \\\\\n"
    return f"{' & '.join(above)} \\\\\n{''.join(rules)}\n{last}" if rules else last


def stack_lines(lines: Sequence[str]) -> str:
    texts = [escape(line) for line in lines]
    lines = r" \\ ".join(texts)
    return lines if len(texts) == 1 else rf"\shortstack{{{lines}}}"


def cell(text: str) -> str:
    text = text.replace("\n", "; ")
    stack = STACK.fullmatch(text)
    if stack is None:
        return escape(text)
    small = rf"\tiny {escape(stack[2])}"
    return rf"\shortstack[r]{{{escape(stack[1])} \\ {{{small}}}}}"
