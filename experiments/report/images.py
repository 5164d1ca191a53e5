"""Images as SVG, with their pixels colored like the tokens of Figure 1.

A pixel that was drafted and accepted is green, one that the target added blue, each as
dark as its shade; a red corner is where a drafted shade was rejected. Lengths are
pixels of the page.
"""

from collections.abc import Iterator

from experiments.report import trace
from experiments.report.trace import LINE, LOOKS, MARGIN, Cell, Square

SIZE, GAP, COLUMNS = 10, 14, 5


def drawing(measured: dict) -> str:
    """Returns the figure of one record of `experiments.papers.leviathan.images`."""
    cells = trace.head(measured, unit="pixels")
    y = MARGIN + LINE * len(cells)
    for kind in ("accepted", "added"):
        look = LOOKS[kind]
        cells += trace.place_in_line(MARGIN, y, [(look.name, look)])
        y += LINE
    cells.append(Cell(MARGIN, y, "red corner: a drafted shade was rejected"))
    y += 1.5 * LINE
    squares, side = [], SIZE * measured["side"]
    for i, image in enumerate(measured["images"]):
        left = MARGIN + i % COLUMNS * (side + GAP)
        top = y + i // COLUMNS * (side + LINE + GAP)
        label = f"{image['digit']}: {len(image['steps'])} calls"
        cells.append(Cell(left, top, label))
        for n, (shade, kind, corrected) in enumerate(pixels(image["steps"])):
            row, column = divmod(n, measured["side"])
            x, y_pixel = left + SIZE * column, top + LINE + SIZE * row
            dark = min(1, shade / (measured["shades"] - 1))
            squares.append(Square(x, y_pixel, SIZE, color(dark, kind), corrected))
    rows = -(-len(measured["images"]) // COLUMNS)
    return trace.page(cells, y + rows * (side + LINE + GAP), squares)


def pixels(steps: list[dict]) -> Iterator[tuple[int, str, bool]]:
    """Yields each pixel's shade, whether it was "accepted" or "added", and whether a
    drafted shade was rejected in its place.
    """
    for step in steps:
        yield from ((shade, "accepted", False) for shade in step["accepted"])
        yield from ((shade, "added", bool(step["rejected"])) for shade in step["added"])


def color(dark: float, kind: str) -> str:
    """Returns the color of a pixel of a kind: for `dark` = 0 that of the kind's box in
    Figure 1, for 1 that of its ink.
    """
    ends = (bytes.fromhex(x[1:]) for x in (LOOKS[kind].fill, LOOKS[kind].ink))
    mixed = (round(a + dark * (b - a)) for a, b in zip(*ends, strict=True))
    return "#" + bytes(mixed).hex()
