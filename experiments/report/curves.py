"""Figures 2, 3 and 4: closed forms over alpha, with measured and published points.

The first panel has every curve and the published points. Below it stands a panel for
each curve, zoomed in on the measured points. The drawing is as wide as a column of a
paper, so that its type is read there as it is. A point has the color of its curve.
alpha acceptance rate, gamma drafted tokens, c cost of a draft (Leviathan et al. 2023).
"""

import functools
import math
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.records.table import published_rows
from experiments.report.walltime import XLA

TASKS = {"code": "Python", "joined": "German", "docs": "summaries"}
TASKS |= {"correct": "corrections"}
MARKERS = dict(zip(TASKS, "osD^", strict=True))  # of other tasks *
SIZE, BAR = 3.8, {"linewidth": 0.8, "zorder": 3}
WIDTH = 3.5  # inches: a column of a paper
FIRST, EACH, LEGEND = 3.4, 1.5, 1.2  # inches of the first panel, a row of others, below
FONT, SMALL = 8, 7  # points


class Kind(NamedTuple):
    """The properties of one figure.

    Attributes:
        quantity: what its curves show.
        label: the label of its axis.
        low, high: the ends of its axis, if no point is beyond them.
        measured: the quantity of table2 that is drawn beside the curves.
        costs: whether that quantity includes costs that the curves leave out, so that
            it lies below them.
    """

    quantity: str
    label: str
    low: float
    high: float
    measured: str
    costs: bool = False


class Point(NamedTuple):
    """A measured or published point: `value` at `alpha`, belonging to the curve
    `curve`.

    Attributes:
        task, heat: task and temperature; None if published.
        error: the error of alpha.
        ends: the ends of the value's interval.
    """

    curve: str
    alpha: float
    value: float
    task: str | None = None
    heat: float | None = None
    error: float = 0
    ends: tuple[float, ...] = ()


KINDS = {
    "figure2": Kind("expected_tokens", "tokens per call", 1, 12, "tokens_per_call"),
    "figure3": Kind("best_gamma", "best gamma", 0, 12, "best_gamma"),
    "figure4": Kind("speed", "speed, target alone = 1", 1, 11, "speedup", costs=True),
}
PUBLISHED = {"figure2": "published: Table 1", "figure3": "published: Table 4"}
PUBLISHED["figure4"] = "published: Table 2"


