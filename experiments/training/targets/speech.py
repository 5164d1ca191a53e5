"""The speech target: a Whisper that learns from synthesised voices, then from recorded.

First with one decoder layer and short windows, its encoder being told which letter is
spoken when, so that it is soon worth attending to; then with whole windows, and deeper,
by layers that add nothing at first.
Axes: B rows, L tokens, S states of the encoder, E features, V vocabulary.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.training import loop
from experiments.training.voices import examples, sentences
from experiments.training.voices.examples import Rows
from specjax.models import whisper
from specjax.models.whisper import Config
from specjax.models.whisper.layers import sinusoids
from specjax.models.whisper.network import Cache, Whisper
from specjax.types import Features

SMALL = Config(
    sentences.VOCAB,
    dim=192,
    mlp_dim=768,
    encoder_layers=2,
    decoder_layers=1,
    num_heads=3,
    bands=examples.BANDS,
    frames=examples.SHORT.frames,
    positions=128,
)
WHOLE = SMALL._replace(frames=examples.WHOLE.frames)
LARGE = WHOLE._replace(decoder_layers=12)
TOLD = 0.3  # weight of what the encoder is told, beside the text
cross_entropy = optax.softmax_cross_entropy_with_integer_labels


def logits_of(config: Config, params: Any, states: Array, tokens: Array) -> Array:
    """tokens [B, L] after what the encoder gave, [B, S, E] -> [B, L, V] float32."""
    network = Whisper(config)
    arguments = {"params": params}, states.astype(config.dtype)
    cache = Cache(None, network.apply(*arguments, method="read"))
    start = jnp.zeros(1, jnp.int32)
    features, _ = network.apply(arguments[0], tokens, start, cache, method="decode")
    return whisper.readout(config, params, features)


def states_of(config: Config, params: Any, frames: Array) -> Array:
    """[B, F, M] -> [B, S, E]."""
    return whisper.encode(config, params, Features(frames)).states


def loss(config: Config, told: float = TOLD) -> Callable[[Any, Rows], Array]:
    """Mean cross-entropy in nats a token of what follows the prompt, and `told` times
    that of the letter at each state, by the embedding that tokens share. Where the
    encoder is told nothing it does not learn."""

    def of(params, rows: Rows) -> Array:
        states = states_of(config, params, rows.frames)
        states = states if told else jax.lax.stop_gradient(states)
        logits = logits_of(config, params, states, rows.tokens[:, :-1])
        each = cross_entropy(logits, rows.tokens[:, 1:])
        place = jnp.arange(1, rows.tokens.shape[1])
        live = (place >= rows.begun[:, None]) & (place < rows.length[:, None])
        mean = jnp.sum(each * live) / live.sum()
        if not told:
            return mean
        heard = whisper.readout(config, params, states)
        return mean + told * cross_entropy(heard, rows.spoken).mean()

    return of


def task(config: Config, told: float = TOLD, first: Any = None) -> loop.Task:
    """A model of these sizes, fresh or from `first` on."""

    def init(key: Array):
        if first is not None:
            return jax.tree.map(jnp.copy, first)
        return nn.meta.unbox(whisper.init_params(key, config))

    return loop.Task({**config._asdict(), "told": told}, init, loss(config, told))


def deeper(params: Any, layers: int) -> Any:
    """The same law by a decoder of more layers: each new one is a copy of the last, but
    adds zero to what it reads (Net2Net, see `grow`)."""
    decoder = dict(params["decoder"])
    there = sum(name.startswith("layers_") for name in decoder)
    last = decoder[f"layers_{there - 1}"]

    def silent(path, leaf: Array) -> Array:
        return jnp.zeros_like(leaf) if path[-2].key == "out" else leaf

    for i in range(there, layers):
        decoder[f"layers_{i}"] = jax.tree_util.tree_map_with_path(silent, last)
    return {**params, "decoder": decoder}


def longer(params: Any, config: Config) -> Any:
    """The same weights for windows of `config`, of whose states none is learnt."""
    table = jnp.asarray(sinusoids(config.states, config.dim))
    return {**params, "encoder": {**params["encoder"], "positions": table}}


def train(
    folder: Path, stage: loop.Task, recipe: loop.Recipe, data: Rows, held_out: Rows
) -> Any:
    """One stage on rows that are there. Returns its weights."""

    def batch(seed: tuple[int, ...]) -> Rows:
        index = np.random.default_rng(seed).integers(
            len(data.tokens), size=recipe.batch
        )
        return examples.chosen(data, index)

    every = np.arange(len(held_out.tokens))
    fixed = [
        examples.chosen(held_out, part) for part in np.split(every, len(every) // 16)
    ]
    return loop.train(folder, stage, batch, fixed, recipe)
