"""Batches of windows to their texts, and how sure of these the model is.

The loop of `specjax.generate`, which sums the log-probabilities of what it writes, as
Whisper's transcription of long recordings wants them (Radford et al., 2022, Section
3.8). What an encoder gave is an argument: it runs once for both models where they share
it.
Axes: B rows, F frames, M bands, S states of the encoder, E features, V vocabulary.
"""

import functools
import time
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.stages import Wrapped

from specjax import decode_config, finite, fused, generate, verifiers
from specjax.decode_config import DecodeConfig
from specjax.drafters import autoregressive
from specjax.drafts.placement import whole_drafter
from specjax.inputs import make_request, pad
from specjax.keys import root_key
from specjax.models import reduced_vocab, whisper
from specjax.models.constrained import constrained
from specjax.runtime import mesh
from specjax.runtime.mesh import Layout
from specjax.speech import rules
from specjax.speech.limits import Limits
from specjax.speech.pair import Listeners, whisper_config
from specjax.speech.sequential import Decode, Decoded
from specjax.speech.tokens import CONTEXT, Tokens
from specjax.step import Decoder
from specjax.types import Encoded, Features, Logits, Model, Params, Prompt, Request

WIDTHS = 8, 64  # of prompts: few programs
LONGEST = CONTEXT // 2  # tokens of a window's text, as Whisper itself has it


class Spent(NamedTuple):
    """Of one batch. windows: rows of it. calls of the target, tokens written, accepted
    of tested drafts: sums over the rows. seconds: of encoding and decoding, without
    compilation; encoding: of the encoder alone."""

    windows: int
    calls: int
    tokens: int
    accepted: int
    tested: int
    seconds: float
    encoding: float = 0.0


class Plan(NamedTuple):
    """The key of a program: all that it is compiled for. It is hashable.

    draft: None is no drafter, and none is called at gamma = 0. tokens: without
    languages and tasks, which do not hash. decode: `DecodeConfig.static`. batch: rows.
    slots: of the buffer. mesh: what it lies on, None for one device.
    """

    target: whisper.Config
    draft: whisper.Config | None
    shared: bool
    tokens: Tokens
    limits: Limits
    timestamps: bool
    decode: DecodeConfig
    batch: int
    slots: int
    mesh: Layout | None = None


def check(pair: Listeners, config: DecodeConfig, reserve: int = 0) -> None:
    """Raises ValueError, naming the fix, for what could not decode."""
    decode_config.check(config)
    if config.policy != "none":
        raise ValueError("windows are drafted without a policy: leave policy out")
    known = positions(pair)
    room = known - longest(pair) - max(config.gamma, reserve) - 1
    if room < 1:
        raise ValueError(
            f"the models know {known} positions: with prompts of {longest(pair)} that"
            f" leaves no text at gamma = {config.gamma}; draft fewer tokens"
        )


def positions(pair: Listeners) -> int:
    """Of the side that knows fewer."""
    sides = [side for side in pair[:2] if side is not None]
    return min(whisper_config(side).positions for side in sides)


def longest(pair: Listeners) -> int:
    """Tokens of the longest prompt: `tokens.prompt` of as many positions."""
    return min(CONTEXT, positions(pair)) // 2 + 4


