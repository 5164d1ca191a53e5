"""Figure 5: the time of a text divided into its parts, from measured times and measured
traces.

Every row decodes the same greedy tokens. A step is gamma draft blocks, a block of the
target and the rest, each as long as its mean at that gamma; gamma = 0 is
autoregression. Times are milliseconds after the prompt has been read. The text of an
encoder-decoder begins with the encoding of its input, as in the paper: the target's
encoder, then the draft's where there is a draft; there times count from the beginning
of the encoding.
"""

from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

WANTED = (0, 3, 7)
TOKENS = 20  # of the text, so that single blocks can be seen
# Encoders are as in the paper, with what follows from them alone: keys and values of
# cross-attention, and the start token.
ENCODERS = {"target_encoder": "prefill_target_ms", "draft_encoder": "prefill_draft_ms"}
# Of the target blue, of the draft orange, as everywhere.
COLORS = {"target_encoder": "#9cc0e8", "draft_encoder": "#f3c594"}
COLORS |= {"draft": "#d9822b", "target": "#2f6fb3", "rest": "#cccccc"}
NAMES = {"target_encoder": "encoder of the target"}
NAMES |= {"draft_encoder": "encoder of the draft"}
NAMES |= {"draft": "a call of the draft", "target": "a call of the target"}
NAMES |= {"rest": "rest of the step"}
EDGE = "#12304f"  # where a call of the target begins
HEIGHT = 0.5  # of a block; rows are 1 apart


class Block(NamedTuple):
    """A part of a step in the drawing.

    Attributes:
        kind: one of COLORS.
        begin, length: in ms.
        emitted: the tokens of a target's block.
    """

    kind: str
    begin: float
    length: float
    emitted: int = 0


