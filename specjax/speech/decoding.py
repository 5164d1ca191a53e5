"""Batches of windows to their texts: what `specjax.speech.transcribe` calls to decode.

Axes: B rows, F frames, M bands.
"""

import functools
import time
import zlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import finite, fused, verifiers
from specjax.inputs import make_request, make_sampling, pad
from specjax.models import whisper
from specjax.speech import loop
from specjax.speech.pair import Listeners
from specjax.speech.tokens import CONTEXT
from specjax.speech.transcribe import Decode, Heard
from specjax.types import Encoded, Features, Params, Prompt, Request, Sampling

WIDTHS = 8, 64  # of prompts: few programs
LONGEST = CONTEXT // 2  # tokens of a window's text, as Whisper itself has it


class Speculation(NamedTuple):
    """How texts are drafted and verified. seed: of all randomness; a row's coins depend
    on it and on what the row hears, not on the rows beside it. kernels: as of
    `fused`. top_k: ids that either law keeps, None for all. reserve: a
    larger gamma for which there shall be room, so that texts of both end alike where
    positions do."""

    gamma: int = 4
    rule: str = "token"
    seed: int = 0
    kernels: str = fused.AUTO
    top_k: int | None = None
    reserve: int = 0


class Spent(NamedTuple):
    """Of one batch. windows: rows of it. calls of the target, tokens written, accepted
    of tested drafts: sums over the rows. seconds: of encoding and decoding, without
    compilation."""

    windows: int
    calls: int
    tokens: int
    accepted: int
    tested: int
    seconds: float


def check(pair: Listeners, how: Speculation) -> None:
    """Raises ValueError, naming the fix, for what could not decode."""
    if not isinstance(how.gamma, int | np.integer) or how.gamma < 0:
        raise ValueError(f"gamma must be a whole number, 0 or more; got {how.gamma!r}")
    known = positions(pair)
    room = known - longest(pair) - max(how.gamma, how.reserve) - 1
    if room < 1:
        raise ValueError(
            f"the models know {known} positions: with prompts of {longest(pair)} that"
            f" leaves no text at gamma = {how.gamma}; draft fewer tokens"
        )
    if how.kernels not in fused.CHOICES:
        raise ValueError(f"kernels must be one of {fused.CHOICES}; got {how.kernels!r}")
    if how.top_k is not None and how.top_k < 1:
        raise ValueError(f"top_k must be 1 or more, or None; got {how.top_k}")
    verifiers.named(how.rule)


def positions(pair: Listeners) -> int:
    """Of the side that knows fewer."""
    sides = filter(None, pair[:2])
    return min(side.config.positions for side in sides)


def longest(pair: Listeners) -> int:
    """Tokens of the longest prompt: `tokens.prompt` of as many positions."""
    return min(CONTEXT, positions(pair)) // 2 + 4


def build(
    pair: Listeners,
    how: Speculation,
    timestamps: bool = True,
    told: Callable[[Spent], None] | None = None,
) -> Decode:
    """What decodes windows by a pair.

    Args:
      pair: target and draft.
      how: gamma, rule, seed.
      timestamps: whether texts are written with times, by the rules of these.
      told: is called with what each batch took.

    Returns:
      (features [B, F, M], B prompts, temperatures [B]) -> `Heard`; it raises
      FloatingPointError where logits are no law.
    """
    check(pair, how)

    def decode(features: np.ndarray, prompts: list[list[int]], temperatures) -> Heard:
        rows = len(prompts)
        keys = row_keys(how.seed, features, prompts, temperatures)
        batch = 1 << (rows - 1).bit_length()  # few programs
        index = np.arange(batch) % rows
        prompts = [prompts[i] for i in index]
        plan = planned(pair, how, timestamps, prompts)
        prompt = Prompt(*pad(prompts, width(pair, prompts)))
        sampling = sampled(np.asarray(temperatures)[index], how.top_k)
        request = asked(pair, plan, prompt, keys[index], sampling, how.reserve)
        request = request._replace(  # what fills the batch up has ended at once
            limit=jnp.where(jnp.arange(batch) < rows, request.limit, request.start)
        )
        sounds = jnp.asarray(features[index])
        written, seconds = run(pair, plan, sounds, prompt, request)
        heard, spent = told_of(written, prompt, rows, pair.tokens.end)
        if told is not None:
            told(spent._replace(seconds=seconds))
        return heard

    return decode


def width(pair: Listeners, prompts: list[list[int]]) -> int:
    """Of prompts as they are padded."""
    most = longest(pair)
    widths = [*(w for w in WIDTHS if w < most), most]
    return next(w for w in widths if w >= max(map(len, prompts)))


