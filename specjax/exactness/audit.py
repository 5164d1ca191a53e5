"""A test of whether a run kept the target's distribution, from the run's own texts.

Let h_t(x) be any statistic that is known before token t is drawn; it may depend on the
prefix, p_t and q_t. If every x_t follows p_t, then M = sum_t [h_t(x_t) - E_p h_t] is a
martingale, and Z = M / sqrt(sum_t Var_p h_t) tends to N(0, 1). One pass over the texts
tests that with five statistics (`NAMES`) and Bonferroni's p-value. The statistics also
give E, a product of likelihood ratios with mean 1, which ever reaches 1 / level with
probability at most `level` (Ville): it is valid at every length, and may be watched
while a run continues.

The test cannot detect effects smaller than `limits` says, nor randomness that texts
share. Where few tokens are free to differ (a low temperature), Z is far from normal:
use E. p is the target, q the drafter. Axes: B rows, T tokens, V vocabulary, M generated
tokens in all, S = 5 statistics, 2 for a draft without probabilities, K values of
lambda."""

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftSource
from specjax.measure import lenience, scoring, texts
from specjax.measure.texts import Calls, Protocol, Text
from specjax.prompts import Prompts
from specjax.types import Kernels, Law

# Surprisal in nats; 1{x = argmax p}; log q/p within +-5; min(q/p, 50); 1{x = argmax q}.
NAMES = ("surprisal", "argmax", "log_ratio", "ratio", "draft_argmax")
# The tilts of E's alternatives to either side, so small that a / p is nearly linear in
# h and adds no noise. With the lambdas they reach from a quarter of h's own scale down
# to effects that only millions of tokens show.
TILTS = (0.1, 0.5, 0.2, 0.02, 0.5)
SMALLEST = float(np.finfo(np.float32).tiny)  # smaller numbers are 0 on some hardware


Pair = tuple[Pretrained, DraftSource]  # target, draft


class Steps(NamedTuple):
    """The statistics of each generated token x.

    deviation: h(x) - E_p h, [M, S]. variance: its mean square under p. pull, square:
    its mean and mean square under q. log_ratio [M, S, 2]: log a(x) / p(x) for a = p
    tilted by h to either side. impossible [M]: p(x) = 0, where the other fields have no
    meaning. sequence [M]: the text that the token belongs to."""

    deviation: np.ndarray
    variance: np.ndarray
    pull: np.ndarray
    square: np.ndarray
    log_ratio: np.ndarray
    impossible: np.ndarray
    sequence: np.ndarray


def score(pair: Pair, text: Text, temperature: float, **truncation: Any) -> Steps:
    """Returns the statistics of every generated token of `text`, by one pass of each
    model.

    truncation: top_k, top_p and min_p of both models (`DecodeConfig`). A draft
    without probabilities is not run: two statistics need p alone."""
    target, draft = pair
    if draft.law is None:
        draft = draft._replace(law=_no_law)
    both = target, draft
    scores = scoring.positions(both, text, temperature, score_tokens, **truncation)
    steps = Steps(*scores)
    if not all(np.isfinite(leaf).all() for leaf in steps[:5]):
        raise ValueError(
            f"the probabilities of {target.name} or {draft.name} are not finite:"
            " check its weights"
        )
    return steps


def score_tokens(p_law: Law, q_law: Law | None, written: Array) -> tuple[Array, ...]:
    """Returns the fields of `Steps` but the sequence, as [B, T, ...], for `written` [B,
    T]."""
    p = probs.dense(p_law)
    q = jnp.zeros_like(p) if q_law is None else probs.dense(q_law)
    tested = NAMES[:2] if q_law is None else NAMES

    # Row by row, so that what is summed over V stays in the processor's own memory.
    def score(row: tuple) -> Any:
        p, q, written = row
        return score_row(p, q, written, tested)

    return jax.lax.map(score, (p, q, written))


def score_row(p: Array, q: Array, written: Array, tested: tuple) -> tuple[Array, ...]:
    """Returns `score_tokens` of a row: p, q [T, V], where q is 0 if it is not
    tested."""
    inside = p >= SMALLEST
    p, q = jnp.where(inside, p, 0.0), jnp.where(inside, q, 0.0)
    p = p / p.sum(-1, keepdims=True)
    log_p = jnp.log(jnp.where(inside, p, 1.0))
    dense = {
        "surprisal": -log_p,
        "log_ratio": jnp.clip(jnp.log(q) - log_p, -5.0, 5.0),
        "ratio": jnp.minimum(q / jnp.where(inside, p, 1.0), 50.0),
    }
    statistics = []
    for name, tilt in zip(tested, TILTS, strict=False):
        if name in dense:
            statistics.append(score_statistic(dense[name], tilt, p, q, written))
        else:
            law = p if name == "argmax" else q
            statistics.append(score_largest(law, tilt, p, q, written))
    fields = (jnp.stack(leaf, axis=1) for leaf in zip(*statistics, strict=True))
    return *fields, ~gather(inside, written)


