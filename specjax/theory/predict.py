"""Target calls and walltime predicted from one scored text, without assuming
independent acceptances.

Eq. 1 of Leviathan et al. (2023), https://arxiv.org/abs/2211.17192, assumes that
acceptances are i.i.d. and outputs long. Neither is assumed here. Given a text that the
target wrote, and given that a draft was tested at token t, the token came from that
draft with a known probability a_t (`accept_probability`), independently for each t.
Dynamic programming backward along the text then counts the calls for every gamma from
one scoring.

The result is exact if drafts are verified token by token (Algorithm 1), with gamma in
every call; if the law of a draft depends only on the tokens before it, and not on where
its block begins; and if the text was drawn from the target as it was sampled, with p
and q taken after temperature, top-k, top-p and min-p. The mean over texts predicts the
mean over runs. Everything here is float64 numpy; arrays are numpy or jax, not traced.
Axes: N tokens of one text, K values of gamma.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from specjax.theory.closed_forms import check_gamma

ROUNDING = 1e-5  # float32 sums of probabilities exceed 1 by less than this


class Cost(NamedTuple):
    """The times of decoding in units of t_p(1), one target call on one token per row.

    c: one drafted token (Definition 3.7); 0 where nothing is drafted.
    v: one target call on the rows it scores, t_p(gamma + 1) / t_p(1).
    overhead: the rest of a step: verification, the loop.
    prefill: everything before the first step.
    """

    c: ArrayLike = 0.0
    v: ArrayLike = 1.0
    overhead: ArrayLike = 0.0
    prefill: ArrayLike = 0.0


def accept_probability(p_x: ArrayLike, q_x: ArrayLike) -> np.ndarray:
    """Returns a_t, the probability that x_t came from the draft, if a drafted token was
    tested there.

    `p_x` [N] and `q_x` [N] are p_t(x_t) and q_t(x_t), the probabilities of the text's
    own tokens under the sampling settings. A deterministic drafter has q_x = 1 where
    its guess is x_t, else 0. The result is [N], in [0, 1]; its mean over texts also
    estimates alpha. Raises ValueError for p_x outside (0, 1], q_x outside [0, 1], or
    arrays not of one shape [N], N > 0.
    """
    p_x, q_x = np.asarray(p_x, np.float64), np.asarray(q_x, np.float64)
    if p_x.ndim != 1 or p_x.shape != q_x.shape or not p_x.size:
        raise ValueError(
            f"p_x and q_x must both be [N], N > 0, not {p_x.shape} and {q_x.shape}: "
            "pass the probabilities of one text's own tokens"
        )
    if not np.all((p_x > 0) & (p_x <= 1 + ROUNDING)):
        raise ValueError(
            "p_x must be in (0, 1]: score the text with the target and the sampling "
            "settings that wrote it, and pass probabilities"
        )
    if not np.all((q_x >= 0) & (q_x <= 1 + ROUNDING)):
        raise ValueError("q_x must be in [0, 1]: pass probabilities, not logits")
    # Drafted and accepted has probability q min(1, p / q) = min(q, p) (Section 2.3);
    # emitted in either way has p (Appendix A.1). Their ratio:
    return np.minimum(1.0, q_x / p_x)


def expected_calls(accept: ArrayLike, gammas: Sequence[int]) -> np.ndarray:
    """Returns the expected number of target calls that emit this text, [K] for the K
    gammas.

    `accept` [N] is `accept_probability` along the text, `gammas` [K] whole numbers >= 0
    in any order; gamma = 0 gives N. The last call may be cut by the end of the text.
    Raises ValueError for accept outside [0, 1] or not [N], N > 0, and gammas not [K]
    whole numbers >= 0.
    """
    if np.ndim(gammas) != 1:
        raise ValueError("gammas must be a sequence [K]: pass [gamma] for one gamma")
    accept, gammas = _check_acceptances(accept), check_gamma(gammas).astype(int)
    each = np.arange(len(gammas))
    new = np.zeros(len(gammas))
    # Further calls up to the text's end: f[k, i] while a call with i drafts left is in
    # progress, `new` where the next call begins. Both 0 after the last token.
    f = np.zeros((len(gammas), gammas.max(initial=0) + 1))
    for a in accept[::-1]:
        f[:, 1:] = a * f[:, :-1] + ((1 - a) * new)[:, None]
        f[:, 0] = new  # no draft left: the call's own token, which ends it
        new = 1 + f[each, gammas]
    return new


def calls_law(accept: ArrayLike, gamma: int) -> np.ndarray:
    """Returns the distribution of the number of target calls for this text, [N + 1].

    Entry k is the probability of k calls; the mean is that of `expected_calls`.
    `accept` [N] is as there; `gamma` is one number. Raises ValueError like
    `expected_calls`.
    """
    if np.ndim(gamma):
        raise ValueError("calls_law takes one gamma: call it for each")
    accept, gamma = _check_acceptances(accept), int(check_gamma(gamma))
    # As in `expected_calls`, with a law over k for each number and a shift for 1 +.
    new = np.zeros(len(accept) + 1)
    new[0] = 1
    f = np.tile(new, (gamma + 1, 1))
    for a in accept[::-1]:
        f[1:] = a * f[:-1] + (1 - a) * new
        f[0] = new
        new = np.concatenate([[0.0], f[gamma, :-1]])
    return new


def expected_steps(laws: Sequence[ArrayLike]) -> float:
    """Returns the expected number of steps of a batch, until its last row ends.

    `laws` has the `calls_law` of each row; given the texts, rows are independent. Their
    lengths may differ. Raises ValueError if there is no row, or a law is not a
    distribution over 0, 1, ...
    """
    if not len(laws):
        raise ValueError("laws is empty: pass the calls_law of each row of the batch")
    each = [_check_law(law) for law in laws]
    most = max(map(len, each))
    # Beyond the end of a shorter law its row has ended.
    ended = [np.pad(np.cumsum(law), (0, most - len(law)), mode="edge") for law in each]
    return float(np.sum(1 - np.prod(ended, axis=0)))  # sum_k P(max > k)


def speedup(
    tokens: ArrayLike,
    steps: ArrayLike,
    gamma: ArrayLike,
    *,
    cost: Cost,
    baseline: Cost | None = None,
) -> float | np.ndarray:
    """Returns the predicted speedup in walltime over decoding with the target alone.

    Numbers give a number, arrays broadcast. Theorem 3.8 is the case steps = tokens /
    Eq. 1, v = 1, no overhead and no prefill.

    Args:
      tokens: tokens of a row, or of a batch's longest row, since the baseline needs as
        many steps.
      steps: `expected_calls` for one row, `expected_steps` for a batch, or their means
        over texts.
      gamma: drafted tokens per step.
      cost: the cost of decoding with `gamma` drafts per step.
      baseline: the cost of decoding without drafts (its `c` is not read); by default
        only the target's calls.

    Raises:
      ValueError: for gamma not a whole number >= 0, tokens <= 0, steps outside [tokens
        / (gamma + 1), tokens], costs not finite or below 0, and v = 0.
    """
    gamma = check_gamma(gamma)
    tokens, steps = _check_counts(tokens, steps, gamma)
    cost, baseline = _cost("cost", cost), _cost("baseline", baseline or Cost())
    alone = baseline.prefill + tokens * (baseline.v + baseline.overhead)
    step = gamma * cost.c + cost.v + cost.overhead  # Theorem 3.8: gamma c + 1
    factor = alone / (cost.prefill + steps * step)
    return float(factor) if np.ndim(factor) == 0 else factor


def _check_acceptances(accept: ArrayLike) -> np.ndarray:
    accept = np.asarray(accept, np.float64)
    if accept.ndim != 1 or not accept.size:
        raise ValueError(
            f"accept must be [N], N > 0, not {accept.shape}: predict text by text"
        )
    if not np.all((accept >= 0) & (accept <= 1)):  # nan fails too
        raise ValueError("accept must be in [0, 1]: pass accept_probability(p_x, q_x)")
    return accept


def _check_law(law: ArrayLike) -> np.ndarray:
    law = np.asarray(law, np.float64)
    if law.ndim != 1 or not np.all(law >= 0) or not abs(law.sum() - 1) < 1e-9:
        raise ValueError("a law must be [n + 1] and sum to 1: pass those of calls_law")
    return law


def _check_counts(
    tokens: ArrayLike, steps: ArrayLike, gamma: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    tokens, steps = np.asarray(tokens, np.float64), np.asarray(steps, np.float64)
    if not np.all((tokens > 0) & np.isfinite(tokens)):
        raise ValueError("tokens must be > 0: count what the longest row emits")
    slack = 1e-9 * tokens  # both bounds are attained, up to rounding
    if not np.all((steps * (gamma + 1) >= tokens - slack) & (steps <= tokens + slack)):
        raise ValueError(
            "steps must be in [tokens / (gamma + 1), tokens]: count both of the same "
            "rows, tokens of the longest"
        )
    return tokens, steps


def _cost(name: str, cost: Cost) -> Any:
    """Returns a cost whose fields are arrays. Raises ValueError for invalid costs."""
    cost = Cost(*(np.asarray(each, np.float64) for each in cost))
    for field, each in cost._asdict().items():
        enough = each > 0 if field == "v" else each >= 0
        if not np.all(enough & np.isfinite(each)):
            raise ValueError(
                f"{name}.{field} must be finite and >= 0 (v > 0): pass what was "
                "measured, over the time of one target call on one token"
            )
    return cost
