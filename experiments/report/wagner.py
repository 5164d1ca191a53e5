"""Figures like Figures 3, 4 and 5 of Wagner et al. (2024): the cost of verification by
gamma.

A column is a pair of models: above, the time of a verification, with the half of its
rounds that is nearest to the median; below, the memory of a whole step.
"""

from matplotlib.figure import Figure

from experiments.report.methods import method_words

# Of gamma 1 to 20; names as records of `experiments.papers.wagner.rows` have them.
COLORS = {"baseline": "#7446ad", "exact": "#12808a", "always": "#555555"}
SIGMOID = "#d9661f"  # of any scale
WORDS = {"baseline": "every matrix written out", "exact": "the exact rule, fused"}
DASHES = {"baseline": "-", "exact": "--", "always": ":"}
MARKERS = {"baseline": "s", "exact": "o", "always": "^"}
WIDEST, STEP = 4.5, 1.2  # points: lines that lie on each other stay visible
FONT = 9


def drawing(rows: dict[str, dict]) -> Figure:
    """Draws at least one row: the `measured` fields of records of wagner_time.

    Later lines are thinner than earlier ones, so that equal values show all of them.
    """
    figure = Figure(figsize=(3.2 * len(rows), 5.6), layout="constrained")
    columns = figure.subplots(2, len(rows), sharex=True, squeeze=False).T
    for (time, memory), it in zip(columns, rows.values(), strict=True):
        for place, method in enumerate(it["methods"]):
            style = line_style(method, place)
            ends = (it[f"{part}_us_{method}"] for part in ("low", "high"))
            color = style["color"]
            time.fill_between(it["gamma"], *ends, color=color, alpha=0.15, linewidth=0)
            label = WORDS.get(method, method_words(method))
            time.plot(it["gamma"], it[f"median_us_{method}"], label=label, **style)
            # At the gammas of which a step was compiled.
            peaks = {g: it.get(f"step_peak_kib_{method}_g{g}") for g in it["gamma"]}
            known = {g: kib / 1024 for g, kib in peaks.items() if kib is not None}
            memory.plot(list(known), list(known.values()), **style)
        time.set_title(f"{it['target']} + {it['draft']}", loc="left", fontsize=FONT)
        time.set(ylabel="µs a verification", ylim=(0, None), xlim=(0, None))
        memory.set(ylabel="MiB of a step at its peak", xlabel="gamma")
        memory.set_ylim(0, 1.15 * memory.dataLim.ymax)
        memory.ticklabel_format(useOffset=False)
        memory.locator_params(axis="x", integer=True)
    handles = {line.get_label(): line for time, _ in columns for line in time.lines}
    where = {"loc": "outside upper left", "ncols": 2, "frameon": False}
    figure.legend(handles=list(handles.values()), fontsize=FONT, **where)
    return figure


def line_style(method: str, place: int) -> dict:
    """Returns the style of a method's lines, which get thinner with each place."""
    return {
        "color": COLORS.get(method, SIGMOID),
        "linestyle": DASHES.get(method, "-."),
        "marker": MARKERS.get(method, "D"),
        "markersize": max(7 - 1.2 * place, 3),
        "linewidth": max(WIDEST - STEP * place, 1),
    }
