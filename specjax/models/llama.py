"""Decoders of Llama's kind: Llama, Mistral, Qwen and Gemma, by a table of styles.

A style is what all models of a family have alike; a config names one and adds what its
checkpoints differ by.
Axes: B rows, T tokens in one call, S cache slots, E features, H heads, D head width, V
vocabulary.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import chunks
from specjax.models import dense, int8_cache, lowering, window_cache
from specjax.models.attention import Attention
from specjax.models.blocks import FeedForward, RMSNorm, check_rotary, turned
from specjax.models.cache import Cache, KeyValues
from specjax.models.dense import parameters, table
from specjax.models.tree_mask import positions_of, positions_of_slots, visible_slots
from specjax.types import Branches, Model, Prompt


class Style(NamedTuple):
    """What a family has alike. gate: what a gate passes through, "silu" or "gelu" (its
    approximation by a tanh). offset: norms multiply by 1 + their scale. after:
    attention and feed-forward are normalised once more before they are added. normed:
    queries and keys are normalised, each head by itself. scaled: embeddings are
    multiplied by sqrt(E)."""

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
    """Llama 3.1's rotary positions beyond the `original` length: wavelengths of more
    than original / low are `factor` times as long, of less than original / high as they
    were, and between them in between."""

    factor: float
    low: float
    high: float
    original: int


class Rotation(NamedTuple):
    """Rotary positions (Su et al. 2021). slower: positions are divided by it. stretch:
    None as they are."""

    base: float = 10_000.0
    slower: float = 1.0
    stretch: Stretch | None = None


class Config(NamedTuple):
    """Sizes. `dtype` is that of activations and cache; logits are always float32.
    heads, of which key_heads have keys and values of their own. style: of `STYLES`.
    tied: the embedding is the readout. biased: queries, keys and values have biases;
    out_biased, mlp_biased: so has the product after attention, and the feed-forward.
    eps: of norms. positions: how many it was trained for, None if nothing says. local:
    numbers of the layers that see the last `window` tokens alone; they turn by
    `local_rotation`, None is `rotation`. scale: of scores, None is 1 / sqrt of the
    head's width. score_cap, logit_cap: c of c tanh(x / c), None for none. cache: None,
    or "int8", see `models.int8_cache`."""

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


def check(config: Config) -> None:
    """Raises ValueError for sizes that do not go together."""
    if config.style not in STYLES:
        known = ", ".join(STYLES)
        raise ValueError(f"style is {config.style!r}; known are {known}")
    if config.num_heads % config.key_heads:
        raise ValueError(
            f"heads {config.num_heads} are no multiple of key_heads {config.key_heads}"
        )
    check_rotary(config.head_width)
    if max(config.local, default=0) >= config.num_layers:
        raise ValueError(f"local names layer {max(config.local)}, which is not there")
    if config.local and config.window is None:
        raise ValueError("local layers need a window")


def first_layers(config: Config, layers: int) -> Config:
    """Returns the sizes of the first `layers` layers, with those of them that are
    local."""
    local = tuple(i for i in config.local if i < layers)
    return config._replace(num_layers=layers, local=local)


def rotator(rotation: Rotation, width: int, positions: Array, dtype) -> Callable:
    """x [B, H, T, D] -> x `turned` by angles that grow with positions [B, T]. They are
    float32; their cosines and sines are rounded to `dtype`."""
    frequency = jnp.asarray(frequencies(rotation, width))
    angle = positions[:, None, :, None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle).astype(dtype), jnp.sin(angle).astype(dtype)
    return functools.partial(turned, cos=cos, sin=sin)


def frequencies(rotation: Rotation, width: int) -> np.ndarray:
    """Radians a position, [D / 2] float32."""
    exponent = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    frequency = 1 / np.float32(rotation.base) ** exponent
    if rotation.stretch is not None:
        frequency = stretched(rotation.stretch, frequency)
    return np.float32(frequency / rotation.slower)


def stretched(stretch: Stretch, frequency: np.ndarray) -> np.ndarray:
    """Llama 3.1's: slow turns slower by `factor`, fast ones as they were."""
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
        self, x: Array, cache: KeyValues | None, **around
    ) -> tuple[Array, KeyValues | None]:
        """x [B, T, E] -> ([B, T, E], cache). around: positions, mask, rotate and write,
        as of `Attention`."""
        config, style = self.config, STYLES[self.config.style]
        norm = functools.partial(RMSNorm, config.eps, style.offset)
        dtype = jnp.dtype(config.dtype)
        sizes = config.dim, config.num_heads, config.head_width, dtype
        attention = Attention(
            *(*sizes, config.key_heads),
            use_bias=config.biased,
            out_bias=config.out_biased,
            scale=config.scale,
            cap=config.score_cap,
            norm=functools.partial(norm, axis="head_width") if style.normed else None,
            name="attention",
        )
        y, cache = attention(norm(name="attention_norm")(x), cache=cache, **around)
        if style.after:
            y = norm(name="attention_after_norm")(y)
        x = x + y
        options = config.mlp_biased, GATES[style.gate], True
        mlp = FeedForward(config.mlp_dim, dtype, *options, name="mlp")
        y = mlp(norm(name="mlp_norm")(x))
        if style.after:
            y = norm(name="mlp_after_norm")(y)
        return x + y, cache


