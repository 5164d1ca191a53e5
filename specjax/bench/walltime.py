"""How much faster, why, and could one have known: walltime measured and predicted.

Tables 2 and 4 of Leviathan et al. (2023) in kind. For every gamma: c (Definition 3.7)
and v = t_p(gamma + 1) / t_p(1), each timed apart in a loop of its own; the speedup that
Theorem 3.8 expects; the one measured; and at the gammas that are not fitted the one
that is predicted (`inside`, with c, v and the overhead inside a step). Texts stop at
their ends or, where a setting says so, go on to the same number of tokens. Other texts
than those that are measured give the target's own steps.
Axes: N texts, R rounds, K values of gamma.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from specjax import generate, policies, probs, verifiers
from specjax.bench import costs, inside, parts, repeats, scoring, timing
from specjax.bench.parts import DECODE, DRAFT, LOOPS, PREFILL, SAMPLES, TARGET
from specjax.bench.players import Player, reference
from specjax.bench.texts import (
    Prompts,
    Text,
    join,
    take,
    text_of,
    truncation,
    width,
)
from specjax.inputs import make_request, make_sampling
from specjax.theory import closed_forms, estimate, predict
from specjax.types import Kernels, Prompt, Request

TINY = 1e-30  # p of a written token, where another shape rounded it away
COUNTED = ("accepted", "tested")
PREDICTED = ("predicted_steps", "steps_se", "predicted_tokens_per_call")


class WalltimeSetting(NamedTuple):
    """texts: how many are predicted and measured, in batches of `batch` rows; another
    `others` of them give the target's own steps, with an error if they are two batches
    or more. rounds: how often each is timed. gammas: must hold 0, the baseline. ends:
    whether a text stops at its end, before `new_tokens`. rule: how drafts are verified,
    by its name in `specjax.verifiers`. policy: how much of gamma is drafted, by its
    name in `specjax.policies`. kernels: what reads logits, for whoever chooses them
    (`specjax.commands.kernels`). top_k, top_p, min_p: which ids either law keeps
    (Section 2.2), None for all."""

    temperature: float
    batch: int = 1
    gammas: tuple[int, ...] = tuple(range(11))
    new_tokens: int = 96
    texts: int = 32
    others: int = 8
    rounds: int = 3
    seed: int = 0
    ends: bool = False
    rule: str = "token"
    kernels: str = "auto"
    policy: str = "none"
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None


class Batch(NamedTuple):
    prompt: Prompt
    request: Request


def check(target: Player, draft: Player, setting: WalltimeSetting) -> None:
    """Raises ValueError for a pair or a setting that cannot be measured."""
    scoring.check(target, draft, with_alpha=False)
    verifiers.named(setting.rule)
    policies.named(setting.policy)
    probs.check_numbers(temperature=setting.temperature, **truncation(setting))
    gammas = tuple(setting.gammas)
    if sorted(set(gammas)) != list(gammas) or gammas[:1] != (0,) or len(gammas) < 2:
        raise ValueError(
            f"gammas must ascend from 0, the baseline, to something; got {gammas}"
        )
    if min(setting.new_tokens, setting.rounds, setting.batch) < 1:
        raise ValueError("new_tokens, rounds and batch must be at least 1")
    for name in ("texts", "others"):
        count = getattr(setting, name)
        if count < 1 or count % setting.batch:
            raise ValueError(
                f"{name} must fill batches of {setting.batch}; got {count}"
            )


def measure(
    target: Player,
    draft: Player,
    prompts: Prompts,
    setting: WalltimeSetting,
    kernels: Kernels | None = None,
    so_far: Callable[[dict], None] | None = None,
) -> dict:
    """Every number of a row, plain: lists are parallel to `gamma`.

    kernels: what verifies and draws; None is the setting's rule by the reference.
    so_far: gets the row of the rounds that are done after each but the last, so that
    what is stopped is not lost. Raises ValueError as `check`.
    """
    check(target, draft, setting)
    slots = width(prompts) + setting.new_tokens + max(setting.gammas) + 1
    kernels = kernels or reference(verifiers.named(setting.rule))
    adapting = policies.named(setting.policy)
    pair = costs.Pair(target, draft, slots, kernels, adapting)
    measured, others = batches(prompts, setting)
    scored = []  # once: every round writes the same texts

    def row(seconds: dict, outputs: dict) -> dict:
        text = written([outputs[0, i] for i in range(len(measured))], measured)
        if not scored:
            law, chosen = draft.law, (target, draft, text, setting.temperature)
            scored.append(law and scoring.score(*chosen, **truncation(setting)))
        done = setting._replace(rounds=len(next(iter(seconds.values()))))
        texts = measured, others, text
        return describe(pair, done, texts, scored[0], seconds, outputs)

    def after(seconds: dict, outputs: dict) -> None:
        so_far(row(seconds, outputs))

    return row(*run(pair, setting, measured, others, so_far and after))


def describe(
    pair: costs.Pair,
    setting: WalltimeSetting,
    texts: tuple[list[Batch], list[Batch], Text],
    scores: scoring.Scores | None,
    seconds: dict,
    outputs: dict,
) -> dict:
    """The row of what was timed. texts: those measured, the others, and what the
    baseline wrote of the former."""
    target, draft, slots, kernels, _ = pair
    measured, others, text = texts
    alpha = accepted(setting, scores, outputs)
    row = {
        "target": target.name,
        "draft": draft.name,
        "draft_regime": draft.regime,
        "encodes": target.encodes,
        "exactness": kernels.verifier.guarantee,
        **{k: v for k, v in setting._asdict().items() if k != "gammas"},
        "kernels": kernels.record,
        "slots": slots,
        "tokens": int(alpha.count),
        "alpha": alpha.value,
        "alpha_se": None if alpha.se != alpha.se else alpha.se,
        "gamma": list(setting.gammas),
    }
    row |= parts.apart(setting.gammas, seconds)
    times = seconds, row["prefill_ms"]
    sizes = len(measured), len(others)
    row |= parts.inside(setting.gammas, times, outputs, sizes)
    row |= calls(setting, outputs, measured)
    row |= speedups(setting, seconds, outputs, measured)
    row |= dict.fromkeys(PREDICTED, [None] * len(setting.gammas))
    plain = setting.rule == "token" and setting.policy == "none"
    if scores is not None and plain:  # whose calls it predicts
        row |= predicted(setting, scores, outputs, measured)
    row |= inside.speeds(row)
    row["exp"] = [
        closed_forms.walltime_factor(min(alpha.value, 1.0), gamma, c or 0.0)
        for gamma, c in zip(row["gamma"], row["c"], strict=True)
    ]
    row |= best(row)
    if setting.temperature == 0:
        chosen = [outputs[row["best_gamma"], i] for i in range(len(measured))]
        again = written(chosen, measured)
        pairs = zip(text.rows(), again.rows(), strict=True)
        row["same_greedy_texts"] = sum(map(lambda two: np.array_equal(*two), pairs))
        row |= repeats.outside(text, scores)
    return row


def batches(
    prompts: Prompts, setting: WalltimeSetting
) -> tuple[list[Batch], list[Batch]]:
    """The texts to measure, and the others: other prompts while there are any."""
    key, taken = jax.random.key(setting.seed), []
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    filters, heat = truncation(setting), setting.temperature
    sampling = make_sampling(setting.batch, heat, **filters)
    ends = prompts.ends if setting.ends else ()
    for first in range(0, setting.texts + setting.others, setting.batch):
        index = np.arange(first, first + setting.batch)
        prompt, keys, new = take(prompts, index), fold(key, index), setting.new_tokens
        request = make_request(keys, prompt, new, sampling, ends)
        taken.append(Batch(prompt, request))
    count = setting.texts // setting.batch
    return taken[:count], taken[count:]


def run(
    pair: costs.Pair,
    setting: WalltimeSetting,
    measured: list[Batch],
    others: list[Batch],
    after: Callable[[dict, dict], None] | None = None,
) -> tuple[dict, dict]:
    """Times everything in turns.

    The texts that are measured are decoded with every gamma; the others, whose indices
    follow theirs, by the target alone: at gamma = 0, and in calls of the fitted gammas.
    Returns seconds [R] by (kind, gamma, index) and the outputs by (gamma, index);
    `after` gets both after every round but the last.
    """
    outputs, programs, warm = {}, {}, []
    prompt, request = others[0]
    empty = request._replace(limit=request.start)  # no step at all

    def whole(gamma: int, index: int, decode, batch: Batch):
        def program():
            outputs[gamma, index] = decode(*batch)
            return outputs[gamma, index]

        return program

    for gamma in setting.gammas:
        decode = costs.decode(pair, gamma)
        for index, batch in enumerate(measured):
            programs[DECODE, gamma, index] = whole(gamma, index, decode, batch)
        if gamma in (0, *inside.fitted(setting.gammas)):
            alone = inside.target_alone(pair, gamma) if gamma else decode
            for index, batch in enumerate(others, start=len(measured)):
                programs[DECODE, gamma, index] = whole(gamma, index, alone, batch)
            warm += [programs[DECODE, gamma, len(measured)]] * (gamma > 0)
        calls = costs.target_calls(pair, gamma, LOOPS)
        state = costs.begin(pair, gamma, prompt, request)
        target = lambda calls=calls, state=state: calls(request, state)  # noqa: E731
        warm += [programs[DECODE, gamma, 0], target]
        for index in range(SAMPLES):
            programs[TARGET, gamma, index] = target
            programs[PREFILL, gamma, index] = lambda d=decode: d(prompt, empty)
        if gamma:
            loop = costs.drafts(pair, gamma, LOOPS)
            draft = lambda loop=loop, state=state: loop(request, state)  # noqa: E731
            warm.append(draft)
            for index in range(SAMPLES):
                programs[DRAFT, gamma, index] = draft
    label = f"{pair.draft.name}, T = {setting.temperature}, batch {setting.batch}"
    order = parts.turn(programs, len(measured), len(others))
    turns = {name: programs[name] for name in order}

    def fetched() -> dict:
        return {name: jax.device_get(out) for name, out in outputs.items()}

    each = after and (lambda seconds: after(seconds, fetched()))
    seconds = timing.interleaved(turns, setting.rounds, label, warm, each)
    return seconds, fetched()


def written(outputs: list[generate.Output], chosen: list[Batch]) -> Text:
    pairs = zip(outputs, chosen, strict=True)
    return join([text_of(out, batch.prompt) for out, batch in pairs])


def wrote(out: generate.Output, batch: Batch) -> int:
    """Tokens of a batch's texts, without their prompts."""
    return int(np.sum(out.length - np.asarray(batch.request.start)))


