"""The figures of the paper from the records, as SVG that never varies.

Figure 1 is a measured trace, Figures 2, 3 and 4 are closed forms with what was measured
on them, Figure 5 is a timeline. Nothing is drawn that is not in a record.
"""

import io
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from experiments import figure_curves, figure_timeline, figure_trace

STYLE = {
    "svg.hashsalt": "specjax",  # ids by content, not by chance
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
}
NAMES = ("figure1", "figure2", "figure3", "figure4", "figure5")
TRACE, TIMES = "gamma_7", "small_t0_b1"  # the rows that Figures 1 and 5 draw

Records = dict[str, dict[str, dict]]  # folder -> row -> its latest record


def draw(name: str, found: Records, path: Path) -> None:
    """Writes one of NAMES; a drawing that says "not run" where its records are absent.

    found: as `tables.collect(folder)` returns it. Raises ValueError for no such name.
    """
    path.write_text(svg(name, found), "utf-8")


def svg(name: str, found: Records) -> str:
    """A drawing on white, which can also be put into an HTML page as it is."""
    if name not in NAMES:
        raise ValueError(f"no figure {name!r}: choose one of {', '.join(NAMES)}")
    traces, times = measured(found, "figure1"), measured(found, "table2")
    if name == "figure1" and TRACE in traces:
        return figure_trace.drawing(traces[TRACE])
    figure = None
    with matplotlib.rc_context(STYLE):
        if name in figure_curves.PANELS:
            figure = figure_curves.drawing(name, measured(found, name), times)
        elif name == "figure5":
            figure = figure_timeline.drawing(times.get(TIMES), traces)
        return printed(figure) if figure else figure_trace.note(f"{name}: not run")


def measured(found: Records, folder: str) -> dict[str, dict]:
    """What was measured in a folder, by row."""
    records = found.get(folder, {})
    return {row: records[row]["measured"] for row in sorted(records)}


def printed(figure: Figure) -> str:
    """Without a date, and without the prolog, which HTML does not know."""
    file = io.StringIO()
    metadata = {"Date": None, "Creator": None}
    FigureCanvasSVG(figure).print_svg(file, metadata=metadata)
    whole = file.getvalue()
    return whole[whole.index("<svg") :]