def drawing(times: dict, rows: dict[int, list[Block]], absent: list[str]) -> Figure:
    """Draws at least one row, and below the rows the list of absent rows, as
    `timelines` returns them.

    Args:
        times: `measured` of a row of table2.
    """
    figure = Figure(figsize=(10, 1.6 + 0.7 * len(rows)), layout="constrained")
    axes, encodes = figure.subplots(), times.get("encodes", False)
    colors = {k: color for k, color in COLORS.items() if encodes or k not in ENCODERS}
    ends = [draw_row(axes, at, row, colors) for at, row in enumerate(rows.values())]
    names = [f"gamma = {gamma}" if gamma else "autoregressive" for gamma in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set(xlim=(0, 1.15 * max(ends)), ylim=(len(rows) - 0.5, -0.7))  # for the totals
    axes.grid(axis="y", visible=False)
    tokens = sum(block.emitted for block in next(iter(rows.values())))
    title = f"the first {tokens} tokens at T = {times['temperature']:g}"
    title += f", {times['target']} + {times['draft']}, batch {times['batch']}"
    axes.set_title(title, loc="left", fontsize=9)
    what = "time from the beginning of the text" if encodes else "decoding time"
    what += " (ms); a number is the tokens that the call of the target gave"
    missing = f"\nnot run: {', '.join(absent)}" if absent else ""
    axes.set_xlabel(what + missing)
    patches = [Patch(color=colors[kind], label=NAMES[kind]) for kind in colors]
    where = {"loc": "outside upper right", "ncols": len(patches)}
    figure.legend(handles=patches, frameon=False, **where)
    return figure


def timelines(
    times: dict, traces: dict[str, dict]
) -> tuple[dict[int, list[Block]], list[str]]:
    """Returns the blocks of each row by gamma, and the absent rows with the reasons for
    their absence.

    Args:
        times: `measured` of a row of table2.
        traces: the traces of its pair, gamma_3 and so on, as
            `experiments.papers.leviathan.figure1` measures them.
    """
    traced, absent = {}, []
    for gamma in WANTED:
        trace = traces.get(f"gamma_{gamma}") if gamma else None
        lack = missing_reason(times, gamma, trace, [*filter(None, traced.values())])
        if lack:
            absent.append(f"gamma = {gamma} ({lack})")
        else:
            traced[gamma] = trace
    drafted = [trace["steps"] for trace in traced.values() if trace]
    texts = [[token for it in steps for token in tokens_given(it)] for steps in drafted]
    # How many tokens the texts begin with in common, at most TOKENS.
    same = [len(set(tokens)) == 1 for tokens in zip(*texts, strict=False)]
    tokens = (same[:TOKENS] + [False]).index(False) if texts else TOKENS
    if not tokens:
        return {}, [*absent, "the texts have no token in common"]
    return {g: blocks(times, g, trace, tokens) for g, trace in traced.items()}, absent


def missing_reason(
    times: dict, gamma: int, trace: dict | None, others: list[dict]
) -> str | None:
    """Returns why a row cannot be drawn beside the others; None if it can."""
    if gamma not in times["gamma"]:
        return "no times"
    if times.get("encodes") and any(times.get(it) is None for it in ENCODERS.values()):
        return "no encoder times"
    if gamma == 0:
        return None
    if trace is None:
        return "no trace"
    if (trace["target"], trace["draft"]) != (times["target"], times["draft"]):
        return "trace of another pair"
    if any(trace["prompt"] != other["prompt"] for other in others):
        return "trace of another prompt"
    return None


def tokens_given(step: dict) -> list[str]:
    return step["accepted"] + step["added"]


def blocks(times: dict, gamma: int, trace: dict | None, tokens: int) -> list[Block]:
    """Returns the blocks of one text in the order of their times, in ms: those of the
    encoders, if there are any, then those of the steps that write `tokens` tokens. The
    last step counts only the tokens up to this limit.
    """
    at, parts = times["gamma"].index(gamma), []
    if times.get("encodes"):
        kinds = list(ENCODERS) if gamma else ["target_encoder"]
        # The draft's is a difference of times: noise may leave it a little below 0.
        parts = [(kind, max(0.0, times[ENCODERS[kind]]), 0) for kind in kinds]
    draft = [("draft", times["draft_ms"][at] / gamma)] * gamma if gamma else []
    step = [*draft, ("target", times["v"][at] * times["target_ms"])]
    # So is this one.
    rest = max(0.0, times["step_ms"][at] - sum(length for _, length in step))
    each = [len(tokens_given(it)) for it in trace["steps"]] if trace else [1] * tokens
    for emitted in each:
        emitted = min(emitted, tokens)
        tokens -= emitted
        if emitted:
            parts += [(k, ms, emitted * (k == "target")) for k, ms in step]
            parts.append(("rest", rest, 0))
    placed, begin = [], 0.0
    for kind, length, emitted in parts:
        placed.append(Block(kind, begin, length, emitted))
        begin += length
    return placed


def draw_row(axes: Axes, at: int, row: list[Block], colors: dict[str, str]) -> float:
    """Draws the blocks of a row, the tokens of each target call above it, and the
    total, which is returned.
    """
    low = at - HEIGHT / 2  # the axis points down
    for kind, color in colors.items():
        spans = [(block.begin, block.length) for block in row if block.kind == kind]
        style = {"facecolors": color, "edgecolors": color, "linewidth": 0.2}
        axes.broken_barh(spans, (low, HEIGHT), **style)
    calls = [block for block in row if block.emitted]
    starts = [block.begin for block in calls]
    axes.vlines(starts, low, low + HEIGHT, EDGE, linewidth=0.6, zorder=3)
    for block in calls:
        middle = block.begin + block.length / 2
        style = {"ha": "center", "va": "bottom", "fontsize": 7}
        axes.text(middle, low - 0.03, str(block.emitted), **style)
    end = row[-1].begin + row[-1].length
    beside = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
    total = f"{len(calls)} calls, {end:.1f} ms"
    axes.annotate(total, (end, at), fontsize=8, **beside)
    return end
