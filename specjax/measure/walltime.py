"""Walltime, measured and predicted: how much faster a pair is, and why.

These are tables like 2 and 4 of Leviathan et al. (2023). For every gamma: c (Definition
3.7) and v = t_p(gamma + 1) / t_p(1), each timed in a separate loop; the speedup that
Theorem 3.8 expects; and the measured speedup. Texts other than the measured ones choose
the best gamma and predict its speed (`specjax.theory.speedup`). Texts stop at their
ends or, where a setting says so, go on to the same number of tokens. Axes: N measured
batches, R rounds, M other batches, K values of gamma.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from specjax import decode_config, policies, verifiers
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig, record_fields
from specjax.drafts.source import DraftSource, check_pair, record_names
from specjax.fused import reference
from specjax.inputs import make_request
from specjax.keys import root_key
from specjax.measure import costs, counts, scoring, timing
from specjax.measure.counts import Batch
from specjax.measure.texts import Text, take, width
from specjax.measure.timing import DECODE, DRAFT, LOOPS, PREFILL, SAMPLES, TARGET
from specjax.prompts import Prompts
from specjax.runtime import hosts, mesh, progress
from specjax.theory import estimate, speedup
from specjax.types import Kernels
from specjax.verifiers import guarantees


class WalltimeSetting(NamedTuple):
    """The settings of a walltime measurement, and how often each text is decoded.

    decode: the settings, whose gamma each of `gammas` takes the place of. batch: rows
    decoded together. gammas: must hold 0, the baseline. texts: how many are measured,
    in batches, each in each of `rounds`; a single batch has no error. others: how many
    other texts a round times, each once, to choose gamma and to predict its speed.
    ends: whether a text stops at its end, before `decode.new_tokens`.
    """

    decode: DecodeConfig
    batch: int = 1
    gammas: tuple[int, ...] = tuple(range(11))
    texts: int = 32
    others: int = 8
    rounds: int = 3
    ends: bool = False


def check(target: Pretrained, draft: DraftSource, setting: WalltimeSetting) -> None:
    """Raises ValueError for a pair or a setting that cannot be measured."""
    check_pair(target, draft, with_alpha=False)
    decode_config.check(setting.decode)
    gammas = tuple(setting.gammas)
    if sorted(set(gammas)) != list(gammas) or gammas[:1] != (0,) or len(gammas) < 2:
        raise ValueError(
            f"gammas must ascend from 0, the baseline, to something; got {gammas}"
        )
    if min(setting.rounds, setting.batch) < 1:
        raise ValueError("rounds and batch must be at least 1")
    for name in ("texts", "others"):
        count = getattr(setting, name)
        if count < 1 or count % setting.batch:
            raise ValueError(
                f"{name} must fill batches of {setting.batch}; got {count}"
            )


def measure(
    target: Pretrained,
    draft: DraftSource,
    prompts: Prompts,
    setting: WalltimeSetting,
    *,
    kernels: Kernels | None = None,
    so_far: Callable[[dict], None] | None = None,
) -> dict:
    """Returns every number of a row as plain values; lists are parallel to `gamma`.

    kernels: what verifies and draws; None is the setting's rule by the reference.
    so_far: called after each round but the last with the row of the rounds so far, in
    which nothing is predicted, so that they are not lost if the run is stopped. Raises
    ValueError like `check`.
    """
    check(target, draft, setting)
    pair = prepare(target, draft, prompts, setting, kernels=kernels)
    measured, others = batches(prompts, setting)
    texts = dict(enumerate(measured))
    sizes = costs.memory_mb(pair, setting.gammas, measured[0].prompt)
    scored: list[scoring.Scores | None] = []  # once: all rounds write the same texts

    def score(text: Text) -> scoring.Scores | None:
        if draft.law is None or setting.decode.rule not in scoring.BY_RATIO:
            return None
        decode = setting.decode
        return scoring.score(
            target, draft, text, decode.temperature, **decode.truncation()
        )

    def row(seconds: dict, outputs: dict) -> dict:
        text = counts.join_texts(outputs, texts)
        scored.extend([] if scored else [score(text)])
        done = setting._replace(rounds=len(next(iter(seconds.values()))))
        it = describe(
            pair, done, texts, scores=scored[0], seconds=seconds, outputs=outputs
        )
        new = dict(list(enumerate(others, len(texts)))[: new_batches(prompts, done)])
        it["timed"]["others"] = other_times(done, new, seconds, outputs)
        if new and is_predictable(setting) and done.rounds == setting.rounds:
            scores = score(counts.join_texts(outputs, new))
            laws = []
            if scores is not None:
                laws = [counts.call_laws(gamma, scores) for gamma in setting.gammas]
            steps = [counts.batch_steps(each, len(new)) for each in laws]
            it["timed"]["others"]["expected_steps"] = steps or None
        it |= {"prompts": len(prompts.tokens), "chosen_on": len(new) * setting.batch}
        it |= speedup.speedup_from(it)
        at_best = setting.gammas.index(it["best_gamma"])
        it |= {"memory_mb": sizes, "best_memory_mb": sizes[at_best]}
        if setting.decode.temperature == 0:
            again = counts.join_texts(outputs, texts, it["best_gamma"])
            it |= greedy(text, again, scored[0])
        return it

    def report_row(seconds: dict, outputs: dict) -> None:
        if so_far is not None:
            so_far(row(seconds, outputs))

    return row(*run(pair, setting, measured, others, so_far and report_row))


def prepare(
    target: Pretrained,
    draft: DraftSource,
    prompts: Prompts,
    setting: WalltimeSetting,
    *,
    kernels: Kernels | None = None,
) -> costs.Pair:
    """Returns the pair with buffers for the longest text. kernels: see `measure`."""
    slots = width(prompts) + setting.decode.new_tokens + max(setting.gammas) + 1
    kernels = kernels or reference(verifiers.find(setting.decode.rule))
    return costs.Pair(
        target, draft, slots, kernels, policies.find(setting.decode.policy)
    )


def is_predictable(setting: WalltimeSetting) -> bool:
    """Returns whether a setting is Algorithm 1 with a fixed gamma, which can be
    predicted."""
    return setting.decode.rule == "token" and setting.decode.policy == "none"


def describe(
    pair: costs.Pair,
    setting: WalltimeSetting,
    texts: dict[int, Batch],
    *,
    scores: scoring.Scores | None,
    seconds: dict,
    outputs: dict,
) -> dict:
    """Returns the measurements of `texts`, except for their speed."""
    target, draft, gammas = pair.target, pair.draft, setting.gammas
    longest = [outputs[max(gammas), i] for i in texts]
    alpha, share = (counts.acceptance(each, longest) for each in (scores, None))
    row = {
        **record_names(target, draft),
        "encodes": target.encodes,
        "exactness": guarantees.combine(
            setting.decode.rule, draft.name, setting.decode.policy
        ),
        **{k: v for k, v in record_fields(setting).items() if k != "gammas"},
        "kernels": pair.kernels.record,
        "slots": pair.slots,
        "tokens": int(alpha.count),
        "alpha": alpha.value,
        "alpha_se": estimate.nan_to_none(alpha.se),
        "alpha_estimator": "counts" if scores is None else "rao_blackwell",
        "share_kept": share.value,
        "share_kept_se": estimate.nan_to_none(share.se),
        "gamma": list(gammas),
        "timed": timing.part_times(gammas, seconds),
    }
    if siblings := pair.drafter(max(gammas)).siblings:
        row["siblings"] = siblings
    row |= timing.part_costs(gammas, row["timed"])
    row |= counts.calls(gammas, outputs, texts)
    row |= dict.fromkeys(counts.EXPECTED, [None] * len(gammas))
    if scores is not None and is_predictable(setting):
        row |= counts.expected_calls(gammas, scores, outputs, texts)
    every = [[seconds[DECODE, gamma, i] for i in texts] for gamma in gammas]
    row["timed"]["texts"] = {
        "seconds": np.round(every, timing.DIGITS).tolist(),
        **counts.tokens_and_steps(gammas, outputs, texts),
    }
    return row


def new_batches(prompts: Prompts, setting: WalltimeSetting) -> int:
    """Returns how many batches have new texts, other than the measured ones.

    At temperature 0 a text depends on its prompt only.
    """
    count = setting.others // setting.batch * setting.rounds
    if setting.decode.temperature > 0:
        return count
    new = max(0, len(prompts.tokens) - setting.texts)
    return min(count, new // setting.batch)


def other_times(
    setting: WalltimeSetting, new: dict[int, Batch], seconds: dict, outputs: dict
) -> dict:
    """Returns the seconds, tokens and steps of the batches with other texts than the
    measured ones, each [K][M]: by gamma, then by batch. new: these batches by index."""
    first, each = (getattr(setting, k) // setting.batch for k in ("texts", "others"))
    places = [divmod(index - first, each) for index in new]  # round, and which of it
    times = [
        [seconds[DECODE, gamma, first + which][turn] for turn, which in places]
        for gamma in setting.gammas
    ]
    return {
        "seconds": np.round(times, timing.DIGITS).tolist(),
        **counts.tokens_and_steps(setting.gammas, outputs, new),
        "expected_steps": None,
    }


def greedy(text: Text, again: Text, scores: scoring.Scores | None) -> dict:
    """Returns how many argmax texts the draft left unchanged, and how much they
    repeat."""
    same = sum(map(np.array_equal, text.rows(), again.rows()))
    return {"same_greedy_texts": same, **scoring.alpha_outside_repeats(text, scores)}


def batches(
    prompts: Prompts, setting: WalltimeSetting
) -> tuple[list[Batch], list[Batch]]:
    """Returns the batches to measure, and those of the other texts, in the order in
    which the rounds decode them.

    The others have prompts that are not measured, as long as there are any.
    """
    key = root_key(setting.decode.seed)
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    sampling = setting.decode.sampling(setting.batch)
    ends = prompts.ends if setting.ends else ()
    count, new = setting.texts, len(prompts.tokens) - setting.texts

    def batch(first: int) -> Batch:
        index = np.arange(first, first + setting.batch)
        which = np.where(index < count, index, count + (index - count) % max(new, 1))
        prompt = take(prompts, (which if new > 0 else index).tolist())
        request = make_request(
            fold(key, index), prompt, setting.decode.new_tokens, sampling, ends
        )
        return Batch(*mesh.rows((prompt, request)))

    most = count + setting.others * setting.rounds
    taken = [batch(first) for first in range(0, most, setting.batch)]
    return taken[: count // setting.batch], taken[count // setting.batch :]


def first_batch(prompts: Prompts, setting: WalltimeSetting) -> Batch:
    """Returns the first of the batches that are measured."""
    few = setting._replace(texts=setting.batch, others=setting.batch, rounds=1)
    return batches(prompts, few)[0][0]


def run(
    pair: costs.Pair,
    setting: WalltimeSetting,
    measured: list[Batch],
    others: list[Batch],
    after: Callable[[dict, dict], None] | None = None,
) -> tuple[dict, dict]:
    """Times everything in turns, and returns seconds and outputs.

    All texts are decoded with every gamma. Each round takes the next ones of the
    others, whose indices follow those of the measured texts. Seconds [R] are keyed by
    (kind, gamma, index) and outputs by (gamma, index); the others have one index per
    round and not per program. `after` is called with both after every round but the
    last.
    """
    outputs, programs = {}, {}
    warm: list[Callable[[], Any]] = []
    first, each = len(measured), setting.others // setting.batch
    prompt, request = others[0]
    empty = request._replace(limit=request.start)  # no step at all

    def decode_in_turn(
        gamma: int, decode: Any, chosen: dict[int, Batch]
    ) -> Callable[[], Any]:
        turns = itertools.cycle(chosen.items())

        def program() -> Any:
            index, batch = next(turns)
            outputs[gamma, index] = decode(*batch)
            return outputs[gamma, index]

        return program

    label = (
        f"{pair.draft.name}, T = {setting.decode.temperature}, batch {setting.batch}"
    )
    for gamma in progress.track(setting.gammas, f"{label}: prefill"):
        decode = costs.decode(pair, gamma)
        for index, batch in enumerate(measured):
            programs[DECODE, gamma, index] = decode_in_turn(
                gamma, decode, {index: batch}
            )
        for index in range(first, first + each):
            chosen = dict(list(enumerate(others, first))[index - first :: each])
            programs[DECODE, gamma, index] = decode_in_turn(gamma, decode, chosen)
        calls = costs.target_calls(pair, gamma, LOOPS)
        state = costs.begin(pair, gamma, prompt, request)
        target = partial(calls, request, state)
        warm += [programs[DECODE, gamma, 0], target]
        for index in range(SAMPLES):
            programs[TARGET, gamma, index] = target
            programs[PREFILL, gamma, index] = partial(decode, prompt, empty)
        if gamma:
            draft = partial(costs.drafts(pair, gamma, LOOPS), request, state)
            warm.append(draft)
            for index in range(SAMPLES):
                programs[DRAFT, gamma, index] = draft
    order = timing.program_order(programs, first, each)
    turns = {name: programs[name] for name in order}

    def fetch() -> dict:
        return {name: hosts.read(out) for name, out in outputs.items()}

    def report_sample(seconds: dict) -> None:
        if after is not None:
            after(seconds, fetch())

    seconds = timing.time_in_turns(
        turns, setting.rounds, label, warm=warm, after=after and report_sample
    )
    return seconds, fetch()
