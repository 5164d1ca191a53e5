"""The drawing of every measured speed, on a line each, with the published speeds.

A thick bar is the 95 % interval over texts. A thin one reaches from the lowest to the
highest speed of all records of the pair, where there are several (`runs`); the thick
bar is of the one in the middle. A published
speed is that of the paper's models on its hardware.
"""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments import catalogue
from experiments.records.table import Records
from experiments.report import names, runs, spec_bench, walltime

COLORS = {0: "#7446ad", 1: "#12808a"}  # by temperature
RUNS = "#888888"
FOLDERS = (*walltime.FOLDERS, "real_pair", "heads", "heads_data", "policies")
FOLDERS += ("trees", "trees_questions", "model_free_speed", "images", "chip")
FONT, LINE, HEAD = 8, 0.16, 0.3  # points; inches of a line, and of a panel's title
MOST, LEAST = 70, 3  # lines of a drawing in one panel; of a panel of its own
REST = "other targets"
TASKS = {  # what is written, in the words of the catalogue; code is not named
    "code": "",
    "joined": "EnDe",
    "ende": "EnDe",
    "docs": "docs",
    "correct": "correction",
    "digits": "digits",
}
ASKED = {  # how the names of rows of questions begin
    "speed_rag": "passages",
    "speed_summarization": "news",
    "smollm2_t": "questions",
    "walltime_smollm2": "MT-bench",
    "coding_": "coding",
    "math_": "GSM8K",
}


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
    panels = split_by_target(lines)
    height = 0.9 + LINE * len(lines) + HEAD * (len(panels) - 1)
    figure = Figure(figsize=(6.5, height), layout="constrained")
    sizes = {"height_ratios": [len(each) for each in panels.values()]}
    shape = {"sharex": True, "squeeze": False, "gridspec_kw": sizes}
    columns = figure.subplots(len(panels), **shape)[:, 0]
    for axes, (title, each) in zip(columns, panels.items(), strict=True):
        draw_panel(axes, title, each)
    columns[-1].set_xlim(0, None)  # of all panels, which share it
    columns[-1].set_xlabel("times the speed of the target alone")
    columns[-1].xaxis.label.set_size(FONT)
    handles = [*legend(lines)]
    where = {"loc": "outside upper left", "ncols": 2, "frameon": False}
    figure.legend(handles=handles, fontsize=FONT, **where)
    return figure


def split_by_target(lines: list[Speed]) -> dict[str, list[Speed]]:
    """Returns the lines of each panel by its title: all in one without a title if they
    are few, else those of each target, and those of targets with few lines
    together."""
    if len(lines) <= MOST:
        return {"": lines}
    found: dict[str, list[Speed]] = {}
    for line in lines:
        found.setdefault(line.label.partition(" with ")[0], []).append(line)
    large = {name: each for name, each in found.items() if len(each) >= LEAST}
    rest = [line for line in lines if line.label.partition(" with ")[0] not in large]
    return large | ({REST: rest} if rest else {})


def draw_panel(axes: Axes, title: str, lines: list[Speed]) -> None:
    """Draws the speeds of one panel, a line each; its title is not repeated in their
    labels."""
    axes.axvline(1, color="black", linewidth=0.8)
    for y, line in enumerate(lines):
        draw(axes, y, line)
    labels = [line.label.removeprefix(f"{title} ") for line in lines]
    axes.set_yticks(range(len(lines)), labels)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_title(title, loc="left", fontsize=FONT)
    axes.grid(axis="y", visible=False)
    axes.tick_params(labelsize=FONT - 1)


def measured_speeds(results: Records) -> list[Speed]:
    """Returns the speeds of all pairs, each at its best gamma, without rows that use
    XLA's own products. Several records of a pair make one line."""
    found = [
        record
        for folder in FOLDERS
        for row, record in sorted(results.get(folder, {}).items())
        if "best_speedup_ci" in record["measured"] and has_line(folder, row)
    ]
    for folder in spec_bench.FOLDERS:
        whole = (spec_bench.combine_tasks(results, heat, folder) for heat in (0, 1))
        found += [record for record in whole if record is not None]
    every = runs.all_records(results)
    lines: dict[str, Speed] = {}
    for record in found:
        line = make_speed(every, record)
        best = lines.setdefault(line.label, line)  # rows may differ in gamma alone
        lines[line.label] = max(best, line, key=lambda it: it.value)
    return list(lines.values())


def has_line(folder: str, row: str) -> bool:
    """Returns whether a row has a line of its own, unlike rows by XLA's products, a
    single task of a row of all tasks, and repetitions on another device."""
    parts = {f"{task}_t{heat}" for task in spec_bench.CODER_TASKS for heat in (0, 1)}
    part = folder == spec_bench.CODER and row in parts
    same = names.timed_names().get((folder, row), "").startswith("the same")
    return not (row.endswith(walltime.XLA) or part or same)


def label(record: dict) -> str:
    """Returns the pair of a record, what it writes and how it decodes."""
    it = record["measured"]
    words = [name_pair(record)]
    known = " with " in names.timed_names().get((record["table"], record["row"]), "")
    if "tasks" in it or not known:
        policy, rule = it.get("policy", "none"), it.get("rule", "token")
        words += [policy.partition(":")[0]] * (policy != "none")
        words += [f"by {rule}"] * (rule != "token")
    words.append(f"T = {it['temperature']:g}")
    if (batch := it.get("batch", 1)) > 1:
        words.append(f"batch {batch}")
    return ", ".join(words)


def name_pair(record: dict) -> str:
    """Returns the pair of a record and what it writes, as the catalogue does where it
    names both models."""
    it = record["measured"]
    known = names.pair(record["table"], record["row"], "")
    if " with " in known and "tasks" not in it:
        return known.replace(", acceptance simulated", ", simulated")
    draft = it["draft"].partition(", of states")[0]
    own = names.pair_of_models(it["target"], draft)
    task = "Spec-Bench" if "tasks" in it else task_words(record)
    return f"{own} ({task})" if task else own


def task_words(record: dict) -> str:
    """Returns what a pair writes, in a word; "" for code."""
    if task := record["measured"].get("task"):
        return TASKS.get(task, task)
    found = (words for key, words in ASKED.items() if record["row"].startswith(key))
    return next(found, "")


def make_speed(every: Sequence[dict], record: dict) -> Speed:
    """Returns the line of a pair: of its records that whose speed is the median.

    every: of `runs.all_records`.
    """
    whole = "tasks" in record["measured"]
    middle = runs.median_record(every, record)["measured"]
    it = middle if "best_speedup_ci" in middle else record["measured"]
    papers = catalogue.published_numbers(record["table"], record["row"]) or {}
    return Speed(
        label(record),
        round(it["temperature"]),
        it["best_speedup"],
        tuple(it["best_speedup_ci"]),
        runs.speeds(every, record),
        None if whole else papers.get("best_speedup", papers.get("speedup")),
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
