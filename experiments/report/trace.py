"""Figure 1 as SVG: the trace of one text, a line per call of the target.

Written by hand, so that every token is text in a box of its own, in which its spaces
show. Accepted stands on green; rejected on red and struck through; what the target
added on blue, framed and bold. Lengths are pixels.
"""

from collections.abc import Iterable
from typing import NamedTuple
from xml.sax.saxutils import escape

ADVANCE = 7.2  # of a character; `textLength` holds any monospace font to it
SIZE, LINE, BOX, BASE, MARGIN = 12, 22, 18, 13, 12
FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
INK, FAINT = "#1c1c1c", "#5c5c5c"


class Look(NamedTuple):
    """One kind of token. name: in the legend. fill, ink: of the box and the text."""

    name: str
    fill: str
    ink: str
    frame: str = "none"
    weight: str = "normal"
    struck: bool = False


LOOKS = {
    "accepted": Look("drafted, accepted", "#cdeed3", "#0b4f19"),
    "rejected": Look("drafted, rejected", "#fbd5d2", "#a3130a", struck=True),
    "added": Look("added by the target", "#d3e4fb", "#0b3a85", "#0b3a85", "bold"),
}


class Cell(NamedTuple):
    """A token in its place; x, y: the upper left corner of its box."""

    x: float
    y: float
    text: str
    look: Look

    @property
    def width(self) -> float:
        return ADVANCE * len(self.text)


def drawing(measured: dict) -> str:
    """The whole figure, of one record of folder `figure1`."""
    tokens, calls = measured["tokens"], measured["target_calls"]
    heads = [
        f"prompt: {visible(measured['prompt'])}",
        f"{tokens} tokens in {calls} calls of {measured['target']};"
        f" {measured['draft']} drafts up to {measured['gamma']} before each,"
        f" T = {measured['temperature']:g}",
    ]
    parts = [words(MARGIN, MARGIN + LINE * i, head) for i, head in enumerate(heads)]
    cells = legend(MARGIN + LINE * len(heads))
    top, digits = MARGIN + LINE * (len(heads) + 1.5), len(str(calls))
    for i, step in enumerate(measured["steps"]):
        y = top + LINE * i
        parts.append(words(MARGIN, y, str(i + 1).rjust(digits), FAINT))
        cells += in_line(MARGIN + ADVANCE * (digits + 2), y, tokens_of(step))
    parts += [line for cell in cells for line in box(cell)]
    longest = max(MARGIN + ADVANCE * len(head) for head in heads)
    right = max(longest, *(cell.x + cell.width for cell in cells))
    return page(right + MARGIN, top + LINE * len(measured["steps"]) + MARGIN, parts)


def tokens_of(step: dict) -> list[tuple[str, Look]]:
    """The tokens of an iteration in their order, each with its look."""
    return [(visible(it), look) for kind, look in LOOKS.items() for it in step[kind]]


def legend(y: float) -> list[Cell]:
    return in_line(MARGIN, y, [(look.name, look) for look in LOOKS.values()], gap=12)


def in_line(x: float, y: float, tokens: Iterable, gap: float = 3) -> list[Cell]:
    """Tokens one after the other from x on."""
    cells = []
    for text, look in tokens:
        cells.append(Cell(x, y, text, look))
        x += cells[-1].width + gap
    return cells


def visible(text: str) -> str:
    """On one line and legal in XML: what does not print as its escape."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def box(cell: Cell) -> list[str]:
    """The elements of a token: its box, its text, and the line that strikes it out."""
    x, y, look = cell.x - 1, cell.y, cell.look
    size = f'width="{cell.width + 2:.1f}" height="{BOX}" rx="3"'
    colors = f'fill="{look.fill}" stroke="{look.frame}"'
    lines = [f'<rect x="{x:.1f}" y="{y:.1f}" {size} {colors}/>']
    lines.append(words(cell.x, y, cell.text, look.ink, look.weight))
    if look.struck:
        across = f"M{x:.1f} {y + BOX / 2:.1f}h{cell.width + 2:.1f}"
        lines.append(f'<path d="{across}" stroke="{look.ink}"/>')
    return lines


def words(x: float, y: float, text: str, ink: str = INK, weight: str = "normal") -> str:
    at = f'x="{x:.1f}" y="{y + BASE:.1f}" textLength="{ADVANCE * len(text):.1f}"'
    style = f'fill="{ink}" font-weight="{weight}" xml:space="preserve"'
    return f'<text {at} lengthAdjust="spacingAndGlyphs" {style}>{escape(text)}</text>'


def page(width: float, height: float, parts: Iterable[str]) -> str:
    """An SVG of these elements on white, whatever page it is put into."""
    area = f'width="{width:.0f}" height="{height:.0f}"'
    inner = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {area}'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-size="{SIZE}"'
        f' font-family="{FONT}">\n<rect {area} fill="#ffffff"/>\n{inner}\n</svg>\n'
    )


def note(message: str) -> str:
    """A drawing that only says something."""
    width = 2 * MARGIN + ADVANCE * len(message)
    return page(width, 2 * MARGIN + LINE, [words(MARGIN, MARGIN, message)])
