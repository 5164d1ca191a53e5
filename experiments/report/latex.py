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
HEIGHT, LEAD = 480.0, 8.5  # points of the rows of a page, and of a line of them
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
    cut = [typeset.shorten(grid, notes, ROOM) for grid in page.grids]
    parts = [(grid, several) for grid in cut for several in pages(panels(trim(grid)))]
    tables = []
    for place, (grid, several) in enumerate(parts):
        title = ": ".join(filter(None, [page.title, grid.title]))
        title += " (continued)" if place and parts[place - 1][0] is grid else ""
        first = f" {page.about}" if place == 0 else ""
        said = page_footer(page, notes) if place == len(parts) - 1 else ""
        label = f"tab:{name}" + (f"-{place + 1}" if place else "")
        body = "\n\\par\\smallskip\n".join(map(tabular, several))
        tables.append(
            "\\begin{table}[t]\n"
            f"\\caption{{{escape(title)}.{escape(first)}}}\n\\label{{{label}}}\n"
            "\\centering\\scriptsize\\setlength{\\tabcolsep}{2pt}\n"
            f"{body}\n{said}\\end{{table}}\n"
        )
    return "% Needs \\usepackage{booktabs}.\n" + "\n".join(tables)


def pages(grids: list[Grid]) -> list[list[Grid]]:
    """Returns the panels of each page: all panels together if they are short, else
    parts of one."""
    if len(grids[0].rows) <= FEW:
        return [grids]
    found = []
    for panel in grids:
        room = max(name_width(panel), LEAST)
        rows: list[list[str]] = []
        height = 0.0
        for row in panel.rows:
            own = row_height(row, room)
            if height + own > HEIGHT:
                found.append([panel._replace(rows=rows)])
                rows, height = [], 0.0
            rows.append(row)
            height += own
        found.append([panel._replace(rows=rows)])
    return found


def row_height(row: Sequence[str], room: float) -> float:
    """Returns the height of a row in points; its name may take several lines.

    Args:
        room: the points of such a line.
    """
    named = math.ceil(LARGE * len(row[0]) / room)
    return LEAD * max(named, *(1 + bool(STACK.fullmatch(cell)) for cell in row))


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
    """Returns a grid cut into grids that are no wider than a column."""
    keys, widths = [*range(grid.keys)], column_widths(grid)
    found: list[list[int]] = []
    for at in range(grid.keys, len(grid.head)):
        if found and width([widths[x] for x in (*keys, *found[-1], at)]) <= COLUMN:
            found[-1].append(at)
        else:
            found.append([at])
    return [typeset.choose(grid, [*keys, *columns]) for columns in found] or [grid]


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
    widths = [head_width(name) for name in grid.head]
    for row in grid.rows:
        widths = [max(x, cell_width(text)) for x, text in zip(widths, row, strict=True)]
    return widths


def head_width(name: str) -> float:
    """Returns the width in points of a head; for a pair of columns, the share of
    each."""
    if name.endswith(", published"):
        return SMALL * len(PAPER)
    if name.endswith(", ours"):
        above = max(map(len, head_lines(name.removesuffix(", ours"))))
        return max(SMALL * len(OURS), LARGE * above - SMALL * len(PAPER))
    return LARGE * max(map(len, head_lines(name)))


def cell_width(text: str) -> float:
    if stack := STACK.fullmatch(text):
        return max(LARGE * len(stack[1]), SMALL * len(stack[2]))
    return LARGE * len(text)


def head_lines(name: str) -> list[str]:
    """Returns the lines of a head."""
    return textwrap.wrap(name, WORDS, break_long_words=False) or [""]


def tabular(grid: Grid) -> str:
    """Returns one panel as LaTeX."""
    first, *_ = column_widths(grid)
    left = name_width(grid)
    name = "l" if first <= left else f"p{{{max(left, LEAST):.0f}pt}}"
    sides = typeset.alignments(grid)[1:]
    body = "".join(f"{' & '.join(map(cell, row))} \\\\\n" for row in grid.rows)
    return (
        f"\\begin{{tabular}}{{@{{}}{name}{sides}@{{}}}}\n\\toprule\n"
        f"{head_rows(grid.head)}\\midrule\n{body}\\bottomrule\n\\end{{tabular}}"
    )


def head_rows(head: Sequence[str]) -> str:
    """Returns the rows of the head; a published number and ours share the quantity
    above them."""
    above, rules, below = [], [], []
    at = 0
    while at < len(head):
        of, told, _ = head[at].rpartition(", published")
        if told and at + 1 < len(head) and head[at + 1] == f"{of}, ours":
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
