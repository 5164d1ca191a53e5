"""Multi-head attention with a position for each row, over a cache or without one.

Axes: B rows, T tokens in one call, S slots attended to, E features, H heads, of which K
have keys and values, D head width.
"""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike

from specjax.models import few_rows, lowering, window_cache
from specjax.models.blocks import Turn
from specjax.models.cache import KeyValues
from specjax.models.dense import NORMAL, Dense, multiply
from specjax.models.few_rows import (
    AcrossOperands,
    AttentionKind,
    AttentionOperands,
)
from specjax.models.norms import Norm
from specjax.models.tree_mask import Tree
from specjax.native.operation import Operation, run

HEADS = "embed", "joined_heads"  # axes of a product before attention


def attend(
    query: Array,
    memory: KeyValues,
    mask: Array,
    *,
    scale: float,
    bias: Array | None = None,
    cap: float | None = None,
) -> Array:
    """Returns softmax attention, in which H / K heads of queries share one head of keys
    and values (Ainslie et al. 2023, https://arxiv.org/abs/2305.13245), which is not
    repeated in memory.

    Args:
      query: [B, H, T, D].
      memory: keys [B, K, D, S] and values [B, K, S, D].
      mask: bool, broadcast over [B, T, S], True where a token sees a slot; each token
        must see one.
      scale: the scale of the scores.
      bias: added to the scaled scores, broadcast over [B, H, T, S] where H = K; or
        None.
      cap: c; a scaled score x becomes c tanh(x / c). None leaves it.

    Returns:
      [B, T, H * D].
    """

    @lowering.share_repeated_rows
    def mix(query: Array, memory: KeyValues, mask: Array, bias: Array | None) -> Array:
        """Returns the attention; the axis T may be missing in all arguments."""
        keys, values = (x.astype(query.dtype) for x in memory)
        heads, count = query.shape[1], keys.shape[1]
        bias = jnp.where(mask[:, None], 0.0 if bias is None else bias, -jnp.inf)
        grouped = query
        if heads != count:
            sizes = len(query), count, heads // count, *query.shape[2:]
            grouped, bias = query.reshape(sizes), bias[:, None]
        scores = jnp.einsum("bk...d,bkds->bk...s", grouped, keys).astype(jnp.float32)
        unseen, scores = jnp.isneginf(bias), scores * scale
        if cap is not None:
            scores = cap * jnp.tanh(scores / cap)
        # A slot that is not seen weighs 0, whatever it holds.
        scores = jnp.where(unseen, -jnp.inf, scores + bias)
        weights = jax.nn.softmax(scores).astype(query.dtype)
        sums = jnp.einsum("bk...s,bksd->bk...d", weights, values)
        sums = jnp.moveaxis(sums.reshape(query.shape), 1, -2)  # [B, T, H, D]
        return sums.reshape(*sums.shape[:-2], -1)

    return mix(query, memory, mask, bias)


