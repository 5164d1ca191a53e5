"""Figures 3, 4 and 5 of Wagner et al. (2024) in kind: what verifying costs, by gamma.

A column a pair of models: above, the time of a verification, with the half of its
rounds that is nearest to the median; below, the memory of a whole step.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Of gamma 1 to 20; names as records of `experiments.papers.wagner.rows` have them.
COLORS = {"baseline": "#7446ad", "exact": "#2a7fd0", "always": "#888888"}
SIGMOID = "#e8792b"  # of any scale
BAND = {"alpha": 0.25, "linewidth": 0}


def drawing(rows: dict[str, dict]) -> Figure:
    """The figure of at least one row: `measured` of records of wagner_time."""
    figure = Figure(figsize=(4.2 * len(rows) + 1.8, 5), layout="constrained")
    columns = figure.subplots(2, len(rows), sharex=True, squeeze=False).T
    for (time, memory), it in zip(columns, rows.values(), strict=True):
        for method in it["methods"]:
            draw_time(time, it, method)
            draw_memory(memory, it, method)
        time.set_title(f"{it['target']} + {it['draft']}", loc="left", fontsize=9)
        time.set(ylabel="µs a verification", ylim=(0, None), xlim=(0, None))
        memory.set(ylabel="MiB of a step at its peak", xlabel="gamma")
        memory.ticklabel_format(useOffset=False)
        memory.locator_params(axis="x", integer=True)
    handles = {
        handle.get_label(): handle for time, _ in columns for handle in time.lines
    }
    figure.legend(handles=list(handles.values()), loc="outside right upper")
    return figure


def color_of(method: str) -> str:
    return COLORS.get(method, SIGMOID)


def draw_time(axes: Axes, it: dict, method: str) -> None:
    gamma, color = it["gamma"], color_of(method)
    ends = (it[f"{part}_us_{method}"] for part in ("low", "high"))
    axes.fill_between(gamma, *ends, color=color, **BAND)
    axes.plot(gamma, it[f"median_us_{method}"], color=color, label=method)


def draw_memory(axes: Axes, it: dict, method: str) -> None:
    """At the gammas of which a step was compiled."""
    known = {g: it.get(f"step_peak_kib_{method}_g{g}") for g in it["gamma"]}
    known = {g: kib / 1024 for g, kib in known.items() if kib is not None}
    style = {"color": color_of(method), "marker": "o", "markersize": 3, "alpha": 0.8}
    axes.plot(list(known), list(known.values()), **style)
