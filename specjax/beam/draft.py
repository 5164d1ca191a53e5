"""The draft of a step: the levels of beams that a smaller model would search next.

Leviathan et al. (2023), Appendix A.4: beam search with M_q and beam width u >= w for
gamma steps, from the target's running beams and their scores. The first w beams of each
level are those that a search of width w would keep, so that a draft which agrees with
its target has all of its beams; the others are the best of the rest. The draft's cache
lies as the target's does. Axes: B rows, W running beams, U drafted ones, G = gamma
levels, S slots, V vocabulary.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import finite, probs
from specjax.beam import hypotheses, slots
from specjax.beam.hypotheses import Beams, Children
from specjax.beam.slots import Place
from specjax.step import is_end
from specjax.types import Model


class Levels(NamedTuple):
    """The drafted beams, level by level.

    token: [G, B, U]. parent: [G, B, U], which of the level before each goes on from, of
    the first level which running beam. path: [G, B, U, S], slots of the text before
    each. finite: [B], whether the draft's logits were.
    """

    token: Array
    parent: Array
    path: Array
    finite: Array


class Level(NamedTuple):
    """A level as it is drafted; score [B, U] is -inf where there is no beam."""

    score: Array
    token: Array
    parent: Array
    path: Array


def propose(
    model: Model,
    params: Any,
    cache: Any,
    *,
    beams: Beams,
    token: Array,
    place: Place,
    eos: Array,
    gamma: int,
    drafted: int,
) -> tuple[Levels, Any]:
    """Returns the draft of a step and the draft's cache, which has read all of it.

    Args:
      model, params, cache: of the draft.
      beams: the running beams.
      token: [B, W], their last tokens.
      place: the place of the running beams in both caches.
      eos: [B, E], the ids that end a text; no level has a beam that has ended.
      gamma: G, at least 1.
      drafted: U, at least W.
    """
    start, width = slots.first_slot(place), token.shape[1]

    def read(cache: Any, level: Level, begin: Array) -> tuple[Any, Any]:
        tree = slots.branches(place, level.path, begin, drafted=drafted)
        return model.apply(params, level.token, begin, cache, tree)

    def grow(features: Any, level: Level, begin: Array) -> tuple[Level, Array]:
        """Returns the next level, and whether the logits of this one were finite."""
        logits = probs.expand_logits(model.readout(params, features))
        top = finite.largest(logits)
        sound = (jnp.isfinite(top) | (level.score == -jnp.inf)).all(1)
        scores = hypotheses.add_logs(level.score, logits)
        ids = jnp.broadcast_to(jnp.arange(scores.shape[2]), scores[:, 0].shape)
        scores = jnp.where(is_end(ids, eos)[:, None], -jnp.inf, scores)
        score, (parent, token) = choose(scores, width, drafted)
        count = level.token.shape[1]
        own = begin[:, None] + jnp.arange(count)
        return Level(score, token, parent, slots.extend(level.path, parent, own)), sound

    def draft_level(carried: tuple, begin: Array) -> tuple:
        level, cache, sound = carried
        features, cache = read(cache, level, begin)
        after, now = grow(features, level, begin)
        return (after, cache, sound & now), level

    none = jnp.zeros_like(token)
    running = Level(beams.score, token, none, place.path)
    features, cache = read(cache, running, start)
    level, sound = grow(features, running, start)
    begins = start + width + drafted * jnp.arange(gamma)[:, None]
    carried: Any = level, cache, sound
    scanned: Any = jax.lax.scan(draft_level, carried, begins[:-1])
    (level, cache, sound), before = scanned
    _, cache = read(cache, level, begins[-1])
    levels = jax.tree.map(
        lambda rows, last: jnp.concatenate([rows, last[None]]), before, level
    )
    return Levels(levels.token, levels.parent, levels.path, sound), cache


def choose(scores: Array, width: int, drafted: int) -> tuple[Array, Children]:
    """Returns the beams [B, U] of the next level, chosen by scores [B, K, V]: the score
    of each, and the beam and the token that it comes from. The first W are those of a
    search of width W.

    Where there are fewer continuations than U, others score -inf."""
    score, first = hypotheses.best(scores[:, :width], width)
    more = min(drafted - width, scores[0].size)
    taken = jax.vmap(lambda row, at: row.at[at.parent, at.token].set(-jnp.inf))
    other, further = hypotheses.best(taken(scores, first), more)
    lacking = jnp.full((len(score), drafted - width - more), -jnp.inf)

    def join(a: Array, b: Array) -> Array:
        return jnp.concatenate([a, b, jnp.zeros(lacking.shape, a.dtype)], axis=1)

    score = jnp.concatenate([score, other, lacking], axis=1)
    return score, jax.tree.map(join, first, further)
