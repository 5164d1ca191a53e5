"""The acceptance rate of each child of a node, the first and the further ones, from
which trees are built.

It is the vector that Sequoia's tree is built from (Chen et al. 2024,
https://arxiv.org/abs/2402.12374, Section 3.1), measured at every token of texts that a
target wrote: children are drawn from the draft there and tried by recursive rejection,
but never taken.

Also measured is the most that any exact rule could accept of a number of children. By
optimal transport that is at most p(H) + 1 - Q(H) for any set H of ids, where Q(H) is
the probability that all K draws are in H. For independent draws the least of these
bounds is reached (Sun et al. 2023, https://arxiv.org/abs/2310.15141), by a set of the
ids with the largest q / p. For draws without replacement only such sets are examined
here, so the result is still a bound. Axes: B rows, T tokens, N = B T, K children, M
generated tokens, V vocabulary.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import keys, probs
from specjax.checkpoints import Pretrained
from specjax.drafters import best_first, tree
from specjax.drafts.source import DraftSource
from specjax.measure import scoring
from specjax.measure.texts import Text, keys_of, prompt_units
from specjax.types import Draft, Law
from specjax.verifiers import recursive, token

BOUNDED = 4  # draws for which bounds are worked out, by minutes each
POINTS = 96  # times at which `bound_without_replacement` is integrated
STREAM = 2  # of `texts.keys_of`: not the coins that the texts were written by


class Siblings(NamedTuple):
    """The acceptances of each of K children.

    rate, error: [K], the probability that a child is accepted if those before it were
      not, and its standard error over prompts, or over the texts of a single prompt;
      nan if there is one of them.
    floor: [K], the argument of `drafters.best_first.guess` that fits the rates.
    kept: [K], the probability that recursive rejection accepts one of the first 1 .. K.
    replaced, distinct: [BOUNDED], the most that any rule could accept of this many
      draws with and without replacement; empty for a greedy target, whose children are
      not drawn.
    """

    rate: np.ndarray
    error: np.ndarray
    floor: np.ndarray
    kept: np.ndarray
    replaced: np.ndarray
    distinct: np.ndarray


def measure(
    target: Pretrained,
    draft: DraftSource,
    text: Text,
    temperature: float,
    *,
    most: int = 8,
    seed: int = 0,
    prompts: int = 1,
    **truncation: Any,
) -> Siblings:
    """Returns the acceptances that trees are built from.

    Children are drawn without replacement; for a greedy target they are the most
    probable ids. No two tokens of the texts share a key. prompts: how many the texts
    continue in turns. truncation: top_k, top_p and min_p of both laws.
    """

    def score_siblings(
        p: Law, q: Law, written: Array, row_keys: Array
    ) -> tuple[Array, ...]:
        shape = written.shape
        count = written.size
        p, q = (_flatten(law, count) for law in (p, q))
        own = _token_keys(row_keys, shape[1])
        children = tree.children(own, q, jnp.zeros(1, int), most)[:, 0]
        parent = jnp.full((count, most), -1, jnp.int32)
        same = jax.tree.map(lambda x: jnp.repeat(x, most, 1), probs.per_row(q))
        drafts = Draft(
            children, jnp.full(count, most), probs.with_shared(same, q.logits), parent
        )
        never = token.Noise(jnp.full((count, most), jnp.inf), jnp.zeros((count, 2)))
        chance = recursive.verifier.verify(p, drafts, never).accept_prob
        before = jnp.cumprod(1 - chance, axis=1)
        tried = jnp.pad(before[:, :-1], ((0, 0), (1, 0)), constant_values=1.0)
        plain = jax.nn.softmax(probs.expand_logits(q.logits)[:, 0], axis=-1)
        share = best_first.shares(jnp.take_along_axis(plain, children, axis=1))
        dense_p, dense_q = probs.dense(p)[:, 0], probs.dense(q)[:, 0]
        bounds = (jnp.zeros((count, 0)),) * 2
        if bounded:
            bounds = tuple(
                bound(dense_p, dense_q, bounded)
                for bound in (bound_with_replacement, bound_without_replacement)
            )
        found = chance * tried, tried, share, *bounds
        return tuple(x.reshape(*shape, x.shape[-1]) for x in found)

    pair, bounded = (target, draft), min(BOUNDED, most) if temperature else 0
    own_keys = keys_of(seed, STREAM, np.arange(len(text.tokens)))
    taken, tried, share, *bounds, sequence = scoring.positions(
        pair, text, temperature, score_siblings, own_keys, **truncation
    )
    unit = np.unique(prompt_units(sequence, prompts), return_inverse=True)[1]
    count, tries = unit.max() + 1, np.maximum(tried.sum(0), 1e-9)
    rate = taken.sum(0) / tries
    off = np.zeros((count, most))  # of a ratio of sums, unit by unit
    np.add.at(off, unit, taken - rate * tried)
    scale = count / (count - 1) if count > 1 else np.nan
    error = np.sqrt(scale * (off**2).sum(0)) / tries
    # The floor f of f + (1 - f) share, by least squares over what was tried.
    room = 1 - share
    fitted = ((taken - tried * share) * room).sum(0) / (tried * room**2).sum(0)
    kept = 1 - np.cumprod(1 - rate)
    most_kept = (bound.mean(0) for bound in bounds)
    return Siblings(rate, error, np.clip(fitted, 0, 1), kept, *most_kept)


def _token_keys(row_keys: Array, tokens: int) -> Array:
    """Returns a key for each token of rows of `tokens` tokens, [B T], derived from its
    row's key [B]."""
    place = jnp.tile(jnp.arange(tokens), row_keys.size)
    return keys.iteration(jnp.repeat(row_keys, tokens), place)


