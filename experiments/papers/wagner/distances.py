"""The distance of each method's tokens from the target's law, computed exactly, without
sampling.

Wagner et al. (2024) report ROUGE and word errors; the distance itself follows from the
two laws at every position of a text that the target wrote. p is the target, q the
drafter; p^ and q^ replace them in a sigmoid (Eq. 5). Axes: V vocabulary, M positions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.papers.wagner.methods import Method, filter_pair
from specjax import probs
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftSource
from specjax.measure.scoring import positions
from specjax.measure.texts import Text
from specjax.types import Law
from specjax.verifiers import sigmoid

# Total variation of a drafted token's law from p and from q, of the bonus token's from
# p; the share of drafts kept.
NAMES = ("tv_out_p", "tv_out_q", "tv_bonus_p", "kept")


class MethodLaws(NamedTuple):
    """The laws of the tokens that a method emits.

    Attributes:
        p, q: [..., V], the laws that tokens should be, and are, drawn from.
        out: [..., V], the law of a drafted token.
        bonus: [..., V], the law of the token after a draft that is kept whole.
        kept: [...], the probability that a drafted token is kept.
    """

    p: Array
    q: Array
    out: Array
    bonus: Array
    kept: Array


def method_laws(method: Method, target: Law, draft: Law) -> MethodLaws:
    """Returns the laws that a method's tokens have, given the laws of target and draft.

    out(x) = q(x) a(x) + (1 - sum_y q(y) a(y)) r(x), for a(x) = min(1, p^(x) / q^(x))
    and the residual r = norm(max(0, p^ - q^)). In Algorithm 1 p^ = p and q^ = q, and
    then out = p.
    """
    p, q = probs.dense(target), probs.dense(draft)
    p_hat, q_hat = p, q
    if method.name.startswith("always"):
        return MethodLaws(p, q, q, p, jnp.ones_like(p[..., 0]))
    if method.scale is not None:
        weigh = sigmoid.weights(-method.scale, method.scale, method.dtype)
        p_hat, q_hat = weigh(target), weigh(draft)
    return MethodLaws(p, q, *mixed_laws(q, p_hat, q_hat, sigmoid.support(target)))


def mixed_laws(
    q: Array, p_hat: Array, q_hat: Array, support: Array
) -> tuple[Array, ...]:
    """Returns (out [..., V], bonus [..., V], kept [...]) of weights p^, q^; see
    `method_laws`.
    """
    positive = (p_hat > 0) & (q_hat > 0)
    ratio = jnp.minimum(1.0, p_hat / jnp.where(positive, q_hat, 1.0))
    drawn = q * jnp.where(positive, ratio, 0.0)
    kept = drawn.sum(-1)
    bonus = norm(p_hat, support)
    rest = norm(jnp.fmax(p_hat - q_hat, 0.0), bonus)
    return drawn + (1 - kept)[..., None] * rest, bonus, kept


def norm(weights: Array, fallback: Array) -> Array:
    """Returns weights / their sum, or norm(fallback) where the sum is 0."""
    weights = jnp.fmax(weights, 0.0)
    weights = jnp.where(weights.any(-1, keepdims=True), weights, fallback)
    return weights / weights.sum(-1, keepdims=True)


def variation(law: Array, other: Array) -> Array:
    """Returns the total variation of two laws, [...]."""
    return jnp.abs(law - other).sum(-1) / 2


def distances(
    pair: tuple[Pretrained, DraftSource], methods: Sequence[Method], text: Text
) -> dict[str, dict[str, float]]:
    """Returns, by method, the means of NAMES over every token of `text` at temperature
    1.

    Args:
        methods: all with the same filter, which is already applied to p and q.
    """

    def measures(case: MethodLaws) -> Array:
        apart = variation(case.out, case.p), variation(case.out, case.q)
        return jnp.stack([*apart, variation(case.bonus, case.p), case.kept], -1)

    def measure_token(p_law: Law, q_law: Law, written: Array) -> tuple[Array]:
        del written
        cases = [method_laws(method, p_law, q_law) for method in methods]
        return (jnp.stack([measures(case) for case in cases], axis=-2),)

    pair = filter_pair(pair, methods[0].top_k)
    values = np.asarray(positions(pair, text, 1.0, measure_token)[0], np.float64).mean(
        0
    )
    return {
        method.name: dict(zip(NAMES, map(float, row), strict=True))
        for method, row in zip(methods, values, strict=True)
    }
