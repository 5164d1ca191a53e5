"""The answer in one drawing: every measured speed with its interval, beside the
published one.

There is a line for each pair and task at batch 1, of folder table2 at its best gamma.
The published speed of a line is that of the paper's models on its hardware. A second
panel shows the code pair's speed by batch.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments import catalogue
from experiments.report.curves import TASKS
from experiments.report.walltime import XLA

COLORS = {0: "#7446ad", 1: "#12808a"}  # by temperature
APART = 0.17  # of the two temperatures of a line
FONT = 13  # to be read from the back of a room
BATCHES = ("code_target", "code_small", 0)  # the pair and temperature drawn by batch


def drawing(times: dict[str, dict]) -> Figure | None:
    """Draws the figure of speeds; returns None if there is no record.

    Args:
        times: `measured` of table2, by row.
    """
    own = {row: it for row, it in times.items() if not row.endswith(XLA)}
    alone = {row: it for row, it in own.items() if it["batch"] == 1}
    if not alone:
        return None
    fastest = {place(it): 0.0 for it in alone.values()}
    for it in alone.values():
        fastest[place(it)] = max(it["best_speedup"], fastest[place(it)])
    ordered = sorted(fastest, key=lambda name: (-fastest[name], name))
    places = {name: at for at, name in enumerate(ordered)}
    batches = [
        it
        for it in sorted(own.values(), key=lambda it: it["batch"])
        if (it["target"], it["draft"], it["temperature"]) == BATCHES
    ]
    height = 1.8 + 0.45 * len(places)
    figure = Figure(figsize=(13, height), layout="constrained")
    axes, beside = figure.subplots(1, 2, width_ratios=(3, 1))
    published = [draw_row(axes, row, it, places) for row, it in alone.items()]
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(places)), list(places))
    axes.set(ylim=(len(places) - 0.5, -0.5), xlim=(0, None))
    axes.set_xlabel("times the speed of the target alone, batch 1, 95 %")
    axes.grid(axis="y", visible=False)
    draw_batches(beside, batches)
    for part in (axes, beside):
        part.tick_params(labelsize=FONT)
        part.xaxis.label.set_size(FONT)
    shown = {f"T = {heat}": {"color": color} for heat, color in COLORS.items()}
    if any(published):
        hollow = {"marker": "D", "fillstyle": "none", "linestyle": "none"}
        shown["published: T5-XXL on a TPU-v4"] = hollow | {"color": "black"}
    style = {"marker": "o", "markersize": 7}
    handles = [Line2D([], [], label=k, **style | own) for k, own in shown.items()]
    where = {"loc": "outside upper left", "ncols": 3}
    figure.legend(handles=handles, fontsize=FONT, frameon=False, **where)
    return figure


def place(it: dict) -> str:
    """Returns the label of a line: what is written, and the draft."""
    task = it.get("task", "code")
    return f"{TASKS.get(task, task)}, {it['draft']}"


def draw_row(axes: Axes, row: str, it: dict, places: dict[str, int]) -> bool:
    """Draws one record; returns whether something was published beside it."""
    heat = round(it["temperature"])
    y = places[place(it)] + APART * (1 if heat else -1)
    color = COLORS.get(heat, "black")
    axes.plot(it["best_speedup_ci"], [y, y], color=color, linewidth=3)
    axes.plot(it["best_speedup"], y, "o", color=color, markersize=7)
    papers = (catalogue.published("table2", row) or {}).get("best_speedup")
    if papers is not None:
        axes.plot(papers, y, "D", color=color, fillstyle="none", markersize=7)
    return papers is not None


def draw_batches(axes: Axes, several: list[dict]) -> None:
    sizes = [it["batch"] for it in several]
    for x, it in enumerate(several):
        axes.plot([x, x], it["best_speedup_ci"], color=COLORS[0], linewidth=3)
    speeds = [it["best_speedup"] for it in several]
    axes.plot(range(len(sizes)), speeds, "o-", color=COLORS[0], markersize=7)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_xticks(range(len(sizes)), sizes)
    axes.set(ylim=(0, None), xlabel="texts at a time")
    axes.set_title("Python, code_small, T = 0", fontsize=FONT)
