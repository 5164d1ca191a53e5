"""The most that any exact rule keeps of so many tokens drawn for one place of a text.

By optimal transport a rule accepts one of K draws with probability at most p(H) + 1 -
Q(H) for any set H of ids, where Q(H) is the chance that all K draws are in H; of
independent draws the least of these bounds is reached (Sun et al. 2023,
https://arxiv.org/abs/2310.15141), by a set of the ids whose q / p is largest. Of draws
without replacement only such sets are looked at here, which leaves it a bound.
p is the target, q the drafter. Axes: N places, V vocabulary, K numbers of draws, T
points of time.
"""

import jax
import jax.numpy as jnp
from jax import Array


def replaced(p: Array, q: Array, most: int) -> Array:
    """Of 1 .. `most` independent draws from q [N, V] for p [N, V]: [N, K]. Of one it is
    beta."""
    p, q = by_ratio(p, q)
    inside = jnp.minimum(jnp.cumsum(q, axis=1), 1.0)[..., None]
    return least(p, inside ** jnp.arange(1, most + 1))


def distinct(p: Array, q: Array, most: int, points: int = 96) -> Array:
    """Of 1 .. `most` draws from q without replacement: [N, K].

    Ids that ring at rates q ring in the order of such draws. K draws are all in H if K
    of H ring before any other id does: the number of H that rang until t is a sum of
    coins of chances 1 - exp(-q t), and the first of the others rings at the rate of
    what q is left. Integrated by trapezoids, to about 5e-4.
    """
    p, q = by_ratio(p, q)
    time = jnp.geomspace(1e-2, 1e3, points)  # the first of all ids rings at about 1

    def further(carried: tuple, id_q: Array) -> tuple[tuple, Array]:
        """rang [N, T, K]: the chance that 0 .. K - 1 of H rang until each time."""
        rang, rest = carried
        coin = -jnp.expm1(-id_q[:, None] * time)[..., None]
        before = jnp.pad(rang[..., :-1], ((0, 0), (0, 0), (1, 0)))
        rang, rest = rang * (1 - coin) + before * coin, jnp.maximum(rest - id_q, 0.0)
        enough = 1 - jnp.cumsum(rang, axis=-1)
        alone = jnp.exp(-rest[:, None] * time)[..., None]  # no other id rang
        middle = (alone[:, 1:] + alone[:, :-1]) / 2
        grown = (middle * jnp.diff(enough, axis=1)).sum(1)
        return (rang, rest), enough[:, 0] + grown + alone[:, -1] * (1 - enough[:, -1])

    none = jnp.zeros((len(q), points, most), q.dtype).at[..., 0].set(1.0)
    inside = jax.lax.scan(further, (none, q.sum(1)), q.T)[1]  # [V, N, K]
    return least(p, jnp.moveaxis(inside, 0, 1))


def by_ratio(p: Array, q: Array) -> tuple[Array, Array]:
    """Both with ids in the order of q / p, the largest first."""
    order = jnp.argsort(jnp.where(q > 0, p / jnp.where(q > 0, q, 1.0), jnp.inf), axis=1)
    return jnp.take_along_axis(p, order, 1), jnp.take_along_axis(q, order, 1)


def least(p: Array, inside: Array) -> Array:
    """min over H of p(H) + 1 - Q(H), of the sets of the first ids: [N, K]. inside: Q of
    them [N, V, K]."""
    bounds = jnp.cumsum(p, axis=1)[..., None] + 1 - inside
    return jnp.minimum(1.0, bounds.min(axis=1))
