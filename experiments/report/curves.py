"""Figures 2, 3 and 4: closed forms over alpha, and what was measured on top of them.

alpha acceptance rate, gamma drafted tokens, c cost of a draft (Leviathan et al. 2023).
"""

import itertools
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

MARKERS = "osD^vPX*"  # one a series
INSET = (0.11, 0.42, 0.48, 0.55)  # of a panel: its upper left, where no curve goes


class Panel(NamedTuple):
    """A quantity of each record over alpha, and how much of it is drawn.

    measured: the quantity of table2 that is laid on it. costs: that quantity has costs
    which the curves leave out, so that it lies below them: its markers are hollow.
    """

    quantity: str
    label: str
    low: float
    high: float
    measured: str | None = None
    costs: bool = False


class Point(NamedTuple):
    """What was measured: `value` at `alpha`.

    series: pair and temperature. curve: the row that it belongs to, None for any.
    error: of alpha, one standard error. ends: of the value's interval, if it has one.
    """

    series: str
    curve: str | None
    alpha: float
    value: float
    error: float = 0
    ends: tuple[float, ...] = ()


PANELS = {
    "figure2": [
        Panel("expected_tokens", "expected tokens per call", 1, 12, "tokens_per_call")
    ],
    "figure3": [Panel("best_gamma", "best gamma", 0, 25, "best_gamma")],
    "figure4": [
        Panel("speed", "speed, target alone = 1", 1, 11, "speedup", costs=True),
        Panel("operations", "operations, target alone = 1", 1, 11),
    ],
}


def drawing(
    name: str, curves: dict[str, dict], times: dict[str, dict]
) -> Figure | None:
    """The figure, a curve per row of `curves`; None if there is none.

    curves, times: `measured` of the figure's records and of those of table2, by row.
    """
    if not curves:
        return None
    panels, rows = PANELS[name], sorted(curves, key=order)
    figure = Figure(figsize=(4 * len(panels) + 2.5, 3.6), layout="constrained")
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    colors = {row: f"C{i}" for i, row in enumerate(rows)}
    for axes, panel in zip(every, panels, strict=True):
        found = points(panel, rows, times)
        draw_panel(axes, panel, curves, colors, found)
        axes.set(xlabel="alpha", ylabel=panel.label, xlim=(0, 1))
        axes.set_ylim(limits(panel, found))
        if found and found[0].curve:
            inset = axes.inset_axes(INSET)
            draw_panel(inset, panel, curves, colors, found)
            zoom(inset, found)
            axes.indicate_inset_zoom(inset, edgecolor="black")
    lines = legend(panels[0], colors, points(panels[0], rows, times))
    figure.legend(handles=lines, loc="outside right upper")
    return figure


def points(panel: Panel, rows: list[str], times: dict[str, dict]) -> list[Point]:
    """What table2 says of batch 1: a point for every row with a gamma that it has.

    The best gamma is one point, whose c is named (Section 3.5).
    """
    found = []
    for it in times.values():
        if it["batch"] != 1 or panel.measured is None:
            continue
        series = f"{it['target']} + {it['draft']}, T = {it['temperature']:g}"
        error = it["alpha_se"] or 0
        if panel.measured == "best_gamma":
            value, c = it["best_gamma"], it["best_c"]
            series += ", no draft" if c is None else f", c = {c:.2g}"
            found.append(Point(series, None, it["alpha"], value, error))
            continue
        for row in rows:
            if order(row) in it["gamma"]:
                at = it["gamma"].index(order(row))
                value = it[panel.measured][at]
                ends = it[f"{panel.measured}_ci"][at] if panel.costs else ()
                found.append(Point(series, row, it["alpha"], value, error, tuple(ends)))
    return found


def draw_panel(
    axes: Axes,
    panel: Panel,
    curves: dict[str, dict],
    colors: dict[str, str],
    found: list[Point],
) -> None:
    """The curves, and the points over everything.

    Points of many gammas may coincide: the greater the gamma, the smaller its marker.
    """
    for row, color in colors.items():
        heights = [
            float("nan") if y is None else y for y in curves[row][panel.quantity]
        ]
        axes.plot(curves[row]["alpha"], heights, color=color)
    shape, places = shapes(found), list(colors)
    for point in found:
        color = colors.get(point.curve, "black")
        size = max(3, 8 - 1.2 * places.index(point.curve)) if point.curve else 5
        bar = {"color": color, "linewidth": 0.8, "zorder": 3}
        x, y, error = point.alpha, point.value, point.error
        axes.plot([x - error, x + error], [y, y], **bar)
        axes.plot([x] * len(point.ends), point.ends, **bar)
        face, edge = ("none", color) if panel.costs else (color, "white")
        style = {"markersize": size, "markerfacecolor": face, "markeredgecolor": edge}
        style |= {"markeredgewidth": 1 if panel.costs else 0.5, "clip_on": False}
        axes.plot(x, y, shape[point.series], zorder=4, **style)


def heights(found: list[Point]) -> list[float]:
    return [y for point in found for y in (point.value, *point.ends)]


def limits(panel: Panel, found: list[Point]) -> tuple[float, float]:
    """From where to where a panel goes: as far as its points at least."""
    ends, room = heights(found), 0.03 * (panel.high - panel.low)
    low = min([panel.low, *(y - room for y in ends if y < panel.low)])
    return low, max([panel.high, *(y + room for y in ends if y > panel.high)])


def zoom(inset: Axes, found: list[Point]) -> None:
    """Limits that hold the points alone."""
    alphas, ends = [point.alpha for point in found], heights(found)
    room = 0.08 * (max(ends) - min(ends)) + 0.05
    inset.set_xlim(min(alphas) - 0.06, max(alphas) + 0.06)
    inset.set_ylim(min(ends) - room, max(ends) + room)
    inset.tick_params(labelsize=7)
    inset.locator_params(nbins=5)


def shapes(found: list[Point]) -> dict[str, str]:
    """A marker for each series."""
    series = dict.fromkeys(point.series for point in found)
    return dict(zip(series, itertools.cycle(MARKERS), strict=False))


def legend(panel: Panel, colors: dict[str, str], found: list[Point]) -> list[Line2D]:
    """Two headed lists: the curves, and the series, in no curve's color."""

    def line(label: str, **style) -> Line2D:
        return Line2D([], [], label=label, **({"linestyle": "none"} | style))

    face = "none" if panel.costs else "black"
    style = {"color": "black", "markersize": 5, "markerfacecolor": face}
    curves = [
        line(label(row), color=color, linestyle="-") for row, color in colors.items()
    ]
    marks = [line(it, marker=shape, **style) for it, shape in shapes(found).items()]
    if marks:
        costs = ", with all costs" if panel.costs else ""
        marks.insert(0, line(f"measured, batch 1{costs}:"))
    without = ", c = c_hat = 0" if panel.costs else ""
    return [line(f"closed form{without}:"), *curves, *marks]


def order(row: str) -> float:
    """Curves by their number: gamma_3 before gamma_10, gamma_inf last."""
    return float(row.rpartition("_")[2])


def label(row: str) -> str:
    kind, _, number = row.rpartition("_")
    return f"{kind} = {number}"
