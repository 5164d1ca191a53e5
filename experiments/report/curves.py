"""Figures 2, 3 and 4: closed forms over alpha, and what was measured on top of them.

alpha acceptance rate, gamma drafted tokens, c cost of a draft (Leviathan et al. 2023).
"""

from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.records.table import rows_of
from experiments.report.walltime import named

MARKERS = "osD^vP*phX<>d8H"  # one a pair of models: more pairs are an error
FILLS = {0: "full", 1: "none"}  # of a marker, by temperature
CROSSES = {"published": "x", "0.02": "x", "0.04": "+", "0.11": "1"}
INSET = (0.11, 0.42, 0.48, 0.55)  # of a panel: its upper left, where no curve goes
LINE, EDGES = 0.19, 0.5  # inches: of the legend, and what a panel has around it


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
    """What was measured or published: `value` at `alpha`.

    series: the pair of models, or who published it. heat: T, None if published.
    curve: the row that it belongs to, None for any. error: of alpha, one standard
    error. ends: of the value's interval, if it has one. c: where it is part of a label.
    """

    series: str
    heat: float | None
    curve: str | None
    alpha: float
    value: float
    error: float = 0
    ends: tuple[float, ...] = ()
    c: float | None = None


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
    colors = {row: f"C{i}" for i, row in enumerate(rows)}
    dots = [points(panel, rows, times) for panel in panels]
    lines = legend(panels[0], colors, dots[0])
    size = 4 * len(panels) + 3.2, max(3.6, LINE * len(lines) + EDGES)
    figure = Figure(figsize=size, layout="constrained")
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel, several in zip(every, panels, dots, strict=True):
        draw_panel(axes, panel, curves, colors, several)
        axes.set(xlabel="alpha", ylabel=panel.label, xlim=(0, 1))
        axes.set_ylim(limits(panel, several))
        ours = [point for point in several if point.heat is not None]
        if ours and ours[0].curve:
            inset = axes.inset_axes(INSET)
            draw_panel(inset, panel, curves, colors, ours)
            zoom(inset, ours)
            axes.indicate_inset_zoom(inset, edgecolor="black")
    figure.legend(handles=lines, loc="outside right upper")
    return figure


def points(panel: Panel, rows: list[str], times: dict[str, dict]) -> list[Point]:
    """What table2 says of batch 1, then what the paper prints of the same quantity."""
    if panel.measured is None:
        return []
    at_1 = [it for it in times.values() if it["batch"] == 1]
    ours = [point for it in at_1 for point in measured(panel, rows, it)]
    return ours + published(panel, rows)


def measured(panel: Panel, rows: list[str], it: dict) -> list[Point]:
    """A point for every row with a gamma that a record has.

    The best gamma is one point, whose c is named (Section 3.5).
    """
    series, heat = f"{it['target']} + {named(it)}", it["temperature"]
    error = it["alpha_se"] or 0
    if panel.measured == "best_gamma":
        best = it["best_gamma"], error, (), it["best_c"]
        return [Point(series, heat, None, it["alpha"], *best)]
    several = []
    for row in (row for row in rows if order(row) in it["gamma"]):
        at = it["gamma"].index(order(row))
        ends = tuple(it[f"{panel.measured}_ci"][at]) if panel.costs else ()
        value = it[panel.measured][at]
        several.append(Point(series, heat, row, it["alpha"], value, error, ends))
    return several


def published(panel: Panel, rows: list[str]) -> list[Point]:
    """Tokens of Table 1, where c = 0 makes them its speed; gamma of Table 4 by its c;
    speeds of Table 2."""
    if panel.measured == "best_gamma":
        name = "published: T5-XXL, Table 4, c = {c}"
        return [
            Point(name.format(**row), None, None, row["alpha"], row["gamma"])
            for row in rows_of("table4_expected_vs_measured")
        ]
    key = "table2_walltime" if panel.costs else "table1_operations_speed"
    name, value = "published: Table 1", "speed"
    if panel.costs:
        name, value = "published: T5-XXL, Table 2", "speedup"
    curves = {order(row): row for row in rows}
    return [
        Point(name, None, curves[row["gamma"]], row["alpha"], row[value])
        for row in rows_of(key)
        if row["gamma"] in curves
    ]


