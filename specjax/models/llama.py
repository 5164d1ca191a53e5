"""Decoders of Llama's kind: Llama, Mistral, Qwen and Gemma, by a table of styles.

A style is the architecture that all models of a series share; a configuration names one
and adds what its checkpoints differ by.
Axes: B rows, T tokens in one call, S cache slots, E features, H heads, D head width, V
vocabulary.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from specjax import chunks
from specjax.models import dense, int8_cache, lowering, window_cache
from specjax.models.attention import Attention
from specjax.models.blocks import FeedForward, RMSNorm, Turn, check_rotary, check_taps
from specjax.models.cache import Cache
from specjax.models.dense import declare, describe
from specjax.models.tree_mask import positions_of_slots, token_positions, visible_slots
from specjax.native.embed import take_rows
from specjax.types import Branches, Hidden, Model, Prompt


class Style(NamedTuple):
    """The architecture that all models of one series share.

    Attributes:
      gate: the activation of a gate, "silu" or "gelu" (its approximation by a tanh).
      offset: whether norms multiply by 1 + their scale.
      after: whether attention and feed-forward are normalised once more before they are
        added.
      normed: whether queries and keys are normalised, each head by itself.
      scaled: whether embeddings are multiplied by sqrt(E).
    """

    gate: str = "silu"
    offset: bool = False
    after: bool = False
    normed: bool = False
    scaled: bool = False


STYLES = {
    "llama": Style(),  # Llama 1 to 3.3, Sheared-LLaMA; Touvron et al. 2023
    "mistral": Style(),  # Jiang et al. 2023
    "qwen2": Style(),  # Qwen 1.5, 2 and 2.5; Yang et al. 2024
    "qwen3": Style(normed=True),
    "gemma": Style(gate="gelu", offset=True, scaled=True),
    "gemma2": Style(gate="gelu", offset=True, after=True, scaled=True),
    "gemma3": Style(gate="gelu", offset=True, after=True, normed=True, scaled=True),
}


class Stretch(NamedTuple):
    """The rotary positions of Llama 3.1 beyond the `original` length: wavelengths above
    original / low are `factor` times as long, those below original / high are
    unchanged, and those between are interpolated."""

    factor: float
    low: float
    high: float
    original: int


class Rotation(NamedTuple):
    """The frequencies of rotary positions (Su et al. 2021). slower: a number that
    positions are divided by. stretch: None for unchanged frequencies."""

    base: float = 10_000.0
    slower: float = 1.0
    stretch: Stretch | None = None


class Config(NamedTuple):
    """The sizes of a model of Llama's kind.

    Attributes:
      vocab: V.
      dim: E.
      mlp_dim: the width of the feed-forward layer.
      num_heads: H, of queries.
      key_heads: how many heads have keys and values of their own.
      head_width: D.
      style: a name of `STYLES`.
      dtype: the dtype of activations and cache; logits are always float32.
      tied: whether the embedding is the readout.
      biased: whether queries, keys and values have biases.
      out_biased: whether the product after attention has a bias.
      mlp_biased: whether the feed-forward layer has biases.
      eps: the epsilon of norms.
      positions: how many it was trained for; None if nothing says.
      rotation: the rotation of positions.
      local_rotation: the rotation of the local layers; None is `rotation`.
      window: how many tokens the local layers see.
      local: the numbers of the layers that see only the last `window` tokens.
      scale: the scale of scores; None is 1 / sqrt(D).
      score_cap: c; a score x becomes c tanh(x / c). None leaves it.
      logit_cap: the same of logits.
      cache: None, or "int8", see `models.int8_cache`.
      taps: the places whose hidden states a head reads, see `types.Hidden`.
    """

    vocab: int
    dim: int
    mlp_dim: int
    num_layers: int
    num_heads: int
    key_heads: int
    head_width: int
    style: str = "llama"
    dtype: str = "float32"
    tied: bool = False
    biased: bool = False
    out_biased: bool = False
    mlp_biased: bool = False
    eps: float = 1e-6
    positions: int | None = None
    rotation: Rotation = Rotation()
    local_rotation: Rotation | None = None
    window: int | None = None
    local: tuple[int, ...] = ()
    scale: float | None = None
    score_cap: float | None = None
    logit_cap: float | None = None
    cache: str | None = None
    taps: tuple[int, ...] = ()


def check(config: Config) -> None:
    """Raises ValueError for sizes that do not go together."""
    if config.style not in STYLES:
        known = ", ".join(STYLES)
        raise ValueError(f"style is {config.style!r}; known are {known}")
    if config.num_heads % config.key_heads:
        raise ValueError(
            f"heads {config.num_heads} are not a multiple of key_heads"
            f" {config.key_heads}"
        )
    check_rotary(config.head_width)
    check_taps(config.taps, config.num_layers)
    if max(config.local, default=0) >= config.num_layers:
        raise ValueError(f"local names layer {max(config.local)}, which is not there")
    if config.local and config.window is None:
        raise ValueError("local layers need a window")


def first_layers(config: Config, layers: int) -> Config:
    """Returns the sizes of the first `layers` layers, with those of them that are
    local."""
    local = tuple(i for i in config.local if i < layers)
    return config._replace(num_layers=layers, local=local, taps=())


def rotator(rotation: Rotation, width: int, positions: Array, dtype: DTypeLike) -> Turn:
    """Returns a function that rotates x [B, H, T, D] by angles that grow with positions
    [B, T]. Angles are float32; their cosines and sines are rounded to `dtype`."""
    frequency = jnp.asarray(frequencies(rotation, width))
    angle = positions[:, None, :, None].astype(jnp.float32) * frequency
    return Turn(jnp.cos(angle).astype(dtype), jnp.sin(angle).astype(dtype))


def frequencies(rotation: Rotation, width: int) -> np.ndarray:
    """Returns the angle in radians per position of each pair of features, [D / 2]
    float32."""
    exponent = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    frequency = 1 / np.float32(rotation.base) ** exponent
    if rotation.stretch is not None:
        frequency = stretch_frequency(rotation.stretch, frequency)
    return (frequency / rotation.slower).astype(np.float32)


def stretch_frequency(stretch: Stretch, frequency: np.ndarray) -> np.ndarray:
    """Returns the frequencies of Llama 3.1: low ones divided by `factor`, high ones
    unchanged."""
    turns = stretch.original * frequency / (2 * math.pi)  # within the original length
    share = (turns - stretch.low) / (stretch.high - stretch.low)
    share = np.clip(share, 0, 1)  # 0 is slow, 1 is fast
    return share * frequency + (1 - share) * frequency / stretch.factor


GATES = {"silu": nn.silu, "gelu": nn.gelu}


class Block(nn.Module):
    """Attention, then feed-forward, each added to its input."""

    config: Config

    @nn.compact
    def __call__(
        self,
        x: Array,
        positions: Array,
        cache: Any,
        *,
        mask: Array,
        rotate: Turn,
        start: Array,
        ring: bool,
    ) -> tuple[Array, Any]:
        """Returns ([B, T, E], cache) for x [B, T, E]; for the other arguments see
        `Attention`."""
        config, style = self.config, STYLES[self.config.style]
        norm = functools.partial(RMSNorm, config.eps, style.offset)
        dtype = jnp.dtype(config.dtype)
        attention = Attention(
            features=config.dim,
            heads=config.num_heads,
            head_width=config.head_width,
            dtype=dtype,
            key_heads=config.key_heads,
            use_bias=config.biased,
            out_bias=config.out_biased,
            scale=config.scale,
            cap=config.score_cap,
            norm=functools.partial(norm, axis="head_width") if style.normed else None,
            name="attention",
        )
        first = norm(name="attention_norm").law(config.dim)
        y, cache = attention(
            x,
            positions,
            cache,
            mask=mask,
            rotate=rotate,
            start=start,
            ring=ring,
            before=first,
            add=None if style.after else x,
        )
        x = x + norm(name="attention_after_norm")(y) if style.after else y
        mlp = FeedForward(
            config.mlp_dim,
            dtype,
            use_bias=config.mlp_biased,
            activation=GATES[style.gate],
            gated=True,
            name="mlp",
        )
        last = norm(name="mlp_norm").law(config.dim)
        y = mlp(x, norm=last, add=not style.after)
        return (x + norm(name="mlp_after_norm")(y) if style.after else y), cache


class Decoder(nn.Module):
    """The layers that turn tokens into the features that the readout multiplies."""

    config: Config

    @nn.compact
    def __call__(
        self,
        tokens: Array,
        start: Array,
        cache: Cache | None = None,
        branches: Branches | None = None,
    ) -> tuple[Array | Hidden, Cache]:
        """Returns (features [B, T, E], cache) of tokens [B, T] at slots `start` [B]
        on; where layers are tapped, the features are `Hidden`."""
        config, style = self.config, STYLES[self.config.style]
        dtype = jnp.dtype(config.dtype)
        axes, shape = ("vocab", "embed"), (config.vocab, config.dim)
        embedding = declare(self, "embedding", axes=axes, shape=shape)
        # Read by `readout`; declared here so that one tree holds all parameters.
        if not config.tied:
            declare(self, "readout", axes=axes[::-1], shape=shape[::-1])
        x = take_rows(embedding, tokens).astype(dtype)
        if style.scaled:
            x = x * jnp.asarray(config.dim**0.5, dtype)
        x = lowering.in_memory(x, cache)
        count = tokens.shape[1]
        positions = token_positions(start, count, branches)

        def rotate(rotation: Rotation) -> Turn:
            return rotator(rotation, config.head_width, positions, dtype)

        @functools.cache
        def sees_slots(slots: int, window: int | None) -> Array:
            """Returns whether the tokens see each slot of a layer, [B, T, S]."""
            if cache is None:
                held = start[:, None] + jnp.arange(count)
            else:
                held = window_cache.positions_in_slots(start, count, slots)
            stands = held
            if branches is None:
                mask = (held >= 0)[:, None] & (held[:, None] <= positions[:, :, None])
            else:
                mask = visible_slots(branches, start, held)
                stands = positions_of_slots(branches, start, held)
            if window is not None:
                mask &= stands[:, None] > positions[:, :, None] - window
            return mask

        everywhere = rotate(config.rotation)
        nearby = everywhere
        if config.local and config.local_rotation is not None:
            nearby = rotate(config.local_rotation)
        layers = lowering.layers(cache, config.num_layers)
        entered = [x]  # what enters each layer, and the last norm
        for i in range(config.num_layers):
            layer, local = layers[i], i in config.local
            slots = count if layer is None else layer.values.shape[2]
            x, layers[i] = Block(config, name=f"layers_{i}")(
                x,
                positions,
                layer,
                mask=sees_slots(slots, config.window if local else None),
                rotate=nearby if local else everywhere,
                start=start,
                ring=local,
            )
            entered.append(x)
        last, taps = (
            RMSNorm(config.eps, style.offset, name="norm")(x),
            tuple(entered[k] for k in config.taps),
        )
        return (Hidden(last, taps) if taps else last), layers


def writer(config: Config, layer: int) -> Callable[..., Any]:
    """Returns the function that writes a layer's cache, such as `lowering.write`."""
    return (window_cache if layer in config.local else lowering).write