def drawing(
    name: str, curves: dict[str, dict], times: dict[str, dict]
) -> Figure | None:
    """Draws the figure, with a curve for each row of `curves`; returns None if there
    are no rows.

    Args:
        times: the times of table2.
    """
    if not curves:
        return None
    kind, rows = KINDS[name], sorted(curves, key=order)
    colors = {row: f"C{i}" for i, row in enumerate(rows)}
    own = (it for row, it in times.items() if not row.endswith(XLA))
    at_1 = [it for it in own if it["batch"] == 1]
    ours = [point for it in at_1 for point in measured_points(kind, rows, it)]
    papers, near = published_points(name, rows), {point.curve for point in ours}
    shown = [row for row in rows if row in near]
    panels = len(shown) + (name == "figure4")
    below = math.ceil(panels / 2)
    figure = Figure(figsize=(WIDTH, FIRST + EACH * below), layout="constrained")
    ratios = [FIRST - LEGEND, *[EACH] * below]
    grid = figure.add_gridspec(1 + below, 2, height_ratios=ratios)
    first = figure.add_subplot(grid[0, :])
    draw(first, kind.quantity, curves, colors, papers)
    first.set(xlim=(0, 1), ylim=limits(kind, papers), ylabel=kind.label)
    places = [grid[1 + i // 2, i % 2] for i in range(panels)]
    for row, place in zip(shown, places, strict=False):
        axes, points = figure.add_subplot(place), [p for p in ours if p.curve == row]
        draw(axes, kind.quantity, {row: curves[row]}, colors, points)
        set_limits(axes, points, whole=kind.measured == "best_gamma")
        axes.set_title(label(row), loc="left", fontsize=FONT)
    if name == "figure4":
        axes = figure.add_subplot(places[-1])
        draw(axes, "operations", curves, colors, [])
        axes.set(xlim=(0, 1))
        axes.set_title("operations", loc="left", fontsize=FONT)
    for axes in figure.axes:
        axes.set_xlabel("alpha")
        axes.tick_params(labelsize=SMALL)
        for text in (axes.xaxis.label, axes.yaxis.label):
            text.set_size(FONT)
    handles = legend(name, colors, ours, papers)
    where = {"loc": "outside lower center", "ncols": 2, "frameon": False}
    spaced = {"columnspacing": 0.8, "handlelength": 1.4, "labelspacing": 0.3}
    figure.legend(handles=handles, fontsize=SMALL, **where, **spaced)
    return figure


def measured_points(kind: Kind, rows: list[str], it: dict) -> list[Point]:
    """Returns the points of a record: one for each curve whose gamma the record has.

    Of the best gamma there is one point, on the curve whose c is nearest to the
    measured one (Section 3.5). The tokens of a draft that copies are left out: where
    nothing matches it drafts no token, while Equation 1 assumes full drafts.
    """
    if kind.quantity == "expected_tokens" and it["draft"] == "copying":
        return []
    point = functools.partial(
        Point,
        alpha=it["alpha"],
        task=it.get("task", "code"),
        heat=it["temperature"],
        error=it["alpha_se"] or 0,
    )
    if kind.measured == "best_gamma":
        if not it["best_c"]:
            return []
        return [point(curve=nearest_row(rows, it["best_c"]), value=it["best_gamma"])]
    several = []
    for row in (row for row in rows if order(row) in it["gamma"]):
        at = it["gamma"].index(order(row))
        ends = tuple(it[f"{kind.measured}_ci"][at]) if kind.costs else ()
        several.append(point(curve=row, value=it[kind.measured][at], ends=ends))
    return several


def published_points(name: str, rows: list[str]) -> list[Point]:
    """Returns the published points: the tokens of Table 1, which equal its speed
    because c = 0; the gammas of Table 4 by their c; the speeds of Table 2.
    """
    if name == "figure3":
        table = published_rows("table4_expected_vs_measured")
        return [
            Point(nearest_row(rows, it["c"]), it["alpha"], it["gamma"]) for it in table
        ]
    key, value = ("table2_walltime", "speedup")
    if name == "figure2":
        key, value = "table1_operations_speed", "speed"
    known = {order(row): row for row in rows}
    return [
        Point(known[it["gamma"]], it["alpha"], it[value])
        for it in published_rows(key)
        if it["gamma"] in known
    ]


def nearest_row(rows: list[str], c: float) -> str:
    return min(rows, key=lambda row: abs(math.log(order(row) / c)))


def draw(
    axes: Axes, quantity: str, curves: dict, colors: dict, points: list[Point]
) -> None:
    """Draws the curves, and over them the points: filled at T = 0, else hollow."""
    for row in curves:
        ys = [float("nan") if y is None else y for y in curves[row][quantity]]
        style = "steps-post" if quantity == "best_gamma" else "default"
        axes.plot(curves[row]["alpha"], ys, color=colors[row], drawstyle=style)
    for point in points:
        color, x, y = colors[point.curve], point.alpha, point.value
        axes.plot([x - point.error, x + point.error], [y, y], color=color, **BAR)
        axes.plot([x] * len(point.ends), point.ends, color=color, **BAR)
        style = marker_style(point) | {"color": color, "clip_on": False}
        axes.plot(x, y, zorder=4, **style)


def marker_style(point: Point) -> dict:
    """Returns the style of a marker: a shape for each task, hollow unless T = 0; a
    cross if published.
    """
    style = {"linestyle": "none", "markersize": SIZE, "markeredgewidth": 0.9}
    if point.task is None:
        return style | {"marker": "x", "markersize": 6, "markeredgewidth": 1.4}
    face = {"markerfacecolor": "white"} if point.heat else {}
    return style | face | {"marker": MARKERS.get(point.task, "*")}


def heights(points: list[Point]) -> list[float]:
    return [y for point in points for y in (point.value, *point.ends)]


def limits(kind: Kind, points: list[Point]) -> tuple[float, float]:
    """Returns the limits of the first panel, which contain all of its points."""
    ends, room = heights(points), 0.03 * (kind.high - kind.low)
    low = min([kind.low, *(y - room for y in ends if y < kind.low)])
    return low, max([kind.high, *(y + room for y in ends if y > kind.high)])


def set_limits(axes: Axes, points: list[Point], whole: bool) -> None:
    """Sets limits around the points.

    Args:
        whole: the axis begins at 0, and has room above.
    """
    alphas, ends = [point.alpha for point in points], heights(points)
    room = 0.12 * (max(ends) - min(ends)) + 0.1
    axes.set_xlim(min(alphas) - 0.06, max(alphas) + 0.06)
    below, above = (min(ends), 1.5) if whole else (room, room)
    axes.set_ylim(min(ends) - below, max(ends) + above)
    axes.locator_params(nbins=5)
    axes.yaxis.get_major_locator().set_params(integer=whole)


def legend(
    name: str, colors: dict[str, str], ours: list[Point], papers: list[Point]
) -> list[Line2D]:
    """Returns the entries of the legend: the curves, then the shapes of points in a
    neutral color.
    """
    lines = [Line2D([], [], color=c, label=label(row)) for row, c in colors.items()]
    tasks = [task for task in TASKS if task in {point.task for point in ours}]
    others = [p for p in ours if p.task not in TASKS][:1]
    shapes = [
        (f"measured: {TASKS.get(point.task, 'other tasks')}", point)
        for point in [Point("", 0, 0, task, 0) for task in tasks] + others
    ]
    if any(point.heat for point in ours):
        shapes.append(("hollow: T = 1", Point("", 0, 0, "code", 1)))
    shapes += [(PUBLISHED[name], point) for point in papers[:1]]
    black = {"color": "black"}
    lines += [
        Line2D([], [], label=it, **black, **marker_style(point)) for it, point in shapes
    ]
    return lines


def order(row: str) -> float:
    """Returns a number by which curves are sorted: gamma_3 before gamma_10, gamma_inf
    last.
    """
    return float(row.rpartition("_")[2])


def label(row: str) -> str:
    kind, _, number = row.rpartition("_")
    return f"{kind} = {number}"