def score_statistic(
    h: Array, tilt: float, p: Array, q: Array, written: Array
) -> tuple[Array, ...]:
    """Returns the first five fields of `Steps` for a statistic h [T, V], which is read
    only where p > 0."""
    h = jnp.where(p > 0, h - jnp.sum(p * h, axis=-1, keepdims=True), 0.0)
    x = gather(h, written)
    # a = p exp(s h) / E_p exp(s h)
    ratios = [s * x - jnp.log(jnp.sum(p * jnp.exp(s * h), -1)) for s in (tilt, -tilt)]
    means = jnp.sum(p * h * h, -1), jnp.sum(q * h, -1), jnp.sum(q * h * h, -1)
    return x, *means, jnp.stack(ratios, axis=-1)


def score_largest(
    law: Array, tilt: float, p: Array, q: Array, written: Array
) -> tuple[Array, ...]:
    """Returns the first five fields of `Steps` for h = 1{x = argmax law}, whose
    deviation takes two values."""
    vocab, top = law.shape[-1], law.max(-1, keepdims=True)
    # The first of the largest, by reductions that vectorize everywhere.
    largest = jnp.min(jnp.where(law == top, jnp.arange(vocab), vocab - 1), axis=-1)
    share, q_largest = gather(p, largest), gather(q, largest)
    q_others = q.sum(-1) - q_largest
    x = (written == largest) - share
    ratios = []
    for s in (tilt, -tilt):
        mean = share * jnp.exp(s * (1 - share)) + (1 - share) * jnp.exp(-s * share)
        ratios.append(s * x - jnp.log(mean))
    pull = q_largest * (1 - share) - q_others * share
    square = q_largest * (1 - share) ** 2 + q_others * share**2
    return x, share * (1 - share), pull, square, jnp.stack(ratios, axis=-1)


def gather(values: Array, ids: Array) -> Array:
    """Returns the values at `ids`, along the last axis."""
    return jnp.take_along_axis(values, ids[..., None], axis=-1)[..., 0]


LAMBDAS = 4.0 ** -np.arange(4)

LEVEL, POWER = 1e-4, 0.999


class Sums(NamedTuple):
    """Sums over tokens; `add` combines those of two runs.

    free: the number of tokens that were free to differ. The other fields are those of
    `Steps`, [S] float64."""

    tokens: int
    impossible: int
    free: int
    deviation: np.ndarray
    variance: np.ndarray
    pull: np.ndarray
    square: np.ndarray


class Limits(NamedTuple):
    """The smallest effects that a run of this length detects.

    shift: by statistic, a shift of its mean per token, in its units; None where it
    cannot vary. leak: the share of tokens that come from q instead of p; None where no
    share would be detected."""

    shift: dict[str, float | None]
    leak: float | None


class Audit(NamedTuple):
    """The verdict on a run.

    z: by statistic, None where it cannot vary, as at temperature 0. Then only
    impossible tokens can be detected, and a single one fails the run. p_value:
    Bonferroni's, 0 with an impossible token. passed: p_value is at least the level."""

    tokens: int
    impossible: int
    free: int
    z: dict[str, float | None]
    p_value: float
    passed: bool
    limits: Limits


def _no_law(params: Any, prompt: Any, sampling: Any) -> Any:
    """Stands in for the law of a draft without probabilities."""
    return None


def total(steps: Steps) -> Sums:
    """Returns the sums over tokens."""
    sums: Any = (np.sum(leaf, axis=0, dtype=np.float64) for leaf in steps[:4])
    free = np.asarray((steps.variance > 0).any(axis=1))
    return Sums(len(free), int(steps.impossible.sum()), int(free.sum()), *sums)


def add(sums: Sums, other: Sums) -> Sums:
    """Returns the sums of two runs together."""
    pairs: Any = zip(sums, other, strict=True)
    return Sums(*(a + b for a, b in pairs))


def judge(sums: Sums, level: float = LEVEL) -> Audit:
    """Returns the verdict, which fails an exact run with probability `level`.

    Raises ValueError for no tokens, or a level outside (0, 1)."""
    bounds = limits(sums, level)
    z: dict[str, float | None] = dict.fromkeys(bounds.shift)
    p_values = [1.0]
    for name, deviation, variance in zip(z, sums.deviation, sums.variance, strict=True):
        if variance > 0:
            score = float(deviation / math.sqrt(variance))
            z[name] = score
            p_values.append(math.erfc(abs(score) / math.sqrt(2)))
    p_value = min(1.0, (len(p_values) - 1) * min(p_values)) if p_values[1:] else 1.0
    p_value = 0.0 if sums.impossible else p_value
    return Audit(
        tokens=sums.tokens,
        impossible=sums.impossible,
        free=sums.free,
        z=z,
        p_value=p_value,
        passed=p_value >= level,
        limits=bounds,
    )


