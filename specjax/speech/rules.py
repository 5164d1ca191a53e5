"""The rules for the tokens that Whisper may write next: suppressed ids, and timestamps.

They are the rules of the paper's reference decoder (Radford et al., 2022, Section 3.8,
and https://github.com/openai/whisper) as an automaton over the tokens of a row. Its
state is four numbers, so that drafted tokens advance it as well as committed ones. A
mask is computed from ranges of ids, not looked up in a table of states. Axes: B rows
(any leading axes in `advance` and `apply`), T tokens, V vocabulary."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.speech.limits import Limits
from specjax.speech.tokens import Tokens, is_text, is_time
from specjax.types import TokenAutomaton

NEVER = -jnp.inf


class State(NamedTuple):
    """The memory that the rules keep of the tokens after each row's prompt; int32.

    number: how many, at most 2. last, before: whether the last one, and the one
    before it, is a timestamp; before is 1 where there is none. time: the last
    timestamp's id, -1 if there is none."""

    number: Array
    last: Array
    before: Array
    time: Array


def build(
    tokens: Tokens, limits: Limits, vocab: int, timestamps: bool = True
) -> TokenAutomaton:
    """Returns the rules of one model.

    Args:
      tokens: its special tokens.
      limits: the suppressed ids.
      vocab: V, of the logits.
      timestamps: whether rows are written with times; without, only suppressed ids
        are excluded, and prompts should end with `<|notimestamps|>`.

    Raises:
      ValueError: an id beyond the vocabulary, or a vocabulary without timestamps.
    """
    beyond = [i for i in (*limits.suppressed, *limits.at_first) if not 0 <= i < vocab]
    if beyond:
        raise ValueError(f"suppressed ids {beyond[:5]} are not in 0 .. {vocab - 1}")
    if timestamps and tokens.first_time >= vocab:
        raise ValueError(
            f"timestamps begin at id {tokens.first_time} and the model has {vocab} ids:"
            " transcribe without timestamps, or name this model's own tokenizer"
        )
    never = _mask_ids(limits.suppressed, vocab)
    at_first = _mask_ids(limits.at_first, vocab)

    def apply(state: State, logits: Array) -> Array:
        if logits.shape[-1] != vocab:
            raise ValueError(f"logits of {logits.shape[-1]} ids, rules of {vocab}")
        fresh = (state.number == 0)[..., None]
        logits = jnp.where(never | (fresh & at_first), NEVER, logits)
        if not timestamps:
            return logits
        mask = forbidden(tokens, limits.first_time, state, vocab)
        logits = jnp.where(mask, NEVER, logits)
        return prefer_times(tokens, logits)

    return TokenAutomaton(partial(start, tokens), partial(advance, tokens), apply)


def start(tokens: Tokens, texts: Array, length: Array) -> State:
    """Returns the state of rows [B, T] with `length` [B] tokens.

    It is the state after `advance` has read their own tokens: those after the prompt,
    which ends with the special tokens that follow the first `<|startoftranscript|>`;
    all tokens where there is none."""
    place = jnp.arange(texts.shape[1])
    inside = place < length[:, None]
    starts = inside & (texts == tokens.start)
    first = jnp.where(starts.any(1), jnp.argmax(starts, 1), -1)[:, None]
    special = (texts >= tokens.start) & (texts < tokens.first_time)
    outside = (place > first) & ~(special & inside)
    own = jnp.where(outside.any(1), jnp.argmax(outside, 1), texts.shape[1])[:, None]
    times = is_time(tokens, texts) & inside & (place >= own)
    latest = jnp.max(jnp.where(times, place, -1), 1)
    count = jnp.maximum(length - own[:, 0], 0)

    def was_time(back: int) -> Array:
        where = jnp.maximum(length - back, 0)[:, None]
        return jnp.take_along_axis(times, where, 1)[:, 0] & (count >= back)

    time = jnp.take_along_axis(texts, jnp.maximum(latest, 0)[:, None], 1)[:, 0]
    state = State(
        jnp.minimum(count, 2),
        was_time(1),
        was_time(2) | (count < 2),
        jnp.where(latest >= 0, time, -1),
    )
    return jax.tree.map(lambda leaf: leaf.astype(jnp.int32), state)


def advance(tokens: Tokens, state: State, token: Array) -> State:
    """Returns the state after one more token in each row."""
    time = is_time(tokens, token)
    return State(
        jnp.minimum(state.number + 1, 2),
        time.astype(jnp.int32),
        jnp.where(state.number == 0, 1, state.last),
        jnp.where(time, token, state.time).astype(jnp.int32),
    )


def forbidden(
    tokens: Tokens, first_time: int | None, state: State, vocab: int
) -> Array:
    """Returns the tokens that the order of timestamps excludes, whatever the logits:
    [B, V] bool.

    Timestamps come in pairs, an end and the next start, or one before the end of the
    text; they never decrease; a text begins with an early one."""
    ids = jnp.arange(vocab)
    leaves = [leaf[..., None] for leaf in state]
    count, last, before, time = leaves
    time_id = is_time(tokens, ids)
    paired, single = (last == 1) & (before == 1), (last == 1) & (before == 0)
    # The second of a pair may be the same moment, the end of a later segment may not.
    least = jnp.where(single, time, time + 1)
    mask = time_id & (paired | ((time >= 0) & (ids < least)))
    mask |= single & is_text(tokens, ids)
    mask |= ids == tokens.no_timestamps
    late = tokens.first_time + (vocab if first_time is None else first_time)
    return mask | ((count == 0) & (~time_id | (ids > late)))


def prefer_times(tokens: Tokens, logits: Array) -> Array:
    """Returns logits that allow only timestamps, where timestamps together are more
    probable than the most probable other token.

    It is the one rule that needs logits [B, V]."""
    time_id = is_time(tokens, jnp.arange(logits.shape[-1]))
    wide = logits.astype(jnp.float32)
    together = jax.nn.logsumexp(jnp.where(time_id, wide, NEVER), -1, keepdims=True)
    other = jnp.max(jnp.where(time_id, NEVER, wide), -1, keepdims=True)
    return jnp.where(~time_id & (together > other), NEVER, logits)


def _mask_ids(ids: Sequence[int], vocab: int) -> np.ndarray:
    mask = np.zeros(vocab, bool)
    mask[list(ids)] = True
    return mask


def language(tokens: Tokens, logits: Array) -> list[str]:
    """Returns the language spoken in each row: the most probable of the model's
    languages.

    It is read from the logits [B, V] after `<|startoftranscript|>` alone. Raises
    ValueError for an English-only model."""
    if not tokens.languages:
        raise ValueError("this model has English only: it cannot detect a language")
    ids = np.array(list(tokens.languages.values()))
    best = np.asarray(logits)[:, ids].argmax(-1)
    return [list(tokens.languages)[i] for i in best]


def no_speech(tokens: Tokens, logits: Array) -> Array:
    """Returns the probability that nobody speaks, [B].

    It is that of `<|nospeech|>` after `<|startoftranscript|>`, by logits [B, V] of the
    model before any rule."""
    return jax.nn.softmax(logits.astype(jnp.float32), -1)[..., tokens.no_speech]
