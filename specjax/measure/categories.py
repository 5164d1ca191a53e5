"""The speed and the acceptance of a draft on each kind of question, as Spec-Bench
reports them.

Every prompt is decoded by the target alone and by the pair, one text at a time, round
after round. The length of a call is the number of tokens it emits: the drafted ones
that were kept and the one that the target adds, the bonus token. Without a draft it is
1. Axes: B = 1 row, L buffer, S steps, G = gamma, R rounds.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import finite, generate
from specjax.decode_config import record_fields
from specjax.drafts.source import record_names
from specjax.inputs import make_request
from specjax.keys import root_key
from specjax.measure import costs, scoring, timing
from specjax.measure.texts import take
from specjax.measure.walltime import WalltimeSetting
from specjax.prompts import Prompts, questions
from specjax.prompts.questions import Question
from specjax.runtime import hosts, progress
from specjax.theory import estimate, speedup
from specjax.types import Info, Params, Prompt, Request
from specjax.verifiers import guarantees

ALL = "all"  # the row of every question
ALONE, DRAFTED, FIRST = "alone", "drafted", "first"
PARTS = "draft", "score"  # of a step, whose times are shares of a target call


class Turn(NamedTuple):
    """A prompt, and its answers: with a draft and without.

    Attributes:
      asked: the question.
      prompt: the number of its tokens.
      seconds: [R], by ALONE and DRAFTED, of the whole text, and by FIRST, until the
        pair's first call has emitted its tokens.
      texts: the ids that were written, by ALONE and DRAFTED.
      lengths, accepted, tested: [S], for every call of the pair, the tokens that it
        emitted, and the drafted tokens that were kept and that were decided on.
      repeated: tokens written by the target alone that end a repeated run.
    """

    asked: Question
    prompt: int
    seconds: dict[str, list[float]]
    texts: dict[str, list[int]]
    lengths: list[int]
    accepted: list[int]
    tested: list[int]
    repeated: int = 0


def decode(
    pair: costs.Pair,
    prompts: Prompts,
    setting: WalltimeSetting,
    so_far: Callable[[list[Turn]], None] | None = None,
) -> list[Turn]:
    """Decodes every prompt with the largest gamma of the setting, and without a draft.

    Prompts are padded to widths that many share, and each width is compiled once.
    so_far: called with the finished turns after each one, so that they are not lost if
    the run is stopped. Raises FloatingPointError for logits that are not finite, and
    ValueError without questions.
    """
    if len(prompts.questions) < len(prompts.tokens):
        raise ValueError("these prompts are not questions: name a file of them")
    pair = pair._replace(kernels=finite.guard_kernels(pair.kernels))
    gamma, turns, programs = max(setting.gammas), {}, {}
    order = sorted(range(len(prompts.tokens)), key=lambda i: len(prompts.tokens[i]))
    for index in progress.track(order, f"{pair.draft.name}: questions"):
        prompt = take(prompts, [index], narrow=True)
        request = text_request(prompt, prompts.ends, setting, index)
        shapes = tuple(leaf.shape for leaf in jax.tree.leaves(prompt))
        is_new = shapes not in programs
        if is_new:
            slots = prompt.tokens.shape[1] + setting.decode.new_tokens + gamma + 1
            here = pair._replace(slots=slots)
            programs[shapes] = [build(here, each) for each in (0, gamma)]
        turns[index] = time_prompt(
            programs[shapes],
            prompts.questions[index],
            prompt,
            request,
            rounds=setting.rounds,
            is_new=is_new,
        )
        done = [turns[index] for index in sorted(turns)]
        if so_far is not None:
            so_far(done)
    return done


def call_ms(
    pair: costs.Pair, prompts: Prompts, setting: WalltimeSetting
) -> dict[str, float]:
    """Returns `costs.call_ms`, measured in the middle of the answer to the first
    prompt."""
    prompt, gamma = take(prompts, [0], narrow=True), max(setting.gammas)
    request = text_request(prompt, prompts.ends, setting, 0)
    rounds = timing.SAMPLES * setting.rounds
    return costs.call_ms(pair, gamma, prompt, request, rounds)


def text_request(
    prompt: Prompt, ends: tuple[int, ...], setting: WalltimeSetting, index: int
) -> Request:
    """Returns the request [1] for the text of prompt `index`, which has its own key and
    stops at its end or after `new_tokens`."""
    key = jax.random.fold_in(root_key(setting.decode.seed), index)[None]
    sampling = setting.decode.sampling(1)
    return make_request(key, prompt, setting.decode.new_tokens, sampling, ends)


def build(pair: costs.Pair, gamma: int) -> Callable:
    """Returns a program (prompt, request) -> text, length, number of steps, and counts.

    The text is [B, L] and its length [B]. The counts are the tokens that each step
    emitted, accepted and tested, [L, B, 3].
    """
    decoder = pair.decoder(gamma)

    def add(total: tuple[Array, Array], info: Info) -> tuple[Array, Array]:
        log, at = total
        row = jnp.stack([info.emitted, info.accepted, info.tested], axis=-1)
        return log.at[at].set(row.astype(jnp.int32)), at + 1

    fold = generate.build_fold(decoder, add)

    @jax.jit
    def loop(params: Params, prompt: Prompt, request: Request) -> tuple:
        state = generate.prefill(decoder, params, prompt, pair.slots)
        log = jnp.zeros((pair.slots, prompt.tokens.shape[0], 3), jnp.int32)
        state, (log, steps) = fold(params, request, state, (log, 0))
        return state.tokens, state.length, steps, log

    return lambda prompt, request: loop(pair.params(gamma), prompt, request)


def time_prompt(
    programs: Sequence[Callable],
    asked: Question,
    prompt: Prompt,
    request: Request,
    *,
    rounds: int,
    is_new: bool,
) -> Turn:
    """Decodes a prompt by both programs in turns, and returns the times and texts.

    is_new: whether the programs are not compiled yet.
    """
    alone, drafted = programs
    first = request._replace(limit=request.start + 1)
    outputs = {}

    def run(name: str, program: Callable, request: Request) -> tuple:
        outputs[name] = program(prompt, request)
        return outputs[name]

    each = (ALONE, alone, request), (DRAFTED, drafted, request), (FIRST, drafted, first)
    runs = {it[0]: partial(run, *it) for it in each}
    warm = runs.values() if is_new else ()
    seconds = timing.time_in_turns(runs, rounds, "compile", warm=warm)
    begin, texts, marks = int(prompt.length[0]), {}, {}
    for name in (ALONE, DRAFTED):
        tokens, length, steps, log = hosts.read(outputs[name])
        marks[name] = scoring.find_repeats(tokens[0, : length[0]])[begin:]
        texts[name] = tokens[0, begin : length[0]].tolist()
        finite.check([np.array(texts[name])])
    lengths, accepted, tested = log[:steps, 0].T.tolist()  # the last log is DRAFTED's
    return Turn(
        asked=asked,
        prompt=begin,
        seconds={k: np.round(x, timing.DIGITS).tolist() for k, x in seconds.items()},
        texts=texts,
        lengths=lengths,
        accepted=accepted,
        tested=tested,
        repeated=int(marks[ALONE].sum()),
    )


def rows(
    pair: costs.Pair,
    prompts: Prompts,
    setting: WalltimeSetting,
    turns: Sequence[Turn],
    *,
    by: str | None = None,
    ms: Mapping[str, float] | None = None,
) -> dict[str, dict]:
    """Returns the measurements of every group and of ALL, in the form that `specjax
    compare` reads.

    by: one of `questions.GROUPS`. ms: the result of `call_ms`. Raises ValueError for a
    question without a group.
    """
    groups: dict[str, list[Turn]] = {}
    if by is not None:
        for turn in turns:
            groups.setdefault(questions.group_name(turn.asked, by), []).append(turn)
    groups[ALL] = list(turns)
    gamma, found, drop = max(setting.gammas), {}, ("gammas", "texts", "others", "ends")
    for group, chosen in groups.items():
        found[group] = {
            **record_names(pair.target, pair.draft),
            "exactness": guarantees.combine(
                setting.decode.rule, pair.draft.name, setting.decode.policy
            ),
            **{k: v for k, v in record_fields(setting).items() if k not in drop},
            "kernels": pair.kernels.record,
            "by": by,
            "group": group,
            "gamma": gamma,
            "best_gamma": gamma,
            "left_out": prompts.left_out,
            **numbers(chosen, gamma),
        }
        if ms:
            c, v = (ms[f"t_{part}_ms"] / ms["t_target_ms"] for part in PARTS)
            by_calls = found[group]["tokens_per_call"] / (gamma * c + v)
            found[group] |= {**ms, "speed_by_calls": by_calls}
        if setting.decode.temperature == 0:
            same = [turn.texts[ALONE] == turn.texts[DRAFTED] for turn in chosen]
            found[group]["same_greedy_texts"] = sum(same)
        if group != ALL or by is None:
            found[group]["turns"] = [turn_record(turn) for turn in chosen]
    return found


def numbers(turns: Sequence[Turn], gamma: int) -> dict:
    """Returns the numbers that are reported for some turns.

    Tokens per second are Spec-Bench's: the mean over questions of tokens over seconds,
    with prefill, and medians over rounds. The speedup is the ratio of two such means,
    and its interval is that of the questions. Acceptance by drafted position i = 1 ..
    G: `joint` is the share of calls that emitted more than i tokens, `conditional` the
    share of the tokens at i that were kept if decided on.
    """
    lengths, accepted, tested = (
        np.concatenate([getattr(turn, name) for turn in turns]).astype(int)
        for name in ("lengths", "accepted", "tested")
    )
    at = np.arange(1, gamma + 1)[:, None]
    decided = (tested >= at).sum(1)
    shares = [
        float((accepted >= i).sum() / n) if n else None
        for i, n in zip(at, decided, strict=True)
    ]
    asked = by_question(turns)
    sums = [  # the turns of a question are one conversation
        [sum(sum(getattr(turn, name)) for turn in each) for each in asked.values()]
        for name in ("accepted", "tested")
    ]
    alpha = estimate.counts(*map(np.array, sums)) if decided[0] else None
    speeds = {
        name: np.array([speed(each, name) for each in asked.values()])
        for name in (ALONE, DRAFTED)
    }
    value, error = speedup.ratio([speeds[DRAFTED]], [speeds[ALONE]])
    return {
        "questions": [*asked],
        "texts": len(turns),
        "tokens": int(lengths.sum()),
        "calls": len(lengths),
        "tokens_per_call": float(lengths.mean()),
        "lengths": {str(k): n for k, n in sorted(Counter(lengths.tolist()).items())},
        "conditional": shares,
        "joint": [float(x) for x in (lengths > at).mean(1)],
        "alpha": alpha and alpha.value,
        "alpha_se": alpha and estimate.nan_to_none(alpha.se),
        "tokens_per_second": {k: float(x.mean()) for k, x in speeds.items()},
        "best_speedup": value,
        "best_speedup_ci": speedup.interval(value, error, len(asked)),
        "repeated": sum(turn.repeated for turn in turns)
        / sum(len(turn.texts[ALONE]) for turn in turns),
    }


def by_question(turns: Iterable[Turn]) -> dict[str | int, list[Turn]]:
    """Returns the turns of each question by its id."""
    asked: dict[str | int, list[Turn]] = {}
    for turn in turns:
        asked.setdefault(turn.asked.id, []).append(turn)
    return asked


def speed(turns: Sequence[Turn], name: str) -> float:
    """Returns the tokens per second of the turns of a question."""
    seconds = sum(float(np.median(turn.seconds[name])) for turn in turns)
    return sum(len(turn.texts[name]) for turn in turns) / seconds


def turn_record(turn: Turn) -> dict:
    """Returns a turn in the form of a record: its numbers without its texts."""
    about = {k: getattr(turn.asked, k) for k in ("id", "category", "turn")}
    tokens = {name: len(ids) for name, ids in turn.texts.items()}
    names = "prompt", "seconds", "lengths", "accepted", "tested"
    counted = {k: getattr(turn, k) for k in names}
    return {**about, **counted, "tokens": tokens}
