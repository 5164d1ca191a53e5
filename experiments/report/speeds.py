"""The drawing of every measured speed, on a line each, with the published speeds.

A thick bar is the 95 % interval over texts. A thin one reaches from the lowest to the
highest speed of all records of the pair, where there are several (`runs`). A published
speed is that of the paper's models on its hardware.
"""

from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments import catalogue
from experiments.records.table import Records
from experiments.report import names, runs, spec_bench, walltime

COLORS = {0: "#7446ad", 1: "#12808a"}  # by temperature
RUNS = "#888888"
FOLDERS = (*walltime.FOLDERS, "real_pair")
FONT, LINE = 8, 0.16  # points; inches of a line


class Speed(NamedTuple):
    """A line of the drawing.

    Attributes:
        label: the pair and how it decodes.
        heat: temperature.
        value, ends: the speed and its interval over texts.
        all: the speeds of all records of the pair.
        published: the speed of the same row of the paper; None if there is none.
    """

    label: str
    heat: int
    value: float
    ends: tuple[float, float]
    all: list[float]
    published: float | None


def drawing(results: Records) -> Figure | None:
    """Draws the speeds, the fastest first; returns None if there is no record."""
    lines = sorted(measured_speeds(results), key=lambda it: (-it.value, it.label))
    if not lines:
        return None
    height = 0.9 + LINE * len(lines)
    figure = Figure(figsize=(6.5, height), layout="constrained")
    axes = figure.subplots()
    axes.axvline(1, color="black", linewidth=0.8)
    for y, line in enumerate(lines):
        draw(axes, y, line)
    axes.set_yticks(range(len(lines)), [line.label for line in lines])
    axes.set(ylim=(len(lines) - 0.5, -0.5), xlim=(0, None))
    axes.set_xlabel("times the speed of the target alone")
    axes.grid(axis="y", visible=False)
    axes.tick_params(labelsize=FONT - 1)
    axes.xaxis.label.set_size(FONT)
    handles = [*legend(lines)]
    where = {"loc": "outside upper left", "ncols": 2, "frameon": False}
    figure.legend(handles=handles, fontsize=FONT, **where)
    return figure


def measured_speeds(results: Records) -> list[Speed]:
    """Returns the speeds of all pairs, each at its best gamma, without rows that use
    XLA's own products."""
    found = [
        record
        for folder in FOLDERS
        for row, record in sorted(results.get(folder, {}).items())
        if "best_speedup_ci" in record["measured"] and not row.endswith(walltime.XLA)
    ]
    whole = (spec_bench.combine_tasks(results, heat) for heat in (0, 1))
    found += [record for record in whole if record is not None]
    return [make_speed(results, record) for record in found]


def make_speed(results: Records, record: dict) -> Speed:
    it = record["measured"]
    heat, batch = it["temperature"], it.get("batch", 1)
    task = it.get("task", "Spec-Bench" if "tasks" in it else "Python")
    own = f"{it['target']} with {it['draft']} ({task})"
    label = own if "tasks" in it else names.pair(record["table"], record["row"], own)
    label += f", T = {heat:g}" + (f", batch {batch}" if batch > 1 else "")
    papers = catalogue.published_numbers(record["table"], record["row"]) or {}
    return Speed(
        label,
        round(heat),
        it["best_speedup"],
        tuple(it["best_speedup_ci"]),
        runs.speeds(results, record),
        None if "tasks" in it else papers.get("best_speedup"),
    )


def draw(axes: Axes, y: int, line: Speed) -> None:
    """Draws one speed: its runs, its interval, its value, and the published value."""
    color = COLORS.get(line.heat, "black")
    if len(line.all) > 1:
        ends = (line.all[0], line.all[-1])
        axes.plot(ends, [y, y], "|-", color=RUNS, linewidth=1, markersize=6)
    axes.plot(line.ends, [y, y], color=color, linewidth=2.5)
    axes.plot(line.value, y, "o", color=color, markersize=4)
    if line.published is not None:
        axes.plot(line.published, y, "D", color=color, fillstyle="none", markersize=4)


def legend(lines: list[Speed]) -> list[Line2D]:
    """Returns the entries of the legend, for what the lines contain."""
    shown = {
        f"T = {heat}, 95 % over texts": {
            "color": color,
            "marker": "o",
            "linewidth": 2.5,
        }
        for heat, color in COLORS.items()
    }
    if any(len(line.all) > 1 for line in lines):
        shown["all runs of the pair"] = {"color": RUNS, "marker": "|", "lw": 1}
    if any(line.published is not None for line in lines):
        hollow = {"marker": "D", "fillstyle": "none", "linestyle": "none"}
        shown["published: T5-XXL on a TPU-v4"] = hollow | {"color": "black"}
    return [Line2D([], [], label=k, markersize=4, **own) for k, own in shown.items()]
