"""The figures of the paper, drawn from the records as SVG that is always the same.

Figure 1 is a measured trace; Figures 2, 3 and 4 are closed forms with the measured
points; Figure 5 is a timeline, of a decoder alone and, as in the paper, of an encoder
and a decoder. `figure_wagner` is of another paper, `speeds` opens the page, `recording`
is Figure 1 for a recording that a pair of Whispers transcribed, `figure_images` for
images of digits. Only numbers of a record or of a paper's table are drawn.
"""

import io
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from experiments.records.table import Records
from experiments.report import curves, images, recording, speeds, wagner
from experiments.report import timeline as figure_timeline
from experiments.report import trace as figure_trace

STYLE = {
    "svg.hashsalt": "specjax",  # ids by content, not by chance
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
}
NAMES = ("figure1", "figure2", "figure3", "figure4", "figure5", "figure5_ende")
NAMES += ("figure_images", "figure_wagner", "speeds", "recording")
TRACES = {"figure1": ("figure1", "gamma_7")}  # folder and row
TRACES["recording"] = recording.FOLDER, recording.ROW
TRACES["figure_images"] = "images", "drawn_t1"
DRAWINGS = {"figure_images": images.drawing}  # of a trace that is not a text


class Timeline(NamedTuple):
    """A figure of times, such as Figure 5.

    Attributes:
        times: the row of table2.
        traces: the folder of the traces.
        prefix: the prefix of their names in it.
    """

    times: str
    traces: str
    prefix: str = ""


TIMELINES = {"figure5": Timeline("small_t0_b1", "figure1")}
TIMELINES["figure5_ende"] = Timeline("ende_small_t0", "figure5", "ende_")


def draw(name: str, results: Records, path: Path) -> None:
    """Writes the figure with one of NAMES; if its records are absent, the drawing says
    "not run".

    Args:
        results: as `tables.collect(folder)` returns it.

    Raises:
        ValueError: the name is unknown.
    """
    path.write_text(svg(name, results), "utf-8")


def svg(name: str, results: Records) -> str:
    """Returns a drawing on a white background, which can also be put into an HTML
    page."""
    if name not in NAMES:
        raise ValueError(f"no figure {name!r}: choose one of {', '.join(NAMES)}")
    folder, row = TRACES.get(name, ("", ""))
    if trace := numbers_by_row(results, folder).get(row):
        return DRAWINGS.get(name, figure_trace.drawing)(trace)
    times, figure = numbers_by_row(results, "table2"), None
    with matplotlib.rc_context(STYLE):
        if name in TIMELINES:
            return timeline(name, results)
        if name in curves.KINDS:
            figure = curves.drawing(name, numbers_by_row(results, name), times)
        if name == "speeds":
            figure = speeds.drawing(results)
        if name == "figure_wagner" and (
            verified := numbers_by_row(results, "wagner_time")
        ):
            figure = wagner.drawing(verified)
        return to_svg(figure) if figure else figure_trace.note(f"{name}: not run")


def timeline(name: str, results: Records) -> str:
    """Returns the figure with one of TIMELINES; if none of its rows can be drawn, the
    reason."""
    row, folder, prefix = TIMELINES[name]
    times, traces = (
        numbers_by_row(results, "table2").get(row),
        numbers_by_row(results, folder),
    )
    if times is None:
        return figure_trace.note(f"{name}: not run")
    own = {k.removeprefix(prefix): x for k, x in traces.items() if k.startswith(prefix)}
    rows, absent = figure_timeline.timelines(times, own)
    if not rows:
        return figure_trace.note(f"{name}: not run: {', '.join(absent)}")
    return to_svg(figure_timeline.drawing(times, rows, absent))


def numbers_by_row(results: Records, folder: str) -> dict[str, dict]:
    """Returns the numbers of the records of a folder, by row."""
    records = results.get(folder, {})
    return {row: records[row]["measured"] for row in sorted(records)}


def to_svg(figure: Figure) -> str:
    """Returns a figure as SVG, without a date and without the prolog, which HTML does
    not allow.
    """
    file = io.StringIO()
    metadata = {"Date": None, "Creator": None}
    FigureCanvasSVG(figure).print_svg(file, metadata=metadata)
    whole = file.getvalue()
    return whole[whole.index("<svg") :]
