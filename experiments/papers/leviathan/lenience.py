"""Lenience as Table 5 and Appendix A.5 measure it: alpha as a function of l.

Leviathan et al. (2023): alpha_l = E(sum_x min(p / l, q)) over text that M_p generated;
at T = 0 the share of positions where p_raw(argmax q) >= l max p_raw. Beside it stand
numbers that the paper does not measure: how far the output is from p, and runs with
each l.
"""

from functools import partial

from experiments import tasks
from specjax import drafts, fused
from specjax.checkpoints import Pretrained
from specjax.decode_config import record_fields
from specjax.drafts.source import DraftLike, DraftSource, check_pair
from specjax.measure import lenience as bench
from specjax.measure import pairs
from specjax.measure.row import Measurement
from specjax.measure.texts import Protocol, Text, prompt_units, speculate
from specjax.theory.estimate import Estimate, counts
from specjax.verifiers import lenient

Levels = tuple[float, ...]


def build(
    target: Pretrained,
    draft: DraftLike,
    protocol: Protocol,
    *,
    levels: Levels,
    c: float,
    gamma: int | None,
) -> Measurement:
    """Returns the measurement of one row.

    Args:
        levels: every l, falling from 1.
        c: the cost of a draft that A.5 assumes, not ours.
        gamma: the one that its speeds are for, None for the best.

    Raises:
        ValueError: the pair has no alpha, or levels do not fall from 1 within (0, 1].
    """
    for level in levels:
        lenient.build(level)
    if not levels or levels[0] != 1 or sorted(set(levels))[::-1] != list(levels):
        raise ValueError(f"levels must fall from 1, the strict one; got {levels}")
    target, draft = drafts.pair(target, draft)
    check_pair(target, draft)
    of_alpha = pairs.alpha(target, draft, protocol, tasks.of)
    run = partial(measure, (target, draft), protocol, levels=levels, c=c, gamma=gamma)
    return of_alpha._replace(run=run, module=__name__)


def measure(
    players: tuple[Pretrained, DraftSource],
    protocol: Protocol,
    *,
    levels: Levels,
    c: float,
    gamma: int | None,
    kept: dict | None = None,
) -> dict:
    """Returns the numbers of the row's record; names that end in `_l0.5` are
    those of l = 0.5.

    They are alpha, its speed by Theorem 3.8 (`implied_speed` at `implied_gamma`), tv =
    E(beta_l - beta_1), and `runs`: a decoding run for each l (`run_level`).

    Args:
        kept: as for `pairs.target_text`.
    """
    target, draft = players
    chosen = fused.for_protocol(target, draft, protocol)
    prompts = tasks.distinct(protocol.task)
    text = pairs.target_text(target, prompts, protocol, chosen, kept)
    filters = protocol.decode.truncation()
    scores = bench.score(players, text, protocol.decode.temperature, levels, **filters)
    scores = by_prompt(scores, len(prompts.tokens))
    both, values = {"alpha": bench.alphas(scores), "tv": bench.drift(scores)}, {}
    for at, level in enumerate(levels):
        for name, estimates in both.items():
            fields = to_json(estimates[at])
            values[f"{name}_l{level:g}"] = fields["value"]
            values[f"{name}_l{level:g}_se"] = fields["se"]
        implied = bench.implied_optimum(both["alpha"][at].value, c, gamma)
        values[f"implied_gamma_l{level:g}"] = implied.gamma
        values[f"implied_speed_l{level:g}"] = implied.speed
    return values | {
        "lenience": list(levels),
        "log_p_target": to_json(bench.log_probability(scores)),
        "runs": [
            run_level(players, text, protocol=protocol, level=level) for level in levels
        ],
        "paper_c": c,
        "tokens": scores.strict.size,
        "sequences": len(text.start),
        "target": target.name,
        "draft": draft.name,
        "draft_regime": draft.regime,
        "exactness": "lenient: at most p / l",
        "residual": "target_minus_draft",
        "protocol": record_fields(protocol),
        "kernels": chosen.record,
    }


def run_level(
    players: tuple[Pretrained, DraftSource],
    text: Text,
    *,
    protocol: Protocol,
    level: float,
) -> dict:
    """Runs Algorithm 1 with lenience l on the prompts of `text`.

    Returns the accepted tokens, alpha_l at every token that it wrote, and the
    log-probability of these tokens under the target at temperature 1, in nats a token.
    """
    chosen = fused.for_protocol(*players, protocol, lenient.build(level))
    prompts, number = tasks.distinct(protocol.task), len(text.start)
    calls = speculate(players, prompts, number, protocol, chosen)
    written = bench.outputs(text, calls)
    scores = bench.score(
        players,
        written,
        protocol.decode.temperature,
        [level],
        **protocol.decode.truncation(),
    )
    scores = by_prompt(scores, len(prompts.tokens))
    of_prompts = pairs.by_prompt(None, calls, len(prompts.tokens))[1]
    tokens, runs = int(calls.tokens.sum()), int(calls.calls.sum())
    return {
        "lenience": level,
        "counts": to_json(counts(of_prompts.accepted, of_prompts.tested)),
        "alpha_own_text": to_json(bench.alphas(scores)[0]),
        "log_p": to_json(bench.log_probability(scores)),
        "kernels": chosen.record,
        "accepted": int(calls.accepted.sum()),
        "tested": int(calls.tested.sum()),
        "decoded_tokens": tokens,
        "target_calls": runs,
        "tokens_per_call": tokens / runs,
    }


def by_prompt(scores: bench.Scores, prompts: int) -> bench.Scores:
    """Returns scores whose units of an error are prompts (`texts.prompt_units`)."""
    return scores._replace(sequence=prompt_units(scores.sequence, prompts))


def to_json(estimate: Estimate) -> dict:
    """Returns an estimate as JSON holds it; the error of a single sequence is None."""
    return {key: None if x != x else x for key, x in estimate._asdict().items()}
