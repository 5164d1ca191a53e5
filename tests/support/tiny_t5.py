"""Small T5s to decode with, as a `tiny.World`, and T5 written out once more in numpy.

Axes: T tokens, I input tokens, E features, H heads, D head width, V vocabulary.
"""

import functools
from fractions import Fraction

import jax
import numpy as np

from specjax.models import t5
from tests.support.tiny import World, drawn, first_layer, mixed

# Three ids of 32 are padding of the vocabulary.
TARGET = t5.Config(32, 16, 24, 1, 2, num_heads=2, head_width=8, pieces=29)
SMALL = TARGET._replace(decoder_layers=1)

# These programs run for milliseconds, and compile for seconds.
QUICK = {"xla_backend_optimization_level": 0}
quick_jit = functools.partial(jax.jit, compiler_options=QUICK)


def weights(config: t5.Config, seed: int, sharp: float = 3.0):
    """Random weights, of which laws are sharp and distances matter."""

    def draw(name: str, noise: np.ndarray) -> np.ndarray:
        if name.endswith("scale"):
            return (1 + 0.2 * noise) * (sharp if "decoder_norm" in name else 1.0)
        spread = 1.0 if "embedding" in name else len(noise) ** -0.5
        return noise * spread * (config.head_width**-0.5 if "query" in name else 1.0)

    return drawn(t5.abstract_params(config), seed, draw)


@functools.cache
def world() -> World:
    """Of two decoder layers, the second weak. The early exit is the first; the drafter
    is that with noise on its weights, and with an encoder and a cache of its own."""
    target = weights(TARGET, 14)
    decoder = dict(target["decoder"])
    last = decoder.pop("layers_1")
    for part, name in (
        ("self_attention", "out"),
        ("encoder_decoder_attention", "out"),
        ("mlp", "wo"),
    ):
        last[part][name]["kernel"] *= 0.5
    draft = mixed(target | {"decoder": decoder}, weights(SMALL, 7), 0.1)
    model, shallow = t5.build(TARGET), t5.build(SMALL)
    return World(model, shallow, shallow, first_layer, target, draft, target)


# T5 by its papers: one text after one input, nothing padded and nothing cached.


def bucket(distance: int, both_ways: bool) -> int:
    """Of a query's position less a key's, in exact arithmetic.

    Half of a side's buckets are one distance each; bucket `exact + k` begins where
    (distance / exact) ** exact reaches (128 / exact) ** k.
    """
    side = 16 if both_ways else 32
    exact, away = side // 2, abs(distance) if both_ways else max(distance, 0)
    number = away
    if away >= exact:
        reached = Fraction(away, exact) ** exact
        number = exact + max(
            k for k in range(exact) if reached >= Fraction(128, exact) ** k
        )
    return number + (side if both_ways and distance < 0 else 0)


def logits_by_hand(
    config: t5.Config, params, source: list[int], text: list[int]
) -> np.ndarray:
    """Logits [T, V] float64 after each token of `text`."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf, float), params)
    table, encoder = params["token_embedder"]["embedding"], params["encoder"]
    x = table[source]
    for i in range(config.encoder_layers):
        layer = encoder[f"layers_{i}"]
        biased = layer if config.own_bias else encoder
        bias = _bias(biased, len(source), True)
        y = _norm(x, layer["pre_attention_layer_norm"])
        x = x + _attend(config, layer["attention"], y, y, bias)
        x = x + _mlp(layer["mlp"], _norm(x, layer["pre_mlp_layer_norm"]))
    read, decoder = _norm(x, encoder["encoder_norm"]), params["decoder"]

    x, before = table[text], np.tri(len(text), dtype=bool)
    for i in range(config.decoder_layers):
        layer = decoder[f"layers_{i}"]
        biased = layer if config.own_bias else decoder
        bias = np.where(before, _bias(biased, len(text), False), -np.inf)
        y = _norm(x, layer["pre_self_attention_layer_norm"])
        x = x + _attend(config, layer["self_attention"], y, y, bias)
        y = _norm(x, layer["pre_cross_attention_layer_norm"])
        x = x + _attend(config, layer["encoder_decoder_attention"], y, read, 0.0)
        x = x + _mlp(layer["mlp"], _norm(x, layer["pre_mlp_layer_norm"]))
    x = _norm(x, decoder["decoder_norm"])
    if config.tied or config.scaled:
        x = x / np.sqrt(config.dim)
    logits = x @ (table.T if config.tied else decoder["logits_dense"]["kernel"])
    padding = np.arange(config.vocab) >= (config.pieces or config.vocab)
    return np.where(padding, -np.inf, logits)


def _norm(x: np.ndarray, params) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * params["scale"]


def _bias(stack, length: int, both_ways: bool) -> np.ndarray:
    """[H, length, length]"""
    at = range(length)
    buckets = np.array([[bucket(i - j, both_ways) for j in at] for i in at])
    return stack["relpos_bias"]["rel_embedding"][:, buckets]


def _attend(config: t5.Config, params, x, seen, bias) -> np.ndarray:
    """x [T, E] to seen [I, E]; scores are not scaled by the width."""

    def heads(name: str, y: np.ndarray) -> np.ndarray:
        z = y @ params[name]["kernel"]
        return z.reshape(len(y), config.num_heads, -1).swapaxes(0, 1)  # [H, T, D]

    scores = heads("query", x) @ heads("key", seen).swapaxes(1, 2) + bias
    weight = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = weight / weight.sum(-1, keepdims=True) @ heads("value", seen)
    return mixed.swapaxes(0, 1).reshape(len(x), -1) @ params["out"]["kernel"]


def _mlp(params, x: np.ndarray) -> np.ndarray:
    def times(name: str, y: np.ndarray) -> np.ndarray:
        return y @ params[name]["kernel"]

    if "wi" in params:
        return times("wo", np.maximum(times("wi", x), 0))
    z = times("wi_0", x)
    gelu = z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    return times("wo", gelu * times("wi_1", x))