def limits(sums: Sums, level: float = LEVEL, power: float = POWER) -> Limits:
    """Returns the effects that a run like this one detects with probability `power`.

    A z must pass c = quantile(1 - level / (2 S)) of N(0, 1) by quantile(power) standard
    errors, which a leak also widens. Shifts fall as 1 / sqrt(tokens), leaks a little
    faster. Raises ValueError as `judge`."""
    if not (0 < level < 1 and 0 < power < 1):
        raise ValueError(f"level and power must be in (0, 1); got {level} and {power}")
    if sums.tokens < 1:
        raise ValueError("there are no tokens to audit: decode some")
    tested = max(int((sums.variance > 0).sum()), 1)
    c = -NormalDist().inv_cdf(level / (2 * tested))
    k, columns = NormalDist().inv_cdf(power), np.stack(sums[3:], axis=1)
    shift, leaks = {}, []
    for name, (_, variance, pull, square) in zip(NAMES, columns, strict=False):
        sd = math.sqrt(variance)
        shift[name] = float((c + k) * sd / sums.tokens) if sd > 0 else None
        if sd > 0 and pull != 0:
            leaks.append(float(smallest_leak(sd, abs(pull), square, c, k)))
    return Limits(shift, min((e for e in leaks if e <= 1), default=None))


def smallest_leak(sd: float, pull: float, square: float, c: float, k: float) -> float:
    """Returns the smallest share e of tokens from q that one statistic detects.

    It solves e pull = c sd + k sqrt((1 - e) sd^2 + e square); infinity if nothing does.
    """
    half = c * sd * pull + k**2 * (square - sd**2) / 2
    root = half**2 - pull**2 * (c**2 - k**2) * sd**2
    if root < -1e-9 * half**2:  # more than rounding
        return math.inf
    return (half + math.copysign(math.sqrt(max(root, 0.0)), k)) / pull**2


def evidence(
    steps: Steps, wealth: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns log E after each token [M], and the `wealth` with which a later part of
    the run goes on.

    E is the mean over statistics, their tilts a to either side, and lambda, of prod_t
    [(1 - lambda) + lambda a(x_t) / p(x_t)]; it is infinite from an impossible token on.
    wealth: the logarithm of each product, [S, 2, K]."""
    if wealth is None:
        wealth = np.zeros((*steps.log_ratio.shape[1:], LAMBDAS.size))
    with np.errstate(divide="ignore"):
        stays = np.log1p(-LAMBDAS)
    moves = np.log(LAMBDAS) + steps.log_ratio[..., None].astype(np.float64)
    path = wealth + np.cumsum(np.logaddexp(stays, moves), axis=0)
    path[np.logical_or.accumulate(steps.impossible)] = np.inf
    products = path.reshape(len(path), -1)
    log_e = np.logaddexp.reduce(products, axis=1) - math.log(wealth.size)
    return log_e, path[-1] if len(path) else wealth


def alarm(log_e: np.ndarray, level: float = LEVEL) -> int | None:
    """Returns the number of tokens after which E first reached 1 / level, or None."""
    reached = log_e >= -math.log(level)
    return int(reached.argmax()) + 1 if reached.any() else None


def run(
    pair: Pair, prompts: Prompts, protocol: Protocol, kernels: Kernels
) -> tuple[Steps, Calls]:
    """Returns the statistics of one run, by `write` and `score`, and its calls."""
    text, calls = write(pair, prompts, protocol, kernels)
    decode = protocol.decode
    return score(pair, text, decode.temperature, **decode.truncation()), calls


def write(
    pair: Pair, prompts: Prompts, protocol: Protocol, kernels: Kernels | None = None
) -> tuple[Text, Calls]:
    """Returns texts by speculation, in whole batches, of `protocol.tokens` tokens or
    more.

    They are those of `texts.speculate`, which needs the number of texts in advance. The
    decision to stop depends only on the tokens written so far, so M stays a martingale.
    kernels: the programs that verify and draw; None is the protocol's rule by the
    reference."""
    starts, decoded, written = [], [], 0
    count = texts.max_sequences(prompts, protocol)
    for prompt, calls in texts.decode(pair, prompts, count, protocol, kernels=kernels):
        tokens, length = np.asarray(prompt.tokens), np.asarray(prompt.length)
        starts.append(Text(tokens, length, length, prompt.inputs))
        decoded.append(calls)
        written += int(calls.tokens.sum())
        if written >= protocol.tokens:
            break
    calls = texts.join_calls(decoded, count)
    prompted = jax.tree.map(lambda leaf: leaf[:count], texts.join(starts))
    return lenience.outputs(prompted, calls), calls
