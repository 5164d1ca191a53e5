"""The layers of T5 (Raffel et al. 2020), named and shaped as in T5X's parameter tree.

Axes: B rows, T tokens in one call, I input tokens, S cache slots, E features, H heads,
D head width.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.models.attention import Attention
from specjax.models.branching import Tree
from specjax.models.cache import KeyValues
from specjax.models.dense import Dense, multiply

BUCKETS, MAX_DISTANCE = 32, 128
GATES = {"gelu": nn.gelu, "silu": nn.silu}
FAN_IN = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
FAN_AVERAGE = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")


def bucket(distance: np.ndarray, both_ways: bool) -> np.ndarray:
    """The bucket 0 .. 31 of each distance (query's position less the key's), int32.

    Half of the buckets of a side are one distance each, the rest widen as its logarithm
    does and end at 128. One side has all 32 where a token sees no later one.
    """
    distance, side = np.asarray(distance), BUCKETS // 2 if both_ways else BUCKETS
    exact = side // 2
    away = np.abs(distance) if both_ways else np.maximum(distance, 0)
    octaves = np.log(np.maximum(away, 1) / exact) / np.log(MAX_DISTANCE / exact)
    # Distances that are powers of two fall on the borders: up, whatever the rounding.
    wide = exact + np.floor(octaves * (side - exact) + 1e-6).astype(np.int32)
    buckets = np.where(away < exact, away, np.minimum(wide, side - 1))
    return (buckets + side * (both_ways & (distance < 0))).astype(np.int32)


class RelativeBias(nn.Module):
    """What is added to the scores of a layer, or of all of a stack, by bucketed
    distance."""

    heads: int
    both_ways: bool

    @nn.compact
    def __call__(self, positions: Array, slots: int, tree: Tree | None = None) -> Array:
        """Of queries at `positions` [B, T] to keys 0 .. slots - 1, or to where those of
        a tree stand: [B, H, T, S]."""
        init = nn.with_logical_partitioning(FAN_AVERAGE, ("heads", "relpos_buckets"))
        table = self.param("rel_embedding", init, (self.heads, BUCKETS))
        # From the largest distance down, as a query's keys are: each reads a window.
        distance = np.arange(slots - 1, -slots, -1)
        by_distance = table[:, bucket(distance, self.both_ways)].astype(jnp.float32)
        if tree is not None:
            away = positions[:, :, None] - tree.stands[:, None]  # [B, T, S]
            return jnp.moveaxis(by_distance[:, slots - 1 - away], 0, 1)

        def window(position: Array) -> Array:
            begin = 0, slots - 1 - position
            return jax.lax.dynamic_slice(by_distance, begin, (self.heads, slots))

        return jax.vmap(jax.vmap(window, out_axes=1))(positions)


class Norm(nn.Module):
    """scale * x / rms(x), in float32: no mean is taken, no bias added.

    apart: scale * x and 1 / rms(x) [..., 1], for a product to be multiplied by, after
    which a GPU makes no kernel of the norm.
    """

    @nn.compact
    def __call__(self, x: Array, apart: bool = False) -> Array | tuple[Array, Array]:
        init = nn.with_logical_partitioning(nn.initializers.ones, ("embed",))
        scale = self.param("scale", init, (x.shape[-1],))
        y = x.astype(jnp.float32)
        factor = jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-6)
        if apart:
            return (y * scale).astype(x.dtype), factor
        return (y * factor * scale).astype(x.dtype)


def residual_dtype(dtype: jnp.dtype) -> jnp.dtype:
    """What features are added up in: float32 for float16, whose largest number is 65504
    and which published T5s leave in their feed-forward layers."""
    return jnp.dtype(jnp.float32) if dtype == jnp.float16 else dtype


class Mlp(nn.Module):
    """GELU(x W_0) * (x W_1) W_o if gated (v1.1), else relu(x W) W_o (v1.0).

    gate: "gelu", or "silu" in its place. joined: x is multiplied once, see
    `lowering.products`. The last product is of `residual_dtype`.
    """

    width: int
    gated: bool
    dtype: jnp.dtype
    joined: bool = False
    gate: str = "gelu"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        names = ("wi_0", "wi_1") if self.gated else ("wi",)
        axes, shape = ("embed", "mlp"), (x.shape[-1], self.width)
        by = [Dense(shape, self.dtype, False, axes, FAN_IN, name=n) for n in names]
        wide = residual_dtype(self.dtype)
        products = multiply(x, *by, joined=self.joined)
        hidden, *other = (product.astype(wide) for product in products)
        hidden = GATES[self.gate](hidden) * other[0] if self.gated else nn.relu(hidden)
        last = shape[::-1], wide, False, axes[::-1], FAN_IN
        return Dense(*last, name="wo")(hidden)


def attention(
    features: int, heads: int, width: int, dtype: jnp.dtype, joined: bool = False
) -> Attention:
    """Scores are not scaled: the initial queries are, by 1 / sqrt(D)."""
    query = nn.initializers.variance_scaling(1.0 / width, "fan_in", "truncated_normal")
    options = dict(scale=1.0, kernel_init=FAN_IN, query_init=query, joined=joined)
    return Attention(features, heads, width, dtype, **options)


class EncoderLayer(nn.Module):
    """Every input token sees every other."""

    features: int
    heads: int
    head_width: int
    mlp_width: int
    gated: bool
    dtype: jnp.dtype
    own_bias: bool = False
    gate: str = "gelu"

    def setup(self):
        sizes = self.features, self.heads, self.head_width, self.dtype
        if self.own_bias:
            self.relpos_bias = RelativeBias(self.heads, both_ways=True)
        self.pre_attention_layer_norm = Norm()
        self.attention = attention(*sizes)
        self.pre_mlp_layer_norm = Norm()
        self.mlp = Mlp(self.mlp_width, self.gated, self.dtype, gate=self.gate)

    def __call__(self, x: Array, mask: Array, bias: Array) -> Array:
        """x [B, I, E], mask [B, 1, I], bias [1, H, I, I] -> [B, I, E]."""
        positions = jnp.arange(x.shape[1])[None]
        y = self.pre_attention_layer_norm(x)
        x = x + self.attention(y, positions, mask=mask, bias=bias)[0]
        return x + self.mlp(self.pre_mlp_layer_norm(x))


class DecoderLayer(nn.Module):
    """A token sees those before it, and the whole input. joined: as in `t5.Config`."""

    features: int
    heads: int
    head_width: int
    mlp_width: int
    gated: bool
    dtype: jnp.dtype
    own_bias: bool = False
    gate: str = "gelu"
    joined: bool = False

    def setup(self):
        sizes = self.features, self.heads, self.head_width, self.dtype
        if self.own_bias:
            self.relpos_bias = RelativeBias(self.heads, both_ways=False)
        self.pre_self_attention_layer_norm = Norm()
        self.self_attention = attention(*sizes, self.joined)
        self.pre_cross_attention_layer_norm = Norm()
        self.encoder_decoder_attention = attention(*sizes)
        self.pre_mlp_layer_norm = Norm()
        options = self.joined, self.gate
        self.mlp = Mlp(self.mlp_width, self.gated, self.dtype, *options)

    def read(self, encoded: Array) -> KeyValues:
        """Keys and values of the encoded input [B, I, E]."""
        return self.encoder_decoder_attention.read(encoded)

    def __call__(
        self,
        x: Array,
        positions: Array,
        cache: KeyValues | None,
        bias: Array,
        inputs: tuple[KeyValues, Array],
        tree: Tree | None = None,
    ) -> tuple[Array, KeyValues | None]:
        """x [B, T, E]; inputs: what `read` gave, and its mask [B, 1, I]."""
        y = self.pre_self_attention_layer_norm(x)
        y, cache = self.self_attention(y, positions, cache, bias=bias, tree=tree)
        x = x + y
        # Not yet divided, features may leave float16.
        apart = self.joined and self.dtype == residual_dtype(self.dtype)
        y, factor = self.pre_cross_attention_layer_norm(x, apart), None
        if apart:
            y, factor = y
        x = x + self.encoder_decoder_attention.across(y, *inputs, factor)
        return x + self.mlp(self.pre_mlp_layer_norm(x)), cache
