"""A step of beam search: running beams and finished texts after one token more.

The arithmetic is that of transformers (`GenerationMixin._beam_search`). Of equal
scores the one of the better beam comes first, then the lowest id. Axes: B rows, W
beams, N most tokens of a text, V vocabulary, E ids that end a text, K candidates.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import finite
from specjax.beam.settings import NEVER
from specjax.step import is_end


class Beams(NamedTuple):
    """The hypotheses of each row, the best first.

    tokens [B, W, N], score [B, W]: of running beams, which all have `num` [B] tokens;
    the score is the sum of log p in float32, -inf where there is no beam.
    finished [B, W, N], length [B, W], final [B, W]: of finished texts; `final` is the
    score divided for the length, -inf where there is no text.
    ended [B]: whether the row's search is over. lost [B]: 0, or the mark of the model
    whose logits were not finite (`specjax.finite`).
    """

    tokens: Array
    score: Array
    num: Array
    finished: Array
    length: Array
    final: Array
    ended: Array
    lost: Array


class Limits(NamedTuple):
    """The limits of each row, which never change during a search.

    most: [B], new tokens at which a text ends. eos: [B, E] ids that each end it, -1 for
    none. divisor: [N + 1], what a score is divided by at each length.
    """

    most: Array
    eos: Array
    divisor: Array


class Children(NamedTuple):
    """The beams that continue others, [B, W] or [B, K]: the parent and the new token of
    each."""

    parent: Array
    token: Array


class Step(NamedTuple):
    """A step of beam search: the beams after it, and the running ones as children.

    floor [B]: a continuation that scores less, or continues a beam that does, makes
    no difference to the step.
    """

    beams: Beams
    children: Children
    floor: Array


def initial_beams(batch: int, width: int, most: int) -> Beams:
    """Returns the beams before the first step: one in each row, without tokens."""
    texts = jnp.zeros((batch, width, most), jnp.int32)
    none = jnp.full((batch, width), -jnp.inf)
    zero = jnp.zeros(batch, jnp.int32)
    return Beams(
        tokens=texts,
        score=none.at[:, 0].set(0.0),
        num=zero,
        finished=texts,
        length=jnp.zeros((batch, width), jnp.int32),
        final=none,
        ended=zero > 0,
        lost=zero,
    )


def add_logs(score: Array, logits: Array) -> Array:
    """Returns the scores of all continuations, [B, W, V] float32.

    score: [B, W]. logits: [B, W, V]; those that are NaN stand for -inf. What goes on
    from no beam scores -inf.
    """
    logits = jnp.where(jnp.isnan(logits), -jnp.inf, logits.astype(jnp.float32))
    alive = (score > -jnp.inf)[..., None]
    logs = jax.nn.log_softmax(jnp.where(alive, logits, 0.0), axis=-1)
    return jnp.where(alive, score[..., None] + logs, -jnp.inf)


def best(scores: Array, count: int) -> tuple[Array, Children]:
    """Returns the best `count` continuations of scores [B, W, V], the best first: the
    score of each, and the beam and the token that it comes from."""
    batch, width, vocab = scores.shape
    top = jax.lax.top_k(scores.reshape(batch, width * vocab), count)
    # A slice of the result that XLA moves into it would make it a sort of everything.
    top, at = jax.lax.optimization_barrier(top)
    return top, Children(at // vocab, at % vocab)


def advance(
    beams: Beams, logits: Array, limits: Limits, *, early_stopping: bool | str
) -> Step:
    """Returns one step of beam search.

    logits: [B, W, V], of the target after each running beam. Rows that have ended make
    a step too, which is not to be used.
    """
    width, vocab = logits.shape[1:]
    end_ids = limits.eos.shape[1]
    # As many candidates as leave W that go on, whatever ends.
    count = min(max(2, 1 + end_ids) * width, width * vocab)
    score, (parent, token) = best(add_logs(beams.score, logits), count)
    length = beams.num + 1  # of the candidates, an end among their tokens
    at_limit = (length >= limits.most)[:, None]
    ends_here = is_end(token, limits.eos) | at_limit

    going = jnp.where(ends_here, -jnp.inf, score)
    running, at = jax.lax.top_k(going, width)
    children = choose_children(Children(parent, token), at)
    tokens = append(beams.tokens, children, beams.num)

    # A candidate may finish only from among the best W.
    may = ends_here & (jnp.arange(count) < width)
    divisor = limits.divisor[jnp.minimum(length, limits.divisor.size - 1)][:, None]
    final = jnp.where(may, score / divisor, -jnp.inf)
    final, at = jax.lax.top_k(jnp.concatenate([beams.final, final], axis=1), width)
    new = at >= width
    of_new = jnp.maximum(at - width, 0)
    ends = choose_children(Children(parent, token), of_new)
    finished = jnp.where(
        new[..., None],
        append(beams.tokens, ends, beams.num),
        take(beams.finished, jnp.minimum(at, width - 1)),
    )
    kept = jnp.take_along_axis(beams.length, jnp.minimum(at, width - 1), axis=1)

    top = finite.largest(logits)
    lost = (~jnp.isfinite(top) & (beams.score > -jnp.inf)).any(1)
    goes_on = may_improve(
        running, final, length, limits=limits, early_stopping=early_stopping
    )
    after = Beams(
        tokens=tokens,
        score=running,
        num=length,
        finished=finished,
        length=jnp.where(new, length[:, None], kept),
        final=final,
        ended=lost | ~goes_on,
        lost=jnp.where(lost, finite.TARGET, 0),
    )
    floor = jnp.where(at_limit[:, 0], score[:, width - 1], running[:, -1])
    return Step(after, children, floor)


def may_improve(
    running: Array,
    final: Array,
    length: Array,
    *,
    limits: Limits,
    early_stopping: bool | str,
) -> Array:
    """Returns the rows whose search goes on, [B] bool; `BeamConfig.early_stopping`.

    running, final: [B, W], of the beams after a step. length: [B], of running beams.
    """
    divisor, last = limits.divisor, limits.divisor.size - 1
    most = divisor[jnp.minimum(length, last)]
    if early_stopping == NEVER and running.shape[1] > 1:
        # Sums of log p are negative: the largest divisor ahead is the most hopeful.
        most = jnp.maximum(most, divisor[jnp.minimum(limits.most, last)])
    going = running[:, 0] / most > final.min(axis=1)
    if early_stopping is True:
        going &= (final == -jnp.inf).any(axis=1)
    return going


def append(texts: Array, children: Children, count: Array) -> Array:
    """Returns the texts [B, K, N] of children [B, K], given those of their parents [B,
    W, N], which have `count` [B] tokens."""
    here = jnp.arange(texts.shape[2]) == count[:, None]
    grown = take(texts, children.parent)
    return jnp.where(here[:, None], children.token[..., None], grown)


def choose_children(children: Children, at: Array) -> Children:
    """Returns the children [B, W] in places `at` [B, W] of children [B, K]."""
    return Children(
        jnp.take_along_axis(children.parent, at, axis=1),
        jnp.take_along_axis(children.token, at, axis=1),
    )


def take(rows: Any, at: Array) -> Any:
    """Returns entries `at` [B, K] of each row's: [B, W, ...] -> [B, K, ...], of an
    array or of each leaf of a pytree."""
    one_row = jax.vmap(lambda row, index: row[index])
    return jax.tree.map(lambda leaf: one_row(leaf, at), rows)


def where(rows: Array, left: Beams, right: Beams) -> Beams:
    """Returns the beams of `left` in these rows [B], else of `right`."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(rows.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, left, right)