class Decoder(nn.Module):
    """Tokens to the features that the readout multiplies."""

    config: Config

    @nn.compact
    def __call__(
        self,
        tokens: Array,
        start: Array,
        cache: Cache | None = None,
        branches: Branches | None = None,
    ) -> tuple[Array, Cache]:
        """tokens [B, T] at slots `start` [B] on -> (features [B, T, E], cache)."""
        config, style = self.config, STYLES[self.config.style]
        dtype = jnp.dtype(config.dtype)
        sizes = dict(vocab=config.vocab, embed=config.dim)
        embedding = table(self, "embedding", ("vocab", "embed"), **sizes)
        # Read by `readout`; declared here so that one tree holds all parameters.
        if not config.tied:
            table(self, "readout", ("embed", "vocab"), **sizes)
        x = embedding[tokens].astype(dtype)
        if style.scaled:
            x = x * jnp.asarray(config.dim**0.5, dtype)
        x = lowering.in_memory(x, cache)
        count = tokens.shape[1]
        positions = positions_of(start, count, branches)

        def rotate(rotation):
            return rotator(rotation, config.head_width, positions, dtype)

        @functools.cache
        def visible(slots: int, window: int | None) -> Array:
            """Which slots of a layer the tokens see, [B, T, S]."""
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
        for i, layer in enumerate(layers):
            local = i in config.local
            slots = count if layer is None else layer.values.shape[2]
            x, layers[i] = Block(config, name=f"layers_{i}")(
                x,
                layer,
                positions=positions,
                mask=visible(slots, config.window if local else None),
                rotate=nearby if local else everywhere,
                write=functools.partial(writer(config, i), start=start),
            )
        return RMSNorm(config.eps, style.offset, name="norm")(x), layers


def writer(config: Config, layer: int) -> Callable:
    """What writes a layer's cache."""
    return (window_cache if layer in config.local else lowering).write


def init_params(key: Array, config: Config):
    """A fresh parameter tree, each leaf boxed with its logical axis names."""
    tokens, start = jnp.zeros((1, 1), jnp.int32), jnp.zeros(1, jnp.int32)
    return Decoder(config).init(key, tokens, start)["params"]


# Llama 2 7B has 6,738,415,616 parameters.
abstract_params, partition_specs, num_params = parameters(init_params)


def build(config: Config, portion: int = chunks.TOKENS) -> Model:
    """The model of `specjax.types.Model` with these sizes. With fewer layers than the
    parameters have, it is the early exit of that model. portion: the most tokens that
    the caches of local layers take in at once, and that can be taken back: those caches
    are the window and so many tokens long."""
    int8_cache.check(config.cache)
    decoder, dtype = Decoder(config), jnp.dtype(config.dtype)

    def init(params, prompt: Prompt, slots: int) -> Cache:
        del params
        ring = min(slots, (config.window or slots) + portion)

        def layer(i: int):
            kept = ring if i in config.local else slots
            sizes = len(prompt.tokens), config.key_heads, kept, config.head_width
            return int8_cache.empty(1, sizes, dtype, config.cache)[0]

        return list(map(layer, range(config.num_layers)))

    def apply(params, tokens, start, cache, branches: Branches | None = None):
        return decoder.apply({"params": params}, tokens, start, cache, branches)

    def readout(params, features):
        weights = params["embedding" if config.tied else "readout"]
        logits = dense.readout(features, weights, config.tied, dtype)
        if config.logit_cap is not None:
            logits = config.logit_cap * jnp.tanh(logits / config.logit_cap)
        return logits

    def keep(cache: Cache, start: Array, path: Array) -> Cache:
        writes = [writer(config, i) for i in range(config.num_layers)]
        return lowering.keep(cache, start, path, writes)

    limits = config.vocab, abstract_params(config)
    options = dict(trained=config.positions, keep=keep)
    model = Model(init, apply, readout, *limits, **options)
    model = lowering.model(model)
    if not config.local:
        return model
    return chunks.read_in_portions(model, portion)._replace(portion=portion)
