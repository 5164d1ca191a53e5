"""Caches of layers that see only the last tokens: rings of slots.

Position p lies in slot p mod R. After a call that ends at position e, slot j holds
position e - ((e - j) mod R), none if that is negative. A call of T tokens at `start`
sees the window before it, and what an earlier call wrote from `start` on is stale. R is
the window and as many tokens as a call may write, so that neither takes the other's
slots.
Axes: B rows, T tokens in one call, R slots, H heads, D head width.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from specjax.models import lowering
from specjax.models.cache import KeyValues
from specjax.models.int8_cache import with_int8


def positions_in_slots(start: Array, count: int, slots: int) -> Array:
    """Returns the position in each slot, [B, R], after `count` tokens from `start` [B]
    on."""
    end = start[:, None] + count - 1
    return end - (end - jnp.arange(slots)) % slots


@with_int8
def write(
    cache: KeyValues, new: KeyValues, start: Array
) -> tuple[KeyValues, KeyValues]:
    """Writes as `lowering.write` does, at most R tokens, which may wrap around the end
    of the ring. Raises ValueError for more."""
    slots, count = cache.values.shape[2], new.values.shape[2]
    at = start % slots
    if count == 1:
        return lowering.write(cache, new, at)
    if count > slots:
        raise ValueError(f"a ring of {slots} slots cannot take {count} tokens at once")
    # The last `over` tokens belong at the ring's beginning, the others at its end.
    over = jnp.maximum(at + count - slots, 0)
    # Of each row, its last `over` tokens first.
    each = zip(new, (-1, -2), strict=True)
    turned = [jax.vmap(partial(jnp.roll, axis=axis))(x, over) for x, axis in each]
    turned = KeyValues(*turned)
    last = jnp.arange(count) >= over[:, None]  # [B, T]
    cache, _ = lowering.write(cache, _select(cache, turned, at - over, last), at - over)
    return lowering.write(cache, _select(cache, turned, 0 * at, ~last), 0 * at)


def _select(cache: KeyValues, new: KeyValues, at: Array, mask: Array) -> KeyValues:
    """Returns `new` where `mask` [B, T] is true, else the content of the slots from
    `at` [B] on."""

    def row(cache: KeyValues, new: KeyValues, at: Array, mask: Array) -> KeyValues:
        def choose(old: Array, new: Array, axis: int, mask: Array) -> Array:
            old = jax.lax.dynamic_slice_in_dim(old, at, new.shape[axis], axis)
            return jnp.where(mask, new.astype(old.dtype), old)

        keys = choose(cache.keys, new.keys, 2, mask)
        return KeyValues(keys, choose(cache.values, new.values, 1, mask[:, None]))

    return jax.vmap(row)(cache, new, at, mask)
