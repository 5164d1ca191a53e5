"""The acceptance rate alpha from measurements, with standard errors: four estimators.

alpha = E(beta) of Definition 3.1 in Leviathan et al. (2023),
https://arxiv.org/abs/2211.17192, is a single number only while acceptances are i.i.d.
On text they are not, and the four usual estimators then answer four questions:

- `rao_blackwell` (mean beta): over every position of the target's text (Corollary 3.6,
  the protocol of Table 3). A property of the models and the text alone.
- `counts` (share kept): of the tested drafted tokens, those that were kept; it
  estimates the mean beta of tested positions. The token added after a full acceptance
  is never tested, and such tokens tend to be where drafting is easy, so this is usually
  below the first.
- `chen_r` (Chen's r): tokens per call over its maximum. It depends on gamma and is not
  an alpha.
- `implied_alpha` (implied): the alpha for which Eq. 1 predicts the measured tokens per
  call.

Tokens of one text resemble each other, so each standard error is clustered by sequence
(the ratio estimator of Cochran 1977, Sampling Techniques, chapter 6). `naive_se` is the
standard error under independence, typically too small. Arrays are numpy or jax, not
traced. Axes: N positions of the target's text, S sequences.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from specjax.theory import closed_forms


class Estimate(NamedTuple):
    """A measured mean and its errors, all in the unit of `value`.

    value: the estimate.
    se: standard error, sequences being independent; nan with fewer than two of them.
    count: observations behind it: positions, tested drafts, or calls of the target.
    naive_se: standard error if the observations were i.i.d.
    sequences: how many sequences contributed.
    """

    value: float
    se: float
    count: int  # type: ignore[assignment]  # hides tuple.count; records have the name
    naive_se: float
    sequences: int


def nan_to_none(x: float) -> float | None:
    """Returns x, or None for nan, which JSON does not have."""
    return None if x != x else x


def rao_blackwell(beta: ArrayLike, sequence: ArrayLike) -> Estimate:
    """Returns alpha as the mean of beta_t = sum_x min(p_t, q_t) over the target's text.

    `beta` [N], in [0, 1], is `closed_forms.acceptance(p, q)` at each position of text
    that the target generated; `sequence` [N] holds the id of the text that each
    position belongs to, in any order. Every position weighs the same, so long texts
    weigh more. The random acceptance of Algorithm 1 is replaced by its mean, hence the
    name. Corollary 3.6, Section 4.2. Raises ValueError for beta outside [0, 1], or
    arrays not of one shape [N], N > 0.
    """
    beta, sequence = np.asarray(beta, np.float64), np.asarray(sequence)
    if beta.ndim != 1 or beta.shape != sequence.shape or not beta.size:
        raise ValueError(
            f"beta and sequence must both be [N], not {beta.shape} and "
            f"{sequence.shape}: flatten the positions, drop the padding"
        )
    # float32 sums of min(p, q) exceed 1 by rounding.
    if not np.all((beta >= 0) & (beta <= 1 + 1e-5)):
        raise ValueError("beta must be in [0, 1]: pass closed_forms.acceptance(p, q)")
    total, length = totals_by_text(beta, sequence)
    naive = beta.std(ddof=1) / np.sqrt(beta.size) if beta.size > 1 else np.nan
    return _ratio(total, length)._replace(naive_se=float(naive))


def totals_by_text(
    beta: ArrayLike, sequence: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sum of beta [S] and the number of positions [S] of each text.

    Texts are in the order of their ids.
    """
    owner = np.unique(sequence, return_inverse=True)[1]
    return np.bincount(owner, np.asarray(beta, np.float64)), np.bincount(owner)


def difference(more: ArrayLike, less: ArrayLike, tokens: ArrayLike) -> Estimate:
    """Returns the alpha of one draft minus that of another, on the same texts.

    `more`, `less` [S] are the sums of beta of each text and `tokens` [S] its positions,
    as `totals_by_text` returns them. A text that is easy for one draft tends to be easy
    for the other. The difference cancels this, so its error is below that of two
    independent estimates. Raises ValueError unless all three have one shape [S] and
    there is a token.
    """
    (more, tokens), (less, _) = _totals(more, tokens), _totals(less, tokens)
    return _ratio(more - less, tokens)


def counts(accepted: ArrayLike, tested: ArrayLike) -> Estimate:
    """Returns the share of the tested drafted tokens that were accepted.

    `accepted` [S] and `tested` [S] are totals per sequence; a call that accepts n of
    its G drafts tests min(n + 1, G). It estimates E(beta | position tested): alpha of
    Definition 3.1 if acceptances are i.i.d. `naive_se` is the binomial one. Raises
    ValueError unless 0 <= accepted <= tested and some draft was tested.
    """
    accepted, tested = _totals(accepted, tested)
    if not np.all(accepted <= tested):
        raise ValueError("accepted exceeds tested: a call tests min(n + 1, gamma)")
    mean = _ratio(accepted, tested)
    naive = np.sqrt(mean.value * (1 - mean.value) / mean.count)
    return mean._replace(naive_se=float(naive))


