"""Rows of Wagner et al. (2024) for decoders, whose prompts their own tokenizer reads.

As `experiments.papers.wagner.rows`, whose measurements these are, of pairs such as the
paper's: a task is read with the target at hand (`experiments.tasks.texts`), and ROUGE-1
is of texts as the target's tokenizer spells them.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from experiments.papers.leviathan import quality
from experiments.papers.wagner import rows, runs
from experiments.papers.wagner.methods import Method, of_scale, of_text
from experiments.papers.wagner.rows import Pair, WagnerSetting
from experiments.papers.wagner.runs import Sample
from experiments.tasks import Task
from specjax import drafts, sides
from specjax.measure.row import Measurement
from specjax.sides import Player
from specjax.tokenizers import Tokenizer
from specjax.verifiers import token


class Kind(NamedTuple):
    """What is measured, (pair, setting, methods, sample) -> numbers, and the methods
    that are compared, of the setting's scales."""

    measure: Callable[..., dict]
    methods: Callable[[tuple[float, ...]], list[Method]]


def row(
    target: Player,
    draft: Player | str,
    setting: WagnerSetting,
    read: Callable[[str, Player], Task],
    kind: str,
) -> Measurement:
    """The measurement of a row.

    Args:
      target, draft: decoders. setting: its suffix must be "", as `read` puts one.
      read: how a task of that name is read by the target.
      kind: "text" for Tables 1, 3, 5, 6 and 8, "scale" for Tables 2 and 7, "time" for
        Figures 3 and 4.

    Raises:
      ValueError: for a pair, a setting or a task that cannot be measured.
    """
    if kind not in KINDS:
        raise ValueError(f"no kind {kind!r}: choose one of {', '.join(KINDS)}")
    target, draft = drafts.paired(target, draft)
    sides.check(target, draft)
    check(setting)
    task = read(setting.task, target)
    sample = sample_of(task, setting)
    chosen = KINDS[kind]
    measure = partial(chosen.measure, tokenizer=target.pretrained.tokenizer)
    methods = chosen.methods(setting.scales)
    parts = (target, draft), setting, methods, sample
    run = partial(rows.measured, measure, *parts)
    files = *target.files, *draft.files, *task.files
    return Measurement(run, __name__, files, target.dtype, setting.seed)


def check(setting: WagnerSetting) -> None:
    """Raises ValueError for a setting that is none."""
    if not setting.gammas or min(setting.gammas) < 1 or max(setting.gammas) > 20:
        raise ValueError(f"gammas must be in 1..20; got {setting.gammas}")
    counts = ("repeats", "new_tokens", "batch", "timed", "rounds")
    if min(getattr(setting, name) for name in counts) < 1:
        raise ValueError(f"{', '.join(counts)} must be at least 1")
    if not 0 < setting.share <= 1 or setting.suffix:
        raise ValueError("need a share in (0, 1], and no suffix: the task puts one")


def sample_of(task: Task, setting: WagnerSetting) -> Sample:
    """A share of the prompts, rounded up, in their own order: those that
    `runs.sampled` would choose."""
    total = len(task.prompts.tokens)
    order = np.random.default_rng(setting.seed).permutation(total)
    index = sorted(order[: int(np.ceil(setting.share * total))])
    tokens = [task.prompts.tokens[i] for i in index]
    references = [task.references[i] for i in index] if task.references else []
    chosen = setting.share, setting.repeats, setting.seed, setting.new_tokens
    return Sample(task.prompts._replace(tokens=tokens), references, *chosen)


def texts(
    pair: Pair,
    setting: WagnerSetting,
    methods: list[Method],
    sample: Sample,
    tokenizer: Tokenizer,
) -> dict:
    """As `rows.texts`, flat."""
    values = scales(pair, setting, methods, sample, tokenizer)
    plain = [method for method in methods if method.top_k is None]
    for method in plain[1:]:  # the baseline keeps what `exact` does
        for gamma in setting.gammas:
            run = runs.decode(pair, method, gamma, sample, setting.batch)
            for key, value in runs.kept(run, sample.repeats).items():
                values[f"{key}_{method.name}_g{gamma}"] = value
    values |= rows.walls(pair, setting, plain[:3], sample, values)
    return values | rows.steps(pair, setting, plain[1], sample)


def scales(
    pair: Pair,
    setting: WagnerSetting,
    methods: list[Method],
    sample: Sample,
    tokenizer: Tokenizer,
) -> dict:
    """As `rows.scales`, flat."""
    values = rows.profiled(pair, setting, methods, sample)
    values |= rows.distances(pair, methods, sample)
    for method in methods:
        run = runs.decode(pair, method, runs.SCHEDULE, sample, setting.batch)
        counted = runs.kept(run, sample.repeats) | rouge1(run, sample, tokenizer)
        values |= {f"{key}_{method.name}": value for key, value in counted.items()}
    return values | rows.profile(values, methods)


def times(
    pair: Pair,
    setting: WagnerSetting,
    methods: list[Method],
    sample: Sample,
    tokenizer: Tokenizer,
) -> dict:
    """As `rows.times`."""
    del tokenizer
    return rows.times(pair, setting, methods, sample)


def rouge1(run: runs.Run, sample: Sample, tokenizer: Tokenizer) -> dict:
    """Mean ROUGE-1 F1, at most 1, and its standard error over prompts; empty where
    nobody wrote references."""
    if not sample.references:
        return {}
    ends = set(sample.prompts.ends)
    written = ([i for i in row.tolist() if i not in ends] for row in run.texts)
    pairs = zip(written, sample.references * sample.repeats, strict=True)
    each = [
        quality.rouge([tokenizer.decode(ids)], [wanted])["rouge1"] / 100
        for ids, wanted in pairs
    ]
    means = runs.by_prompt(each, sample.repeats) / sample.repeats
    error = means.std(ddof=1) / np.sqrt(means.size) if means.size > 1 else 0
    return {"rouge1": float(means.mean()), "rouge1_se": float(error)}


KINDS = {
    "text": Kind(texts, lambda scales: of_text(scales[0], token.verifier, None)),
    "scale": Kind(scales, of_scale),
    "time": Kind(times, lambda scales: of_text(scales[0], token.verifier, None)[:4]),
}
