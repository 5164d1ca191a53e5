"""The closed forms of speculative decoding: tokens per call, walltime, operations.

Section 3 of Leviathan et al. (2023), https://arxiv.org/abs/2211.17192, in its own
symbols: p is the target M_p, q the drafter M_q, alpha = E(beta) the acceptance rate,
gamma the number of drafted tokens, c = (time of one M_q run) / (time of one M_p run).
Eq. 1 and its consequences assume i.i.d. acceptances, and that M_p takes the same time
for gamma + 1 rows as for one. `chen_r` and `chen_speedup` are the same quantities in
the notation of Chen et al. (2023), https://arxiv.org/abs/2302.01318.

Everything here is float64 numpy. Arguments are numbers or arrays (numpy or jax, not
traced) and broadcast; numbers return a number, arrays an array. Axes: V vocabulary.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def expected_tokens(alpha: ArrayLike, gamma: ArrayLike) -> float | np.ndarray:
    """Returns the mean tokens that a run of Algorithm 1 emits, in 1 .. gamma + 1.

    Accurate as alpha -> 1, where it is gamma + 1. Section 3.1, Eq. 1. Raises ValueError
    for alpha outside [0, 1] or gamma not a whole number >= 0.
    """
    alpha, gamma = _alpha(alpha), check_gamma(gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Eq. 1, (1 - alpha^(gamma + 1)) / (1 - alpha). With expm1 neither difference
        # cancels: 1 - alpha is exact where alpha is near 1.
        tokens = -np.expm1((gamma + 1) * np.log(alpha)) / (1 - alpha)
    return _result(np.where(alpha == 1, gamma + 1, tokens))


def walltime_factor(
    alpha: ArrayLike, gamma: ArrayLike, c: ArrayLike
) -> float | np.ndarray:
    """Returns the expected speedup in walltime over decoding with the target alone.

    It is below 1 where drafting costs more than it saves. It holds for outputs so long
    that the last run, which the end cuts short, does not matter. Theorem 3.8. Raises
    ValueError like `expected_tokens`, and for c not finite or below 0.
    """
    tokens = expected_tokens(alpha, gamma)
    return _result(tokens / (check_gamma(gamma) * _cost("c", c) + 1))  # Theorem 3.8


def operations_factor(
    alpha: ArrayLike, gamma: ArrayLike, c_hat: ArrayLike
) -> float | np.ndarray:
    """Returns the expected growth in the total number of arithmetic operations.

    `c_hat` is the ratio of operations per token, M_q to M_p (Definition 3.10); it is
    not c, a ratio of times. Theorem 3.11. Raises ValueError like `expected_tokens`, and
    for c_hat not finite or below 0.
    """
    tokens = expected_tokens(alpha, gamma)
    gamma, c_hat = check_gamma(gamma), _cost("c_hat", c_hat)
    return _result((gamma * c_hat + gamma + 1) / tokens)  # Theorem 3.11


def optimal_gamma(alpha: ArrayLike, c: ArrayLike) -> int | np.ndarray:
    """Returns the gamma that maximizes `walltime_factor`; 0 if alpha <= c.

    It is exact up to rounding, gamma has no upper limit, and of two equally good values
    the smaller is returned. Section 3.5, Fig. 3. Raises ValueError for alpha outside
    [0, 1], for c not finite or below 0, and where the factor grows with gamma for ever:
    alpha = 1 > c, or c = 0 < alpha.
    """
    alpha, c = np.broadcast_arrays(_alpha(alpha), _cost("c", c))
    if np.any((alpha > c) & ((alpha == 1) | (c == 0))):
        raise ValueError(
            "no gamma is optimal when alpha = 1 > c or c = 0 < alpha: every further "
            "draft helps. Give c its measured value, or choose gamma yourself."
        )
    best = [_optimal_gamma(a, k) for a, k in zip(alpha.flat, c.flat, strict=True)]
    return best[0] if alpha.ndim == 0 else np.reshape(best, alpha.shape).astype(int)


def _optimal_gamma(alpha: float, c: float) -> int:
    if alpha <= c:  # Corollary 3.9
        return 0

    def gains(gamma: int) -> bool:
        # Theorem 3.8 at gamma + 1 averages its value S at gamma with the last draft's
        # own rate, alpha^(gamma + 1) / c: it grows if and only if that rate exceeds S.
        # What is compared, alpha^(gamma + 1) (gamma c + 1) - c E, falls with gamma, so
        # the first draft that gains nothing ends the search.
        return bool(alpha ** (gamma + 1) > c * walltime_factor(alpha, gamma, c))

    high = 1
    while gains(high):
        high *= 2
    low = high // 2  # gains(low), and not gains(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if gains(middle) else (low, middle)
    return high


def acceptance(p: ArrayLike, q: ArrayLike) -> float | np.ndarray:
    """Returns beta, the probability that a token drawn from q is kept (mean: alpha).

    `p` and `q` are probabilities [..., V] of any dtype, rows summing to 1; the result
    is [...], in [0, 1]. Theorem 3.5, Corollary 3.6. Raises ValueError if the
    vocabularies differ or a row is not a distribution.
    """
    p, q = _distributions(p, q)
    return _result(np.minimum(p, q).sum(-1))  # Theorem 3.5 and Lemma 3.3


def divergence(p: ArrayLike, q: ArrayLike) -> float | np.ndarray:
    """Returns D_LK, the total variation distance of p and q: 1 - `acceptance(p, q)`.

    `p` and `q` are probabilities [..., V] of any dtype, rows summing to 1. The result
    is [...]: 0 where they are equal, 1 where their supports are disjoint, and
    symmetric. Definition 3.2, Lemma 3.3, Corollary 3.4. Raises ValueError if the
    vocabularies differ or a row is not a distribution.
    """
    p, q = _distributions(p, q)
    return _result(np.abs(p - q).sum(-1) / 2)  # Definition 3.2: p - M = (p - q) / 2


def minimum_gain(alpha: ArrayLike, c: ArrayLike) -> float | np.ndarray:
    """Returns a lower bound on the speedup at the best gamma: the speedup at gamma = 1.

    It bounds the best gamma, not every gamma. It is above 1 if and only if alpha > c;
    otherwise no gamma > 0 helps. Corollary 3.9. Raises ValueError for alpha outside [0,
    1] or c not finite or below 0.
    """
    return _result((1 + _alpha(alpha)) / (1 + _cost("c", c)))  # Corollary 3.9


def accelerated_c(
    c: ArrayLike, *, alpha: ArrayLike, gamma: ArrayLike, c_lower: ArrayLike
) -> float | np.ndarray:
    """Returns c of a draft model that a faster one accelerates: the time of a token
    that it drafts, c_eff = (c + gamma c_lower) / E(tokens).

    It is Theorem 3.8 for the draft model as the target of the faster one, so that
    `optimal_gamma(alpha, c_lower / c)` minimizes it; as there, a run of M_q takes the
    same time for gamma + 1 rows as for one, and drafts are long. Applied again, it is c
    of any number of levels. Section 6.

    Args:
      c: the time of a run of the draft model alone, in times of a run of M_p.
      alpha: how often the draft model accepts a token of the faster one.
      gamma: tokens that the faster one drafts for a run of the draft model.
      c_lower: the time of one of those tokens, in times of a run of M_p.

    Raises:
      ValueError: like `expected_tokens`, and for a c that is not finite or below 0.
    """
    tokens = expected_tokens(alpha, gamma)
    return _result((_cost("c", c) + check_gamma(gamma) * _cost("c", c_lower)) / tokens)


def oracle_factor(alpha: ArrayLike, c: ArrayLike) -> float | np.ndarray:
    """Returns the speedup of an oracle that drafts exactly the tokens to be accepted.

    The oracle still pays for each draft, and for one run of M_p per rejection. As long
    as c <= 1 no gamma, fixed or adaptive, does better, and no independence is assumed.
    Infinite at alpha = 1, c = 0. Section 3.5, last paragraph. Raises ValueError for
    alpha outside [0, 1] or c not finite or below 0.
    """
    alpha, c = _alpha(alpha), _cost("c", c)
    with np.errstate(divide="ignore"):
        # Time per token: one M_p run for each of the 1 - alpha rejections, and c for
        # each of the alpha drafts; E(tokens per run) = 1 / (1 - alpha).
        return _result(np.divide(1.0, (1 - alpha) + c * alpha))


def chen_r(tokens_per_call: ArrayLike, K: ArrayLike) -> float | np.ndarray:
    """Returns the acceptance rate r of Chen et al. (2023): tokens per call / (K + 1).

    `K` is gamma. Emitted tokens include the one resampled or added, so r >= 1/(K + 1)
    even if every draft is rejected. r is not alpha, and holds for this K only. Chen et
    al. (2023), Fig. 1, in the reading that their speedups confirm (`chen_speedup`).
    Raises ValueError for K not a whole number >= 0 or tokens outside [1, K + 1].
    """
    tokens, K = _tokens(tokens_per_call, check_gamma(K, "K"))
    return _result(tokens / (K + 1))


def chen_speedup(
    r: ArrayLike, K: ArrayLike, *, t_draft: ArrayLike, t_target: ArrayLike
) -> float | np.ndarray:
    """Returns the speedup, given `chen_r` and the times of a draft and a target run.

    Both times are in the same unit, whichever it is. This is Theorem 3.8 of Leviathan
    et al. with c = t_draft / t_target and with counted tokens in place of Eq. 1, so no
    independence is assumed. Raises ValueError for r outside (0, 1], K not a whole
    number >= 0, t_draft < 0 or t_target <= 0.
    """
    r, K, t_draft = _to_float64(r), check_gamma(K, "K"), _cost("t_draft", t_draft)
    t_target = _cost("t_target", t_target)
    if not np.all((r > 0) & (r <= 1)):
        raise ValueError("r must be in (0, 1]: divide tokens per call by K + 1")
    if not np.all(t_target > 0):
        raise ValueError("t_target must be > 0: pass the time of one target run")
    return _result(r * (K + 1) * t_target / (K * t_draft + t_target))


def implied_alpha(tokens_per_call: ArrayLike, gamma: ArrayLike) -> float | np.ndarray:
    """Returns the alpha at which Eq. 1 gives this many tokens per call.

    It is exactly 0 at one token and 1 at gamma + 1. Section 3.1, Eq. 1. Raises
    ValueError for tokens outside [1, gamma + 1], and unless gamma is whole and >= 1 (at
    gamma = 0 every alpha gives one token).
    """
    gamma = check_gamma(gamma)
    if not np.all(gamma >= 1):
        raise ValueError("gamma must be >= 1: without drafts alpha is not defined")
    tokens, gamma = np.broadcast_arrays(*_tokens(tokens_per_call, gamma))
    low, high = np.zeros(tokens.shape), np.ones(tokens.shape)
    for _ in range(64):  # below the spacing of float64 at every alpha above 1e-3
        middle = (low + high) / 2
        below = expected_tokens(middle, gamma) < tokens
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return _result(np.where(tokens == gamma + 1, 1.0, low))


def _to_float64(x: ArrayLike) -> np.ndarray:
    return np.asarray(x, np.float64)


def _result(x: np.ndarray) -> Any:
    return float(x) if np.ndim(x) == 0 else x


def _alpha(alpha: ArrayLike) -> np.ndarray:
    alpha = _to_float64(alpha)
    if not np.all((alpha >= 0) & (alpha <= 1)):  # nan fails too
        raise ValueError("alpha must be in [0, 1]: it is a mean of probabilities")
    return alpha


def check_gamma(gamma: ArrayLike, name: str = "gamma") -> np.ndarray:
    """Returns numbers of drafted tokens as float64.

    Raises ValueError unless each is a whole number >= 0.
    """
    gamma = _to_float64(gamma)
    if not np.all((gamma >= 0) & np.isfinite(gamma) & (gamma == np.floor(gamma))):
        raise ValueError(
            f"{name} must be a whole number >= 0: it counts drafted tokens, and comes "
            "before the cost ratio in the order of arguments"
        )
    return gamma


def _cost(name: str, c: ArrayLike) -> np.ndarray:
    c = _to_float64(c)
    if not np.all((c >= 0) & np.isfinite(c)):
        raise ValueError(f"{name} must be finite and >= 0: pass the measured cost")
    return c


def _tokens(tokens: ArrayLike, gamma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tokens = _to_float64(tokens)
    if not np.all((tokens >= 1) & (tokens <= gamma + 1)):
        raise ValueError(
            "tokens per call must be in [1, gamma + 1]: count the accepted tokens and "
            "the one that each call adds"
        )
    return tokens, gamma


def _distributions(p: ArrayLike, q: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    p, q = _to_float64(p), _to_float64(q)
    if p.ndim == 0 or q.ndim == 0 or p.shape[-1] != q.shape[-1]:
        raise ValueError(
            f"p and q need one vocabulary on the last axis, not {p.shape}, {q.shape}: "
            "map the drafter's tokens to the target's first"
        )
    for name, x in (("p", p), ("q", q)):
        # Loose enough for rows rounded to bfloat16.
        if not (np.all(x >= 0) and np.all(np.abs(x.sum(-1) - 1) < 1e-2)):
            raise ValueError(f"rows of {name} must sum to 1: pass softmax(logits)")
    return p, q
