"""Sigmoids for softmax: Wagner et al. (2024), Section 3.2.2. Lossy, without a bound.

https://arxiv.org/abs/2406.11016. The weights p^, q^ are sigmoids of scaled logits:
elementwise, and so cheap on a GPU, and nearly the same for every id. With the paper's
constants nearly every draft is kept and the token after it is nearly uniform:
reproduced to be measured beside exact rules, not to be decoded with. This is the rule
as the paper prints it; `verifiers.sigmoid_released` is that of the authors' code, which
draws the token after the kept drafts otherwise.
p is the target, q the drafter. Axes: B rows, G = gamma, V vocabulary.
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs
from specjax.types import (
    Draft,
    FusedRule,
    Law,
    Lossy,
    Sampling,
    Table,
    Verdict,
    Verifier,
)
from specjax.verifiers import token

DTYPES = ("float32", "float16")
GUARANTEE = "lossy: sigmoids of scaled logits stand for both laws, no bound"
MEANING = "beta = -alpha > 0, no bound"


def build(alpha: float, beta: float, dtype: str = "float32") -> Verifier:
    """The rule with scale constants alpha < 0 < beta; noise is `verifiers.token.Noise`.

    Weights, Eq. 5: p^ = 1 / (1 + exp(-(z - alpha) / (beta - alpha))) of the logit z of
    the target divided by the temperature, q^ of the draft's. An id that top-k, top-p,
    min-p or argmax removed has a logit of -inf there, so a weight of 0; a drafter that
    is certain has a weight of 1 at its own token. Kept, Eq. 6: r < min(1, p^ / q^); the
    paper has r <= min(1, p^ / q^), which differs only where both are equal, and would
    keep an id of weight 0 at r = 0. After a rejection, Eq. 7: norm(max(0, p^ - q^)), or
    norm(p^) where that is empty, as it may be, since weights do not sum to 1. After a
    draft that is kept whole: norm(p^). dtype: of Eq. 5, "float32" (or wider, where
    logits are) or "float16" for half precision as in the paper; what follows it is in
    float32. Half precision ends at 65504: beyond it alpha and beta are infinite and
    every weight is NaN. A comparison with NaN is false, so nothing is kept; the paper
    does not say what is then drawn from a residual of NaN, and here every id that p
    keeps is equally likely. Raises ValueError unless alpha < 0 < beta, both finite, or
    for another dtype.
    """
    verify = decide(squashed(alpha, beta, dtype), _printed)
    rule = FusedRule(sigmoid=(alpha, beta)) if dtype == "float32" else None
    return Verifier(token.noise, verify, GUARANTEE, law=law, rule=rule)


def decide(squash: Callable, end: Callable) -> Callable:
    """The `verify` of a rule by sigmoids.

    squash: (logits over the temperature, whether an id is kept) -> weights.
    end: (row of p, p^, q^, whether the draft was kept whole) -> the weights [B, V] of
    the token after the drafts that were kept.
    """
    dense, at = partial(_dense, squash), partial(_at, squash)

    def verify(
        target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
    ) -> Verdict:
        """As `verifiers.token.verify`, which see, with p^ and q^."""
        gamma, vocab = draft.tokens.shape[1], target.logits.shape[-1]
        live = jnp.arange(gamma) < draft.num[:, None]
        p_x = at(probs.first(target, gamma), draft.tokens)
        q_x = jnp.ones_like(p_x) if draft.law is None else at(draft.law, draft.tokens)
        # Eq. 6; NaN is not above 0.
        positive = (p_x > 0) & (q_x > 0)
        ratio = jnp.minimum(1.0, p_x / jnp.where(positive, q_x, 1.0))
        ratio = jnp.where(positive & live, ratio, 0.0)
        accepted = noise.accept < ratio
        n = jnp.sum(jnp.cumprod(accepted, axis=1), axis=1, dtype=jnp.int32)

        row = probs.take(target, n)
        left = end(row, dense(row), _rejected(draft, n, vocab, dense), n == draft.num)
        tokens = token.emit(draft, n, probs.pick(left, noise.sample))
        residual = left if keep_residual else None
        return Verdict(n, tokens, ratio, residual=residual)

    return verify


def _printed(row: Law, p: Array, q: Array, whole: Array) -> Array:
    """Eq. 7, q^ being 0 after a whole draft; p^ where it is empty; 0 and not NaN."""
    del whole
    left = jnp.fmax(p - q, 0.0)
    for other in (jnp.fmax(p, 0.0), support(row).astype(p.dtype)):
        empty = ~left.any(axis=1, keepdims=True)
        left = jnp.where(empty, other, left)
    return left


def weights(alpha: float, beta: float, dtype: str = "float32") -> Callable:
    """Eq. 5: Law [...] -> weights [..., V]. Raises ValueError as `build`."""
    return partial(_dense, squashed(alpha, beta, dtype))


def _dense(squash: Callable, law: Law) -> Array:
    """Eq. 5 of every id, [..., V]."""
    return squash(logits_of(law) * law.scale[..., None], support(law))


def _at(squash: Callable, law: Law, ids: Array) -> Array:
    """Eq. 5 of one id a row: ids [...] -> weights [...]."""
    z = jnp.take_along_axis(logits_of(law), ids[..., None], axis=-1)[..., 0]
    return squash(z * law.scale, probs.at(_level(law), ids) > 0)


def squashed(alpha: float, beta: float, dtype: str, bounded: bool = False) -> Callable:
    """(z, kept) -> Eq. 5 where `kept`, 0 elsewhere; `bounded`: 0 below alpha, 1 above
    beta. Raises ValueError as `build`."""
    if not -math.inf < alpha < 0 < beta < math.inf:
        raise ValueError(
            f"need alpha < 0 < beta, both finite; got {alpha}, {beta}: Wagner et al."
            " take -1e3, 1e3 for speech and -1e4, 1e4 for summaries"
        )
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {DTYPES}; got {dtype!r}")

    def squash(z: Array, kept: Array) -> Array:
        wide = z.dtype
        z = z.astype(jnp.float16) if dtype == "float16" else z
        with np.errstate(over="ignore"):  # to infinity, as `build` tells
            low, high = np.array([alpha, beta]).astype(z.dtype)
            width = high - low
        weight = jax.nn.sigmoid((z - low) / width)
        if bounded:
            weight = jnp.where(z < low, 0, jnp.where(z > high, 1, weight))
        return jnp.where(kept, weight.astype(wide), 0)

    return squash


def law(logits: Array, sampling: Sampling) -> Law:
    """`probs.standardize` of logits [B, ..., V] but for its normaliser, which no
    sigmoid reads; nothing is reduced over V where no filter or argmax asks for it."""
    if any(setting is not None for setting in sampling[1:]):
        return probs.standardize(logits, sampling)
    rows, vocab = logits.shape[:-1], logits.shape[-1]

    def full() -> tuple[Array, ...]:
        return tuple(probs.standardize(logits, sampling)[1:6])

    def plain() -> tuple[Array, ...]:
        heat = sampling.temperature.reshape(-1, *(1,) * (logits.ndim - 2))
        scale = jnp.broadcast_to(1 / heat, rows)
        zero = jnp.zeros_like(scale)
        last = jnp.full(rows, vocab - 1, jnp.int32)
        return scale, zero, zero - jnp.inf, last, zero

    greedy = jnp.any(sampling.temperature == 0)
    return Law(logits, *jax.lax.cond(greedy, full, plain))


def logits_of(law: Law) -> Array:
    """Every logit of a law, [..., V], as it was written, float32 or wider."""
    z = law.logits
    z = probs.table_rows(z, law.row) if isinstance(z, Table) else z
    return z.astype(jnp.promote_types(z.dtype, jnp.float32))


def support(law: Law) -> Array:
    """[..., V] bool: the ids that the law can draw, however unlikely."""
    return probs.dense(_level(law)) > 0


def _level(law: Law) -> Law:
    """Weight 1 at every id that is kept; NaN at one whose logit is -inf or NaN."""
    zero = jnp.zeros_like(law.lse)
    return law._replace(scale=zero, top=zero, lse=zero)


def _rejected(draft: Draft, n: Array, vocab: int, dense: Callable) -> Array:
    """q^ [B, V] of the first rejected token; 0 where none was rejected."""
    if draft.law is None or draft.tokens.shape[1] == 0:
        return token.rejected_law(draft, n, vocab)
    q = dense(probs.take(draft.law, jnp.minimum(n, draft.tokens.shape[1] - 1)))
    return jnp.where((n < draft.num)[:, None], q, 0.0)


LOSSY = Lossy(lambda scale: build(-scale, scale), 1e3, MEANING)
