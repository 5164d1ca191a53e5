"""Measurements of lenience l: the share of drafts that it keeps, and its distance from
p.

Appendix A.5 of Leviathan et al. (2023): beta_l, the probability that a token drawn from
q is kept, and alpha_l, its mean over text that the target wrote; beta_1 is strict.
`specjax.verifiers.lenient` is the rule. Axes: N sequences, L tokens, V vocabulary, K
values of l, M generated tokens in all.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftSource
from specjax.measure.scoring import positions
from specjax.measure.texts import Calls, Text
from specjax.theory import closed_forms, estimate
from specjax.theory.estimate import Estimate
from specjax.types import Law
from specjax.verifiers import lenient


class Scores(NamedTuple):
    """The scores of each generated token x_t.

    beta: [M, K], for each l.
    strict: [M], beta_1.
    log_p: [M] = log p_raw(x_t) in nats, the target's at temperature 1.
    sequence: [M].
    """

    beta: np.ndarray
    strict: np.ndarray
    log_p: np.ndarray
    sequence: np.ndarray


class Implied(NamedTuple):
    """The optimum of Theorem 3.8 for alpha_l: `speed` at `gamma`.

    At alpha_l = 1 every further draft helps: gamma is None, and speed is the limit 1 /
    c, or None if c is 0.
    """

    gamma: int | None
    speed: float | None


def score(
    pair: tuple[Pretrained, DraftSource],
    text: Text,
    temperature: float,
    lenience: Sequence[float],
    **truncation: Any,
) -> Scores:
    """Scores every generated token of `text` at every l, in one pass of each model.

    pair: (target, draft). truncation: see `scoring.score`. At temperature 0 beta_l is
    the probability that the draft is tolerated: 0 or 1 for a draft that takes its
    argmax.
    """
    for level in lenience:
        lenient.build(level)

    def score_lenience(
        p_law: Law, q_law: Law, written: Array
    ) -> tuple[Array, Array, Array]:
        p, q = probs.dense(p_law), probs.dense(q_law)
        relative = probs.dense(lenient.relative_weights(p_law))

        def beta(level: float) -> Array:
            if temperature > 0:
                return jnp.sum(jnp.minimum(p / level, q), axis=-1)
            kept = (p > 0) | ((relative >= level) & (level < 1))
            return jnp.sum(jnp.where(kept, q, 0.0), axis=-1)

        z = jnp.take_along_axis(p_law.logits, written[..., None], axis=-1)[..., 0]
        log_p = z.astype(jnp.float32) - p_law.top - jnp.log(relative.sum(-1))
        return jnp.stack([beta(level) for level in lenience], -1), beta(1.0), log_p

    return Scores(*positions(pair, text, temperature, score_lenience, **truncation))


def alphas(scores: Scores) -> list[Estimate]:
    """Returns alpha_l = E(beta_l) for each l (Table 5)."""
    return [estimate.rao_blackwell(beta, scores.sequence) for beta in scores.beta.T]


def drift(scores: Scores) -> list[Estimate]:
    """Returns E(beta_l - beta_1) for each l.

    It is how far the law of a drafted token is from p, in total variation, with the
    residual `target_minus_draft` or at temperature 0.
    """
    # Rounding can order two equal sums either way.
    gaps = np.maximum(scores.beta - scores.strict[:, None], 0)
    return [estimate.rao_blackwell(gap, scores.sequence) for gap in gaps.T]


def log_probability(scores: Scores) -> Estimate:
    """Returns E(log p_raw(x)) of the text's own tokens, in nats per token."""
    log_p = np.minimum(scores.log_p, 0)  # above it only by rounding
    least = min(log_p.min(), -1.0)
    share = estimate.rao_blackwell(log_p / least, scores.sequence)
    value, se, naive = (least * x for x in (share.value, share.se, share.naive_se))
    return share._replace(
        value=float(value), se=float(abs(se)), naive_se=float(abs(naive))
    )


def implied_optimum(alpha: float, c: float, gamma: int | None = None) -> Implied:
    """Returns the optimum of Theorem 3.8 at alpha_l, as Appendix A.5 computes it.

    gamma: the one to use, or None for the best one.
    """
    alpha = min(alpha, 1.0)  # a float32 sum
    if gamma is None:
        if alpha == 1 > c:
            return Implied(None, 1 / c if c > 0 else None)
        gamma = int(closed_forms.optimal_gamma(alpha, c))
    return Implied(gamma, float(closed_forms.walltime_factor(alpha, gamma, c)))


def outputs(text: Text, calls: Calls) -> Text:
    """Returns the texts that a run wrote after the prompts of `text`, for scoring."""
    length = text.start + [len(row) for row in calls.texts]
    tokens = np.zeros((len(length), length.max()), text.tokens.dtype)
    for row, prompt, start, output in zip(
        tokens, text.tokens, text.start, calls.texts, strict=True
    ):
        row[:start] = prompt[:start]
        row[start : start + len(output)] = output
    return text._replace(tokens=tokens, length=length)
