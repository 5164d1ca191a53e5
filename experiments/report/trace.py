"""Figure 1 as SVG: the trace of one text, with a line for each call of the target.

It is made with a template, so that every token is text in its own box, in which its
spaces show. Accepted tokens are on green; rejected ones on red and struck through;
tokens that the target added are on blue, framed and bold. Lengths are pixels.
"""

import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from experiments.report.html import environment

ADVANCE = 7.2  # of a character; `textLength` holds any monospace font to it
LINE, MARGIN = 22, 12
NARROW = 44  # characters that a telephone shows


class Look(NamedTuple):
    """The appearance of one kind of text.

    Attributes:
        name: in the legend.
        fill, frame: of its box, if it has one.
    """

    ink: str
    name: str = ""
    fill: str = ""
    frame: str = "none"
    weight: str = "normal"
    struck: bool = False


INK, FAINT = Look("#1c1c1c"), Look("#5c5c5c")
LOOKS = {
    "accepted": Look("#0b4f19", "drafted, accepted", "#cdeed3"),
    "rejected": Look("#a3130a", "drafted, rejected", "#fbd5d2", struck=True),
    "added": Look("#0b3a85", "added by the target", "#d3e4fb", "#0b3a85", "bold"),
}


class Cell(NamedTuple):
    """A piece of text with its position.

    Attributes:
        x, y: the upper left corner of its box.
    """

    x: float
    y: float
    text: str
    look: Look = INK

    @property
    def width(self) -> float:
        return ADVANCE * len(self.text)


class Square(NamedTuple):
    """A square of one color.

    Attributes:
        x, y: its upper left corner.
        corner: whether one of its corners is red.
    """

    x: float
    y: float
    size: float
    fill: str
    corner: bool = False


def drawing(measured: dict) -> str:
    """Returns the whole figure, from one record of folder `figure1`."""
    calls, plain = measured["target_calls"], head(measured, unit="tokens")
    boxed, y, digits = [], MARGIN + LINE * len(plain), len(str(calls))
    names = [(look.name, look) for look in LOOKS.values()]
    for some in (names[:2], names[2:]):
        boxed += place_in_line(MARGIN, y, some, gap=12)
        y += LINE
    y += LINE / 2
    for i, step in enumerate(measured["steps"]):
        plain.append(Cell(MARGIN, y, str(i + 1).rjust(digits), FAINT))
        looks = LOOKS.items()
        each = [(escape_text(it), look) for kind, look in looks for it in step[kind]]
        boxed += place_in_line(MARGIN + ADVANCE * (digits + 2), y, each)
        y += LINE
    return page([*plain, *boxed], y + MARGIN)


def head(measured: dict, unit: str) -> list[Cell]:
    """Returns the lines above a figure: the prompt, if there is one, and the numbers of
    `unit`, calls and drafts.
    """
    heads = [
        f"{measured['tokens']} {unit} in {measured['target_calls']} calls of"
        f" {measured['target']};"
        f" {measured['draft']} drafts up to {measured['gamma']} before each,"
        f" T\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{measured['temperature']:g}",
    ]
    if "prompt" in measured:
        heads.insert(0, f"prompt: {escape_text(measured['prompt'])}")
    lines = [line for each in heads for line in wrap(each)]
    return [Cell(MARGIN, MARGIN + LINE * i, line) for i, line in enumerate(lines)]


def wrap(text: str) -> list[str]:
    """Returns the text as lines of at most NARROW characters; no character is lost."""
    kept = {"drop_whitespace": False, "replace_whitespace": False}
    return textwrap.wrap(text, NARROW, **kept)


def place_in_line(x: float, y: float, tokens: Iterable, gap: float = 3) -> list[Cell]:
    """Returns tokens side by side, from x on."""
    cells = []
    for text, look in tokens:
        cells.append(Cell(x, y, text, look))
        x += cells[-1].width + gap
    return cells


def escape_text(text: str) -> str:
    """Returns text on one line that is legal in XML; characters that do not print are
    escaped.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def page(cells: list[Cell], height: float, squares: Sequence[Square] = ()) -> str:
    """Returns an SVG of these cells and squares on a white background, for any page."""
    rights = [cell.x + cell.width for cell in cells]
    width = max(*rights, *(it.x + it.size for it in squares), 0) + MARGIN
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}"}
    shown = {"cells": cells, "squares": squares, "red": LOOKS["rejected"].ink}
    return environment().get_template("trace.svg").render(shown | size) + "\n"


def note(message: str) -> str:
    """Returns a drawing that shows only a message."""
    return page([Cell(MARGIN, MARGIN, message)], 2 * MARGIN + LINE)
