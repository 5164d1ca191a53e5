"""Figure 5: where the time of a text goes, from measured times and measured traces.

Every row decodes the same greedy tokens. A step is gamma draft blocks, a block of the
target and the rest, each as long as it took on average at that gamma; gamma = 0 is
autoregression. Times are milliseconds after the prompt has been read. The text of an
encoder-decoder begins with reading its input, as in the paper: the target's encoder,
then the draft's where one drafts; there times count from the beginning of that.
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
COLORS = {"target_encoder": "#f2c230", "draft_encoder": "#e8792b"}
COLORS |= {"draft": "#56a3e8", "target": "#7446ad", "rest": "#cccccc"}
NAMES = {"target_encoder": "encoder of the target"}
NAMES |= {"draft_encoder": "encoder of the draft"}
NAMES |= {"draft": "a call of the draft", "target": "a call of the target"}
NAMES |= {"rest": "rest of the step"}
EDGE = "#2e1a47"  # where a call of the target begins
HEIGHT = 0.5  # of a block; rows are 1 apart


class Block(NamedTuple):
    """kind: of COLORS. begin, length: ms. emitted: tokens, of a target's block."""

    kind: str
    begin: float
    length: float
    emitted: int = 0


def drawing(times: dict, rows: dict[int, list[Block]], absent: list[str]) -> Figure:
    """The figure of at least one row, and below it what is absent: of `timelines`.

    times: `measured` of a row of table2.
    """
    figure = Figure(figsize=(10, 1.6 + 0.7 * len(rows)), layout="constrained")
    axes, encodes = figure.subplots(), times.get("encodes", False)
    colors = {k: color for k, color in COLORS.items() if encodes or k not in ENCODERS}
    for at, row in enumerate(rows.values()):
        draw_row(axes, at, row, colors)
    names = [f"gamma = {gamma}" if gamma else "autoregressive" for gamma in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.7)
    axes.set_xlim(0, 1.15 * max(map(end, rows.values())))  # room for the totals
    axes.grid(axis="y", visible=False)
    tokens = sum(block.emitted for block in next(iter(rows.values())))
    axes.set_title(
        f"the first {tokens} tokens at T = {times['temperature']:g}, {times['target']}"
        f" + {times['draft']}, batch {times['batch']}",
        loc="left",
        fontsize=9,
    )
    what = "time from the beginning of the text" if encodes else "decoding time"
    missing = f"\nnot run: {', '.join(absent)}" if absent else ""
    axes.set_xlabel(
        f"{what} (ms); a number is the tokens that the call of the target gave"
        + missing
    )
    patches = [Patch(color=colors[kind], label=NAMES[kind]) for kind in colors]
    where = {"loc": "outside upper right", "ncols": len(patches)}
    figure.legend(handles=patches, frameon=False, **where)
    return figure


def timelines(
    times: dict, traces: dict[str, dict]
) -> tuple[dict[int, list[Block]], list[str]]:
    """The blocks of each row by gamma, and what is absent and why.

    times: `measured` of a row of table2. traces: of its pair, gamma_3 and so on, as
    `experiments.papers.leviathan.figure1` measures them.
    """
    traced, absent = {}, []
    for gamma in WANTED:
        trace = traces.get(f"gamma_{gamma}")
        lack = lacking(times, gamma, trace, [*filter(None, traced.values())])
        if lack:
            absent.append(f"gamma = {gamma} ({lack})")
        else:
            traced[gamma] = trace
    tokens = shared([text(trace) for trace in traced.values() if trace])
    if not tokens:
        return {}, [*absent, "the texts have no token in common"]
    rows = {
        gamma: blocks(times, gamma, counts(trace, tokens))
        for gamma, trace in traced.items()
    }
    return rows, absent


def lacking(
    times: dict, gamma: int, trace: dict | None, others: list[dict]
) -> str | None:
    """What a row would need to be drawn beside the others; None if it can be."""
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


def text(trace: dict) -> list[str]:
    return [it for step in trace["steps"] for it in step["accepted"] + step["added"]]


def shared(texts: list[list[str]]) -> int:
    """How many tokens the texts begin with in common, at most TOKENS."""
    if not texts:
        return TOKENS
    same = [len(set(tokens)) == 1 for tokens in zip(*texts, strict=False)]
    return (same[:TOKENS] + [False]).index(False)


def counts(trace: dict | None, tokens: int) -> list[int]:
    """What each step gave of so many tokens: the last is cut, as it is by a limit."""
    if trace is None:
        return [1] * tokens
    each = []
    for step in trace["steps"]:
        left = tokens - sum(each)
        if left:
            each.append(min(left, len(step["accepted"] + step["added"])))
    return each


def blocks(times: dict, gamma: int, each: list[int]) -> list[Block]:
    """The encoders, if any, then the steps that gave `each`, one after the other."""
    step = step_of(times, gamma)
    parts = [(kind, length, 0) for kind, length in encoders(times, gamma)]
    for emitted in each:
        parts += [(kind, it, emitted * (kind == "target")) for kind, it in step]
    placed, begin = [], 0.0
    for kind, length, emitted in parts:
        placed.append(Block(kind, begin, length, emitted))
        begin += length
    return placed


def encoders(times: dict, gamma: int) -> list[tuple[str, float]]:
    """What reads the input, and ms: none in a row whose prompt has been read."""
    if not times.get("encodes"):
        return []
    kinds = list(ENCODERS) if gamma else ["target_encoder"]
    # The draft's is a difference of times: noise may leave it a little below 0.
    return [(kind, max(0.0, times[ENCODERS[kind]])) for kind in kinds]


def step_of(times: dict, gamma: int) -> list[tuple[str, float]]:
    """The parts of a step in their order, and ms."""
    at, single = times["gamma"].index(gamma), times["target_ms"]  # t_p(1)
    draft = [("draft", times["draft_ms"][at] / gamma)] * gamma if gamma else []
    parts = [*draft, ("target", times["v"][at] * single)]
    # A difference of times: noise may leave it a little below 0.
    rest = max(0.0, times["step_ms"][at] - sum(length for _, length in parts))
    return [*parts, ("rest", rest)]


def end(row: list[Block]) -> float:
    return row[-1].begin + row[-1].length


def draw_row(axes: Axes, at: int, row: list[Block], colors: dict[str, str]) -> None:
    """A row of blocks, what each call of the target gave above it, and the total."""
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
    total = f"{len(calls)} calls, {end(row):.1f} ms"
    beside = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
    axes.annotate(total, (end(row), at), fontsize=8, **beside)
