"""A speculative text beside a baseline's: place by place, and in numbers.

What `divergence` compares: texts, their logits, and whether rounding explains where
they part.
Axes: E evaluations, N texts, B rows of a batch, T generated tokens, L buffer, V
vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Text(NamedTuple):
    """tokens [B, L] with the prompt; ids [B, T] generated, -1 after the end; logits
    [E, B, T, V] that chose them, of each of E evaluations."""

    tokens: Array
    ids: np.ndarray
    logits: Array


class Places(NamedTuple):
    """A baseline's and a speculative text, place by place, [N, T]. live: either is
    written here, and they are equal before. differ: they part here. margin: m = z1 - z2
    of the baseline. gap: z1 less the logit of the token that speculation emitted. eps:
    max `|z_AR - z_spec|` over V and evaluations. shift: how much of m the speculative
    logits take away. tv: of the two laws at T = 1. lost: a text's token is not the
    argmax of its own logits."""

    live: np.ndarray
    differ: np.ndarray
    margin: np.ndarray
    gap: np.ndarray
    eps: np.ndarray
    shift: np.ndarray
    tv: np.ndarray
    lost: np.ndarray


class Comparison(NamedTuple):
    """What N texts are beside a baseline's: identical + explained + unexplained = N.
    places, lost: how many are live, and of them lost (see `Places`). equal: the share
    of places whose logits are bitwise equal. tv_bound: of one token's law, by eps_max
    at T = 1. Rates a place: bound, P(m <= 2 eps_max); expected, P(shift >= m) if the
    two were independent; observed, of divergences."""

    texts: int
    identical: int
    explained: int
    unexplained: int
    places: int
    lost: int
    equal: float
    eps_max: float
    eps_mean: float
    tv_max: float
    tv_bound: float
    bound: float
    expected: float
    observed: float


class Oracle(NamedTuple):
    """Speculative texts in one full forward: tokens, how many of them are further than
    2 eps below the largest logit, and the largest eps."""

    tokens: int
    below: int
    eps_max: float


def compare(base: Text, text: Text) -> Places:
    """`text` is speculative; of `base`, the first evaluation counts."""
    same = base.ids == text.ids
    before = np.cumprod(np.pad(same, ((0, 0), (1, 0)), constant_values=True), axis=1)
    live = before[:, :-1].astype(bool) & ((base.ids >= 0) | (text.ids >= 0))
    measured = jax.device_get(
        _measured(base.logits[0], text.logits, base.ids, text.ids)
    )
    return Places(live, live & ~same, *measured)


@jax.jit
def _measured(base: Array, logits: Array, ids: Array, emitted: Array):
    """Places.margin to Places.lost."""
    (first, second), best = (jnp.moveaxis(x, -1, 0) for x in jax.lax.top_k(base, 2))
    at_best = _at(logits[0], best[0]) - _at(logits[0], best[1])
    gap = jnp.where(emitted < 0, jnp.inf, first - _at(base, emitted))
    apart = jnp.max(_apart(base, logits), axis=(0, -1))
    p_base, p_text = jax.nn.softmax(jnp.stack([base, logits[0]]))
    tv = jnp.abs(p_base - p_text).sum(-1) / 2
    lost = (base.argmax(-1) != ids) | (logits[0].argmax(-1) != emitted)
    margin = first - second
    return margin, gap, apart, margin - at_best, tv, lost


def _apart(base: Array, other: Array) -> Array:
    """`|one - other|`, 0 where both are -inf."""
    return jnp.where(base == other, 0.0, jnp.abs(base - other))


def _at(logits: Array, ids: Array) -> Array:
    return jnp.take_along_axis(logits, jnp.maximum(ids, 0)[..., None], axis=-1)[..., 0]


def join(batches: Sequence[Places]) -> Places:
    """[B, T] each -> [N, T]."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *batches)


def summarize(places: Places) -> Comparison:
    """Whether each divergence is explained by the eps up to there, and rates."""
    live, differ = places.live, places.differ
    eps = np.maximum.accumulate(np.where(live, places.eps, 0.0), axis=1)
    explained = int(np.sum(differ & (places.gap <= 2 * eps)))
    margin, shift = places.margin[live], np.sort(places.shift[live])
    most, count = float(places.eps[live].max()), int(live.sum())
    beaten = shift.size - np.searchsorted(shift, margin)  # shifts of m or more
    return Comparison(
        len(live),
        len(live) - int(differ.sum()),
        explained,
        int(differ.sum()) - explained,
        count,
        int(places.lost[live].sum()),
        float(np.mean(places.eps[live] == 0)),
        most,
        float(places.eps[live].mean()),
        float(places.tv[live].max()),
        float(min(np.expm1(2 * most) / 2, 1.0)),
        float(np.mean(margin <= 2 * most)),
        float(np.mean(beaten / shift.size)),
        float(differ.sum() / count),
    )


def oracle(places: Places) -> Oracle:
    """places: beside the full forward; eps is that of a whole text."""
    eps = np.where(places.live, places.eps, 0.0).max(1, keepdims=True)
    below = places.live & ~(places.gap <= 2 * eps)
    return Oracle(int(places.live.sum()), int(below.sum()), float(eps.max()))
