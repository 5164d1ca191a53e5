"""Sigmoids in place of softmax: Wagner et al. (2024), Section 3.2.2. Lossy, no bound.

https://arxiv.org/abs/2406.11016. The weights p^ and q^ are sigmoids of scaled logits:
elementwise, therefore cheap on a GPU, and almost equal for every id. With the paper's
constants nearly every draft is kept, and the token after it is almost uniform. The rule
is here to be measured beside exact rules, not for use in decoding. It follows the
paper's equations; `verifiers.sigmoid_released` follows the authors' code, which draws
the token after the kept drafts differently.

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
    """Returns the rule with scale constants alpha < 0 < beta.

    Its noise is `verifiers.token.Noise`.

    Weights, Eq. 5: p^ = 1 / (1 + exp(-(z - alpha) / (beta - alpha))), where z is the
    target's logit divided by the temperature; q^ is the same of the draft's logit. An
    id removed by top-k, top-p, min-p or argmax has z = -inf and so weight 0. A
    deterministic drafter has weight 1 at its own token.

    Acceptance, Eq. 6: r < min(1, p^ / q^). The paper has r <= min(1, p^ / q^), which
    differs only where both are equal, and would accept an id of weight 0 at r = 0.

    Extra token: after a rejection norm(max(0, p^ - q^)), Eq. 7, or norm(p^) where that
    is empty, which can happen since weights do not sum to 1. After a fully accepted
    draft norm(p^).

    Half precision ends at 65504: beyond it alpha and beta are infinite and every weight
    is NaN. A comparison with NaN is false, so nothing is kept. The paper does not say
    what is drawn from a residual of NaN; here every id that p keeps is then equally
    likely.

    Args:
      alpha: negative scale constant.
      beta: positive scale constant.
      dtype: the precision of Eq. 5: "float32" (wider where logits are), or "float16",
        the paper's half precision. Everything after Eq. 5 is in float32.

    Raises:
      ValueError: unless alpha < 0 < beta, both finite; and for another dtype.
    """
    verify = build_verify(build_squash(alpha, beta, dtype), _extra_weights)
    rule = FusedRule(sigmoid=(alpha, beta)) if dtype == "float32" else None
    return Verifier(token.noise, verify, GUARANTEE, law=law, rule=rule)


def build_verify(squash: Callable, extra_weights: Callable) -> Callable:
    """Returns the `verify` of a sigmoid rule.

    Args:
      squash: (logits over the temperature, whether each id is kept) -> weights.
      extra_weights: (row of p, p^, q^, whether the draft was fully accepted) -> weights
        [B, V] of the token after the kept drafts.
    """
    dense, at = partial(_dense_weights, squash), partial(_weights_at, squash)

    def verify(
        target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
    ) -> Verdict:
        """Decides as `verifiers.token.verify` does, with p^ and q^."""
        gamma, vocab = draft.tokens.shape[1], target.logits.shape[-1]
        live = jnp.arange(gamma) < draft.num[:, None]
        p_x = at(probs.first_tokens(target, gamma), draft.tokens)
        q_x = jnp.ones_like(p_x) if draft.law is None else at(draft.law, draft.tokens)
        # Eq. 6; a comparison with NaN is false.
        positive = (p_x > 0) & (q_x > 0)
        ratio = jnp.minimum(1.0, p_x / jnp.where(positive, q_x, 1.0))
        ratio = jnp.where(positive & live, ratio, 0.0)
        accepted = noise.accept < ratio
        n = jnp.sum(jnp.cumprod(accepted, axis=1), axis=1, dtype=jnp.int32)

        row = probs.take(target, n)
        q = _rejected_weights(draft, n, vocab, dense)
        left = extra_weights(row, dense(row), q, n == draft.num)
        tokens = token.emit(draft, n, probs.pick(left, noise.sample))
        residual = left if keep_residual else None
        return Verdict(n, tokens, ratio, residual=residual)

    return verify


def _extra_weights(row: Law, p: Array, q: Array, whole: Array) -> Array:
    """Returns the weights of Eq. 7, or p^, or equal ones: the first of these that is
    not all 0.

    q^ is 0 after a fully accepted draft. NaN counts as 0.
    """
    del whole
    left = jnp.fmax(p - q, 0.0)
    for other in (jnp.fmax(p, 0.0), support(row).astype(p.dtype)):
        empty = ~left.any(axis=1, keepdims=True)
        left = jnp.where(empty, other, left)
    return left


def weights(alpha: float, beta: float, dtype: str = "float32") -> Callable:
    """Returns the function of Eq. 5: Law [...] -> weights [..., V].

    Raises ValueError like `build`.
    """
    return partial(_dense_weights, build_squash(alpha, beta, dtype))


def _dense_weights(squash: Callable, law: Law) -> Array:
    """Returns Eq. 5 for every id, [..., V]."""
    return squash(raw_logits(law) * law.scale[..., None], support(law))


def _weights_at(squash: Callable, law: Law, ids: Array) -> Array:
    """Returns Eq. 5 for one id per row: ids [...] -> weights [...]."""
    z = jnp.take_along_axis(raw_logits(law), ids[..., None], axis=-1)[..., 0]
    return squash(z * law.scale, probs.at(_unit_law(law), ids) > 0)


def build_squash(
    alpha: float, beta: float, dtype: str, bounded: bool = False
) -> Callable:
    """Returns the function (z, kept) -> Eq. 5 where `kept`, and 0 elsewhere.

    `bounded` makes it 0 below alpha and 1 above beta. Raises ValueError like `build`.
    """
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
        with np.errstate(over="ignore"):  # overflows to infinity, see `build`
            low, high = np.array([alpha, beta]).astype(z.dtype)
            width = high - low
        weight = jax.nn.sigmoid((z - low) / width)
        if bounded:
            weight = jnp.where(z < low, 0, jnp.where(z > high, 1, weight))
        return jnp.where(kept, weight.astype(wide), 0)

    return squash


def law(logits: Array, sampling: Sampling) -> Law:
    """Returns `probs.standardize(logits, sampling)` without its normalizer.

    No sigmoid reads the normalizer. Unless a filter or argmax is used, nothing is
    reduced over V. logits: [B, ..., V].
    """
    if any(setting is not None for setting in sampling[1:]):
        return probs.standardize(logits, sampling)
    rows, vocab = logits.shape[:-1], logits.shape[-1]

    def read_full_law() -> tuple[Array, ...]:
        return tuple(probs.standardize(logits, sampling)[1:6])

    def read_scaled_law() -> tuple[Array, ...]:
        temperature = sampling.temperature.reshape(-1, *(1,) * (logits.ndim - 2))
        scale = jnp.broadcast_to(1 / temperature, rows)
        zero = jnp.zeros_like(scale)
        last = jnp.full(rows, vocab - 1, jnp.int32)
        return scale, zero, zero - jnp.inf, last, zero

    greedy = jnp.any(sampling.temperature == 0)
    return Law(logits, *jax.lax.cond(greedy, read_full_law, read_scaled_law))


def raw_logits(law: Law) -> Array:
    """Returns all logits of a law, [..., V], in float32 or wider."""
    z = law.logits
    if isinstance(z, Table):
        assert law.row is not None  # as of tables
        z = probs.table_rows(z, law.row)
    return z.astype(jnp.promote_types(z.dtype, jnp.float32))


def support(law: Law) -> Array:
    """Returns which ids the law can draw, however unlikely; bool [..., V]."""
    return probs.dense(_unit_law(law)) > 0


def _unit_law(law: Law) -> Law:
    """Returns a law of weight 1 at each kept id, NaN where the logit is not finite."""
    zero = jnp.zeros_like(law.lse)
    return law._replace(scale=zero, top=zero, lse=zero)


def _rejected_weights(draft: Draft, n: Array, vocab: int, dense: Callable) -> Array:
    """Returns q^ [B, V] of the first rejected token; 0 where none was rejected."""
    if draft.law is None or draft.tokens.shape[1] == 0:
        return token.rejected_law(draft, n, vocab)
    q = dense(probs.take(draft.law, jnp.minimum(n, draft.tokens.shape[1] - 1)))
    return jnp.where((n < draft.num)[:, None], q, 0.0)


LOSSY = Lossy(lambda scale: build(-scale, scale), 1e3, MEANING)
