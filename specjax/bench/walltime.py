"""How much faster, why, and could one have known: walltime measured and predicted.

Tables 2 and 4 of Leviathan et al. (2023) in kind. For every gamma: c (Definition 3.7),
v = t_p(gamma + 1) / t_p(1), the overhead of a step, the speedup that Theorem 3.8
expects, the one that `specjax.predict` does, and the one measured. Texts stop at their
ends or, where a setting says so, go on to the same number of tokens. Overheads come
from other texts than those that are predicted.
Axes: N texts, R rounds, K values of gamma.
"""

from typing import NamedTuple

import jax
import numpy as np

from specjax import estimate, generate, predict, theory, verifiers
from specjax.bench import costs, scoring, timing
from specjax.bench.decoding import Prompts, Text, join, take, text_of, width
from specjax.bench.players import Player
from specjax.types import Prompt, Request

LOOPS = 64  # calls in a program that times one call, so that its first few are few
SAMPLES = 2  # of such a program, in every round
TINY = 1e-30  # p of a written token, where another shape rounded it away
DECODE, PREFILL, TARGET, DRAFT = range(4)
COUNTED = ("accepted", "tested")
PREDICTED = ("predicted_steps", "steps_se", "predicted_tokens_per_call")


class Setting(NamedTuple):
    """texts: how many are predicted and measured, in batches of `batch` rows; another
    `others` of them give the overhead. rounds: how often each is timed. gammas: must
    hold 0, the baseline. ends: whether a text stops at its end, before `new_tokens`.
    rule: how drafts are verified, by its name in `specjax.verifiers`."""

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


class Batch(NamedTuple):
    prompt: Prompt
    request: Request


def check(target: Player, draft: Player, setting: Setting) -> None:
    """Raises ValueError for a pair or a setting that cannot be measured."""
    scoring.check(target, draft, with_alpha=False)
    verifiers.named(setting.rule)
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


def measure(target: Player, draft: Player, prompts: Prompts, setting: Setting) -> dict:
    """Every number of a row, plain: lists are parallel to `gamma`.

    Raises ValueError as `check`.
    """
    check(target, draft, setting)
    slots = width(prompts) + setting.new_tokens + max(setting.gammas) + 1
    verifier = verifiers.named(setting.rule)
    pair = costs.Pair(target, draft, slots, verifier)
    measured, others = batches(prompts, setting)
    seconds, outputs = run(pair, setting, measured, others)
    text = written([outputs[0, i] for i in range(len(measured))], measured)
    scores = None
    if draft.law is not None:
        scores = scoring.score(target, draft, text, setting.temperature)
    alpha = accepted(setting, scores, outputs)
    found = {
        "target": target.name,
        "draft": draft.name,
        "draft_regime": draft.regime,
        "encodes": target.encodes,
        "exactness": verifier.guarantee,
        **{k: v for k, v in setting._asdict().items() if k != "gammas"},
        "slots": slots,
        "tokens": int(alpha.count),
        "alpha": alpha.value,
        "alpha_se": None if alpha.se != alpha.se else alpha.se,
        "gamma": list(setting.gammas),
    }
    found |= parts_of_a_step(setting, seconds, outputs, len(measured), len(others))
    found |= calls(setting, outputs, measured)
    found |= speedups(setting, seconds, outputs, measured)
    nothing = [None] * len(setting.gammas)
    found |= dict.fromkeys(("predicted", "residual", *PREDICTED), nothing)
    if scores is not None and setting.rule == "token":  # whose calls it predicts
        found |= predicted(setting, found, scores, outputs, measured)
    found["exp"] = [
        theory.walltime_factor(min(alpha.value, 1.0), gamma, c or 0.0)
        for gamma, c in zip(found["gamma"], found["c"], strict=True)
    ]
    found |= best(found)
    if setting.temperature == 0:
        chosen = [outputs[found["best_gamma"], i] for i in range(len(measured))]
        again = written(chosen, measured)
        pairs = zip(text.rows(), again.rows(), strict=True)
        found["same_greedy_texts"] = sum(map(lambda two: np.array_equal(*two), pairs))
    return found


