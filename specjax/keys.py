"""Randomness by name: fold_in(request key, iteration, purpose, slot).

An iteration is named by the length that the row had at its start. Neither the batch
nor a row's place in it enters, so a row's text does not depend on its mates; nor does
the absolute position, which would bias verifiers that look ahead in a block: after a
rejection the next iteration would meet the very coins that the last one was decided by.
Only `gumbel` is named by position, for `verifiers.gumbel`, whose verdict on a token
depends on nothing after it.
"""

import jax
import jax.numpy as jnp
from jax import Array

DRAFT, ACCEPT, SAMPLE, GUMBEL = range(4)

_fold = jax.vmap(jax.random.fold_in)


def iteration(request_key: Array, length: Array) -> Array:
    """[B] keys of the iteration that starts at `length` [B]."""
    return _fold(request_key, length)


def purpose(key: Array, name: int) -> Array:
    """[B] keys for one use within an iteration: DRAFT, ACCEPT or SAMPLE."""
    return _fold(key, jnp.full(key.shape, name))


def uniform(key: Array, slot: Array | int, shape: tuple[int, ...] = ()) -> Array:
    """[B, *shape] float32 uniforms in [0, 1) of one slot, the same for any gamma."""
    keys = _fold(key, jnp.full(key.shape, slot))
    return jax.vmap(lambda k: jax.random.uniform(k, shape))(keys)


def gumbel(request_key: Array, position: Array, vocab: int) -> Array:
    """[B, V] float32 Gumbel variables of the token at `position` [B], 0 the first.

    The same for whoever asks, draft or target, in whichever iteration.
    """
    key = purpose(iteration(request_key, position), GUMBEL)
    # "high" resolves the upper tail, where unlikely ids win, to 2^-46 and not 2^-23.
    return jax.vmap(lambda k: jax.random.gumbel(k, (vocab,), mode="high"))(key)


def uniforms(key: Array, slots: int) -> Array:
    """[B, slots] float32 uniforms in [0, 1), one a slot."""
    each = jax.vmap(lambda slot: uniform(key, slot), out_axes=1)
    return each(jnp.arange(slots)) if slots else jnp.zeros((*key.shape, 0))
