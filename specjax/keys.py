"""Random numbers by name: fold_in(request key, iteration, purpose, slot).

The name of an iteration is the length that the row had at its start. Neither the batch
nor a row's place in it enters, so a row's text does not depend on the other rows. Nor
does the absolute position, which would bias verifiers that look ahead in a block: after
a rejection the next iteration would use the very numbers that decided the last one.
Only `gumbel` is named by position, for `verifiers.gumbel`, whose verdict on a token
depends on nothing after it.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from specjax.native import laws

DRAFT, ACCEPT, SAMPLE, GUMBEL = range(4)
SEEDS = 2**32  # seeds are below this

# A key draws the same bits whatever `jax_threefry_partitionable` is elsewhere.
_same_bits = jax.threefry_partitionable(True)

# Under `vmap`, all keys of rbg and unsafe_rbg draw the bits of the first one.
SAFE = "threefry2x32"


def root_key(seed: ArrayLike, sample: ArrayLike = 0) -> Array:
    """Returns the keys for seeds, of an implementation that is safe under vmap.

    Every key of this project is made here, so that no setting of JAX changes it:
    neither `jax_default_prng_impl` nor `jax_random_seed_offset` nor `jax_enable_x64`.

    Args:
      seed: a whole number in 0..2**32 - 1, or an array of such [...], which is not
        checked.
      sample: gives another key of the same seed for each of 0..2**32 - 1, or an array
        [...]. It is the upper half of the key's 64 bits, and the seed the lower half,
        so that no other seed has this key; for 0 it is the key of
        `jax.random.key(seed)`.

    Returns:
      Typed keys [...].

    Raises:
      ValueError: if the seed is not such a number.
    """
    if not isinstance(seed, Array | np.ndarray):
        seed = check_seed(seed)
    # By NumPy where both are known, because JAX would compile each shape.
    xp = jnp if isinstance(seed, Array) or isinstance(sample, Array) else np
    halves = xp.broadcast_arrays(xp.uint32(sample), xp.uint32(seed))
    return jax.random.wrap_key_data(xp.stack(halves, axis=-1), impl=SAFE)


def check_seed(seed: Any) -> int:
    """Returns the seed as an int. Raises ValueError for an invalid seed."""
    try:
        whole = operator.index(seed)
    except TypeError:
        whole = -1
    if isinstance(seed, bool) or not 0 <= whole < SEEDS:
        wanted = f"a whole number from 0 to {SEEDS - 1}"
        raise ValueError(f"seed must be {wanted}; got {seed!r}")
    return whole


def make_safe(key: Array) -> Array:
    """Returns typed keys of any implementation as keys that are safe under vmap.

    An rbg key made from a seed contains that seed's key twice, and becomes that key:
    texts do not depend on `jax_default_prng_impl`. Of any other key all bits count.
    """
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or is_safe(key):
        return key
    data = jax.random.key_data(key)
    data = jnp.pad(data, [(0, 0)] * key.ndim + [(0, -data.shape[-1] % 2)])
    first, *others = jnp.split(data, data.shape[-1] // 2, axis=-1)
    whole = jax.random.wrap_key_data(first, impl=SAFE)
    twice = jnp.ones(key.shape, bool)
    fold = jnp.vectorize(jax.random.fold_in)
    for other in others:
        twice &= (other == first).all(-1)
        for word in (other[..., 0], other[..., 1]):
            whole = fold(whole, word)
    folded = jax.random.key_data(whole)
    return jax.random.wrap_key_data(
        jnp.where(twice[..., None], first, folded), impl=SAFE
    )


def is_safe(key: Array) -> bool:
    """Returns whether `vmap` draws each row from its own key, for these typed keys."""
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return typed and str(jax.random.key_impl(key)) == SAFE


def split(key: Array, count: int) -> Array:
    """Returns `count` keys derived from one, [count], whatever its implementation."""
    return _same_bits(jax.random.split)(make_safe(key), count)


def check(key: Array) -> None:
    """Raises ValueError for keys from which `vmap` does not draw row by row."""
    if not is_safe(key):
        raise ValueError(
            f"keys must be typed keys of {SAFE}; got {key.dtype}: pass"
            " jax.random.key(seed) to make_request, or use keys.root_key(seed)"
        )


def _fold(key: Array, data: Array | np.ndarray) -> Array:
    """Folds a number into each of keys [B] or [B, N]: data [B], or [N] of every row."""
    check(key)
    return laws.fold(_fold_each, key, data)


def _fold_each(of: laws.FoldOperands) -> list[Array]:
    fold = jax.vmap(jax.random.fold_in)
    if of.key.ndim > of.data.ndim:
        fold = jax.vmap(fold, in_axes=(0, None))
    return [fold(of.key, of.data)]


def iteration(request_key: Array, length: Array) -> Array:
    """Returns the keys [B] of the iteration that starts at `length` [B]."""
    return _fold(request_key, length)


def purpose(key: Array, name: int) -> Array:
    """Returns the keys [B] of one use within an iteration: DRAFT, ACCEPT or SAMPLE."""
    return _fold(key, jnp.full(key.shape, name))


def uniform(key: Array, slot: Array | int, shape: tuple[int, ...] = ()) -> Array:
    """Draws float32 uniforms in [0, 1) of one slot: `[B, *shape]`, for any gamma."""
    return draw_uniform(_slot(key, slot), shape)


def uniforms(key: Array, slots: Array, shape: tuple[int, ...] = ()) -> Array:
    """Draws the numbers that `uniform` draws, for slots [N] at once, from keys [B]: [B,
    N], then shape.

    It draws them together, because separate draws are separate kernels on a GPU.
    """
    return draw_uniform(_slots(key, slots), shape)


def gumbel(request_key: Array, position: Array, vocab: int) -> Array:
    """Draws float32 Gumbel variables [B, V] for the token at `position` [B].

    Positions count from 0. The variables are the same for draft and target, and in
    every iteration.
    """
    return draw_gumbel(purpose(iteration(request_key, position), GUMBEL), vocab)


def gumbels(key: Array, slots: Array | np.ndarray, vocab: int) -> Array:
    """Draws float32 Gumbel variables for slots [N], from keys [B]: [B, N, V]."""
    return draw_gumbel(_slots(key, slots), vocab)


def uniforms_by_name(key: Array, names: Sequence[tuple[int, int]]) -> Array:
    """Draws float32 uniforms in [0, 1) for N names (purpose, slot): [B, N, 2].

    It draws them together, because separate purposes are separate kernels on a GPU.
    """

    purposes, slots = np.array(names, np.int32).T
    return draw_uniform(_fold(_slots(key, purposes), slots), (2,))


def _slot(key: Array, slot: Array | int) -> Array:
    return _fold(key, jnp.full(key.shape, slot))


def _slots(key: Array, slots: Array | np.ndarray) -> Array:
    """Returns the keys [B, N] of the slots [N].

    Not `_slot` of each with axes moved: JAX's check that no key is used twice takes a
    moved key for a used one.
    """
    check(key)
    return laws.fold(_fold_all, key, slots, outer=True)


def _fold_all(of: laws.FoldOperands) -> list[Array]:
    each = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    return [jax.vmap(each, in_axes=(0, None))(of.key, of.data)]


# These two draw all noise of a step, from keys that nothing else uses.


def draw_uniform(key: Array, shape: tuple[int, ...]) -> Array:
    """Draws float32 uniforms in [0, 1) from each of keys [...]: `[..., *shape]`."""
    return laws.uniform(_uniforms_of_shape(shape), key, shape)


@functools.cache
def _uniforms_of_shape(shape: tuple[int, ...]) -> Callable:
    @_same_bits
    def uniforms(of: laws.KeyOperands) -> list[Array]:
        draw = functools.partial(jax.random.uniform, shape=shape, dtype=jnp.float32)
        return [_map_keys(draw, of.key)]

    return uniforms


def draw_gumbel(key: Array, vocab: int) -> Array:
    """Draws float32 Gumbel variables from each of keys [...]: [..., V]."""
    return laws.gumbel(_gumbels_of_width(vocab), key, vocab)


@functools.cache
def _gumbels_of_width(vocab: int) -> Callable:
    # "high" resolves the upper tail, where unlikely ids win, to 2^-46 and not 2^-23.
    options = dict(dtype=jnp.float32, mode="high")

    @_same_bits
    def gumbels(of: laws.KeyOperands) -> list[Array]:
        draw = functools.partial(jax.random.gumbel, shape=(vocab,), **options)
        return [_map_keys(draw, of.key)]

    return gumbels


def _map_keys(draw: Callable[[Array], Array], key: Array) -> Array:
    for _ in range(key.ndim):
        draw = jax.vmap(draw)
    return draw(key)
