"""Multi-head attention on per-row positions, over a cache or without one.

Axes: B rows, T tokens in one call, S slots attended to, E features, H heads, D head
width.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from specjax.models import lowering
from specjax.models.branching import Tree
from specjax.models.cache import KeyValues
from specjax.models.dense import Dense, multiply
from specjax.models.parameters import NORMAL

HEADS = "embed", "joined_heads"  # axes of a product before attention


@lowering.share_repeated_rows
def attend(
    query: Array, memory: KeyValues, mask: Array, scale: float, bias: Array | None
) -> Array:
    """Softmax attention. query: [B, H, T, D]. memory: the keys and values attended to,
    S of them. mask: bool, broadcast over [B, T, S], True where a token sees a slot;
    each token must see one. scale: of the scores. bias: added to the scaled scores,
    broadcast over [B, H, T, S], or None. Returns [B, T, H * D]. The axis T may be
    missing everywhere."""
    keys, values = (x.astype(query.dtype) for x in memory)
    bias = jnp.where(mask[:, None], 0.0 if bias is None else bias, -jnp.inf)
    scores = jnp.einsum("bh...d,bhds->bh...s", query, keys).astype(jnp.float32)
    # Whatever a slot holds that is not seen, it weighs 0.
    scores = jnp.where(jnp.isneginf(bias), -jnp.inf, scores * scale + bias)
    weights = jax.nn.softmax(scores).astype(query.dtype)
    mixed = jnp.einsum("bh...s,bhsd->bh...d", weights, values)
    mixed = jnp.moveaxis(mixed, 1, -2)  # [B, T, H, D]
    return mixed.reshape(*mixed.shape[:-2], -1)


class Attention(nn.Module):
    """Multi-head attention: of a text to itself, or to another that was read before.

    Attributes:
      features: E.
      heads: H.
      head_width: D.
      rotate: (x [B, H, T, D], positions [B, T]) -> x, of queries and keys, or None.
      use_bias: in the four products.
      scale: of the scores; None is 1 / sqrt(D).
      kernel_init: of kernels, [E, H * D] and [H * D, E].
      query_init: of the query's; None is `kernel_init`.
      joined: queries, keys and values are one product, see `lowering.products`.
      key_bias: False takes the keys' bias away where the other products have one.
    """

    features: int
    heads: int
    head_width: int
    dtype: jnp.dtype = jnp.float32
    rotate: Callable | None = None
    use_bias: bool = False
    scale: float | None = None
    kernel_init: Callable = NORMAL
    query_init: Callable | None = None
    joined: bool = False
    key_bias: bool = True

    def setup(self):
        shape, axes = (self.features, self.heads * self.head_width), HEADS
        init, bias = self.kernel_init, self.use_bias
        query = self.query_init or init
        self.query = Dense(shape, self.dtype, bias, axes, query)
        self.key = Dense(shape, self.dtype, bias and self.key_bias, axes, init)
        self.value = Dense(shape, self.dtype, bias, axes, init)
        self.out = Dense(shape[::-1], self.dtype, bias, axes[::-1], init)

    def __call__(
        self,
        x: Array,
        positions: Array,
        cache: KeyValues | None = None,
        mask: Array | None = None,
        bias: Array | None = None,
        tree: Tree | None = None,
    ) -> tuple[Array, KeyValues | None]:
        """Attention of a text to itself. x: [B, T, E]. positions: of the tokens, [B,
        T], one after the other unless in a tree. cache: of the text before, which the
        call writes its tokens into; None, they see each other alone. mask: as in
        `attend`; None is causal, each token the slots up to its own. bias: as in
        `attend`. tree: where the call's tokens are one; None, they are a chain. Returns
        [B, T, E] and the cache."""
        by = self.query, self.key, self.value
        query, key, value = map(self._heads, multiply(x, *by, joined=self.joined))
        if self.rotate is not None:
            query, key = self.rotate(query, positions), self.rotate(key, positions)
        memory, slots = KeyValues(key.swapaxes(2, 3), value), positions
        if cache is not None:
            begin = positions[:, 0] if tree is None else tree.start
            cache, memory = lowering.write(cache, memory, begin)
            slots = jnp.arange(memory.values.shape[2])[None]
        if tree is not None:
            mask = tree.mask
        elif mask is None:
            mask = slots[:, None, :] <= positions[:, :, None]  # [B, T, S]
        return self.out(attend(query, memory, mask, self._scale(), bias)), cache

    def read(self, x: Array) -> KeyValues:
        """Keys and values of a text [B, S, E] that others will attend to."""
        key, value = self._heads(self.key(x)), self._heads(self.value(x))
        return KeyValues(key.swapaxes(2, 3), value)

    def across(
        self, x: Array, memory: KeyValues, mask: Array, factor: Array | None = None
    ) -> Array:
        """x [B, T, E] attends to what `read` gave; mask as in `attend`. [B, T, E].
        factor: of queries, [B, T, 1] in float32, or None. Who asks for intermediates
        gets the scores before softmax, [B, H, T, S] float32."""
        query = self._heads(multiply(x, self.query, factor=factor)[0])
        if self.is_mutable_collection("intermediates"):
            keys = memory.keys.astype(query.dtype)
            scores = jnp.einsum("bhtd,bhds->bhts", query, keys).astype(jnp.float32)
            self.sow("intermediates", "scores", scores * self._scale())
        return self.out(attend(query, memory, mask, self._scale(), None))

    def _scale(self) -> float:
        return self.head_width**-0.5 if self.scale is None else self.scale

    def _heads(self, x: Array) -> Array:
        """[B, T, H * D] -> [B, H, T, D]."""
        x = x.reshape(*x.shape[:2], self.heads, self.head_width)
        return x.transpose(0, 2, 1, 3)
