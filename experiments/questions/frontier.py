"""The frontier of lossy rules: the most tokens that can be kept at a given distance
from the target's law.

A rule keeps mass m(x) <= q(x) of a drafted token's law q, in total alpha, and otherwise
draws from a residual r, so that its output follows m + (1 - alpha) r. That law is at
least alpha - beta from p in total variation, beta = sum_x min(p, q): it exceeds p by
sum_x (m - p)+ >= alpha - sum_x min(p, m), for any r. So no rule keeps more than beta +
TV, neither at a single position nor in the mean; lenience (Appendix A.5 of Leviathan et
al., 2023) with the residual norm((p - q)+) keeps that much. Laws are exact, at every
token of texts that the target wrote. Axes: B rows, T tokens, V vocabulary, R points, N
texts.
"""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from experiments.questions.verdict import Question, bootstrap, judge, sum_by_text
from specjax import fused, probs
from specjax.measure import scoring
from specjax.measure.pairs import Pair, target_text
from specjax.measure.texts import Protocol, prompt_units
from specjax.prompts import Prompts
from specjax.theory import closed_forms
from specjax.types import Law
from specjax.verifiers import sigmoid

QUESTION = Question(
    "At the same distance from the target's law, do lossy rules keep more or fewer"
    " tokens than lenience with the residual norm((p - q)+)?",
    "all curves coincide: no rule is 1 % behind in tokens a call",
    "alpha - beta is the least total variation, and reached; the residual of A.5 to the"
    " letter is further from p",
)
LENIENCE = (1.0, 0.8, 0.6, 0.4, 0.2)
CLOSE = (0.15, 0.3, 0.5)
TYPICAL = (0.003, 0.03, 0.3)
TOP_K = (1, 3, 10, 30)
SIGMOID = (1.0, 10.0, 1000.0)
TV = 0.1  # rules are compared at their points next to it
GAMMA = 5
OURS = "lenience"


def points() -> list[tuple[str, float]]:
    """Returns every rule with each value of its parameter, in the order of
    `outcomes`."""
    numbers = {
        OURS: LENIENCE,
        "lenience, residual p - l q": LENIENCE,
        "lenience, residual p": LENIENCE,
        "all where p and q are close": CLOSE,
        "typical acceptance": TYPICAL,
        "match of the top k": TOP_K,
        "sigmoid": SIGMOID,
    }
    return [(rule, x) for rule, several in numbers.items() for x in several]


def kept_mass(p_law: Law, q_law: Law) -> Iterator[tuple[Array, Array]]:
    """Yields (m, r) for each of `points`: the mass m [..., V] of kept tokens, and the
    weights r that a token is drawn from otherwise.
    """
    p, q = probs.dense(p_law), probs.dense(q_law)
    beta = jnp.minimum(p, q).sum(-1, keepdims=True)
    for residual in (lambda level: q, lambda level: level * q, lambda level: 0.0):
        for level in LENIENCE:
            left = jnp.maximum(p - residual(level), 0.0)
            yield jnp.minimum(p / level, q), left
    for most in CLOSE:  # 1 - beta is the total variation of p and q
        close = 1 - beta < most
        yield jnp.where(close, q, jnp.minimum(p, q)), jnp.maximum(p - q, 0.0)
    log_p = jnp.log(jnp.where(p > 0, p, 1.0))
    entropy = -(p * log_p).sum(-1, keepdims=True)
    for epsilon in TYPICAL:  # Medusa's, whose delta is the root of epsilon
        least = jnp.minimum(epsilon, epsilon**0.5 * jnp.exp(-entropy))
        yield jnp.where(p > least, q, 0.0), p
    ranked = lax.top_k(p, max(TOP_K))[0]
    for k in TOP_K:
        yield jnp.where(p >= ranked[..., k - 1 : k], q, 0.0), p
    for scale in SIGMOID:  # Wagner et al. (2024), Eq. 5 to 7
        weigh = sigmoid.weights(-scale, scale)
        p_hat, q_hat = weigh(p_law), weigh(q_law)
        ratio = jnp.minimum(1.0, p_hat / jnp.where(q_hat > 0, q_hat, 1.0))
        yield q * ratio, jnp.maximum(p_hat - q_hat, 0.0)