def accepted(
    setting: WalltimeSetting, scores: scoring.Scores | None, outputs: dict
) -> estimate.Estimate:
    """alpha at every token of the baseline's texts; where the draft has no law, the
    share of its tested tokens that were kept at the largest gamma; 0 of 0 is 0."""
    if scores is not None:
        return estimate.rao_blackwell(scores.beta, scores.sequence)
    count = setting.texts // setting.batch
    runs = [outputs[max(setting.gammas), i].counts for i in range(count)]
    totals = [np.concatenate([getattr(run, k) for run in runs]) for k in COUNTED]
    if not totals[-1].any():
        return estimate.Estimate(0.0, np.nan, 0, np.nan, 0)
    return estimate.counts(*totals)


def calls(setting: WalltimeSetting, outputs: dict, measured: list[Batch]) -> dict:
    """Steps of all batches, and tokens of every call, for each gamma."""
    count, columns = len(measured), {"steps": [], "tokens_per_call": []}
    for gamma in setting.gammas:
        every = [outputs[gamma, i].counts.calls for i in range(count)]
        total = sum(wrote(outputs[gamma, i], measured[i]) for i in range(count))
        columns["steps"].append(int(sum(each.max() for each in every)))
        columns["tokens_per_call"].append(float(total / np.sum(every)))
    return columns


