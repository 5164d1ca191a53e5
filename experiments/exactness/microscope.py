"""Rows of the microscope: how much rounding changes the greedy texts of a pair, in one
dtype, at some gammas.

At T = 0 the speculative texts are compared with the texts of the same calls without a
draft, with the texts of calls on one token, and with one forward pass of the full text:
`specjax.exactness.divergence`.
"""

from functools import partial

import numpy as np

from experiments import tasks
from specjax import drafts, fused
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig, record_fields
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
    *,
    task: str,
    gammas: tuple[int, ...],
    texts: int,
    tokens: int,
    kernels: str = "auto",
) -> Measurement:
    """Returns the measurement of one row.

    Args:
        task: the task whose first `texts` prompts are decoded.
        tokens: the most new tokens of each text.

    Raises:
        ValueError: the pair does not decode, a size is out of range, or the task is
            unknown.
    """
    target, draft = drafts.pair(target, draft)
    source = tasks.read(task)
    decode = DecodeConfig(new_tokens=tokens, kernels=kernels)
    setting = DivergenceSetting(decode, tuple(gammas), texts)
    divergence.check((target, draft), source.prompts, setting)
    run = partial(measure, (target, draft), source.prompts, task=task, setting=setting)
    files = *pair_files(target, draft), *source.files
    return Measurement(run, __name__, files, target.dtype)


def measure(
    pair: tuple[Pretrained, DraftSource],
    prompts: Prompts,
    *,
    task: str,
    setting: DivergenceSetting,
) -> dict:
    """Returns plain numbers; a name that ends in `_g4` is that of gamma 4, see
    `numbers`."""
    chosen = fused.for_setting(*pair, setting)
    report = divergence.examine(pair, prompts, setting, chosen)
    return numbers(report) | {
        "target": pair[0].name,
        "draft": pair[1].name,
        "task": task,
        "setting": record_fields(setting, ("rule", "kernels", "policy"))
        | {"tokens": setting.decode.new_tokens},
        "kernels": chosen.record,
    }


def numbers(report: Report) -> dict:
    """Returns the numbers of a report that a record has, over all gammas and for each
    gamma.

    `margin_10%` is the quantile of z1 - z2 over the `tokens` tokens.
    """
    flat = {}
    for name, level in divergence.QUANTILES.items():
        flat[f"margin_{name}"] = float(np.quantile(report.margins, level))
    for each in report.found:
        flat |= {f"{key}_g{each.gamma}": x for key, x in gamma_numbers(each).items()}
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


def gamma_numbers(result: GammaReport) -> dict:
    """Returns the numbers of one gamma, see `divergence.Comparison`.

    matched_percent and identical_percent are the texts equal to those of calls of the
    same shape, and of calls on one token; explained and unexplained count divergences;
    eps_max is max |z_AR - z_spec| compared with calls on one token.
    """
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
    """Returns the percentage of texts that are identical."""
    whole = sum(rung.texts for rung in rungs)
    return 100 * sum(rung.identical for rung in rungs) / whole