def batches(prompts: Prompts, setting: Setting) -> tuple[list[Batch], list[Batch]]:
    """The texts to measure, and the others: other prompts while there are any."""
    key, found = jax.random.key(setting.seed), []
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    sampling = generate.make_sampling(setting.batch, setting.temperature)
    end = prompts.end if setting.ends else -1
    for first in range(0, setting.texts + setting.others, setting.batch):
        index = np.arange(first, first + setting.batch)
        prompt, keys, new = take(prompts, index), fold(key, index), setting.new_tokens
        request = generate.make_request(keys, prompt, new, sampling, end)
        found.append(Batch(prompt, request))
    count = setting.texts // setting.batch
    return found[:count], found[count:]


def run(
    pair: costs.Pair, setting: Setting, measured: list[Batch], others: list[Batch]
) -> tuple[dict, dict]:
    """Times everything in turns.

    Returns seconds [R] by (kind, gamma, index) and the outputs by (gamma, index).
    """
    outputs, programs, warm = {}, {}, []
    prompt, request = others[0]
    alone = request._replace(limit=request.start)  # no step at all

    def whole(gamma: int, index: int, decode, batch: Batch):
        def program():
            outputs[gamma, index] = decode(*batch)
            return outputs[gamma, index]

        return program

    for gamma in setting.gammas:
        decode = costs.decode(pair, gamma)
        for index, batch in enumerate([*measured, *others]):
            programs[DECODE, gamma, index] = whole(gamma, index, decode, batch)
        calls = costs.target_calls(pair, gamma, LOOPS)
        state = costs.begin(pair, gamma, prompt, request)
        target = lambda calls=calls, state=state: calls(request, state)  # noqa: E731
        warm += [programs[DECODE, gamma, 0], target]
        for index in range(SAMPLES):
            programs[TARGET, gamma, index] = target
            programs[PREFILL, gamma, index] = lambda d=decode: d(prompt, alone)
        if gamma:
            made = costs.drafts(pair, gamma, LOOPS)
            draft = lambda made=made, state=state: made(request, state)  # noqa: E731
            warm.append(draft)
            for index in range(SAMPLES):
                programs[DRAFT, gamma, index] = draft
    label = f"{pair.draft.name}, T = {setting.temperature}, batch {setting.batch}"
    # By index first, so that what is compared is close in time.
    order = sorted(programs, key=lambda name: (name[2], name[1], name[0]))
    turns = {name: programs[name] for name in order}
    seconds = timing.interleaved(turns, setting.rounds, label, warm)
    return seconds, {name: jax.device_get(out) for name, out in outputs.items()}


def written(outputs: list[generate.Output], chosen: list[Batch]) -> Text:
    pairs = zip(outputs, chosen, strict=True)
    return join([text_of(out, batch.prompt) for out, batch in pairs])


def wrote(out: generate.Output, batch: Batch) -> int:
    """Tokens of a batch's texts, without their prompts."""
    return int(np.sum(out.length - np.asarray(batch.request.start)))


def parts_of_a_step(
    setting: Setting, seconds: dict, outputs: dict, first: int, others: int
) -> dict:
    """c, v and the overhead of every gamma, and the milliseconds behind them."""

    def each(kind: int, gamma: int) -> np.ndarray:
        """[R * SAMPLES] milliseconds, of one call where the program loops."""
        loops = 1 if kind == PREFILL else LOOPS
        rows = [seconds[kind, gamma, i] for i in range(SAMPLES)]
        return 1e3 * np.concatenate(rows) / loops

    def of_medians(part: np.ndarray, whole: np.ndarray) -> float:
        return float(np.median(part) / np.median(whole))

    one = each(TARGET, 0)
    keys = ("c", "c_ci", "v", "v_ci", "overhead", "prefill_ms", "step_ms", "draft_ms")
    found = {key: [] for key in keys}
    for gamma in setting.gammas:
        prefill = np.median(each(PREFILL, gamma))
        rest = steps = 0.0
        for i in range(first, first + others):
            rest += 1e3 * np.median(seconds[DECODE, gamma, i]) - prefill
            steps += outputs[gamma, i].counts.calls.max()
        call, step = each(TARGET, gamma), rest / steps
        drafted = each(DRAFT, gamma) if gamma else np.zeros_like(one)
        t_draft = float(np.median(drafted))
        c, c_ci = None, None
        if gamma:  # Definition 3.7, of one drafted token
            c = of_medians(drafted, one) / gamma
            c_ci = timing.interval(of_medians, (drafted / gamma, one))
        found["c"].append(c)
        found["c_ci"].append(c_ci)
        found["v"].append(of_medians(call, one))
        found["v_ci"].append(timing.interval(of_medians, (call, one)))
        left = (step - t_draft - np.median(call)) / np.median(one)
        found["overhead"].append(float(left))
        found["prefill_ms"].append(float(prefill))
        found["step_ms"].append(float(step))
        found["draft_ms"].append(t_draft if gamma else None)
    median_ci = timing.interval(lambda x: float(np.median(x)), (one,))
    alone, *both = found["prefill_ms"]  # with an encoder its run is most of it
    return found | {
        "target_ms": float(np.median(one)),
        "target_ms_ci": median_ci,
        "prefill_target_ms": alone,
        "prefill_draft_ms": float(np.median(both)) - alone,
    }