def predicted(
    setting: WalltimeSetting,
    scores: scoring.Scores,
    outputs: dict,
    measured: list[Batch],
) -> dict:
    """The steps and calls that the exact programme expects of the measured texts."""
    accept = predict.accept_probability(np.maximum(scores.p, TINY), scores.q)
    texts = [accept[scores.sequence == i] for i in range(setting.texts)]
    count = len(measured)
    columns = {key: [] for key in PREDICTED}
    for gamma in setting.gammas:
        laws = [predict.calls_law(a, gamma) for a in texts]
        rows = np.split(np.arange(setting.texts), count)
        expected = [predict.expected_steps([laws[i] for i in row]) for row in rows]
        columns["predicted_steps"].append(float(sum(expected)))
        steps = [outputs[gamma, i].counts.calls.max() for i in range(count)]
        # Coins, and texts other than those scored: of the sum of the differences.
        luck = np.std(np.subtract(steps, expected), ddof=1) if count > 1 else np.nan
        columns["steps_se"].append(None if luck != luck else float(luck * count**0.5))
        every = sum(float(law @ np.arange(law.size)) for law in laws)
        columns["predicted_tokens_per_call"].append(scores.p.size / every)
    return columns


def speedups(
    setting: WalltimeSetting, seconds: dict, outputs: dict, measured: list[Batch]
) -> dict:
    """Over the baseline on the same prompts: ratios of the time a token takes, from
    sums of medians over rounds."""
    count = len(measured)

    def median(gamma: int) -> np.ndarray:
        return np.array([np.median(seconds[DECODE, gamma, i]) for i in range(count)])

    def tokens(gamma: int) -> np.ndarray:
        pairs = enumerate(measured)
        return np.array([wrote(outputs[gamma, i], batch) for i, batch in pairs])

    def ratio(alone, drafted, few, many) -> float:
        return float(alone.sum() / drafted.sum() * many.sum() / few.sum())

    every = [
        (median(0), median(gamma), tokens(0), tokens(gamma)) for gamma in setting.gammas
    ]
    return {
        "seconds": [float(drafted.sum()) for _, drafted, *_ in every],
        "speedup": [ratio(*times) for times in every],
        "speedup_ci": [timing.interval(ratio, times) for times in every],
    }


def best(row: dict) -> dict:
    """The numbers of the gamma > 0 that was fastest, and its interval."""
    at = 1 + int(np.argmax(row["speedup"][1:]))
    names = ("gamma", "c", "v", "overhead", "exp", "predicted", "speedup", "residual")
    chosen = {
        f"best_{name}": row[name][at]
        for name in (*names, "speedup_ci", "tokens_per_call")
    }
    low, high = chosen["best_speedup_ci"]
    return chosen | {"best_speedup_se": (high - low) / (2 * 1.96)}
