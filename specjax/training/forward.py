"""The forward pass of training for each family: logits of whole texts, without a cache.

Axes: B rows, T tokens, V vocabulary; S states of an encoder, E features.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from specjax.models import families, t5, whisper
from specjax.models.families import Config
from specjax.types import Features


def fresh(config: Config) -> Callable[[Array], Any]:
    init = families.of(config).init_params
    return lambda key: nn.meta.unbox(init(key, config))


def logits(config: Config, params: Any, tokens: Array, *, read: Any = None) -> Array:
    """Returns the logits [B, T, V] float32 of tokens [B, T] from the first on.

    Args:
        read: the encoder's input, which a decoder does not have: `t5.Inputs`, where a
            padded vocabulary is as likely as any id; of a Whisper, its `states_of`.
    """
    if isinstance(config, t5.Config):
        config = config._replace(pieces=None)
        features: Any = t5.T5(config).apply({"params": params}, read, tokens)
        return t5.readout(config, params, features)
    features = decoder_features(config, params, tokens, read)
    return families.build(config).readout(params, features)


def decoder_features(
    config: Config, params: Any, tokens: Array, read: Any = None
) -> Any:
    """Returns the features [B, T, E] that the readout multiplies, for all families
    except T5.
    """
    if isinstance(config, whisper.Config):
        across = whisper.read(config, params, read.astype(config.dtype))
        start, cache = jnp.zeros(1, jnp.int32), whisper.Cache(None, across)
        weights, decoder = {"params": params["decoder"]}, whisper.Decoder(config)
        return decoder.apply(weights, tokens, start, cache)[0]
    start = jnp.zeros(tokens.shape[0], jnp.int32)
    return families.build(config).apply(params, tokens, start, None)[0]


def states_of(config: whisper.Config, params: Any, frames: Array) -> Array:
    """Returns the states of a Whisper's encoder for windows: [B, F, M] -> [B, S, E]."""
    return whisper.encode(config, params, Features(frames)).states
