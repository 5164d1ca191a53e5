"""The answer in one drawing: every measured speed with its interval, published beside.

A line a pair of models and batch, of folder table2 at its best gamma; the published
speed of a line is that of the paper's models on its hardware.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments import catalogue
from experiments.report.walltime import named

COLORS = {0: "#1f6fb4", 1: "#d9661f"}  # by temperature
APART = 0.17  # of the two temperatures of a line


def drawing(times: dict[str, dict]) -> Figure | None:
    """The figure of at least one record. times: `measured` of table2, by row."""
    places = lines_of(times)
    if not places:
        return None
    figure = Figure(figsize=(8.4, 1.1 + 0.31 * len(places)), layout="constrained")
    axes = figure.subplots()
    published = [draw_row(axes, row, it, places) for row, it in times.items()]
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(places)), list(places))
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.set_xlim(0, None)
    axes.set_xlabel("times the speed of the target alone, at the best gamma, 95 %")
    axes.grid(axis="y", visible=False)
    figure.legend(handles=legend(any(published)), loc="outside upper right", ncols=3)
    return figure


def lines_of(times: dict[str, dict]) -> dict[str, int]:
    """Where each pair stands, the fastest above."""
    fastest = {}
    for it in times.values():
        fastest[place(it)] = max(it["best_speedup"], fastest.get(place(it), 0))
    ordered = sorted(fastest, key=lambda name: (-fastest[name], name))
    return {name: at for at, name in enumerate(ordered)}


def place(it: dict) -> str:
    batch = f", batch {it['batch']}" if it["batch"] != 1 else ""
    return f"{it['target']} + {named(it)}{batch}"


def draw_row(axes: Axes, row: str, it: dict, places: dict[str, int]) -> bool:
    """One record; whether something was published beside it."""
    heat = round(it["temperature"])
    y = places[place(it)] + APART * (1 if heat else -1)
    color = COLORS.get(heat, "black")
    axes.plot(it["best_speedup_ci"], [y, y], color=color, linewidth=2.2)
    axes.plot(it["best_speedup"], y, "o", color=color, markersize=4.5)
    papers = (catalogue.published("table2", row) or {}).get("best_speedup")
    if papers is not None:
        axes.plot(papers, y, "D", color=color, fillstyle="none", markersize=5)
    return papers is not None


def legend(published: bool) -> list[Line2D]:
    handles = [
        Line2D([], [], color=color, marker="o", markersize=4.5, label=f"T = {heat}")
        for heat, color in COLORS.items()
    ]
    if published:
        style = {"color": "black", "marker": "D", "fillstyle": "none"}
        label = "published: T5-XXL on a TPU-v4"
        style |= {"linestyle": "none", "markersize": 5}
        handles.append(Line2D([], [], label=label, **style))
    return handles
