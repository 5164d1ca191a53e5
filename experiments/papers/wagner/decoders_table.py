"""Lines of decoders after Wagner et al. (2024): the paper's pairs, and one of ours.

The published numbers stand at the methods with top-k 50, the default of the library
that the paper decodes with, and of a sigmoid at the scale that they are of.
"""

import json
from collections.abc import Callable
from functools import cache

from experiments.records.table import PUBLISHED, Line, Records

MODELS = {
    "gemma_7b": "Gemma 7B with Gemma 2B",
    "qwen_7b": "Qwen 7B with Qwen 0.5B",
    "qwen_1.8b": "Qwen 1.8B with Qwen 0.5B",
    "llama2_7b": "Llama2 7B with Sheared-LLaMA 1.3B",
    "llama2_13b": "Llama2 13B with Sheared-LLaMA 1.3B",
}
FIGURE = ("gemma_7b", "qwen_7b", "llama2_7b")  # of Figures 3a and 4
TASKS = {"xsum": "XSum", "cnndm": "CNN/DM"}
FILES = {"xsum": "runs/data/xsum.jsonl (gin_configs/tasks/xsum.gin)"}
FILES["cnndm"] = "runs/data/cnndm.jsonl (gin_configs/tasks/cnndm.gin)"
NEEDS = "the pair's weights from the hub, {} and a GPU of 80 GB"
OURS = "a pair of Llama's kind, trained here (dialogues)"
OURS_NEED = "runs/llama (`make zoo-llama DIALOGUES=FOLDER`) and"
OURS_NEED += " runs/data/dialogues.jsonl"
METHODS = {
    "baseline": "baseline_top50",
    "exact": "exact_top50",
    "sigmoid": "sigmoid_1e4_top50",
}
SHOWN = {"baseline": "baseline", "exact": "exact", "sigmoid": "sigmoid, +-1e4"}
QUANTITIES = {
    "rouge1": "ROUGE-1",
    "profile_reduction": "% less time in all steps",
    "gb_s": "bandwidth, GB/s",
    "acceptance": "drafts kept, of all drafted, by the schedule",
}
SCALES = (10, 1000, 10_000, 100_000)


@cache
def wagner() -> dict:
    return json.loads(PUBLISHED.read_text("utf-8"))["wagner2024"]


def rows_of(key: str) -> list[dict]:
    table = wagner()[key]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def row_of(kind: str, pair: str) -> str:
    """The name of a row's file."""
    return f"{kind}_{pair.replace('.', '_')}"


@cache
def published(task: str, pair: str) -> dict[str, float]:
    """What Tables 3 and 4 have of a pair on a task, under the names of what is
    measured."""
    if task != "xsum":
        return {}
    numbers = {}
    for entry in rows_of("table3_bandwidth_gb_s"):
        if entry["target"] == pair:
            numbers |= {f"gb_s_{own}": entry[name] for name, own in METHODS.items()}
    for entry in rows_of("table4_rtx2080ti"):
        if entry["pair"] == pair:
            for name, own in METHODS.items():
                numbers[f"rouge1_{own}"] = entry[f"metric_{name}"]
                key = f"time_reduction_{name}_percent"
                if key in entry:
                    numbers[f"profile_reduction_{own}"] = entry[key]
    return numbers


def text_lines() -> list[Line]:
    """Of Tables 1, 3, 4, 5, 6 and 8."""
    lines = text_lines_of("wagner_data", "text_llama", OURS, {}, OURS_NEED)
    for pair, models in MODELS.items():
        for task, name in TASKS.items():
            about = f"the paper's models: {models}, {name}"
            facts, needs = published(task, pair), NEEDS.format(FILES[task])
            row = row_of(task, pair)
            lines += text_lines_of("wagner_paper", row, about, facts, needs)
    return lines


def text_lines_of(
    folder: str, row: str, about: str, facts: dict[str, float], needs: str
) -> list[Line]:
    lines = []
    for key, words in QUANTITIES.items():
        for name, own in METHODS.items():
            if key == "profile_reduction" and name == "baseline":
                continue
            quantity = f"{key}_{own}"
            what = f"{about}: {SHOWN[name]}, top-k 50: {words}"
            decimals = 1 if key == "profile_reduction" else 2
            line = Line(folder, row, what, quantity, facts.get(quantity), needs=needs)
            lines.append(line._replace(decimals=decimals))
    return lines


def scale_lines() -> list[Line]:
    """Of Table 7, whose Whisper and Llama2 7B parts are Table 2."""
    lines = [
        line
        for scale in (None, *SCALES)
        for line in scale_lines_of("wagner_data", "llama", scale, OURS, OURS_NEED)
    ]
    for entry in rows_of("table7_sigmoid_scale"):
        pair = entry["pair"]
        if pair not in MODELS:
            continue  # of speech
        about = f"the paper's models: {MODELS[pair]}"
        parts = "wagner_paper", pair, entry["scale"], about, NEEDS.format(FILES["xsum"])
        values = entry["metric"], entry["time_reduction_percent"]
        for line, value in zip(scale_lines_of(*parts), values, strict=False):
            lines.append(line._replace(published=value))
    return lines


def scale_lines_of(
    folder: str, pair: str, scale: float | None, about: str, needs: str
) -> list[Line]:
    """ROUGE-1, and but for the baseline the reduction, of one scale, None the
    baseline."""
    row, own, words = row_of("scale", pair), "baseline_top50", "baseline"
    if scale is not None:
        own, words = f"sigmoid_1e{len(str(int(scale))) - 1}_top50", f"+-{scale:g}"
    parts = folder, row, f"{about}: {words}, top-k 50: "
    lines = [("rouge1", 2), ("profile_reduction", 1)][: 1 if scale is None else 2]
    return [
        Line(
            *parts[:2], parts[2] + QUANTITIES[key], f"{key}_{own}", needs=needs
        )._replace(decimals=decimals)
        for key, decimals in lines
    ]


def time_lines(gammas: tuple[int, ...]) -> list[Line]:
    """Of Figure 3a, which has curves and no numbers."""
    each = [("wagner_data", "llama", OURS, OURS_NEED)]
    for pair in FIGURE:
        about = f"the paper's models: {MODELS[pair]}, XSum"
        each.append(("wagner_paper", pair, about, NEEDS.format(FILES["xsum"])))
    lines = []
    for folder, pair, about, needs in each:
        for method in ("baseline", "exact", "sigmoid_1e4"):
            for gamma in gammas:
                words = method.replace("_1e4", ", +-1e4")
                what = f"{about}: {words}, gamma = {gamma}: us a step"
                key, row = f"us_{method}_g{gamma}", row_of("time", pair)
                line = Line(folder, row, what, key, error=f"{key}_sd", needs=needs)
                lines.append(line)
    return lines


def beside(folder: str, wider: Callable[[dict], list]) -> Callable[[Records], list]:
    """A `wider` of a folder's records that is made of decoders' records too."""

    def every(records: Records) -> list:
        own = {
            row: record
            for name in ("wagner_data", "wagner_paper")
            for row, record in records.get(name, {}).items()
            if row.startswith("scale_") == (folder == "wagner_scale")
        }
        return wider(records.get(folder, {}) | own)

    return every