def planned(
    pair: Listeners, how: Speculation, timestamps: bool, prompts: list[list[int]]
) -> loop.Plan:
    """What is compiled for these: room for the longest text behind the longest prompt,
    as far as there are positions."""
    most = width(pair, prompts) + LONGEST + how.gamma + 1
    slots = min(positions(pair), most)
    return loop.Plan(
        pair.target.config,
        None if pair.draft is None else pair.draft.config,
        pair.shared,
        loop.hashable(pair.tokens),
        pair.limits,
        timestamps,
        *(how.gamma, how.rule, how.kernels),
        *(len(prompts), slots),
    )


def sampled(temperatures: np.ndarray, top_k: int | None) -> Sampling:
    """Of rows that each have a temperature of their own."""
    cut = {} if top_k is None else {"top_k": top_k}
    same = make_sampling(len(temperatures), 0.0, **cut)
    return same._replace(temperature=jnp.asarray(temperatures, jnp.float32))


def asked(
    pair: Listeners,
    plan: loop.Plan,
    prompt: Prompt,
    keys,
    sampling: Sampling,
    reserve: int = 0,
) -> Request:
    request = make_request(keys, prompt, LONGEST, sampling, pair.tokens.end)
    most = plan.slots - max(plan.gamma, reserve) - 1
    return request._replace(limit=jnp.minimum(request.limit, most))


def row_keys(seed: int, features: np.ndarray, prompts, temperatures) -> jax.Array:
    """A key for each row, of what it hears, goes on with and is drawn at."""
    marks = [
        zlib.crc32(
            np.float32(heat).tobytes() + np.int32(ids).tobytes() + sound.tobytes()
        )
        for sound, ids, heat in zip(features, prompts, temperatures, strict=True)
    ]
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    return fold(jax.random.key(seed), jnp.asarray(marks, jnp.uint32))


def run(
    pair: Listeners, plan: loop.Plan, sounds, prompt: Prompt, request: Request
) -> tuple[loop.Written, float]:
    """Compiles, or finds compiled, then encodes and decodes and times that alone."""
    target, draft = pair.target, pair.draft
    drafting = draft is not None and plan.gamma > 0
    sides = [target] if pair.shared or not drafting else [target, draft]
    encoders = [
        (encoder(side.config).lower(side.params, sounds).compile(), side.params)
        for side in sides
    ]
    heard = jax.eval_shape(encoder(target.config), target.params, sounds)
    decode = loop.program(plan)
    inputs = arguments(pair, drafting, prompt, [heard] * len(sides))
    compiled = decode.lower(*inputs, request).compile()
    begun = time.perf_counter()
    states = [encode(params, sounds) for encode, params in encoders]
    inputs = arguments(pair, drafting, prompt, states)
    written = jax.block_until_ready(compiled(*inputs, request))
    return jax.device_get(written), time.perf_counter() - begun


def arguments(
    pair: Listeners, drafting: bool, prompt: Prompt, states: list
) -> tuple[Params, Prompt]:
    """Weights, and the prompt with what the target's encoder gave; the draft's, where
    it hears by its own, are beside its weights."""
    small = pair.draft.params if drafting else None
    if len(states) > 1:
        small = {"model": small, "heard": states[1]}
    return Params(pair.target.params, small), prompt._replace(inputs=Encoded(states[0]))


@functools.lru_cache(maxsize=8)
def encoder(config: whisper.Config) -> Callable:
    """(params, frames [B, F, M]) -> states, jitted."""
    return jax.jit(
        lambda params, frames: whisper.encode(config, params, Features(frames)).states
    )


@functools.lru_cache(maxsize=8)
def first_logits(config: whisper.Config, start: int) -> Callable:
    """(params, frames [B, F, M]) -> logits [B, V] behind `<|startoftranscript|>`, whose
    id is `start`, alone; jitted."""
    model = whisper.build(config)

    def logits(params, frames):
        ids = jnp.full((len(frames), 1), start, jnp.int32)
        prompt = Prompt(ids, jnp.ones(len(frames), jnp.int32), Features(frames))
        cache = model.init(params, prompt, 1)
        features, _ = model.apply(params, ids, jnp.zeros_like(prompt.length), cache)
        return model.readout(params, features)[:, 0]

    return jax.jit(logits)


def told_of(
    written: loop.Written, prompt: Prompt, rows: int, end: int
) -> tuple[Heard, Spent]:
    """The texts of the first `rows`, and what they took. Raises FloatingPointError for
    logits that were no law."""
    begun = np.asarray(prompt.length)
    spans = list(zip(written.tokens, begun, written.length, strict=True))[:rows]
    texts = [ids[start:stop] for ids, start, stop in spans]
    finite.check(texts)
    mean = [
        float(total) / max(len(ids), 1)
        for total, ids in zip(written.logprob, texts, strict=False)
    ]
    bare = [[int(i) for i in ids if i != end] for ids in texts]
    counts = [int(each[:rows].sum()) for each in written.counts]
    calls, _, tested, accepted = counts
    count = sum(map(len, texts))
    heard = Heard(bare, mean, [float(x) for x in written.no_speech[:rows]])
    return heard, Spent(rows, calls, count, accepted, tested, 0.0)
