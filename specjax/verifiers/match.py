"""Sample and compare: draws from the target at every slot, keeps what agrees.

Exact for any draft at all, whatever it was drawn from, because every token that is
emitted is the target's own sample: on a mismatch that one, never another draw. A
sampled draft is kept with probability sum_x p(x) q(x), which is at most
sum_x min(p(x), q(x)); a certain one with p(x), as by Algorithm 1.
p is the target, q the drafter. Axes: B rows, G = gamma, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import keys, probs
from specjax.types import Draft, Law, Verdict, Verifier


class Noise(NamedTuple):
    """`sample` [B, G + 1, 2]: uniforms in [0, 1), two for each slot's own draw."""

    sample: Array


def noise(key: Array, start: Array, gamma: int, vocab: int) -> Noise:
    """The uniforms of the iteration that begins at `start`: request key [B]."""
    del vocab
    key = keys.purpose(keys.iteration(key, start), keys.SAMPLE)
    each = [keys.uniform(key, slot, (2,)) for slot in range(gamma + 1)]
    return Noise(jnp.stack(each, axis=1))


def verify(
    target: Law, draft: Draft, noise: Noise, keep_residual: bool = False
) -> Verdict:
    """Keeps x_i while y_i = x_i for y_i drawn from p_i, then adds the y of that slot.

    accept_prob is p_i(x_i); residual is all on the token that was added.
    """
    p = probs.dense(target)
    batch, rows, vocab = p.shape
    y = probs.pick(p.reshape(-1, vocab), noise.sample.reshape(-1, 2))
    return keep(target, draft, y.reshape(batch, rows), keep_residual)


def keep(target: Law, draft: Draft, y: Array, keep_residual: bool) -> Verdict:
    """The verdict for the target's own tokens `y` [B, G + 1]."""
    gamma = draft.tokens.shape[1]
    live = jnp.arange(gamma) < draft.num[:, None]
    same = (draft.tokens == y[:, :gamma]) & live
    n = jnp.sum(jnp.cumprod(same, axis=1), axis=1, dtype=jnp.int32)
    tokens = jnp.where(jnp.arange(gamma + 1) <= n[:, None], y, 0)
    p_x = probs.at(probs.first(target, gamma), draft.tokens)
    residual = None
    if keep_residual:
        extra = jnp.take_along_axis(y, n[:, None], axis=1)[:, 0]
        residual = jax.nn.one_hot(extra, target.logits.shape[-1])
    return Verdict(n, tokens, jnp.where(live, p_x, 0.0), residual=residual)


verifier = Verifier(noise, verify)
