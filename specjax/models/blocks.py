"""Parts that several models share: norms, rotary positions, the feed-forward layer."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from specjax.models import few_rows
from specjax.models.dense import Dense, declare, multiply_plainly
from specjax.models.few_rows import Products
from specjax.models.norms import Norm as NormLaw
from specjax.native.operation import Operation, run


class Turn(NamedTuple):
    """The rotation of rotary positions (Su et al. 2021), a function of x [B, H, T, D].

    cos, sin: of each position's angles, [B, 1, T, D / 2].
    """

    cos: Array
    sin: Array

    def __call__(self, x: Array) -> Array:
        return rotate(x, cos=self.cos, sin=self.sin)


def rotary(positions: Array, width: int, dtype: DTypeLike) -> Turn:
    """Returns the rotation of heads of an even width by angles that grow with
    positions [B, T]."""
    half = width // 2
    frequency = 10_000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = positions[:, None, :, None] * frequency  # [B, 1, T, D / 2]
    return Turn(jnp.cos(angle).astype(dtype), jnp.sin(angle).astype(dtype))


def rotate(x: Array, *, cos: Array, sin: Array) -> Array:
    """Rotates features i and i + D / 2 of x [..., D] by an angle; cos, sin: [..., D /
    2]."""
    half = x.shape[-1] // 2
    left, right = x[..., :half], x[..., half:]
    return jnp.concatenate(
        [left * cos - right * sin, right * cos + left * sin], axis=-1
    )


def check_heads(dim: int, heads: int) -> None:
    """Raises ValueError for features that cannot be divided equally among the heads."""
    if dim % heads:
        raise ValueError(f"dim {dim} is not a multiple of heads {heads}")


def check_rotary(head_width: int) -> None:
    """Raises ValueError for heads of an odd width, whose features cannot be rotated in
    pairs."""
    if head_width % 2:
        raise ValueError(f"rotary heads are of even width, not {head_width}")


def check_taps(taps: tuple[int, ...], layers: int) -> None:
    """Raises ValueError for taps at places that a stack of `layers` layers lacks."""
    wrong = [k for k in taps if not 0 <= k <= layers]
    if wrong:
        raise ValueError(
            f"taps name place {wrong[0]}, and there are 0 (the embedding) to {layers}"
            " (the output of the last layer)"
        )


class Norm(nn.Module):
    """The norm x / rms(x), without a learned scale, or, if `learned`, a layer norm with
    a scale and a bias. [..., E] -> [..., E]."""

    learned: bool = False

    def __call__(self, x: Array) -> Array:
        return few_rows.normalize(x, self.law(x.shape[-1]))

    @nn.compact
    def law(self, width: int) -> NormLaw:
        """Returns the norm of rows of this width as a function with its parameters."""
        if not self.learned:
            return NormLaw(None, None, "rms", 1e-6)
        ones, zeros = nn.initializers.ones, nn.initializers.zeros
        scale = declare(self, "scale", ones, axes=("embed",), shape=(width,))
        bias = declare(self, "bias", zeros, axes=("embed",), shape=(width,))
        return NormLaw(scale, bias, "layer", 1e-5)


class RMSNorm(nn.Module):
    """The norm x / rms(x) times a learned scale, in float32: no mean is taken, no bias
    added.

    Attributes:
      eps: added to the mean square.
      offset: whether the scale is 1 + the parameter.
      axis: the logical name of the last axis.
    """

    eps: float = 1e-6
    offset: bool = False
    axis: str = "embed"

    def __call__(self, x: Array) -> Array:
        return few_rows.normalize(x, self.law(x.shape[-1]))

    def scale_and_factor(self, x: Array) -> tuple[Array, Array]:
        """Returns scale * x, and 1 / rms [..., 1], by which a product of scale * x is
        to be multiplied: a GPU then needs no kernel for the norm."""
        law, y = self.law(x.shape[-1]), x.astype(jnp.float32)
        return (y * law.scaled()).astype(x.dtype), law.factor(y)

    @nn.compact
    def law(self, width: int) -> NormLaw:
        """Returns the norm of rows of this width as a function with its parameters."""
        init = nn.initializers.zeros if self.offset else nn.initializers.ones
        scale = declare(self, "scale", init, axes=(self.axis,), shape=(width,))
        return NormLaw(scale, None, "rms", self.eps, self.offset)


class FeedForward(nn.Module):
    """The feed-forward layer activation(x W_in) W_out, [..., E] -> [..., E].

    width and activation are those of the hidden features, dtype that of the products;
    use_bias: whether these have biases; gated: whether the layer is
    (activation(x W_gate) * (x W_in)) W_out (Shazeer 2020).
    """

    width: int
    dtype: DTypeLike = jnp.float32
    use_bias: bool = False
    activation: Callable[[Array], Array] = nn.gelu
    gated: bool = False

    @nn.compact
    def __call__(
        self, x: Array, *, norm: NormLaw | None = None, add: bool = False
    ) -> Array:
        """Returns the layer of x, or of norm(x); x itself is added if `add`."""
        shape, axes = (x.shape[-1], self.width), ("embed", "mlp")
        product = functools.partial(Dense, dtype=self.dtype, use_bias=self.use_bias)
        names = ("gate", "in") if self.gated else ("in",)
        by = [product(shape, axes=axes, name=name) for name in names]
        out = product(shape[::-1], axes=axes[::-1], name="out")
        return feed(x, *by, out, kind=FeedKind(self.activation, add), norm=norm)


def exact_gelu(x: Array) -> Array:
    """Returns x times the normal law's probability up to x, not approximated by a
    tanh."""
    return nn.gelu(x, approximate=False)


ACTIVATIONS: dict[Any, str] = {nn.silu: "silu", nn.gelu: "gelu", nn.relu: "relu"}
ACTIVATIONS[exact_gelu] = "exact_gelu"


class FeedKind(NamedTuple):
    """The static arguments of a feed-forward layer, beside its operands.

    Attributes:
      activation: of the hidden features.
      add: whether x is added to the result.
      joined: whether x is multiplied once on a GPU, see `lowering.products`.
    """

    activation: Callable[[Array], Array]
    add: bool = False
    joined: bool = False


def feed(x: Array, *by: Dense, kind: FeedKind, norm: NormLaw | None = None) -> Array:
    """Returns the feed-forward layer of x [..., E], or of norm(x), by the products of
    the gate, if there is one, in and out."""
    weights, dtype = tuple(dense.weights() for dense in by), jnp.dtype(by[0].dtype)
    of = few_rows.FeedForward(x, weights, norm)
    kernels = [each.kernel for each in weights]
    known = kind.activation in ACTIVATIONS and x.dtype == dtype
    if known and few_rows.serves(x, kernels):
        return run(feed_forward(kind), of)[0]
    return feed_plainly(of, kind, dtype)[0]


def feed_plainly(
    of: few_rows.FeedForward, kind: FeedKind, dtype: DTypeLike | None = None
) -> list[Array]:
    """Returns a feed-forward layer as XLA computes it. dtype: that of products; None
    means that of x."""
    *by, out = of.weights
    first = Products(of.x, tuple(by), of.norm)
    hidden, *other = multiply_plainly(first, dtype, joined=kind.joined)
    hidden = kind.activation(hidden)
    hidden = hidden * other[0] if other else hidden
    residual = of.x if kind.add else None
    return multiply_plainly(Products(hidden, (out,), None, residual), dtype)


@functools.cache
def feed_forward(kind: FeedKind) -> Operation:
    """Returns the operation for a feed-forward layer."""
    by = ACTIVATIONS[kind.activation]
    return Operation(
        "feed_forward",
        functools.partial(feed_plainly, kind=kind),
        functools.partial(few_rows.native_feed_forward, activation=by, add=kind.add),
        few_rows.same_shape,
    )
