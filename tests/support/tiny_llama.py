"""Small decoders of Llama's kind to decode with, each a `tiny.World`.

Caches of local layers are rings of WINDOW + PORTION slots, fewer than the tests' texts
need.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models import llama
from specjax.models.llama import Config, Rotation, Stretch
from tests.support.tiny import World, mixed

WINDOW, PORTION = 2, 4
STRETCHED = Rotation(100.0, stretch=Stretch(4.0, 1.0, 4.0, 40))
BIASED = dict(biased=True, out_biased=True, mlp_biased=True)
LOCAL = dict(window=WINDOW, local=(0,))
LLAMA = Config(29, 16, 24, 2, 4, 2, 6, rotation=STRETCHED, **BIASED)
QWEN3 = Config(29, 16, 24, 2, 3, 1, 8, style="qwen3", rotation=Rotation(300.0))
GEMMA2 = Config(
    29,
    16,
    24,
    2,
    4,
    2,
    6,
    style="gemma2",
    tied=True,
    scale=0.4,
    score_cap=2.0,
    logit_cap=6.0,
    **LOCAL,
)
GEMMA3 = Config(
    29,
    16,
    24,
    2,
    2,
    2,
    4,
    style="gemma3",
    tied=True,
    rotation=Rotation(500.0, slower=4.0),
    local_rotation=Rotation(50.0),
    **LOCAL,
)


def build(config: Config):
    return llama.build(config, PORTION)


def weights(config: Config, seed: int):
    """Random weights, of which laws are sharp and every layer and position matters."""
    rng = np.random.default_rng(seed)
    style = llama.STYLES[config.style]
    embedding, sharp = (0.1, 7.0) if style.scaled else (0.7, 3.0)

    def draw(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        noise = rng.normal(size=leaf.shape)
        if name.endswith("scale"):
            scale = (1 + 0.2 * noise) * (sharp if name == "norm/scale" else 1.0)
            return jnp.float32(scale - style.offset)
        if name.endswith("bias"):
            return jnp.float32(0.3 * noise)
        spread = embedding if name == "embedding" else leaf.shape[0] ** -0.5
        return jnp.float32(spread * noise)

    return jax.tree_util.tree_map_with_path(draw, llama.abstract_params(config))


def first_layer(cache):
    return cache[:1]


def worlds(config: Config, seed: int) -> Callable[[], World]:
    """The drafter is the target with noise on its weights; seed: of one whose greedy
    texts do not repeat a few tokens."""

    @functools.cache
    def world() -> World:
        target = weights(config, seed)
        draft = mixed(target, weights(config, seed + 50), 0.1)
        model, shallow = build(config), build(config._replace(num_layers=1))
        return World(model, model, shallow, first_layer, target, draft, target)

    return world


# The same by its papers: one text, nothing cached.


def logits_by_hand(config: Config, params, text: list[int]) -> np.ndarray:
    """Logits [T, V] float64 after each token of `text`."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf, float), params)
    style, at = llama.STYLES[config.style], np.arange(len(text))
    x = params["embedding"][text] * (config.dim**0.5 if style.scaled else 1)

    def norm(x: np.ndarray, part) -> np.ndarray:
        scale = part["scale"] + style.offset
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config.eps) * scale

    for i in range(config.num_layers):
        layer, away = params[f"layers_{i}"], at[:, None] - at
        seen, rotation = away >= 0, config.rotation
        if i in config.local:
            seen &= away < config.window
            rotation = config.local_rotation or rotation
        y = norm(x, layer["attention_norm"])
        y = _attend(config, layer["attention"], y, rotation, seen, norm)
        x = x + (norm(y, layer["attention_after_norm"]) if style.after else y)
        y = norm(x, layer["mlp_norm"])
        y = _mlp(style.gate, layer["mlp"], y)
        x = x + (norm(y, layer["mlp_after_norm"]) if style.after else y)
    x = norm(x, params["norm"])
    logits = x @ (params["embedding"].T if config.tied else params["readout"])
    return _cap(logits, config.logit_cap)


def _times(x: np.ndarray, part) -> np.ndarray:
    return x @ part["kernel"] + part.get("bias", 0)


def _cap(x: np.ndarray, cap: float | None) -> np.ndarray:
    return x if cap is None else cap * np.tanh(x / cap)


def _mlp(gate: str, params, x: np.ndarray) -> np.ndarray:
    z = _times(x, params["gate"])
    if gate == "silu":
        z = z / (1 + np.exp(-z))
    else:
        z = z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    return _times(z * _times(x, params["in"]), params["out"])


def _attend(config: Config, params, x, rotation: Rotation, seen, norm) -> np.ndarray:
    """Each head by itself; `key_heads` of the keys' in turn serve as many queries'."""
    width, heads = config.head_width, []

    def head(name: str, number: int) -> np.ndarray:
        y = _times(x, params[name])[:, number * width : (number + 1) * width]
        if name == "value":
            return y
        if llama.STYLES[config.style].normed:
            y = norm(y, params[f"{name}_norm"])
        return _rotate(y, rotation)

    for number in range(config.num_heads):
        shared = number // (config.num_heads // config.key_heads)
        scale = width**-0.5 if config.scale is None else config.scale
        scores = head("query", number) @ head("key", shared).T * scale
        scores = np.where(seen, _cap(scores, config.score_cap), -np.inf)
        weight = np.exp(scores - scores.max(-1, keepdims=True))
        heads.append(weight / weight.sum(-1, keepdims=True) @ head("value", shared))
    return _times(np.concatenate(heads, axis=-1), params["out"])


def _rotate(x: np.ndarray, rotation: Rotation) -> np.ndarray:
    """Features as complex numbers, turned by an angle a position."""
    half = x.shape[1] // 2
    turning = [rotation.base ** (-k / half) for k in range(half)]
    if rotation.stretch is not None:
        turning = [stretched(rotation.stretch, each) for each in turning]
    angle = np.arange(len(x))[:, None] * np.array(turning) / rotation.slower
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angle)
    return np.concatenate([turned.real, turned.imag], axis=1)


def stretched(stretch: Stretch, frequency: float) -> float:
    """Llama 3.1's frequency of a rotation, by its wavelength."""
    wavelength = 2 * np.pi / frequency
    if wavelength < stretch.original / stretch.high:
        return frequency
    if wavelength > stretch.original / stretch.low:
        return frequency / stretch.factor
    at_most = stretch.high - stretch.low
    smooth = (stretch.original / wavelength - stretch.low) / at_most
    return (1 - smooth) * frequency / stretch.factor + smooth * frequency
