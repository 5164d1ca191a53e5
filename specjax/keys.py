"""Randomness by name: fold_in(request key, iteration, purpose, slot).

An iteration is named by the length that the row had at its start. Neither the batch
nor a row's place in it enters, so a row's text does not depend on its mates; nor does
the absolute position, which would bias verifiers that look ahead in a block: after a
rejection the next iteration would meet the very coins that the last one was decided by.
"""

import jax
import jax.numpy as jnp
from jax import Array

DRAFT, ACCEPT, SAMPLE = range(3)

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


def uniforms(key: Array, slots: int) -> Array:
    """[B, slots] float32 uniforms in [0, 1), one a slot."""
    each = jax.vmap(lambda slot: uniform(key, slot), out_axes=1)
    return each(jnp.arange(slots)) if slots else jnp.zeros((*key.shape, 0))
