"""The decoding of batches of windows, with the log-probabilities of their texts.

It uses the loop of `specjax.generate`, which sums the log-probabilities of the written
tokens, as Whisper's transcription of long recordings needs them (Radford et al., 2022,
Section 3.8). The output of an encoder is an argument: the encoder runs once for both
models where they share it. Axes: B rows, F frames, M bands, S states of the encoder, E
features, V vocabulary."""

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
from specjax.drafts.placement import replicated_drafter
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
LONGEST = CONTEXT // 2  # tokens of a window's text, as in Whisper itself


class Spent(NamedTuple):
    """The work of one batch.

    windows: its rows. calls of the target, tokens written, accepted of tested drafts:
    sums over the rows. seconds: the time of encoding and decoding, without
    compilation; encoding: the time of the encoders alone. steps: where windows were
    decoded by beam search (`speech.beams`), the calls that the search takes without a
    draft."""

    windows: int
    calls: int
    tokens: int
    accepted: int
    tested: int
    seconds: float
    encoding: float = 0.0
    steps: int = 0


class ProgramKey(NamedTuple):
    """The key of a program: all that it is compiled for. It is hashable.

    draft: None for no drafter, and none is called at gamma = 0. tokens: without
    languages and tasks, which do not hash. decode: `DecodeConfig.static`. batch: rows.
    slots: the number of slots of the buffer. mesh: the layout that it runs on, None for
    one device."""

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
    """Raises ValueError, naming the fix, for a pair or for settings that cannot
    decode."""
    decode_config.check(config)
    if config.policy != "none":
        raise ValueError("windows are drafted without a policy: leave policy out")
    known = positions(pair)
    room = known - longest_prompt(pair) - max(config.gamma, reserve) - 1
    if room < 1:
        raise ValueError(
            f"the models have {known} positions: with prompts of"
            f" {longest_prompt(pair)} tokens no text fits at gamma = {config.gamma};"
            " draft fewer tokens"
        )


def positions(pair: Listeners) -> int:
    """Returns the number of positions of the model that has fewer."""
    sides = [side for side in pair[:2] if side is not None]
    return min(whisper_config(side).positions for side in sides)


