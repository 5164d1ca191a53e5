"""Sample and compare: draws from the target at every slot, keeps a draft that agrees.

It is exact for any draft, whatever it was drawn from, because every emitted token is
the target's own sample: on a mismatch it is that sample, never another draw. A sampled
draft is kept with probability sum_x p(x) q(x), which is at most sum_x min(p(x), q(x));
a certain one with probability p(x), as by Algorithm 1. Of a tree it keeps the path that
agrees, however the tree was built.

p is the target, q the drafter. Axes: B rows, G = gamma, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import keys, probs, trees
from specjax.types import Draft, Law, Verdict, Verifier
from specjax.verifiers import token


class Noise(NamedTuple):
    """Uniforms in [0, 1). sample: [B, G + 1, 2], two for the draw at each slot."""

    sample: Array


def noise(key: Array, start: Array, gamma: int, vocab: int) -> Noise:
    """Returns the uniforms of the iteration that starts at `start`, from keys [B]."""
    del vocab
    key = keys.purpose(keys.iteration(key, start), keys.SAMPLE)
    return Noise(keys.uniforms(key, jnp.arange(gamma + 1), (2,)))


def verify(
    target: Law, draft: Draft, noise: Noise, keep_residual: bool = False
) -> Verdict:
    """Keeps x_i while it equals y_i, drawn from p_i, then adds the y of the next slot.

    accept_prob is p_i(x_i); residual has all its weight on the added token.
    """
    p = probs.dense(target)
    batch, rows, vocab = p.shape
    y = probs.pick(p.reshape(-1, vocab), noise.sample.reshape(-1, 2))
    return keep(target, draft, y.reshape(batch, rows), keep_residual)


def keep(target: Law, draft: Draft, y: Array, keep_residual: bool) -> Verdict:
    """Returns the verdict for the target's own tokens `y` [B, G + 1]."""
    if draft.parent is not None:
        return keep_path(target, draft, y, keep_residual)
    gamma = draft.tokens.shape[1]
    live = jnp.arange(gamma) < draft.num[:, None]
    same = (draft.tokens == y[:, :gamma]) & live
    n = jnp.sum(jnp.cumprod(same, axis=1), axis=1, dtype=jnp.int32)
    tokens = jnp.where(jnp.arange(gamma + 1) <= n[:, None], y, 0)
    p_x = probs.at(probs.first_tokens(target, gamma), draft.tokens)
    residual = None
    if keep_residual:
        extra = jnp.take_along_axis(y, n[:, None], axis=1)[:, 0]
        residual = jax.nn.one_hot(extra, target.logits.shape[-1])
    return Verdict(n, tokens, jnp.where(live, p_x, 0.0), residual=residual)


def keep_path(target: Law, draft: Draft, y: Array, keep_residual: bool) -> Verdict:
    """Returns the verdict on a tree, with y_i for the row after node i - 1.

    Its path has the nodes that agree with y.
    """
    assert draft.parent is not None
    parent, (batch, size) = draft.parent, draft.tokens.shape
    rows, index = jnp.arange(batch), jnp.arange(size, dtype=jnp.int32)
    wanted = jnp.take_along_axis(y, parent + 1, axis=1)
    same = (draft.tokens == wanted) & (index < draft.num[:, None])

    def descend(carried: tuple) -> tuple:
        at, child, n, path = carried
        path = path.at[rows, jnp.where(child < size, n, size)].set(child, mode="drop")
        at = jnp.where(child < size, child, at)
        n = n + (child < size)
        return at, trees.next_child(parent, same, at, at), n, path

    root = jnp.full(batch, trees.ROOT, jnp.int32)
    first = trees.next_child(parent, same, root, root)
    initial = (root, first, 0 * root, jnp.broadcast_to(index, (batch, size)))
    going = lambda carried: (carried[1] < size).any()  # noqa: E731
    at, _, n, path = jax.lax.while_loop(going, descend, initial)
    extra = y[rows, at + 1]
    each = rows[:, None], parent + 1
    before = jax.tree.map(lambda leaf: leaf[each], probs.per_row(target))
    p_x = probs.at(probs.with_shared(before, target.logits), draft.tokens)
    p_x = jnp.where(index < draft.num[:, None], p_x, 0.0)
    tokens = jnp.take_along_axis(draft.tokens, path, axis=1)
    tokens = token.emit(draft._replace(tokens=tokens), n, extra)
    vocab = target.logits.shape[-1]
    residual = jax.nn.one_hot(extra, vocab) if keep_residual else None
    return Verdict(n, tokens, p_x, path, residual)


KINDS = "without", "with", "own", "certain"
verifier = Verifier(noise, verify, siblings=KINDS)