def outcome(p: Array, m: Array, r: Array) -> tuple[Array, Array, Array]:
    """Returns alpha, the total variation from p, and the largest ratio to p, [...]
    each.

    The rule keeps m and draws from r, or from p where r is empty.
    """
    alpha, mass = m.sum(-1), r.sum(-1, keepdims=True)
    r = jnp.where(mass > 0, r / jnp.where(mass > 0, mass, 1.0), p)
    law = m + (1 - alpha)[..., None] * r
    ratio = jnp.where(p > 1e-9, law / jnp.where(p > 1e-9, p, 1.0), 0.0)
    return alpha, jnp.abs(law - p).sum(-1) / 2, ratio.max(-1)


def outcomes(p_law: Law, q_law: Law, drawn: Array) -> tuple[Array]:
    """Returns alpha, total variation and ratio of each of `points`: [B, T, R, 3]."""
    del drawn
    p = probs.dense(p_law)
    each = [jnp.stack(outcome(p, *it), -1) for it in kept_mass(p_law, q_law)]
    return (jnp.stack(each, -2),)


def tokens(alpha: float) -> float:
    """Returns the tokens per call by Eq. 1, as A.5 computes them from alpha_l."""
    return float(closed_forms.expected_tokens(min(alpha, 1.0), GAMMA))


def gap_to_frontier(means: np.ndarray) -> float:
    """Returns how many more tokens per call the frontier gives than a rule with the
    same total variation, as a share.

    Args:
        means: alpha, TV and beta of the rule.
    """
    alpha, tv, beta = means
    return tokens(min(1.0, beta + tv)) / tokens(alpha) - 1


def measure(pair: Pair, prompts: Prompts, protocol: Protocol, kept: dict) -> dict:
    """Returns every point of every rule, and how far the frontier is ahead of each
    rule, at the point whose total variation is nearest to `TV`.
    """
    chosen = fused.for_protocol(*pair, protocol)
    text = target_text(pair[0], prompts, protocol, chosen, kept)
    found, sequence = scoring.positions(
        pair,
        text,
        protocol.decode.temperature,
        outcomes,
        **protocol.decode.truncation(),
    )
    places, beta = len(sequence), found[:, :1, 0]  # at l = 1
    beta = np.broadcast_to(beta, found.shape[:2])
    each = np.stack([found[..., 0], found[..., 1], beta], -1)
    each = np.concatenate([each, np.ones_like(each[..., :1])], -1)
    units = prompt_units(sequence, len(prompts.tokens))
    totals, mean = sum_by_text(each, units), each.mean(0)
    fields = {"tokens": places, "sequences": int(sequence.max()) + 1}
    fields["beta"] = float(mean[0, 2])
    shown, furthest = [], found[..., 2].max(0)
    named = points()
    for (rule, x), numbers, ratio in zip(named, mean, furthest, strict=True):
        shown.append(
            {
                "rule": rule,
                "its number": x,
                "alpha": float(numbers[0]),
                "TV from p": float(numbers[1]),
                "tokens a call": tokens(numbers[0]),
                "the frontier's": tokens(numbers[2] + numbers[1]),
                "largest ratio to p": float(ratio),
            }
        )
    gains = {}
    for rule in dict.fromkeys(rule for rule, _ in named):
        own = [i for i, (name, _) in enumerate(named) if name == rule]
        at = min(own, key=lambda i: abs(mean[i, 1] - TV))
        gain = bootstrap(
            lambda sums, at=at: gap_to_frontier(sums[at, :3] / sums[at, 3]), totals
        )
        gains[rule] = gain
        key = rule.replace(" ", "_").replace(",", "").replace("-", "less")
        fields |= {f"behind_{key}": gain[0], f"behind_{key}_se": gain[1]}
        fields[f"tv_{key}"] = float(mean[at, 1])
    verdict = [
        judge(
            f"by {rule} the frontier is ahead by",
            gain[0],
            error=gain[1],
            bound=0.01,
            count=len(gains) - 1,
        )
        for rule, gain in gains.items()
        if rule != OURS
    ]
    return fields | {"gamma": GAMMA, "verdict": verdict, "points": shown}