def build(
    pair: Listeners,
    config: DecodeConfig,
    *,
    timestamps: bool = True,
    on_batch: Callable[[Spent], None] | None = None,
    states: bool = False,
    reserve: int = 0,
) -> Decode:
    """Returns what decodes windows by a pair.

    Args:
      pair: target and draft.
      config: of it temperature, new_tokens and logprobs are not read: a window's
        temperature is an argument, and its text ends by Whisper's own rules. A row's
        draws depend on the seed and on what the row hears, not on the rows beside it.
      timestamps: whether texts are written with times, by the rules of these.
      on_batch: is called with what each batch took.
      states: whether what the encoder gave is kept.
      reserve: a larger gamma for which there shall be room, so that texts of both end
        alike where positions do.

    Returns:
      (features [B, F, M], B prompts, temperatures [B]) -> `Decoded`; it raises
      FloatingPointError where logits are not finite.

    Raises:
      ValueError: what could not decode, with the fix.
    """
    check(pair, config, reserve)

    def decode(features: np.ndarray, prompts: list[list[int]], heats: Any) -> Decoded:
        rows, heats = len(prompts), np.asarray(heats, np.float32)
        keys = row_keys(config.seed, features, prompts, heats)
        parts = 1 if mesh.layout.value is None else mesh.layout.value.data
        batch = parts << (-(-rows // parts) - 1).bit_length()  # few programs
        index = np.arange(batch) % rows
        widths = (*(w for w in WIDTHS if w < longest(pair)), longest(pair))
        width = next(w for w in widths if w >= max(map(len, prompts)))
        plan = make_plan(pair, config, timestamps=timestamps, batch=batch, width=width)
        prompt = Prompt(*pad([prompts[i] for i in index], width))
        sampling = config.sampling(batch)
        sampling = sampling._replace(temperature=jnp.asarray(heats[index]))
        request = make_request(keys[index], prompt, LONGEST, sampling, pair.tokens.end)
        most = plan.slots - max(config.gamma, reserve) - 1
        limit = jnp.minimum(request.limit, most)
        own = jnp.arange(batch) < rows  # what fills the batch up has ended at once
        request = request._replace(limit=jnp.where(own, limit, request.start))
        heard = jnp.asarray(features[index]), prompt, request
        output, quiet, seconds, encoded = run(pair, plan, *mesh.rows(heard))
        decoded, spent = texts_of(
            output, quiet, request, rows=rows, end=pair.tokens.end, seconds=seconds
        )
        if on_batch is not None:
            on_batch(spent)
        return decoded._replace(states=encoded) if states else decoded

    return decode


def row_keys(seed: int, features: np.ndarray, prompts: Any, heats: np.ndarray) -> Array:
    """A key for each row, of what it hears, goes on with and is drawn at."""
    marks = [
        zlib.crc32(heat.tobytes() + np.int32(ids).tobytes() + sound.tobytes())
        for sound, ids, heat in zip(features, prompts, heats, strict=True)
    ]
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    return fold(root_key(seed), jnp.asarray(marks, jnp.uint32))


def make_plan(
    pair: Listeners, config: DecodeConfig, *, timestamps: bool, batch: int, width: int
) -> Plan:
    """Returns the key of a program that has room for the longest text behind prompts of
    a width, as far as there are positions."""
    slots = min(positions(pair), width + LONGEST + config.gamma + 1)
    none: Any = ()  # in place of mappings, which do not hash
    bare = pair.tokens._replace(tasks=none, languages=none, language=None, task=None)
    return Plan(
        target=pair.config,
        draft=None if pair.draft is None else whisper_config(pair.draft),
        shared=pair.shared,
        tokens=bare,
        limits=pair.limits,
        timestamps=timestamps,
        decode=config.static(),
        batch=batch,
        slots=slots,
        mesh=mesh.layout.value,
    )


@functools.lru_cache(maxsize=32)
def program(plan: Plan) -> Wrapped:
    """Returns what decodes by a plan, jitted: (params, prompt, request) -> the output
    and the probabilities [B] that nobody speaks. Prompts have what the target's encoder
    gave, `types.Encoded`; where the draft hears by another, its params are as of
    `heard_by`."""
    decoder, bare = make_decoder(plan), whisper.build(plan.target)
    finish = generate.build_rest(decoder)

    def decode(
        params: Params, prompt: Prompt, request: Request
    ) -> tuple[generate.Output, Array]:
        state = generate.prefill(decoder, params, prompt, plan.slots)
        cache = state.target_cache.model
        quiet = no_speech(bare, plan.tokens, params.target, prompt, cache)
        return finish(params, request, state), quiet

    return jax.jit(decode)


def make_decoder(plan: Plan) -> Decoder:
    """The ruled pair of a plan."""
    gamma, rule = plan.decode.gamma, verifiers.find(plan.decode.rule)
    sizes = fused.Sizes(plan.batch, gamma, plan.target.vocab)
    chosen = fused.choose(plan.decode.kernels, rule, sizes)
    settings = plan.tokens, plan.limits, plan.target.vocab, plan.timestamps
    ruled = rules.build(*settings)
    target = constrained(whisper.build(plan.target), ruled)
    if plan.draft is None or gamma == 0:
        verifier = finite.guard(chosen.alone)
        return Decoder(target, verifier=verifier, logprobs=True)
    draft = constrained(make_draft(plan, plan.draft), ruled)
    drafter = autoregressive.build(draft, gamma, chosen.draw)
    if plan.mesh is not None and plan.mesh.draft == 1:
        drafter = whole_drafter(drafter)
    return Decoder(target, drafter, finite.guard(chosen.verifier), logprobs=True)


def make_draft(plan: Plan, config: whisper.Config) -> Model:
    """The draft of a plan, without rules; with fewer ids than its target it says some
    of these. config: of the draft."""
    if config.vocab != plan.target.vocab:
        return reduced_vocab.spread(reduced_vocab.build(config, plan.target))
    small = whisper.build(config)
    if plan.shared:
        return small
    # By an encoder of its own, whose states [B, S, E] are in its params.
    return heard_by(small, lambda states, prompt: Encoded(states))


def heard_by(model: Model, inputs_of: Callable[[Array, Prompt], Any]) -> Model:
    """The same model, whose params are {"model": its own, "heard": an array}, and which
    hears `inputs_of` that array and the prompt."""

    def init(params: Any, prompt: Prompt, slots: int) -> Any:
        own = prompt._replace(inputs=inputs_of(params["heard"], prompt))
        return model.init(params["model"], own, slots)

    def apply(params: Any, *arguments: Any) -> tuple[Array, Any]:
        return model.apply(params["model"], *arguments)

    def readout(params: Any, features: Array) -> Logits:
        return model.readout(params["model"], features)

    return model._replace(init=init, apply=apply, readout=readout, shapes=None)


def no_speech(
    model: Any, tokens: Tokens, params: Any, prompt: Prompt, cache: Any
) -> Array:
    """See `rules.no_speech`: of the place where a transcript starts, [B]. The start is
    fed once more, to the slot where it is, and the cache thrown away."""
    inside = jnp.arange(prompt.tokens.shape[1]) < prompt.length[:, None]
    start = jnp.argmax(inside & (prompt.tokens == tokens.start), axis=1)
    token = jnp.full((start.size, 1), tokens.start, jnp.int32)
    features, _ = model.apply(params, token, start, cache)
    return rules.no_speech(tokens, model.readout(params, features)[:, 0])


def run(
    pair: Listeners, plan: Plan, sounds: Array, prompt: Prompt, request: Request
) -> tuple[generate.Output, np.ndarray, tuple[float, float], Array]:
    """Compiles, or finds compiled, then encodes and decodes and times both, and the
    encoder, alone. Returns what the target's encoder gave, too."""
    draft = pair.draft if plan.decode.gamma > 0 else None
    sides = [pair.target]
    if draft is not None and not pair.shared:
        sides.append(draft)
    encoders = [
        encoder(whisper_config(side)).lower(side.params, sounds).compile()
        for side in sides
    ]

    def inputs(states: list[Any]) -> tuple[Params, Prompt, Request]:
        small = None if draft is None else draft.params
        if len(states) > 1:
            small = {"model": small, "heard": states[1]}
        params = Params(pair.target.params, small)
        return params, prompt._replace(inputs=Encoded(states[0])), request

    shape = jax.eval_shape(encoder(pair.config), pair.target.params, sounds)
    compiled = program(plan).lower(*inputs([shape] * len(sides))).compile()
    began = time.perf_counter()
    both = zip(encoders, sides, strict=True)
    states = [encode(side.params, sounds) for encode, side in both]
    jax.block_until_ready(states)
    heard = time.perf_counter()
    written = jax.block_until_ready(compiled(*inputs(states)))
    ended = time.perf_counter()
    return *jax.device_get(written), (ended - began, heard - began), states[0]


@functools.lru_cache(maxsize=8)
def encoder(config: whisper.Config) -> Wrapped:
    """(params, frames [B, F, M]) -> states, jitted."""
    return jax.jit(
        lambda params, frames: whisper.encode(config, params, Features(frames)).states
    )


@functools.lru_cache(maxsize=8)
def first_logits(config: whisper.Config, start: int) -> Wrapped:
    """(params, frames [B, F, M]) -> logits [B, V] behind `<|startoftranscript|>`, whose
    id is `start`, alone; jitted."""

    def logits(params: Any, frames: Array) -> Array:
        ids = jnp.full((len(frames), 1), start, jnp.int32)
        return whisper.logits(config, params, Features(frames), ids)[:, 0]

    return jax.jit(logits)


def texts_of(
    output: generate.Output,
    quiet: np.ndarray,
    request: Request,
    *,
    rows: int,
    end: int,
    seconds: tuple[float, float],
) -> tuple[Decoded, Spent]:
    """The texts of the first `rows`, and what they took. Raises FloatingPointError for
    logits that were no law."""
    spans = zip(output.tokens, np.asarray(request.start), output.length, strict=True)
    texts = [ids[start:stop] for ids, start, stop in spans][:rows]
    finite.check(texts)
    lengths = np.array([len(ids) for ids in texts])
    assert output.logprob is not None
    mean = (output.logprob[:rows] / np.maximum(lengths, 1)).tolist()
    bare = [[int(i) for i in ids if i != end] for ids in texts]
    calls, _, tested, accepted = (int(each[:rows].sum()) for each in output.counts)
    decoded = Decoded(bare, mean, quiet[:rows].tolist())
    spent = Spent(rows, calls, int(lengths.sum()), accepted, tested, *seconds)
    return decoded, spent
