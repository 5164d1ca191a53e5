"""Formats numbers as text, and grids of cells as Markdown, as CSV, and for a
terminal."""

import csv
import io
import math
from collections.abc import Sequence

LEAST = 1e-3  # the least number that is printed with four decimals
LONG, MOST = 1e4, 1e7  # numbers between them are printed without an exponent
DECIMALS, MOST_DECIMALS = 4, 6  # of numbers with errors: as a rule, and at most


def markdown_grid(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    rule: Sequence[str] | None = None,
) -> str:
    """Returns a grid in Markdown, without a final line break.

    Args:
        rule: what stands below each name of `head`, "---" or, to the right, "--:".
    """
    lines = [head, rule or ["---"] * len(head), *rows]
    return "\n".join(map(markdown_line, lines))


def markdown_line(cells: Sequence[str]) -> str:
    texts = (text.replace("|", "\\|").replace("\n", "; ") for text in cells)
    return f"| {' | '.join(texts)} |"


def comma_separated(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([head, *rows])
    return file.getvalue()


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns columns padded with spaces, for a terminal."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        for line in lines
    ]
    return "".join(line.rstrip() + "\n" for line in padded)


def number(x: float | str | None) -> str:
    """Returns a number with four digits, a count with all of its digits.

    It has an exponent where four decimals would show nothing, and from MOST on. A word
    such as "failed" is returned unchanged; None is an infinite number, which JSON
    cannot hold.
    """
    if isinstance(x, str):
        return x
    if x is None:
        return "infinite"
    if isinstance(x, int) and abs(x) < MOST:
        return str(x)
    if LONG <= abs(x) < MOST:
        return f"{float(f'{x:.4g}'):.0f}"
    if abs(x) >= 1 or x == 0:
        return f"{x:.4g}"
    return f"{x:.4f}" if abs(x) >= LEAST else f"{x:.1e}"


def number_or_blank(x: float | None) -> str:
    """Returns a number, or "" where there is none, such as for a call that cannot be
    predicted.
    """
    return "" if x is None else number(x)


def number_with_error(x: float, error: float | None) -> str:
    """Returns a number with its standard error, if it has one that is not 0."""
    if error is None or error == 0:
        return number(x)
    value, spread = with_same_decimals(error, (x, error))
    return f"{value} ± {spread}"


def interval(x: float | None, ends: Sequence[float] | None) -> str:
    """Returns a number with its interval, if it has one."""
    if x is None or ends is None:
        return number_or_blank(x)
    if None in ends:
        return f"{number(x)} [{', '.join(map(number, ends))}]"
    low, high = ends
    value, *both = with_same_decimals((high - low) / 2, (x, low, high))
    return f"{value} [{', '.join(both)}]"


def with_same_decimals(error: float, values: Sequence[float]) -> list[str]:
    """Returns numbers with the same number of decimals: as many as show two digits of
    their error, or of half their interval, at most DECIMALS unless it would be 0 then.

    Numbers whose error has no such digits are written as `number` writes them.
    """
    if not 10**-MOST_DECIMALS <= abs(error) < math.inf:
        return [number(x) for x in values]
    last = 1 - int(f"{error:.1e}".partition("e")[2])  # the second digit of the error
    decimals = max(0, min(last, max(DECIMALS, last - 1)))
    return [f"{x:z.{decimals}f}" for x in values]
