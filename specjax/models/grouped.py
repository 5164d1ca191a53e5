"""Attention in which several heads of queries share keys and values.

Ainslie et al. (2023), https://arxiv.org/abs/2305.13245. Nothing that is cached is
repeated for the heads that share it.
Axes: B rows, T tokens in one call, S slots attended to, E features, H heads, of which K
have keys and values, D head width.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from specjax.models import lowering
from specjax.models.attention import HEADS
from specjax.models.cache import KeyValues
from specjax.models.dense import Dense, multiply


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


class GroupedAttention(nn.Module):
    """A text's attention to itself, H / K heads of queries to a key.

    Attributes:
      features: E.
      heads, key_heads: H, K.
      head_width: D.
      norm: of queries and keys, by its name [..., D] -> [..., D]; None for none.
      use_bias: in the products before attention.
      out_bias: in that after it.
      scale: of the scores; None is 1 / sqrt(D).
      cap: of the scores, as in `attend`.
    """

    features: int
    heads: int
    key_heads: int
    head_width: int
    dtype: jnp.dtype = jnp.float32
    norm: Callable | None = None
    use_bias: bool = False
    out_bias: bool = False
    scale: float | None = None
    cap: float | None = None

    @nn.compact
    def __call__(
        self,
        x: Array,
        rotate: Callable,
        mask: Array,
        cache: KeyValues | None = None,
        write: Callable | None = None,
    ) -> tuple[Array, KeyValues | None]:
        """Attention of a text to itself. x: [B, T, E]. rotate: x [B, H or K, T, D] ->
        the same, of queries and of keys. mask: as in `attend`; of all slots of a cache,
        or of the T tokens. cache: of the text before, which the call writes its tokens
        into; None, they see each other alone. write: (cache, new) -> (cache, what is
        attended to), as `lowering.write`. Returns [B, T, E] and the cache."""
        shape = self.features, self.heads * self.head_width
        few = self.features, self.key_heads * self.head_width
        sizes = dict(query=shape, key=few, value=few)
        options = self.dtype, self.use_bias, HEADS
        by = [Dense(size, *options, name=name) for name, size in sizes.items()]
        query, key, value = map(self._heads, multiply(x, *by))
        if self.norm is not None:
            query = self.norm(name="query_norm")(query)
            key = self.norm(name="key_norm")(key)
        memory = KeyValues(rotate(key).swapaxes(2, 3), value)
        if cache is not None:
            cache, memory = write(cache, memory)
        scale = self.head_width**-0.5 if self.scale is None else self.scale
        mixed = attend(rotate(query), memory, mask, scale, self.cap)
        out = shape[::-1], self.dtype, self.out_bias, HEADS[::-1]
        return Dense(*out, name="out")(mixed), cache

    def _heads(self, x: Array) -> Array:
        """[B, T, heads * D] -> [B, heads, T, D]."""
        x = x.reshape(*x.shape[:2], -1, self.head_width)
        return x.transpose(0, 2, 1, 3)
