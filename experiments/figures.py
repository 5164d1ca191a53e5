"""Figures 2, 3 and 4 of the paper from their records, as SVG that never varies."""

from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

STYLE = {
    "svg.hashsalt": "specjax",  # ids by content, not by chance
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
}


class Panel(NamedTuple):
    """A quantity of each record over alpha, and how much of it is drawn."""

    quantity: str
    label: str
    low: float
    high: float


PANELS = {
    "figure2": [Panel("expected_tokens", "expected tokens per call", 1, 12)],
    "figure3": [Panel("best_gamma", "best gamma", 0, 25)],
    "figure4": [
        Panel("speed", "speed, target alone = 1", 1, 11),
        Panel("operations", "operations, target alone = 1", 1, 11),
    ],
}


def draw(name: str, records: dict[str, dict], path: Path) -> None:
    """One figure, a curve per record; nothing that is not in the records."""
    panels = PANELS[name]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.5 * len(panels), 3.2), layout="constrained")
        every = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, panel in zip(every, panels, strict=True):
            for row in sorted(records, key=order):
                measured = records[row]["measured"]
                line = [
                    float("nan") if y is None else y for y in measured[panel.quantity]
                ]
                axes.plot(measured["alpha"], line, label=label(row))
            axes.set(xlabel="alpha", ylabel=panel.label, xlim=(0, 1))
            axes.set_ylim(panel.low, panel.high)
            if records:
                axes.legend()
        FigureCanvasSVG(figure).print_svg(
            path, metadata={"Date": None, "Creator": None}
        )


def order(row: str) -> float:
    """Curves by their number: gamma_3 before gamma_10, gamma_inf last."""
    return float(row.rpartition("_")[2])


def label(row: str) -> str:
    kind, _, number = row.rpartition("_")
    return f"{kind} = {number}"
