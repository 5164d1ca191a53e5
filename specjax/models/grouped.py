"""Attention in which several heads of queries share keys and values.

Ainslie et al. (2023), https://arxiv.org/abs/2305.13245. Nothing that is cached is
repeated for the heads that share it.
Axes: B rows, T tokens in one call, S slots attended to, E features, H heads, of which K
have keys and values, D head width.
"""

import jax
import jax.numpy as jnp
from jax import Array

from specjax.models import lowering
from specjax.models.cache import KeyValues


def attend(
    query: Array, memory: KeyValues, mask: Array, scale: float, cap: float | None = None
) -> Array:
    """Softmax attention, H / K heads to a key. query: [B, H, T, D]. memory: keys [B, K,
    D, S] and values [B, K, S, D]. mask: bool, broadcast over [B, T, S]; each token must
    see a slot. scale: of the scores. cap: c; a scaled score x is c tanh(x / c). None
    leaves it. Returns [B, T, H * D]."""

    @lowering.share_repeated_rows
    def capped(query: Array, memory: KeyValues, mask: Array, scale: float, bias: None):
        """As `attention.attend`: the axis T may be missing."""
        del bias
        keys, values = (x.astype(query.dtype) for x in memory)
        heads, count = query.shape[1], keys.shape[1]
        groups = (count,) if heads == count else (count, heads // count)
        grouped = query.reshape(len(query), *groups, *query.shape[2:])
        scores = jnp.einsum("bk...d,bkds->bk...s", grouped, keys).astype(jnp.float32)
        scores = scores * scale
        if cap is not None:
            scores = cap * jnp.tanh(scores / cap)
        over_heads = [1] * (scores.ndim - mask.ndim)
        mask = mask.reshape(len(mask), *over_heads, *mask.shape[1:])
        # Whatever a slot holds that is not seen, it weighs 0.
        weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf)).astype(query.dtype)
        mixed = jnp.einsum("bk...s,bksd->bk...d", weights, values)
        mixed = jnp.moveaxis(mixed.reshape(query.shape), 1, -2)  # [B, T, H, D]
        return mixed.reshape(*mixed.shape[:-2], -1)

    return capped(query, memory, mask, scale, None)