def draw_panel(
    axes: Axes,
    panel: Panel,
    curves: dict[str, dict],
    colors: dict[str, str],
    dots: list[Point],
) -> None:
    """The curves, and the points over everything.

    Points of many gammas may coincide: the greater the gamma, the smaller its marker.
    """
    for row, color in colors.items():
        heights = [
            float("nan") if y is None else y for y in curves[row][panel.quantity]
        ]
        axes.plot(curves[row]["alpha"], heights, color=color)
    shape, places = shapes(dots), list(colors)
    for point in dots:
        color = colors.get(point.curve, "black")
        size = max(3, 8 - 1.2 * places.index(point.curve)) if point.curve else 5
        bar = {"color": color, "linewidth": 0.8, "zorder": 3}
        x, y, error = point.alpha, point.value, point.error
        axes.plot([x - error, x + error], [y, y], **bar)
        axes.plot([x] * len(point.ends), point.ends, **bar)
        style = looks(point, color) | {"markersize": size, "clip_on": False}
        axes.plot(x, y, marker=shape[point.series], zorder=4, **style)


def looks(point: Point, color: str) -> dict:
    """Of a marker: full at T = 0, hollow otherwise; a cross if published."""
    fill = "full" if point.heat is None else FILLS.get(point.heat, "none")
    edge = "white" if fill == "full" and point.heat is not None else color
    width = 0.5 if edge == "white" else 1.2
    style = {"color": color, "fillstyle": fill, "linestyle": "none"}
    return style | {"markeredgecolor": edge, "markeredgewidth": width}


def heights(dots: list[Point]) -> list[float]:
    return [y for point in dots for y in (point.value, *point.ends)]


def limits(panel: Panel, dots: list[Point]) -> tuple[float, float]:
    """From where to where a panel goes: as far as its points at least."""
    ends, room = heights(dots), 0.03 * (panel.high - panel.low)
    low = min([panel.low, *(y - room for y in ends if y < panel.low)])
    return low, max([panel.high, *(y + room for y in ends if y > panel.high)])


def zoom(inset: Axes, dots: list[Point]) -> None:
    """Limits that hold the points alone."""
    alphas, ends = [point.alpha for point in dots], heights(dots)
    room = 0.08 * (max(ends) - min(ends)) + 0.05
    inset.set_xlim(min(alphas) - 0.06, max(alphas) + 0.06)
    inset.set_ylim(min(ends) - room, max(ends) + room)
    inset.tick_params(labelsize=7)
    inset.locator_params(nbins=5)


def shapes(dots: list[Point]) -> dict[str, str]:
    """A marker for each series, none of them twice."""
    ours = dict.fromkeys(point.series for point in dots if point.heat is not None)
    papers = dict.fromkeys(point.series for point in dots if point.heat is None)
    if len(ours) > len(MARKERS):
        raise ValueError(f"{len(ours)} pairs of models and {len(MARKERS)} markers")
    crosses = {name: CROSSES.get(name.rpartition(" ")[2], "x") for name in papers}
    return dict(zip(ours, MARKERS, strict=False)) | crosses


def legend(panel: Panel, colors: dict[str, str], dots: list[Point]) -> list[Line2D]:
    """Headed lists: the curves, then pairs and papers, in no curve's color."""

    def line(label: str, **style) -> Line2D:
        return Line2D([], [], label=label, **({"linestyle": "none"} | style))

    curves = [
        line(label(row), color=color, linestyle="-") for row, color in colors.items()
    ]
    without = ", c = c_hat = 0" if panel.costs else ""
    lines = [line(f"closed form{without}:"), *curves]
    ours = [point for point in dots if point.heat is not None]
    if ours:
        costs = ", with all costs" if panel.costs else ""
        lines.append(line(f"measured, batch 1{costs}; hollow: T = 1"))
    style = {"color": "black", "markersize": 5}
    for series, shape in shapes(dots).items():
        costs = [p.c for p in ours if p.series == series and p.c is not None]
        shown = f", c = {' and '.join(f'{c:.2g}' for c in costs)}" if costs else ""
        lines.append(line(f"{series}{shown}", marker=shape, **style))
    return lines


def order(row: str) -> float:
    """Curves by their number: gamma_3 before gamma_10, gamma_inf last."""
    return float(row.rpartition("_")[2])


def label(row: str) -> str:
    kind, _, number = row.rpartition("_")
    return f"{kind} = {number}"