def accepted(
    setting: Setting, scores: scoring.Scores | None, outputs: dict
) -> estimate.Estimate:
    """alpha at every token of the baseline's texts; where the draft has no law, the
    share of its tested tokens that were kept at the largest gamma; 0 of 0 is 0."""
    if scores is not None:
        return estimate.rao_blackwell(scores.beta, scores.sequence)
    count = setting.texts // setting.batch
    runs = [outputs[max(setting.gammas), i].counts for i in range(count)]
    totals = [np.concatenate([getattr(run, k) for run in runs]) for k in COUNTED]
    if not totals[-1].any():
        return estimate.Estimate(0.0, np.nan, 0)
    return estimate.counts(*totals)


def calls(setting: Setting, outputs: dict, measured: list[Batch]) -> dict:
    """Steps of all batches, and tokens of every call, for each gamma."""
    count, made = len(measured), {"steps": [], "tokens_per_call": []}
    for gamma in setting.gammas:
        every = [outputs[gamma, i].counts.calls for i in range(count)]
        total = sum(wrote(outputs[gamma, i], measured[i]) for i in range(count))
        made["steps"].append(int(sum(each.max() for each in every)))
        made["tokens_per_call"].append(float(total / np.sum(every)))
    return made


def predicted(
    setting: Setting,
    found: dict,
    scores: scoring.Scores,
    outputs: dict,
    measured: list[Batch],
) -> dict:
    """What the exact programme expects of the measured texts; no speed, None, where
    noise left no time for a step."""
    accept = predict.accept_probability(np.maximum(scores.p, TINY), scores.q)
    texts = [accept[scores.sequence == i] for i in range(setting.texts)]
    count = len(measured)
    tokens = sum(outputs[0, i].counts.calls.max() for i in range(count))
    made = {key: [] for key in ("predicted", *PREDICTED)}
    for at, gamma in enumerate(setting.gammas):
        laws = [predict.calls_law(a, gamma) for a in texts]
        rows = np.split(np.arange(setting.texts), count)
        expected = [predict.expected_steps([laws[i] for i in row]) for row in rows]
        made["predicted_steps"].append(float(sum(expected)))
        steps = [outputs[gamma, i].counts.calls.max() for i in range(count)]
        # Coins, and texts other than those scored: of the sum of the differences.
        luck = np.std(np.subtract(steps, expected), ddof=1) if count > 1 else np.nan
        made["steps_se"].append(None if luck != luck else float(luck * count**0.5))
        every = sum(float(law @ np.arange(law.size)) for law in laws)
        made["predicted_tokens_per_call"].append(scores.p.size / every)
        cost, baseline = (
            # gamma c + v + overhead is the whole step, in milliseconds here.
            predict.Cost(0, found["step_ms"][i], 0, count * found["prefill_ms"][i])
            for i in (at, 0)
        )
        speed = None
        if min(cost.v, baseline.v) > 0:
            speed = predict.speedup(tokens, sum(expected), gamma, cost, baseline)
        made["predicted"].append(speed)
    ratios = zip(made["predicted"], found["speedup"], strict=True)
    return made | {"residual": [p and p / s - 1 for p, s in ratios]}


def speedups(
    setting: Setting, seconds: dict, outputs: dict, measured: list[Batch]
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
        "speedup": [ratio(*one) for one in every],
        "speedup_ci": [timing.interval(ratio, one) for one in every],
    }


def best(found: dict) -> dict:
    """The numbers of the gamma > 0 that was fastest, and its interval."""
    at = 1 + int(np.argmax(found["speedup"][1:]))
    names = ("gamma", "c", "v", "overhead", "exp", "predicted", "speedup", "residual")
    chosen = {
        f"best_{name}": found[name][at]
        for name in (*names, "speedup_ci", "tokens_per_call")
    }
    low, high = chosen["best_speedup_ci"]
    return chosen | {"best_speedup_se": (high - low) / (2 * 1.96)}
