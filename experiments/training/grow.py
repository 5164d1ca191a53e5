"""Creates a larger model that computes the same function: wider and deeper (Net2Net).

Chen, Goodfellow & Shlens (2016), https://arxiv.org/abs/1511.05641. Every unit is copied
as often as the larger width requires, and the weights that read it are divided among
the copies; an added layer adds zero. All features are copied equally often, so that the
mean square in a norm does not change, and heads are copied whole, so that each is
rotated by its position as before.
"""

import zlib
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from specjax.models import families, whisper
from specjax.models.families import Config
from specjax.models.whisper import sinusoids

READ = ("kernel", "readout")  # the names of weights that read along their first axis
LAST = ("out", "wo")  # the products that end what a layer adds
SIZES = ("dim", "mlp_dim", "num_heads", "key_heads", "dtype", "joined")
DEPTHS = ("num_layers", "encoder_layers", "decoder_layers")


def grow(
    small: Config, params: Any, large: Config, *, noise: float = 0.0, seed: int = 0
):
    """Returns parameters of `large` that give the same logits as `params` of `small`.

    Args:
        noise: how much the weights that read the copies of one unit differ initially,
            relative to their root mean square. It cancels in the sum over the copies;
            without it the copies would stay equal forever.
        seed: the seed of the noise.
    """
    if isinstance(small, whisper.Config):
        return _speech(small, params, large)
    check(small, large)
    shapes = flatten_dict(families.of(large).abstract_params(large))
    placed = {}
    for path, leaf in flatten_dict(_deepen(params, small, large)).items():
        rng = np.random.default_rng([seed, zlib.crc32("/".join(path).encode())])
        leaf = np.asarray(leaf, np.float32)
        placed[path] = _widen(leaf, shapes[path].shape, path[-1] in READ, noise, rng)
    return unflatten_dict(placed)


def check(small: Config, large: Config) -> None:
    """Raises ValueError unless `large` can compute everything that `small` computes."""
    if type(small) is not type(large):
        raise ValueError("a model grows within its family: gpt, llama or t5")
    for name in small._fields:
        kept = name not in (*SIZES, *DEPTHS)
        if kept and getattr(small, name) != getattr(large, name):
            raise ValueError(f"growth keeps {name}: {getattr(small, name)}")
    if small.tied:
        raise ValueError("a tied readout would count every feature twice")
    if large.head_width != small.head_width or large.dim % small.dim:
        raise ValueError(
            f"growth keeps the head width, {small.head_width}, and multiplies dim,"
            f" {small.dim}, by a whole number"
        )
    heads = [
        (it.num_heads, getattr(it, "key_heads", it.num_heads)) for it in (small, large)
    ]
    before, after = (many / few for many, few in heads)
    if before != after:
        raise ValueError(f"growth keeps how many heads share a key: {before:g}")
    for name in ("mlp_dim", "num_heads", *DEPTHS):
        if getattr(large, name, 0) < getattr(small, name, 0):
            raise ValueError(f"growth makes nothing smaller: {name}")


def _speech(small: whisper.Config, params: Mapping, large: whisper.Config) -> dict:
    """Returns a Whisper for longer windows, whose positions are untrained, with more
    decoder layers: each a copy of the last one, without effect.
    """
    kept = large._replace(frames=small.frames, decoder_layers=small.decoder_layers)
    if kept != small or large.decoder_layers < small.decoder_layers:
        raise ValueError("a Whisper grows in frames and in decoder layers alone")
    encoder, decoder = dict(params["encoder"]), dict(params["decoder"])
    if large.frames != small.frames:
        encoder["positions"] = jnp.asarray(sinusoids(large.states, large.dim))
    last = decoder[f"layers_{small.decoder_layers - 1}"]
    for i in range(small.decoder_layers, large.decoder_layers):
        decoder[f"layers_{i}"] = _without_output(last)
    return {**params, "encoder": encoder, "decoder": decoder}


def _widen(
    leaf: np.ndarray, shape: tuple, read: bool, noise: float, rng: np.random.Generator
) -> np.ndarray:
    """Copies entries along every axis that grows; if `read`, entries of the first axis
    are divided by the number of copies.
    """
    first = np.arange(shape[0]) % leaf.shape[0]
    for axis, size in enumerate(shape):
        leaf = np.take(leaf, np.arange(size) % leaf.shape[axis], axis)
    copies = np.bincount(first)
    if not read or copies.max() == 1:
        return leaf
    apart = noise * np.sqrt(np.mean(leaf**2)) * rng.normal(size=shape)
    total = np.zeros((copies.size, *shape[1:]))
    np.add.at(total, first, apart)
    apart -= (total / copies[:, None])[first]
    apart[copies[first] == 1] = 0  # what was not copied has nothing to cancel with
    return (leaf / copies[first][:, None] + apart).astype(np.float32)


def _deepen(params: Mapping, small: Config, large: Config) -> dict:
    """Adds layers at even distances: each is a copy of the layer that follows it,
    without effect."""
    grown = dict(params)
    for stack in ("encoder", "decoder") if "encoder" in params else ("",):
        name = f"{stack}_layers" if stack else "num_layers"
        tree = dict(params[stack]) if stack else grown
        before, after = getattr(small, name), getattr(large, name)
        places = [(i + 1) * after // before - 1 for i in range(before)]
        layers = [tree.pop(f"layers_{i}") for i in range(before)]
        for place in range(after):
            layer = layers[next(i for i, at in enumerate(places) if at >= place)]
            tree[f"layers_{place}"] = (
                layer if place in places else _without_output(layer)
            )
        grown |= {stack: tree} if stack else {}
    return grown


def _without_output(layer: Mapping) -> dict:
    flat = flatten_dict(layer).items()
    return unflatten_dict({p: x * 0 if p[-2] in LAST else x for p, x in flat})
