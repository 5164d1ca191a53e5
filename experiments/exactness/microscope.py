"""How far rounding takes a greedy text: a row is a pair, a dtype and a few gammas.

At T = 0 the speculative texts beside those of the same calls without a draft, beside
those of calls of one token, and in one full forward: `specjax.exactness.divergence`.
"""

from functools import partial

import numpy as np

from experiments import tasks
from specjax import drafts, fused
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig, recorded
from specjax.drafts.source import DraftLike, DraftSource, pair_files
from specjax.exactness import divergence
from specjax.exactness.divergence import (
    Comparison,
    DivergenceSetting,
    GammaReport,
    Report,
)
from specjax.measure.row import Measurement
from specjax.prompts import Prompts


def build(
    target: Pretrained,
    draft: DraftLike,
    task: str,
    gammas: tuple[int, ...],
    texts: int,
    tokens: int,
    kernels: str = "auto",
) -> Measurement:
    """The measurement of one row: the first `texts` prompts of a task, each continued
    by at most `tokens`. Raises ValueError for a pair that does not decode, for sizes
    that mean nothing, or for no such task."""
    target, draft = drafts.pair(target, draft)
    decode, source = DecodeConfig(new_tokens=tokens, kernels=kernels), tasks.read(task)
    setting = DivergenceSetting(decode, tuple(gammas), texts)
    divergence.check((target, draft), source.prompts, setting)
    run = partial(measure, (target, draft), source.prompts, task, setting)
    files = *pair_files(target, draft), *source.files
    return Measurement(run, __name__, files, target.dtype)


def measure(
    pair: tuple[Pretrained, DraftSource],
    prompts: Prompts,
    task: str,
    setting: DivergenceSetting,
) -> dict:
    """Plain numbers; those that end in `_g4` are of that gamma, see `numbers`."""
    chosen = fused.for_setting(*pair, setting)
    report = divergence.examine(pair, prompts, setting, chosen)
    return numbers(report) | {
        "target": pair[0].name,
        "draft": pair[1].name,
        "task": task,
        "setting": recorded(setting, ("rule", "kernels", "policy"))
        | {"tokens": setting.decode.new_tokens},
        "kernels": chosen.record,
    }


def numbers(report: Report) -> dict:
    """What a record says of a report: over all gammas, and of each. margin_10%: the
    quantile of z1 - z2, of `tokens` tokens."""
    flat = {}
    for name, level in divergence.QUANTILES.items():
        flat[f"margin_{name}"] = float(np.quantile(report.margins, level))
    for each in report.found:
        flat |= {f"{key}_g{each.gamma}": x for key, x in of_gamma(each).items()}
    matched = [each.matched for each in report.found]
    natural = [each.natural for each in report.found]
    eps_max = max(each.eps_max for each in natural)
    return {
        "matched_percent": percent(matched),
        "identical_percent": percent(natural),
        "explained": sum(each.explained for each in natural),
        "unexplained": sum(each.unexplained for each in matched + natural),
        "eps_max": eps_max,
        "eps_max_millionths": 1e6 * eps_max,
        "texts": natural[0].texts,
        "tokens": report.margins.size,
        "gamma": [each.gamma for each in report.found],
        **flat,
    }


def of_gamma(result: GammaReport) -> dict:
    """matched_percent, identical_percent: texts equal to those of calls of the same
    shape, and of calls of one token. explained, unexplained: divergences. eps_max: max
    |z_AR - z_spec| beside calls of one token. See `divergence.Comparison`."""
    matched, natural = result.matched, result.natural
    return {
        "matched_percent": percent([matched]),
        "rows_equal": matched.equal,
        "identical_percent": percent([natural]),
        "explained": natural.explained,
        "unexplained": matched.unexplained + natural.unexplained,
        "below_full_forward": result.oracle.below,
        "lost": matched.lost + natural.lost,
        "eps_max": natural.eps_max,
        "eps_mean": natural.eps_mean,
        "eps_max_full_forward": result.oracle.eps_max,
        "tv_max": natural.tv_max,
        "tv_bound": natural.tv_bound,
        "flips_bound": natural.bound,
        "flips_expected": natural.expected,
        "flips_observed": natural.observed,
    }


def percent(rungs: list[Comparison]) -> float:
    """Texts that are identical."""
    whole = sum(rung.texts for rung in rungs)
    return 100 * sum(rung.identical for rung in rungs) / whole
