"""Writes measured questions in the file formats of other benchmarks, for their tools.

NVIDIA's specdec_bench: configuration.json, timing.json, acceptance_rate.json and
responses.jsonl. Spec-Bench: an answer file for each way to decode, alone.jsonl and
drafted.jsonl, from which its speed.py computes the speedup.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from specjax.checkpoints import Pretrained
from specjax.measure.categories import ALONE, DRAFTED, FIRST, Turn, by_question
from specjax.runtime import writing
from specjax.tokenizers import Tokenizer

QUANTILES = 0.25, 0.5, 0.75


def prepare(folder: Path) -> None:
    """Raises ValueError, before anything is computed, for a folder that contains a
    run."""
    if folder.is_file() or (folder / "acceptance_rate.json").exists():
        raise ValueError(f"{folder} has a run already: name a folder that is new")
    folder.mkdir(parents=True, exist_ok=True)


def find_tokenizer(target: Pretrained) -> Tokenizer:
    """Returns the tokenizer that decodes the texts of a run. Raises ValueError for a
    target without one."""
    if target.tokenizer_file is None:
        raise ValueError(
            f"{target.name} has no tokenizer beside its weights, and --specdec writes"
            " texts: name one with --tokenizer, or leave --specdec out"
        )
    return target.tokenizer


def write(
    folder: Path, turns: Sequence[Turn], decode: Callable, configuration: dict
) -> None:
    """Writes all files of a run.

    decode: ids -> text. configuration: how it was measured.
    """
    asked = by_question(turns)
    files = {
        "configuration.json": configuration,
        "timing.json": [
            text_seconds(turns)
        ],  # a list, as a folder may have several runs
        "acceptance_rate.json": [acceptance(asked)],
    }
    for name, content in files.items():
        text = json.dumps(content, indent=4, default=str)
        writing.write_whole(folder / name, [text, "\n"])
    lines = {"responses.jsonl": [response(each, decode) for each in asked.values()]}
    for way in (ALONE, DRAFTED):
        lines[f"{way}.jsonl"] = [answer(each, way, decode) for each in asked.values()]
    for name, content in lines.items():
        writing.write_whole(
            folder / name, [json.dumps(line) + "\n" for line in content]
        )


def configuration(flags: Mapping[str, Any], provenance: dict) -> dict[str, Any]:
    """Returns the settings by specdec_bench's names and ours, and the provenance."""
    names = dict(target="model_dir", draft="draft_model_dir", tokens="output_length")
    named = {theirs: flags[ours] for ours, theirs in names.items()}
    named |= {"draft_length": max(flags["gammas"]), "engine": "specjax", "tp_size": 1}
    named |= {"engine_version": provenance["versions"]["specjax"], "concurrency": 1}
    named |= {"timestamp": provenance["date"], "provenance": provenance}
    return dict(flags) | named


def acceptance(asked: dict[str | int, list[Turn]]) -> dict[str, Any]:
    """Returns the acceptance lengths and rates of a run.

    AL is tokens per call with the bonus token: of each turn, and the mean over turns.
    Rates are by length over all calls: joint, the share of calls at least so long;
    conditional, the share among calls of at least the length before.
    """
    mean = {
        name: {turn.asked.turn: float(np.mean(turn.lengths)) for turn in each}
        for name, each in asked.items()
    }
    of_kind: dict[str | None, list[float]] = {}
    every: list[int] = []
    for each in asked.values():
        lengths = [n for turn in each for n in turn.lengths]
        of_kind.setdefault(each[0].asked.category, []).append(float(np.mean(lengths)))
        every += lengths
    histogram = dict(sorted(Counter(every).items()))
    joint = {k: float(np.mean(np.array(every) >= k)) for k in histogram}
    pairs = zip(joint.items(), [1.0, *joint.values()], strict=False)
    return {
        "Request_AL": mean,
        "Category_AL": {kind: float(np.mean(x)) for kind, x in of_kind.items() if kind},
        "Average_AL": float(np.mean([*chain(*(x.values() for x in mean.values()))])),
        "Acceptance_Length_Histogram": histogram,
        "Conditional_Acceptance_Rate": {k: rate / last for (k, rate), last in pairs},
        "Joint_Acceptance_Rate": joint,
    }


def text_seconds(turns: Sequence[Turn]) -> dict[str, Any]:
    """Returns the times in seconds of texts that were decoded one after the other.

    A step's time is the mean over its text, because the loop runs on the device, where
    there is no clock.
    """
    whole, first = (
        np.array([np.median(turn.seconds[name]) for turn in turns])
        for name in (DRAFTED, FIRST)
    )
    tokens = np.array([len(turn.texts[DRAFTED]) for turn in turns])
    steps = np.array([len(turn.lengths) for turn in turns])
    more = (steps > 1) & (whole > first)
    rest = (whole - first)[more]
    rate = float(tokens.sum() / whole.sum())
    return {
        "Output TPS": rate,
        "Output TPS/gpu": rate,
        "E2E Request Time": spread(whole),
        "TTFT Time": spread(first),
        "Request Generation Step Time": spread(rest / (steps[more] - 1)),
        "Request Generation Tokens Per Second": spread((tokens[more] - 1) / rest),
        "Number of Output Tokens": spread(tokens),
    }


def spread(values: np.ndarray) -> dict[str, Any]:
    """Returns statistics of numbers in the format of specdec_bench: strings with four
    decimals."""
    if not len(values):
        return {}
    named = {name: getattr(np, name)(values) for name in ("min", "max", "mean", "std")}
    quantiles = {str(q): f"{np.quantile(values, q):.4f}" for q in QUANTILES}
    return {name: f"{x:.4f}" for name, x in named.items()} | {"quantiles": quantiles}


def response(turns: Sequence[Turn], decode: Callable) -> dict[str, Any]:
    """Returns a question and its answer, for a line of responses.jsonl."""
    texts = [decode(turn.texts[DRAFTED]) for turn in turns]
    return {
        "question_id": turns[0].asked.id,
        "category": turns[0].asked.category,
        "turns": [turn.asked.text for turn in turns],
        "choices": [{"index": 0, "turns": texts}],
    }


def answer(turns: Sequence[Turn], way: str, decode: Callable) -> dict[str, Any]:
    """Returns a line of Spec-Bench's answer file."""
    tokens = [len(turn.texts[way]) for turn in turns]
    calls = [[1] * n for n in tokens] if way == ALONE else [x.lengths for x in turns]
    choice = {
        "index": 0,
        "turns": [decode(turn.texts[way]) for turn in turns],
        "decoding_steps": [len(each) for each in calls],
        "new_tokens": tokens,
        "wall_time": [float(np.median(turn.seconds[way])) for turn in turns],
        "accept_lengths": [n for each in calls for n in each],
    }
    asked = turns[0].asked
    return {"question_id": asked.id, "category": asked.category, "choices": [choice]}