class Attention(nn.Module):
    """Multi-head attention of a text to itself, or to another text that was read
    before.

    Attributes:
      features: E.
      heads: H, of queries.
      head_width: D.
      key_heads: K, of keys and values; None is H.
      use_bias: in the four products.
      out_bias: in the last; None is `use_bias`.
      scale: the scale of the scores; None is 1 / sqrt(D).
      cap: the cap of the scores, see `attend`.
      norm: makes what normalises queries and keys, each head by itself; or None.
      kernel_init: the initializer of kernels, [E, H * D] and [H * D, E].
      query_init: the initializer of the query's kernel; None is `kernel_init`.
      out_features: the number of features of what the last product returns; None is E.
      joined: queries, keys and values are one product, see `lowering.products`.
      key_bias: False takes the keys' bias away where the other products have one.
    """

    features: int
    heads: int
    head_width: int
    dtype: DTypeLike = jnp.float32
    key_heads: int | None = None
    use_bias: bool = False
    out_bias: bool | None = None
    scale: float | None = None
    cap: float | None = None
    norm: Callable[[], nn.Module] | None = None
    kernel_init: Initializer = NORMAL
    query_init: Initializer | None = None
    out_features: int | None = None
    joined: bool = False
    key_bias: bool = True

    def setup(self) -> None:
        few = self.heads if self.key_heads is None else self.key_heads
        wide, narrow = ((self.features, n * self.head_width) for n in (self.heads, few))
        init, bias = self.kernel_init, self.use_bias
        out_bias = bias if self.out_bias is None else self.out_bias
        self.query = Dense(wide, self.dtype, bias, HEADS, self.query_init or init)
        self.key = Dense(narrow, self.dtype, bias and self.key_bias, HEADS, init)
        self.value = Dense(narrow, self.dtype, bias, HEADS, init)
        returned = wide[1], self.out_features or self.features
        self.out = Dense(returned, self.dtype, out_bias, HEADS[::-1], init)
        if self.norm is not None:
            self.query_norm, self.key_norm = self.norm(), self.norm()

    def __call__(
        self,
        x: Array,
        positions: Array,
        cache: Any = None,
        *,
        mask: Array | None = None,
        bias: Array | None = None,
        tree: Tree | None = None,
        rotate: Turn | None = None,
        write: Callable[[Any, KeyValues], tuple[Any, KeyValues]] | None = None,
        start: Array | None = None,
        ring: bool = False,
        before: Norm | None = None,
        add: Array | None = None,
    ) -> tuple[Array, Any]:
        """Returns the attention of a text to itself, [B, T, E], and its cache.

        Args:
          x: [B, T, E].
          positions: the positions of the tokens, [B, T], one after the other unless in
            a tree.
          cache: a layer's, of the text before, to which the call writes its tokens;
            with None they see each other alone.
          mask: as in `attend`; None is causal, each token sees the slots up to its own.
          bias: as in `attend`.
          tree: the tree that the call's tokens form; None for a chain.
          rotate: turns queries and keys; or None.
          write: (cache, new) -> (cache, the keys and values to attend to); None is
            `lowering.write`, or `window_cache.write` if `ring`.
          start: [B], the slot of the first token; None is its position.
          ring: whether the cache is a ring, see `window_cache`.
          before: the norm of x before the first products; or None.
          add: [B, T, E], to which the result is added; or None.
        """
        query, key, value = multiply(
            x, self.query, self.key, self.value, joined=self.joined, norm=before
        )
        norms = None
        if self.norm is not None:
            width = self.head_width
            norms = self.query_norm.law(width), self.key_norm.law(width)
        if start is None:
            start = positions[:, 0] if tree is None else tree.start
        slots = positions if cache is None else None
        if tree is not None:
            mask = tree.mask
        elif mask is None:
            if slots is None:
                slots = jnp.arange(lowering.num_slots(cache))[None]
            mask = slots[:, None, :] <= positions[:, :, None]  # [B, T, S]
        kind = AttentionKind(self.head_width, self._scale(), self.cap, ring)
        of = AttentionOperands(
            query, key, value, cache, start, mask, bias, norms, rotate
        )
        if write is None and few_rows.serves_attention(of, kind):
            mixed, *after = run(attention(kind), of)
            cache = jax.tree.unflatten(jax.tree.structure(cache), after)
        else:
            mixed, cache = attend_plainly(of, kind, write)
        return multiply(mixed, self.out, residual=add)[0], cache

    def read(self, x: Array) -> KeyValues:
        """Returns the keys and values of a text [B, S, E] that others attend to."""
        x = lowering.mark_separate(x, self.key.kernel)
        key, value = (_heads(by(x), self.head_width) for by in (self.key, self.value))
        return KeyValues(key.swapaxes(2, 3), value)

    def across(
        self,
        x: Array,
        memory: KeyValues,
        mask: Array,
        factor: Array | None = None,
        *,
        before: Norm | None = None,
        add: Array | None = None,
    ) -> Array:
        """Returns the attention of x [B, T, E] to the keys and values of `read`, [B, T,
        E].

        mask: as in `attend`. factor: by which queries are multiplied, [B, T, 1] in
        float32; or None. before, add: as for a text itself. The collection
        "intermediates" gets the scores before softmax, [B, H, T, S] float32.
        """
        query = multiply(x, self.query, factor=factor, norm=before)[0]
        if self.is_mutable_collection("intermediates"):
            heads, keys = _heads(query, self.head_width), memory.keys
            products = jnp.einsum("bhtd,bhds->bhts", heads, keys.astype(heads.dtype))
            scores = products.astype(jnp.float32) * self._scale()
            self.sow("intermediates", "scores", scores)
        kind = AttentionKind(self.head_width, self._scale())
        of = AcrossOperands(query, memory, mask)
        if few_rows.serves_across(of):
            mixed = run(attention_across(kind), of)[0]
        else:
            mixed = attend_across(of, kind)
        return multiply(mixed, self.out, residual=add)[0]

    def _scale(self) -> float:
        return self.head_width**-0.5 if self.scale is None else self.scale


def attend_plainly(
    of: AttentionOperands, kind: AttentionKind, write: Callable[..., Any] | None = None
) -> tuple[Array, Any]:
    """Returns attention as XLA computes it, [B, T, H * D], and the written cache.

    write: as of `Attention`; without a cache tokens see each other alone.
    """
    query, key, value = (_heads(x, kind.width) for x in (of.query, of.key, of.value))
    if of.norms is not None:
        query, key = of.norms[0](query), of.norms[1](key)
    if of.turn is not None:
        query, key = of.turn(query), of.turn(key)
    memory, cache = KeyValues(key.swapaxes(2, 3), value), of.cache
    if cache is not None:
        if write is None:
            writer = window_cache.write if kind.ring else lowering.write
            write = functools.partial(writer, start=of.start)
        cache, memory = write(cache, memory)
    mixed = attend(query, memory, of.mask, scale=kind.scale, bias=of.bias, cap=kind.cap)
    return mixed, cache


@functools.cache
def attention(kind: AttentionKind) -> Operation:
    """Returns the operation for the attention of a text to its cache."""

    def twin(of: AttentionOperands) -> list[Array]:
        mixed, cache = attend_plainly(of, kind)
        return [mixed, *jax.tree.leaves(cache)]

    native = functools.partial(few_rows.native_attention, kind=kind)
    return Operation("attention", twin, native, few_rows.attended_shapes)


def attend_across(of: AcrossOperands, kind: AttentionKind) -> Array:
    """Returns the attention to another text as XLA computes it, [B, T, H * D]."""
    query = _heads(of.query, kind.width)
    return attend(query, of.memory, of.mask, scale=kind.scale)


@functools.cache
def attention_across(kind: AttentionKind) -> Operation:
    """Returns the operation for the attention to a text that was read before."""
    return Operation(
        "across",
        lambda of: [attend_across(of, kind)],
        functools.partial(few_rows.native_across, kind=kind),
        few_rows.across_shapes,
    )


def _heads(x: Array, width: int) -> Array:
    """Splits features into heads: [B, T, heads * D] -> [B, heads, T, D]."""
    x = x.reshape(*x.shape[:2], -1, width)
    return x.transpose(0, 2, 1, 3)
