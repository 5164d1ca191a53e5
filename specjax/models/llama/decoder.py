"""The decoder: tokens, by embeddings and layers, to features and logits.

Axes: B rows, T tokens, S cache slots, E features, V vocabulary.
"""

import functools

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from specjax import chunks
from specjax.models import dense, lowering, rings
from specjax.models.branching import held_positions, positions_of, seen
from specjax.models.cache import Cache, empty
from specjax.models.llama.layers import Block, Norm
from specjax.models.llama.rotation import rotator
from specjax.models.llama.sizes import STYLES, Config
from specjax.models.parameters import parameters, table
from specjax.types import Branches, Model, Prompt


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
                held = rings.held(start, count, slots)
            stands = held
            if branches is None:
                mask = (held >= 0)[:, None] & (held[:, None] <= positions[:, :, None])
            else:
                mask = seen(branches, start, held)
                stands = held_positions(branches, start, held)
            if window is not None:
                mask &= stands[:, None] > positions[:, :, None] - window
            return mask

        everywhere = rotate(config.rotation)
        nearby = everywhere
        if config.local and config.local_rotation is not None:
            nearby = rotate(config.local_rotation)
        layers = [None] * config.num_layers if cache is None else list(cache)
        for i, layer in enumerate(layers):
            local = i in config.local
            slots = count if layer is None else layer.values.shape[2]
            mask = visible(slots, config.window if local else None)
            block = Block(config, name=f"layers_{i}")
            write = functools.partial(_write, start, local)
            x, layers[i] = block(x, nearby if local else everywhere, mask, layer, write)
        return Norm(config.eps, style.offset, name="norm")(x), layers


def _write(start: Array, local: bool, cache, new):
    """A layer's cache with the call's tokens, and what they attend to."""
    return (rings if local else lowering).write(cache, new, start)


def init_params(key: Array, config: Config):
    """A fresh parameter tree, each leaf boxed with its logical axis names."""
    tokens, start = jnp.zeros((1, 1), jnp.int32), jnp.zeros(1, jnp.int32)
    return Decoder(config).init(key, tokens, start)["params"]


# Llama 2 7B has 6,738,415,616 parameters.
abstract_params, partition_specs, num_params = parameters(init_params)


def build(config: Config, portion: int = chunks.TOKENS) -> Model:
    """The model of `specjax.types.Model` with these sizes.

    With fewer layers than the parameters have, it is the early exit of that model.

    portion: the most tokens that the caches of local layers take in at once, and that
    can be taken back: those caches are the window and so many tokens long.
    """
    decoder, dtype = Decoder(config), jnp.dtype(config.dtype)

    def init(params, prompt: Prompt, slots: int) -> Cache:
        del params
        ring = min(slots, (config.window or slots) + portion)

        def layer(i: int):
            kept = ring if i in config.local else slots
            sizes = len(prompt.tokens), config.key_heads, kept, config.head_width
            return empty(1, sizes, dtype)[0]

        return list(map(layer, range(config.num_layers)))

    def apply(params, tokens, start, cache, branches: Branches | None = None):
        return decoder.apply({"params": params}, tokens, start, cache, branches)

    def readout(params, features):
        weights = params["embedding" if config.tied else "readout"]
        logits = dense.readout(features, weights, config.tied, dtype)
        if config.logit_cap is not None:
            logits = config.logit_cap * jnp.tanh(logits / config.logit_cap)
        return logits

    limits = config.vocab, abstract_params(config)
    model = lowering.model(
        Model(init, apply, readout, *limits, trained=config.positions)
    )
    if not config.local:
        return model
    return chunks.in_chunks(model, portion)._replace(portion=portion)