def longest_prompt(pair: Listeners) -> int:
    """Returns the length of the longest prompt: that of `tokens.prompt` for all of the
    positions."""
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
    """Returns the function that decodes windows with a pair.

    Args:
      pair: target and draft.
      config: its temperature, new_tokens and logprobs are not read: a window's
        temperature is an argument, and its text ends by Whisper's own rules. A row's
        draws depend on the seed and on the row's own input, not on the rows beside
        it.
      timestamps: whether texts are written with times, by the rules of these.
      on_batch: is called with the work of each batch.
      states: whether the encoder's output is returned.
      reserve: a larger gamma to leave room for, so that texts of both gammas end at
        the same place where positions run out.

    Returns:
      (features [B, F, M], B prompts, temperatures [B]) -> `Decoded`; it raises
        FloatingPointError where logits are not finite.

    Raises:
      ValueError: the pair or the settings cannot decode; the message names the fix.
    """
    check(pair, config, reserve)

    def decode(
        features: np.ndarray, prompts: list[list[int]], temperatures: Any
    ) -> Decoded:
        rows, temperatures = len(prompts), np.asarray(temperatures, np.float32)
        keys = row_keys(config.seed, features, prompts, temperatures)
        parts = 1 if mesh.layout.value is None else mesh.layout.value.data
        batch = parts << (-(-rows // parts) - 1).bit_length()  # few programs
        index = np.arange(batch) % rows
        widths = (
            *(w for w in WIDTHS if w < longest_prompt(pair)),
            longest_prompt(pair),
        )
        width = next(w for w in widths if w >= max(map(len, prompts)))
        key = make_key(pair, config, timestamps=timestamps, batch=batch, width=width)
        prompt = Prompt(*pad([prompts[i] for i in index], width))
        sampling = config.sampling(batch)
        sampling = sampling._replace(temperature=jnp.asarray(temperatures[index]))
        request = make_request(keys[index], prompt, LONGEST, sampling, pair.tokens.end)
        most = key.slots - max(config.gamma, reserve) - 1
        limit = jnp.minimum(request.limit, most)
        own = jnp.arange(batch) < rows  # rows that pad the batch end at once
        request = request._replace(limit=jnp.where(own, limit, request.start))
        sounds, prompt, placed = mesh.rows(
            (jnp.asarray(features[index]), prompt, request)
        )
        result = run(pair, key, sounds, prompt, placed)
        decoded, spent = read_texts(result, request, rows=rows, end=pair.tokens.end)
        if on_batch is not None:
            on_batch(spent)
        return decoded._replace(states=result.states) if states else decoded

    return decode


def row_keys(
    seed: int, features: np.ndarray, prompts: Any, temperatures: np.ndarray
) -> Array:
    """Returns a key for each row, from its features, its prompt and its temperature."""
    marks = [
        zlib.crc32(temperature.tobytes() + np.int32(ids).tobytes() + sound.tobytes())
        for sound, ids, temperature in zip(features, prompts, temperatures, strict=True)
    ]
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    return fold(root_key(seed), jnp.asarray(marks, jnp.uint32))


def make_key(
    pair: Listeners, config: DecodeConfig, *, timestamps: bool, batch: int, width: int
) -> ProgramKey:
    """Returns the key of a program with room for the longest text after prompts of a
    width, as far as there are positions."""
    slots = min(positions(pair), width + LONGEST + config.gamma + 1)
    none: Any = ()  # in place of mappings, which do not hash
    bare = pair.tokens._replace(tasks=none, languages=none, language=None, task=None)
    return ProgramKey(
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
def program(key: ProgramKey) -> Wrapped:
    """Returns the compiled program of a key: (params, prompt, request) -> (output,
    quiet).

    `output` is that of the loop, and `quiet` [B] the probability that nobody speaks.
    Prompts have the output of the target's encoder, `types.Encoded`; where the draft
    has its own encoder, its params are as of `with_inputs`."""
    decoder, bare = make_decoder(key), whisper.build(key.target)
    finish = generate.build_rest(decoder)

    def decode(
        params: Params, prompt: Prompt, request: Request
    ) -> tuple[generate.Output, Array]:
        state = generate.prefill(decoder, params, prompt, key.slots)
        cache = state.target_cache.model
        quiet = no_speech(bare, key.tokens, params.target, prompt, cache)
        return finish(params, request, state), quiet

    return jax.jit(decode)


def make_decoder(key: ProgramKey) -> Decoder:
    """Returns the decoder of a key: both models under the rules."""
    gamma, rule = key.decode.gamma, verifiers.find(key.decode.rule)
    sizes = fused.Sizes(key.batch, gamma, key.target.vocab)
    chosen = fused.choose(key.decode.kernels, rule, sizes)
    ruled = rules.build(key.tokens, key.limits, key.target.vocab, key.timestamps)
    target = constrained(whisper.build(key.target), ruled)
    if key.draft is None or gamma == 0:
        verifier = finite.guard(chosen.alone)
        return Decoder(target, verifier=verifier, logprobs=True)
    draft = constrained(make_draft(key, key.draft), ruled)
    drafter = autoregressive.build(draft, gamma, chosen.draw)
    if key.mesh is not None and key.mesh.draft == 1:
        drafter = replicated_drafter(drafter)
    return Decoder(target, drafter, finite.guard(chosen.verifier), logprobs=True)


def make_draft(key: ProgramKey, config: whisper.Config) -> Model:
    """Returns the draft model of a key, without constraints. config: that of the draft.

    A draft with fewer ids than its target has a reduced vocabulary."""
    if config.vocab != key.target.vocab:
        return reduced_vocab.spread(reduced_vocab.build(config, key.target))
    small = whisper.build(config)
    if key.shared:
        return small
    # The draft has its own encoder, whose states [B, S, E] are in its params.
    return with_inputs(small, lambda states, prompt: Encoded(states))


def with_inputs(model: Model, inputs_of: Callable[[Array, Prompt], Any]) -> Model:
    """Returns the same model with its input in its params.

    The params are {"model": its own, "heard": an array}, and the model reads
    `inputs_of` that array and the prompt."""

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
    """Returns `rules.no_speech` at the place where a transcript starts, [B].

    The start token is fed once more, to its own slot, and the cache is discarded."""
    inside = jnp.arange(prompt.tokens.shape[1]) < prompt.length[:, None]
    start = jnp.argmax(inside & (prompt.tokens == tokens.start), axis=1)
    token = jnp.full((start.size, 1), tokens.start, jnp.int32)
    features, _ = model.apply(params, token, start, cache)
    return rules.no_speech(tokens, model.readout(params, features)[:, 0])


class Result(NamedTuple):
    """The result of a program on one batch.

    output: the output of the loop. quiet: [B], the probability that nobody speaks.
    seconds: the time of encoding and decoding; encoding: the time of the encoders
    alone. states: the states of the target's encoder."""

    output: Any
    quiet: np.ndarray
    seconds: float
    encoding: float
    states: Array


def run(
    pair: Listeners,
    key: ProgramKey,
    sounds: Array,
    prompt: Prompt,
    request: Any,
    *,
    jitted: Wrapped | None = None,
) -> Result:
    """Compiles the programs, or finds them compiled; encodes and decodes, and times
    both.

    jitted: what decodes in place of `program`, with its own kind of request and of
    output."""
    draft = pair.draft if key.decode.gamma > 0 else None
    sides = [pair.target]
    if draft is not None and not pair.shared:
        sides.append(draft)
    encoders = [
        encoder(whisper_config(side)).lower(side.params, sounds).compile()
        for side in sides
    ]

    def inputs(states: list[Any]) -> tuple[Params, Prompt, Any]:
        small = None if draft is None else draft.params
        if len(states) > 1:
            small = {"model": small, "heard": states[1]}
        params = Params(pair.target.params, small)
        return params, prompt._replace(inputs=Encoded(states[0])), request

    shape = jax.eval_shape(encoder(pair.config), pair.target.params, sounds)
    shapes = inputs([shape] * len(sides))
    compiled = (jitted or program(key)).lower(*shapes).compile()
    began = time.perf_counter()
    both = zip(encoders, sides, strict=True)
    states = [encode(side.params, sounds) for encode, side in both]
    jax.block_until_ready(states)
    encoded = time.perf_counter()
    outputs = jax.block_until_ready(compiled(*inputs(states)))
    ended = time.perf_counter()
    output, quiet = jax.device_get(outputs)
    return Result(
        output=output,
        quiet=quiet,
        seconds=ended - began,
        encoding=encoded - began,
        states=states[0],
    )


@functools.lru_cache(maxsize=8)
def encoder(config: whisper.Config) -> Wrapped:
    """Returns a jitted function (params, frames [B, F, M]) -> states."""
    return jax.jit(
        lambda params, frames: whisper.encode(config, params, Features(frames)).states
    )


@functools.lru_cache(maxsize=8)
def first_logits(config: whisper.Config, start: int) -> Wrapped:
    """Returns a jitted function (params, frames [B, F, M]) -> logits [B, V].

    They are the logits after `<|startoftranscript|>`, whose id is `start`, alone."""

    def logits(params: Any, frames: Array) -> Array:
        ids = jnp.full((len(frames), 1), start, jnp.int32)
        return whisper.logits(config, params, Features(frames), ids)[:, 0]

    return jax.jit(logits)


def read_texts(
    result: Result, request: Request, *, rows: int, end: int
) -> tuple[Decoded, Spent]:
    """Returns the texts of the first `rows`, and the work of the batch.

    Raises FloatingPointError where logits were not finite."""
    output = result.output
    spans = zip(output.tokens, np.asarray(request.start), output.length, strict=True)
    texts = [ids[start:stop] for ids, start, stop in spans][:rows]
    finite.check(texts)
    lengths = np.array([len(ids) for ids in texts])
    assert output.logprob is not None
    mean = (output.logprob[:rows] / np.maximum(lengths, 1)).tolist()
    bare = [[int(i) for i in ids if i != end] for ids in texts]
    calls, _, tested, accepted = (int(each[:rows].sum()) for each in output.counts)
    decoded = Decoded(bare, mean, result.quiet[:rows].tolist())
    spent = Spent(
        windows=rows,
        calls=calls,
        tokens=int(lengths.sum()),
        accepted=accepted,
        tested=tested,
        seconds=result.seconds,
        encoding=result.encoding,
    )
    return decoded, spent