def ratio(part: ArrayLike, whole: ArrayLike) -> Estimate:
    """Returns sum(part) / sum(whole), such as calls with a draft over calls without.

    `part` [S] and `whole` [S] are totals per sequence, in one unit; `count` is the
    whole, rounded down, and `naive_se` is nan. Raises ValueError unless both are at
    least 0 and some of the whole is above it.
    """
    part, whole = _totals(part, whole)
    return _ratio(part, whole)


def chen_r(accepted: ArrayLike, calls: ArrayLike, gamma: int) -> Estimate:
    """Returns r of Chen et al. (2023): mean tokens per call over gamma + 1.

    It estimates `closed_forms.chen_r`. `accepted` [S] and `calls` [S] are totals per
    sequence, at one fixed `gamma`; each call emits one token more than it accepts,
    counted before any cut at the end of a text. `naive_se` is that of Eq. 1's capped
    geometric variable. Raises ValueError unless 0 <= accepted <= gamma calls and there
    was a call.
    """
    mean = _tokens_per_call(accepted, calls, gamma)
    r = closed_forms.chen_r(mean.value, gamma)
    return _rescale(mean, r, 1 / (gamma + 1))


def implied_alpha(accepted: ArrayLike, calls: ArrayLike, gamma: int) -> Estimate:
    """Returns the alpha at which Eq. 1 predicts the measured tokens per call.

    Arguments are those of `chen_r`, with gamma >= 1. Any dependence between acceptances
    at this gamma goes into the number, so another gamma gives another number. The
    errors are those of tokens per call over the slope of Eq. 1 (delta method); at alpha
    = 0 or 1 they are 0, and mean nothing. Section 3.1, Eq. 1. Raises ValueError like
    `chen_r`, and for gamma < 1.
    """
    mean = _tokens_per_call(accepted, calls, gamma)
    alpha = closed_forms.implied_alpha(mean.value, gamma)
    i = np.arange(1, gamma + 1)
    slope = np.sum(i * alpha ** (i - 1.0))  # d/d alpha of Eq. 1 = sum_i alpha^i
    return _rescale(mean, alpha, 1 / slope)


def all_four(
    beta: ArrayLike,
    sequence: ArrayLike,
    *,
    accepted: ArrayLike,
    tested: ArrayLike,
    calls: ArrayLike,
    gamma: int,
) -> dict[str, Estimate]:
    """Returns every estimator by its name; they are reported together, because they
    differ.

    `beta` [N] and `sequence` [N] come from scoring the target's text; `accepted`,
    `tested` and `calls` [S] come from decoding with `gamma`, possibly of other texts.
    Raises ValueError like the four.
    """
    return {
        "rao_blackwell": rao_blackwell(beta, sequence),
        "counts": counts(accepted, tested),
        "chen_r": chen_r(accepted, calls, gamma),
        "implied_alpha": implied_alpha(accepted, calls, gamma),
    }


def _tokens_per_call(accepted: ArrayLike, calls: ArrayLike, gamma: int) -> Estimate:
    accepted, calls = _totals(accepted, calls)
    if not np.all(accepted <= gamma * calls):
        raise ValueError("accepted exceeds gamma * calls: give gamma of these calls")
    mean = _ratio(accepted + calls, calls)
    # Tokens N of one call: P(N > i) = alpha^i for i <= gamma (Section 3.1), hence
    # E(N^2) = sum_i (2 i + 1) alpha^i.
    alpha = closed_forms.implied_alpha(mean.value, gamma) if gamma else 0.0
    i = np.arange(gamma + 1)
    variance = np.sum((2 * i + 1) * alpha**i) - mean.value**2
    naive = np.sqrt(variance / mean.count)
    return mean._replace(naive_se=float(naive))


def _ratio(x: np.ndarray, weight: np.ndarray) -> Estimate:
    """Returns sum(x) / sum(weight), both [S]; the error is over sequences."""
    x, weight = x[weight > 0], weight[weight > 0]
    n, total = len(weight), weight.sum()
    value = x.sum() / total
    residual = x - value * weight
    # Linearized: Var(sum(x) / sum(weight)) = Var(sum(residual)) / sum(weight)^2.
    variance = n / (n - 1) * np.sum(residual**2) / total**2 if n > 1 else np.nan
    return Estimate(float(value), float(np.sqrt(variance)), int(total), np.nan, n)


def _rescale(mean: Estimate, value: Any, slope: float) -> Estimate:
    se, naive_se = float(mean.se * slope), float(mean.naive_se * slope)
    return mean._replace(value=value, se=se, naive_se=naive_se)


def _totals(x: ArrayLike, trials: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    x, trials = np.asarray(x, np.float64), np.asarray(trials, np.float64)
    if x.ndim != 1 or x.shape != trials.shape:
        raise ValueError(
            f"totals must be [S], one per sequence, not {x.shape} and {trials.shape}: "
            "sum the calls of each sequence"
        )
    if not (np.all(x >= 0) and np.all(trials >= 0) and trials.sum() > 0):
        raise ValueError("totals must be >= 0 and not all 0: nothing was measured")
    return x, trials