def _flatten(law: Law, count: int) -> Law:
    """Returns a law [B, T] reshaped to [N, 1]."""
    own = probs.per_row(law)
    flat = jax.tree.map(lambda x: x.reshape(count, 1, *x.shape[2:]), own)
    return probs.with_shared(flat, law.logits)


def bound_with_replacement(p: Array, q: Array, most: int) -> Array:
    """Returns the most that any rule could accept of 1 .. `most` independent draws: [N,
    K].

    The draws are from q [N, V], for p [N, V]. The bound for one draw is beta.
    """
    p, q = sort_by_ratio(p, q)
    inside = jnp.minimum(jnp.cumsum(q, axis=1), 1.0)[..., None]
    return least_bound(p, inside ** jnp.arange(1, most + 1))


def bound_without_replacement(p: Array, q: Array, most: int) -> Array:
    """Returns the most that any rule could accept of 1 .. `most` draws from q without
    replacement: [N, K].

    Let ids ring at rates q; they then ring in the order of such draws. All K draws are
    in H if K ids of H ring before any other id does. The number of H that rang until t
    is a sum of independent events with probabilities 1 - exp(-q t), and the first of
    the other ids rings at the rate of the rest of q. It is integrated by trapezoids
    over T = POINTS times, to about 5e-4.
    """
    p, q = sort_by_ratio(p, q)
    time = jnp.geomspace(1e-2, 1e3, POINTS)  # the first of all ids rings at about 1

    def add_id(carried: tuple, id_q: Array) -> tuple[tuple, Array]:
        """Adds an id to H.

        rang: [N, T, K], the probability that 0 .. K - 1 ids of H rang until each time.
        """
        rang, rest = carried
        coin = -jnp.expm1(-id_q[:, None] * time)[..., None]
        before = jnp.pad(rang[..., :-1], ((0, 0), (0, 0), (1, 0)))
        rang, rest = rang * (1 - coin) + before * coin, jnp.maximum(rest - id_q, 0.0)
        enough = 1 - jnp.cumsum(rang, axis=-1)
        alone = jnp.exp(-rest[:, None] * time)[..., None]  # no other id rang
        middle = (alone[:, 1:] + alone[:, :-1]) / 2
        grown = (middle * jnp.diff(enough, axis=1)).sum(1)
        return (rang, rest), enough[:, 0] + grown + alone[:, -1] * (1 - enough[:, -1])

    none = jnp.zeros((len(q), POINTS, most), q.dtype).at[..., 0].set(1.0)
    inside = jax.lax.scan(add_id, (none, q.sum(1)), q.T)[1]  # [V, N, K]
    return least_bound(p, jnp.moveaxis(inside, 0, 1))


def sort_by_ratio(p: Array, q: Array) -> tuple[Array, Array]:
    """Returns p and q with ids in the order of q / p, the largest first."""
    order = jnp.argsort(jnp.where(q > 0, p / jnp.where(q > 0, q, 1.0), jnp.inf), axis=1)
    return jnp.take_along_axis(p, order, 1), jnp.take_along_axis(q, order, 1)


def least_bound(p: Array, inside: Array) -> Array:
    """Returns min over H of p(H) + 1 - Q(H), where H runs over the sets of first ids:
    [N, K].

    inside: Q of these sets, [N, V, K].
    """
    bounds = jnp.cumsum(p, axis=1)[..., None] + 1 - inside
    return jnp.minimum(1.0, bounds.min(axis=1))
