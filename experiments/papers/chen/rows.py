"""Speculative sampling with the measurements of Chen et al. (2023): r, times, and the
quality of texts.

https://arxiv.org/abs/2302.01318. K drafted tokens a call, nucleus sampling, batch 1
where something is timed. r is the number of tokens decoded per call over K + 1; with
the times of a draft and of a target call it gives their theoretical speedup. Beside it
stand the measured speedup, a ratio of mean token times, and the quality of the texts of
both ways: they have one law, so that they differ by chance only. Axes: N texts.
"""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from experiments.papers.chen import humaneval
from experiments.papers.chen.decoding import (
    call_times,
    rate,
    speculate,
    strings,
    walltimes,
    write_alone,
)
from experiments.papers.chen.setting import ChenSetting, build_pair, check
from experiments.papers.leviathan import quality
from experiments.papers.wagner.runs import sum_by_prompt
from experiments.tasks import Task
from specjax import drafts
from specjax.checkpoints import Pretrained
from specjax.decode_config import record_fields
from specjax.drafts.source import DraftLike, check_pair, pair_files
from specjax.measure import costs, scoring
from specjax.measure.row import Measurement
from specjax.verifiers import guarantees

# Of the settings, as records have them.
RECORDED = "temperature", "top_p", "new_tokens", "seed", "kernels"


def row(
    target: Pretrained,
    draft: DraftLike,
    *,
    setting: ChenSetting,
    read: Callable[[str, Pretrained], Task],
) -> Measurement:
    """Returns the measurement of a row.

    Raises:
        ValueError: the pair, the setting or the task cannot be measured.
    """
    if setting.metric not in METRICS:
        known = ", ".join(METRICS)
        raise ValueError(f"no metric {setting.metric!r}: choose one of {known}")
    check(setting)
    target, draft = drafts.pair(target, draft)
    check_pair(target, draft, with_alpha=False)
    task = read(setting.task, target)
    if setting.metric == "rouge" and not task.references:
        raise ValueError(f"{setting.task} has no references to score texts against")
    pair = build_pair(target, draft, task=task, setting=setting)
    run = partial(measure, pair, task, setting)
    files = *pair_files(target, draft), *task.files
    return Measurement(run, __name__, files, target.dtype, setting.decode.seed)


def measure(pair: costs.Pair, task: Task, setting: ChenSetting) -> dict:
    """Returns all numbers of a row as plain values."""
    count = setting.samples * len(task.prompts.tokens)
    alone = write_alone(pair, task, setting, count)
    calls = speculate(pair, task, setting, count)
    values = {
        "target": pair.target.name,
        "draft": pair.draft.name,
        **record_fields(setting, RECORDED),
        "K": setting.K,
        "prompts": len(task.prompts.tokens),
        "texts": count,
        "guarantee": guarantees.combine("token", pair.draft.name),
        "kernels": pair.kernels.record,
        **rate(calls, setting),
    }
    if setting.timed:
        values |= call_times(pair, task, setting, values["r"])
        values |= walltimes(pair, task, setting, count)
    if setting.decode.temperature == 0:
        values |= compare_greedy(task, alone, calls.texts)
    texts = {"alone": alone, "speculative": calls.texts}
    for way, ids in texts.items():
        worth = METRICS[setting.metric](strings(pair, task, ids), task, setting)
        values |= {f"{key}_{way}": value for key, value in worth.items()}
    return values


def compare_greedy(
    task: Task, alone: list[np.ndarray], drafted: list[np.ndarray]
) -> dict:
    """Returns, for argmax texts, how many equal the target's, and the share of tokens
    that end a repetition of earlier text.
    """
    prompts = itertools.cycle(task.prompts.tokens)
    marks = [
        scoring.find_repeats(np.array([*before, *ids]))[len(before) :]
        for before, ids in zip(prompts, alone, strict=False)
    ]
    same = sum(map(np.array_equal, alone, drafted))
    return {
        "same_greedy_texts": int(same),
        "repeated": float(np.concatenate(marks).mean()),
    }


def score_by_tests(texts: list[str], task: Task, setting: ChenSetting) -> dict:
    """Returns pass@1 of HumanEval."""
    (path,) = task.files
    problems, count = humaneval.problems(Path(path)), len(task.prompts.tokens)
    chosen = [problems[line] for line in task.lines or range(count)]
    return humaneval.pass_at_1(humaneval.run_tests(chosen, texts), len(chosen))


def score_by_rouge(texts: list[str], task: Task, setting: ChenSetting) -> dict:
    """Returns mean ROUGE-1, -2 and -L F1 against the references, at most 1, with
    standard errors over prompts; the error is None for a single prompt.
    """
    both = zip(texts, task.references * setting.samples, strict=True)
    each = [quality.rouge([text.strip()], [reference]) for text, reference in both]
    values = {}
    for name in quality.ROUGES:
        scores = np.array([score[name] / 100 for score in each])
        means = sum_by_prompt(scores, setting.samples) / setting.samples
        error = means.std(ddof=1) / means.size**0.5 if means.size > 1 else None
        values |= {name: float(means.mean()), f"{name}_se": error and float(error)}
    return values


METRICS: dict[str, Callable[[list[str], Task, ChenSetting], dict]] = {
    "pass1": score_by_tests,
    "rouge": score_by_rouge,
}