def init_params(key: Array, config: Config) -> Any:
    """Returns fresh parameters, each leaf boxed with the logical names of its axes."""
    tokens, start = jnp.zeros((1, 1), jnp.int32), jnp.zeros(1, jnp.int32)
    return Decoder(config).init(key, tokens, start)["params"]


# Llama 2 7B has 6,738,415,616 parameters.
abstract_params, partition_specs, num_params = describe(init_params)


def build(config: Config, portion: int = chunks.TOKENS) -> Model:
    """Returns the model of these sizes.

    With fewer layers than the parameters have, it is the early exit of that model.
    portion: the most tokens that the caches of local layers take in at once, and that
    can be taken back: those caches have the length of the window and this many tokens
    more.
    """
    int8_cache.check(config.cache)
    decoder, dtype = Decoder(config), jnp.dtype(config.dtype)

    def init(params: Any, prompt: Prompt, slots: int) -> Cache:
        del params
        ring = min(slots, (config.window or slots) + portion)

        def layer(i: int) -> Any:
            (only,) = int8_cache.empty(
                1,
                batch=len(prompt.tokens),
                heads=config.key_heads,
                slots=ring if i in config.local else slots,
                width=config.head_width,
                dtype=dtype,
                kind=config.cache,
            )
            return only

        return list(map(layer, range(config.num_layers)))

    def apply(
        params: Any,
        tokens: Array,
        start: Array,
        cache: Cache,
        branches: Branches | None = None,
    ) -> Any:
        return decoder.apply({"params": params}, tokens, start, cache, branches)

    def readout(params: Any, features: Array) -> Array:
        weights = params["embedding" if config.tied else "readout"]
        logits = dense.readout(features, weights, tied=config.tied, dtype=dtype)
        if config.logit_cap is not None:
            logits = config.logit_cap * jnp.tanh(logits / config.logit_cap)
        return logits

    def keep(cache: Cache, start: Array, path: Array) -> Cache:
        writes = [writer(config, i) for i in range(config.num_layers)]
        return lowering.keep(cache, start, path, writes)

    model = Model(
        init,
        apply,
        readout,
        vocab=config.vocab,
        shapes=abstract_params(config),
        trained=config.positions,
        keep=keep,
    )
    model = lowering.model(model)
    if not config.local:
        return model
    return chunks.read_in_portions(model, portion)._replace(portion=portion)
