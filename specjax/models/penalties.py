"""Penalties on ids that a text already contains, which change the model's distribution.

As rules of `models.constrained`, both target and draft have them, so that texts follow
the penalised target exactly, drafted or not.
Axes: B rows, T tokens, W last tokens, V vocabulary.
"""

import functools

import jax.numpy as jnp
from jax import Array

from specjax.types import TokenAutomaton

LAST = 64  # tokens that are looked back on, as llama.cpp does by default


@functools.cache
def build(
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
    last: int = LAST,
) -> TokenAutomaton:
    """Returns rules that make the ids among the last tokens less likely to be written
    again.

    Args:
      repetition: logits above 0 are divided by it, others multiplied (Keskar et al.
        2019, https://arxiv.org/abs/1909.05858, Section 4.1); 1 is none.
      presence: subtracted from the logit of each id that is among the last tokens.
      frequency: subtracted once for each time that the id is among them.
      last: how many tokens are looked back on, those of the prompt included.

    Raises:
      ValueError: a repetition that is not above 0, or a `last` below 1.
    """
    if not repetition > 0 or last < 1:
        raise ValueError(
            "need repetition above 0 and last of at least 1; got"
            f" repetition={repetition}, last={last}"
        )

    def begin(tokens: Array, length: Array) -> Array:
        index = length[:, None] - last + jnp.arange(last)
        ids = jnp.take_along_axis(tokens, jnp.maximum(index, 0), axis=1)
        return jnp.where(index < 0, -1, ids)

    def advance(state: Array, token: Array) -> Array:
        return jnp.concatenate([state[:, 1:], token[:, None]], axis=1)

    def apply(state: Array, logits: Array) -> Array:
        vocab = logits.shape[-1]
        rows = jnp.where(state < 0, vocab, state).reshape(-1, last)
        count = jnp.zeros((len(rows), vocab + 1), logits.dtype)
        count = count.at[jnp.arange(len(rows))[:, None], rows].add(1.0)
        count = count[:, :vocab].reshape(logits.shape)
        repeated = jnp.where(logits > 0, logits / repetition, logits * repetition)
        lowered = repeated - presence - frequency * count
        return jnp.where(count > 0, lowered, logits)

    return TokenAutomaton(begin, advance, apply)
