"""Decodes batches of windows by beam search, as Whisper does at temperature 0 (Radford
et al., 2022, Section 4.5).

Windows at temperature 0 are searched with beams; at others they are sampled as by
`decoding`. Axes: B rows, F frames, M bands.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.stages import Wrapped

from specjax import beam
from specjax.beam import search, settings
from specjax.beam.hypotheses import Limits
from specjax.beam.search import Found
from specjax.beam.settings import BeamConfig
from specjax.decode_config import DecodeConfig
from specjax.inputs import pad
from specjax.models import whisper
from specjax.models.constrained import constrained
from specjax.runtime import mesh
from specjax.speech import decoding, rules
from specjax.speech.decoding import LONGEST, ProgramKey, Spent
from specjax.speech.pair import Listeners
from specjax.speech.sequential import Decode, Decoded
from specjax.types import Params, Prompt


class BeamKey(NamedTuple):
    """The key of a program: a `decoding.ProgramKey` and `BeamConfig.static`."""

    key: ProgramKey
    config: BeamConfig


def build(
    pair: Listeners,
    config: DecodeConfig,
    beams: BeamConfig,
    *,
    timestamps: bool = True,
    on_batch: Callable[[Spent], None] | None = None,
    states: bool = False,
) -> Decode:
    """Returns the function that decodes windows with a pair, by beam search where it
    would otherwise decode greedily.

    Args:
      pair, config, timestamps, on_batch, states: as of `decoding.build`; config is that
        of windows at temperatures above 0.
      beams: the settings of beam search.

    Raises:
      ValueError: the pair or the settings cannot decode; the message names the fix.
    """
    settings.check(beams)
    sample = decoding.build(
        pair, config, timestamps=timestamps, on_batch=on_batch, states=states
    )

    def decode(
        features: np.ndarray, prompts: list[list[int]], temperatures: Any
    ) -> Decoded:
        greedy = np.asarray(temperatures) == 0
        found = []
        for rows in (np.flatnonzero(greedy), np.flatnonzero(~greedy)):
            if not rows.size:
                continue
            heads = [prompts[i] for i in rows]
            if not greedy[rows[0]]:
                hot = np.asarray(temperatures)[rows]
                found.append((rows, sample(features[rows], heads, hot)))
                continue
            decoded, spent = search_windows(
                pair,
                config,
                beams,
                features=features[rows],
                prompts=heads,
                timestamps=timestamps,
                states=states,
            )
            if on_batch is not None:
                on_batch(spent)
            found.append((rows, decoded))
        return merge(found)

    return decode


def merge(parts: list[tuple[np.ndarray, Decoded]]) -> Decoded:
    """Returns the windows of several batches in their order; each part has the indices
    of its rows."""
    if len(parts) == 1:
        return parts[0][1]
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    decoded = [part for _, part in parts]

    def join(name: str) -> list[Any]:
        every = [
            each
            for rows, part in parts
            for each in list(getattr(part, name))[: len(rows)]
        ]
        return [every[i] for i in order]

    states = None
    if decoded[0].states is not None:
        own = [part.states[: len(rows)] for rows, part in parts]
        states = jnp.concatenate(own)[order]
    return Decoded(join("tokens"), join("logprob"), join("no_speech"), states)


def search_windows(
    pair: Listeners,
    config: DecodeConfig,
    beams: BeamConfig,
    *,
    features: np.ndarray,
    prompts: list[list[int]],
    timestamps: bool,
    states: bool,
) -> tuple[Decoded, Spent]:
    """Returns the best text of each window, and the work of the batch."""
    rows = len(prompts)
    batch = 1 << (rows - 1).bit_length()  # few programs
    index = np.arange(batch) % rows
    longest = decoding.longest_prompt(pair)
    widths = *(w for w in decoding.WIDTHS if w < longest), longest
    width = next(w for w in widths if w >= max(map(len, prompts)))
    gamma = 0 if pair.draft is None else beams.gamma
    beams = beams._replace(gamma=gamma)
    how = config.replace(gamma=gamma)
    key = decoding.make_key(pair, how, timestamps=timestamps, batch=batch, width=width)
    prompt = Prompt(*pad([prompts[i] for i in index], width))
    room = decoding.positions(pair) - 1 - np.asarray(prompt.length)
    most = np.minimum(LONGEST, room)  # as without a draft in `decoding`
    most[rows:] = 1  # rows that pad the batch end at once
    divisor = settings.divisors(beams.length_penalty, LONGEST)
    limits = Limits(
        most=jnp.asarray(most, jnp.int32),
        eos=jnp.full((batch, 1), pair.tokens.end, jnp.int32),
        divisor=jnp.asarray(divisor),
    )
    rowwise = jnp.asarray(features[index]), prompt, limits.most, limits.eos
    sounds, prompt, own_most, eos = mesh.rows(rowwise)
    limits = limits._replace(most=own_most, eos=eos)
    jitted = program(BeamKey(key, beams.static()))
    result = decoding.run(pair, key, sounds, prompt, limits, jitted=jitted)
    found: Found = result.output
    beam.check_finite(found)
    texts = [(beam.texts_of(found, row) or [[]])[0] for row in range(rows)]
    lengths = np.array([max(len(text), 1) for text in texts])
    sums = np.where(lengths > 0, found.score[:rows, 0] * divisor[lengths], 0.0)
    decoded = Decoded(
        tokens=[[i for i in text if i != pair.tokens.end] for text in texts],
        logprob=(sums / lengths).tolist(),
        no_speech=result.quiet[:rows].tolist(),
        states=result.states if states else None,
    )
    return decoded, Spent(
        windows=rows,
        calls=int(found.calls[:rows].sum()),
        tokens=sum(map(len, texts)),
        accepted=0,
        tested=0,
        seconds=result.seconds,
        encoding=result.encoding,
        steps=int(found.steps[:rows].sum()),
    )


@functools.lru_cache(maxsize=32)
def program(key: BeamKey) -> Wrapped:
    """Returns the jitted program of a key: (params, prompt, limits) -> the beams found,
    and `quiet`, as in `decoding.program`."""
    own, config = key
    bare = whisper.build(own.target)
    ruled = rules.build(own.tokens, own.limits, own.target.vocab, own.timestamps)
    target, draft = constrained(bare, ruled), None
    if own.draft is not None and config.gamma:
        draft = constrained(decoding.make_draft(own, own.draft), ruled)
    finish = search.build_rest(target, draft, config)

    def decode(params: Params, prompt: Prompt, limits: Limits) -> tuple[Found, Array]:
        state = search.begin(
            target, draft, config, params=params, prompt=prompt, most=LONGEST
        )
        cache = state.target_cache.model
        quiet = decoding.no_speech(bare, own.tokens, params.target, prompt, cache)
        return finish(params, limits, state), quiet

    return jax.jit(decode)
