"""Cells of a verifier's noise, in each of which its verdict is constant, for `certify`.

Axes: N drafts, G = gamma, V vocabulary, K cells, P = 4 points of each: near a corner,
in the middle, near the opposite corner, and an arbitrary one, at which only the support
of the emitted tokens is checked."""

import itertools
from typing import Any, NamedTuple

import numpy as np

from specjax.verifiers import match, token

EDGE = 1e-5  # how far points keep from the sides of a cell: more than rounding moves


class Situation(NamedTuple):
    """The laws and the drafts that a rule verifies.

    p [N, G + 1, V], q [N, G, V]: the laws, float64. drafts [N, G]; live [G] bool.
    reported: [N, G], the `accept_prob` of the verifier itself. parent: [G], of each
    node of a tree the row of p that it follows; None is a chain. siblings: how its
    nodes were drawn, as in `specjax.types.Drafter`."""

    p: np.ndarray
    q: np.ndarray
    drafts: np.ndarray
    live: np.ndarray
    reported: np.ndarray
    parent: np.ndarray | None = None
    siblings: str = ""


class Cells(NamedTuple):
    """Points in every cell of the noise.

    noise: leaves [N, K, P, ...]. volume: [N, K], adding up to 1 over K. sample: [N, K,
    P, 2], the uniforms that draw the extra token from its residual. path: [N, K, G +
    1], the tokens that should be emitted up to the end of the verdict, or None."""

    noise: Any
    volume: np.ndarray
    sample: np.ndarray
    path: np.ndarray | None = None


def uniform_cells(at: Situation, dtype: str) -> Cells:
    """Returns the cells of uniforms u [G] that are compared with the reported
    `accept_prob`.

    The uniforms of the extra token are spread over [0, 1)^2: its draw is compared with
    that of `probs.pick` from the residual, and the whole residual is weighed."""
    count, gamma = at.drafts.shape
    below = np.array(list(itertools.product((True, False), repeat=gamma)))
    limits = np.clip(np.where(at.live, at.reported, 0.5), 0.0, 1.0)[:, None]
    low, high = np.where(below, 0.0, limits), np.where(below, limits, 1.0)
    corner = np.where(below, 0.0, 1.0)
    u, volume = points(low, high, np.broadcast_to(corner, low.shape), dtype)
    sample = spread((count, len(below), 4), dtype)
    noise: Any = token.Noise
    return Cells(noise(u, sample), volume.prod(-1), sample)


def sample_cells(at: Situation, dtype: str) -> Cells:
    """Returns the cells of uniforms that draw one token at every slot: one cell per
    choice of tokens."""
    path, p, volume = _paths(at)
    total = np.cumsum(p, axis=-1)
    high = gather(total, path)
    low = high - gather(p, path)
    corner = np.where(np.arange(path.shape[1])[:, None] % 2, 0.0, 1.0)
    inside, _ = points(low, high, np.broadcast_to(corner, low.shape), dtype)
    # Fewer than BLOCK ids are one block, whatever the uniform that chooses it.
    block = spread(inside.shape, dtype)[..., 0]
    both: Any = np.stack([block, inside], axis=-1)
    noise = match.Noise(both)
    return Cells(noise, volume, spread(inside.shape[:3], dtype), path)


def gumbel_cells(at: Situation, dtype: str) -> Cells:
    """Returns the cells of Gumbel variables g [G + 1, V], one for each choice of
    winners of log p + g.

    The volume of a cell is the product of the winners' p, which is the Gumbel-max
    theorem."""
    path, p, volume = _paths(at)
    with np.errstate(divide="ignore"):
        ahead = np.where(p > 0, -np.log(p), 0.0)  # with it all ids of p > 0 are level
    wins = path[..., None] == np.arange(p.shape[-1])
    rng = np.random.default_rng(0)
    noise = rng.gumbel(size=wins.shape)
    # Given the winner, the largest is Gumbel and the others are cut there.
    largest = rng.gumbel(size=wins.shape[:-1])[..., None]
    cut = -np.log(np.exp(-largest) + np.exp(-noise))
    lead = np.stack([EDGE * wins, np.where(wins, largest, cut), 30.0 * wins], axis=2)
    anywhere = rng.choice([-4.5, 0.0, 31.9], wins.shape)
    g = np.concatenate([ahead[:, :, None] + lead, anywhere[:, :, None]], axis=2)
    return Cells(g.astype(dtype), volume, spread(g.shape[:3], dtype), path)


def _paths(at: Situation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns tokens [N, K, G + 1], their laws [N, K, G + 1, V] and their weights [N,
    K]."""
    count, slots, vocab = at.p.shape
    path = np.array(list(itertools.product(range(vocab), repeat=slots)))
    path = np.broadcast_to(path, (count, *path.shape))
    p = np.broadcast_to(at.p[:, None], (*path.shape, vocab))
    return path, p, gather(p, path).prod(-1)


def points(
    low: np.ndarray, high: np.ndarray, corner: np.ndarray, dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns four uniforms [N, K, 4, S] for sides [N, K, S] of cells, and their
    lengths.

    The last point is next to `corner`, 0 or 1. A side that spans only a few
    floating-point numbers has no room for a point inside, and counts as empty."""
    side = high - low
    near = np.minimum(side / 4, EDGE)
    u = np.stack([low + near, (low + high) / 2, high - near, corner], axis=2)
    below_one = 1 - np.finfo(dtype).epsneg
    narrow = 4 * np.finfo(dtype).epsneg
    return np.minimum(u, below_one).astype(dtype), np.where(side < narrow, 0.0, side)


def spread(shape: tuple, dtype: str) -> np.ndarray:
    """Returns pairs of uniforms `[*shape, 2]`, 0 and the largest below 1 among them."""
    count = int(np.prod(shape))
    pairs = np.arange(1, count + 1)[:, None] * [0.7548776662, 0.5698402910] % 1
    pairs[::5], pairs[1::5] = 0.0, 1 - np.finfo(dtype).epsneg
    return pairs.reshape(*shape, 2).astype(dtype)


def gather(law: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Returns law [..., V] at ids [...], broadcast."""
    law = np.broadcast_to(law, (*ids.shape, law.shape[-1]))
    return np.take_along_axis(law, ids[..., None], axis=-1)[..., 0]


def divide(a: np.ndarray, b: np.ndarray, otherwise: float = 0.0) -> np.ndarray:
    """Returns a / b, and `otherwise` where b is 0."""
    a, b = np.broadcast_arrays(a, b)
    return np.divide(a, b, out=np.full(b.shape, otherwise), where=b > 0)
