"""Randomness by name: fold_in(request key, iteration, purpose, slot).

An iteration is named by the length that the row had at its start. Neither the batch
nor a row's place in it enters, so a row's text does not depend on its mates; nor does
the absolute position, which would bias verifiers that look ahead in a block: after a
rejection the next iteration would meet the very coins that the last one was decided by.
Only `gumbel` is named by position, for `verifiers.gumbel`, whose verdict on a token
depends on nothing after it.
"""

from collections.abc import Callable, Sequence

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
    """`[B, *shape]` float32 uniforms in [0, 1) of one slot, the same for any gamma."""
    return draw_uniform(_slot(key, slot), shape)


def gumbel(request_key: Array, position: Array, vocab: int) -> Array:
    """[B, V] float32 Gumbel variables of the token at `position` [B], 0 the first.

    The same for whoever asks, draft or target, in whichever iteration.
    """
    return draw_gumbel(purpose(iteration(request_key, position), GUMBEL), vocab)


def gumbels(key: Array, slots: Array, vocab: int) -> Array:
    """[B, N, V] float32 Gumbel variables of the slots [N], of keys [B]."""
    each = jax.vmap(lambda slot: _slot(key, slot), out_axes=1)(jnp.asarray(slots))
    return draw_gumbel(each, vocab)


def several(key: Array, names: Sequence[tuple[int, int]]) -> Array:
    """[B, N, 2] float32 uniforms in [0, 1), those of N names (purpose, slot).

    Made at once: apart, each purpose is kernels of its own on a GPU.
    """

    def of(name: int, slot: int) -> Array:
        return _slot(purpose(key, name), slot)

    each = jax.vmap(of)(*jnp.array(names, jnp.int32).T)
    return jnp.moveaxis(draw_uniform(each, (2,)), 0, 1)


def _slot(key: Array, slot: Array | int) -> Array:
    return _fold(key, jnp.full(key.shape, slot))


# All noise of a step is drawn by these two, from keys that nothing else is made of.


def draw_uniform(key: Array, shape: tuple[int, ...]) -> Array:
    """Draws float32 uniforms in [0, 1) from each of keys [...]: `[..., *shape]`."""
    return _each(lambda one: jax.random.uniform(one, shape, jnp.float32), key)


def draw_gumbel(key: Array, vocab: int) -> Array:
    """Draws float32 Gumbel variables from each of keys [...]: [..., V]."""
    # "high" resolves the upper tail, where unlikely ids win, to 2^-46 and not 2^-23.
    options = dict(dtype=jnp.float32, mode="high")
    return _each(lambda one: jax.random.gumbel(one, (vocab,), **options), key)


def _each(draw: Callable[[Array], Array], key: Array) -> Array:
    for _ in range(key.ndim):
        draw = jax.vmap(draw)
    return draw(key)
