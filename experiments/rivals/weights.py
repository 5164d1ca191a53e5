"""A T5 target and a draft whose greedy texts agree a chosen share of the time.

Nothing is trained. The vocabulary is a circle: one rotation turns the embedding of an
id into that of its successor. The MLP of the first decoder layer contains that
rotation, so both models, which differ in size and random numbers, count along the same
circle. All other kernels are random and disturb the result: every likelihood depends on
them, and so does the place where a text begins. A draft is wrong where ids are
misplaced on its circle, a chosen share of them, exchanged at random, and where the
target leaves the circle. Axes: V vocabulary, E features, F hidden units.
"""

from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from specjax import checkpoints
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftSource
from specjax.models import t5

# Pad, end and unknown: with embeddings of zeros none of them is ever the argmax, so a
# text has the length that was asked for in every engine, with no rule about ends.
SPECIAL = 3


class Side(NamedTuple):
    """The target or the draft: its sizes, and how much its weights are disturbed.

    Attributes:
        disturbance: the size of the output of a random sublayer of the decoder,
            relative to 1.
        misplaced: the share of the ids that are not at their place on the circle.
    """

    config: t5.Config
    disturbance: float
    misplaced: float = 0.0


class Pair(NamedTuple):
    target: Pretrained
    draft: DraftSource


def config(vocab: int, dim: int, heads: int, layers: int, width: int = 64) -> t5.Config:
    """Returns T5 v1.1 with relu, a tied readout, and feed-forward layers four times as
    wide.
    """
    options = dict(gated=False, tied=True)
    return t5.Config(vocab, dim, 4 * dim, layers, layers, heads, width, **options)


# T5-small's own sizes, 60.5M parameters, and a draft of 11.9M.
SMALL = Side(config(32128, 512, 8, 6), 0.7), Side(config(32128, 256, 4, 2), 0.3, 0.13)
TINY = Side(config(96, 32, 2, 2, 8), 0.5), Side(config(96, 16, 2, 1, 8), 0.1, 0.1)
SIZES = {"small": Pair(*SMALL), "tiny": Pair(*TINY)}


def write(pair: Pair, folder: Path, seed: int) -> tuple[Path, Path]:
    """Writes two folders of Hugging Face, `target` and `draft`."""
    paths = folder / "target", folder / "draft"
    for number, (path, side) in enumerate(zip(paths, pair, strict=True)):
        checkpoints.save(path, (side.config, build(side, seed, number)))
    return paths


def build(side: Side, seed: int, number: int) -> dict:
    """Returns the float32 parameters of one model.

    Args:
        seed: the seed of the circle, which both models of a pair share.
        number: the seed of everything else.

    Raises:
        ValueError: the model is too narrow.
    """
    config, random = side.config, np.random.default_rng([seed, number])
    if not config.tied or config.gated or config.mlp_dim < 2 * config.dim:
        raise ValueError(
            "the rotation needs a tied embedding and a relu MLP at least twice as wide"
            f" as the model; got {config}"
        )
    shapes = flatten_dict(t5.abstract_params(config), sep="/")
    flat = {
        name: kernel(random, name, leaf.shape, side) for name, leaf in shapes.items()
    }
    order = np.random.default_rng(seed).permutation(config.vocab)
    moved = random.permutation(config.vocab)[: round(side.misplaced * config.vocab)]
    order[np.sort(moved)] = order[moved]
    table, rotation = circle(random, order, config.dim)
    flat["token_embedder/embedding"] = table
    into, out = (flat[f"decoder/layers_0/mlp/{name}/kernel"] for name in ("wi", "wo"))
    write_rotation(into, out, rotation)
    return unflatten_dict({k: jnp.asarray(v) for k, v in flat.items()}, sep="/")


def kernel(
    random: np.random.Generator, name: str, shape: tuple[int, ...], side: Side
) -> np.ndarray:
    """Returns ones for a norm, else normal numbers scaled so that outputs are as large
    as inputs.
    """
    if name.endswith("scale"):
        return np.ones(shape, np.float32)
    if name.endswith("embedding"):  # the circle's, or of distances
        return random.standard_normal(shape, np.float32)
    scale = shape[0] ** -0.5
    if "/query/" in name:  # T5 does not scale its scores
        scale *= side.config.head_width**-0.5
    if name.startswith("decoder") and name.split("/")[-2] in ("out", "wo"):
        scale *= side.disturbance
    return scale * random.standard_normal(shape, np.float32)


def circle(
    random: np.random.Generator, order: np.ndarray, dim: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the embeddings of points on a circle, and the rotation that maps each to
    the next.

    The embeddings [V, E] are of ids in this order along the circle, of mean square 1,
    and 0 for SPECIAL; the rotation [E, E] leads from each to that of its successor.
    """
    angle, first = 2 * np.pi * random.random((2, dim // 2))
    place = np.empty(order.size)
    place[order] = np.arange(order.size)
    turned = place[:, None] * angle + first
    table = 2**0.5 * np.concatenate([np.cos(turned), np.sin(turned)], axis=1)
    table[:SPECIAL] = 0
    cos, sin = np.diag(np.cos(angle)), np.diag(np.sin(angle))
    rotation = np.block([[cos, sin], [-sin, cos]])
    return table.astype(np.float32), rotation.astype(np.float32)


def write_rotation(into: np.ndarray, out: np.ndarray, rotation: np.ndarray) -> None:
    """Writes x -> x (rotation - 1) into the weights of a relu MLP, [E, F] and [F, E].

    relu(x) - relu(-x) is x. The units that are not needed stay random.
    """
    dim = rotation.shape[0]
    eye, rest = np.eye(dim, dtype=np.float32), rotation - np.eye(dim, dtype=np.float32)
    into[:, :dim], into[:, dim : 2 * dim] = eye, -eye
    out[:dim], out[dim : 2 * dim] = rest, -rest


def prompts(*, count: int, length: int, vocab: int, seed: int) -> np.ndarray:
    """Returns inputs for the encoder, [count, length] int32, without special ids."""
    random = np.random.default_rng([seed, 2])
    return random.integers(SPECIAL, vocab, (count, length)).astype(np.int32)
