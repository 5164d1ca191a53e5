"""How far rounding takes a greedy text: a row is a pair, a dtype and a few gammas.

At T = 0 the speculative texts beside those of the same calls without a draft, beside
those of calls of one token, and in one full forward: `specjax.exactness.divergence`.
"""

from functools import partial

import numpy as np

from experiments import tasks
from specjax.bench.players import Player
from specjax.bench.row import Measurement, rule
from specjax.bench.texts import Prompts
from specjax.commands import kernels as fused
from specjax.exactness import divergence
from specjax.exactness.divergence import DivergenceSetting, Found, Report
from specjax.exactness.rungs import Rung


def build(
    target: Player,
    draft: Player,
    task: str,
    gammas: tuple[int, ...],
    texts: int,
    tokens: int,
    kernels: str = "auto",
) -> Measurement:
    """The measurement of one row: the first `texts` prompts of a task, each continued
    by at most `tokens`. kernels: see `specjax.commands.kernels`.

    Raises ValueError for a pair that does not decode, for sizes that mean nothing, or
    for no such task.
    """
    sizes = tuple(gammas), texts, tokens
    found, setting = tasks.read(task), DivergenceSetting(*sizes, kernels=kernels)
    divergence.check((target, draft), found.prompts, setting)
    run = partial(measure, (target, draft), found.prompts, task, setting)
    files = *target.files, *draft.files, *found.files
    reached = rule(setting.rule)
    return Measurement(run, __name__, files, target.dtype, reaches=reached)


def measure(
    pair: tuple[Player, Player], prompts: Prompts, task: str, setting: DivergenceSetting
) -> dict:
    """Plain numbers; those that end in `_g4` are of that gamma, see `numbers`."""
    chosen = fused.of_setting(*pair, setting)
    report = divergence.look(pair, prompts, setting, chosen)
    return numbers(report) | {
        "target": pair[0].name,
        "draft": pair[1].name,
        "task": task,
        "setting": setting._asdict(),
        "kernels": chosen.record,
    }


def numbers(report: Report) -> dict:
    """What a record says of a report; the numbers of `of_gamma` for every gamma.

    Over all of them: matched_percent, identical_percent, explained, unexplained and
    eps_max. margin_10%: the quantile of z1 - z2, of `tokens` tokens.
    """
    found = {
        f"{key}_g{one.gamma}": value
        for one in report.found
        for key, value in of_gamma(one).items()
    }
    margins = {
        f"margin_{name}": float(np.quantile(report.margins, level))
        for name, level in divergence.QUANTILES.items()
    }
    matched = [one.matched for one in report.found]
    natural = [one.natural for one in report.found]
    eps_max = max(one.eps_max for one in natural)
    return {
        "matched_percent": percent(matched),
        "identical_percent": percent(natural),
        "explained": sum(one.explained for one in natural),
        "unexplained": sum(one.unexplained for one in matched + natural),
        "eps_max": eps_max,
        "eps_max_millionths": 1e6 * eps_max,
        "texts": natural[0].texts,
        "tokens": report.margins.size,
        "gamma": [one.gamma for one in report.found],
        **margins,
        **found,
    }


def of_gamma(found: Found) -> dict:
    """matched_percent, identical_percent: texts equal to those of calls of the same
    shape, and of calls of one token. explained, unexplained: divergences. eps_max: max
    |z_AR - z_spec| beside calls of one token. See `specjax.exactness.rungs.Rung`."""
    matched, natural = found.matched, found.natural
    return {
        "matched_percent": percent([matched]),
        "rows_equal": matched.equal,
        "identical_percent": percent([natural]),
        "explained": natural.explained,
        "unexplained": matched.unexplained + natural.unexplained,
        "below_full_forward": found.oracle.below,
        "lost": matched.lost + natural.lost,
        "eps_max": natural.eps_max,
        "eps_mean": natural.eps_mean,
        "eps_max_full_forward": found.oracle.eps_max,
        "tv_max": natural.tv_max,
        "tv_bound": natural.tv_bound,
        "flips_bound": natural.bound,
        "flips_expected": natural.expected,
        "flips_observed": natural.observed,
    }


def percent(rungs: list[Rung]) -> float:
    """Texts that are identical."""
    whole = sum(one.texts for one in rungs)
    return 100 * sum(one.identical for one in rungs) / whole
