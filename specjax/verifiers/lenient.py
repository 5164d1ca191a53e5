"""Lenience: Algorithm 1 with q multiplied by l before it is compared with p.

p is the target, q the drafter, l the lenience in (0, 1], beta_l the probability that a
token drawn from q is kept, as in Appendix A.5 of Leviathan et al. (2023). The output no
longer follows p, but no token is drawn with more than p / l. At l = 1 every verdict is
that of `verifiers.token`, which decides here too, on other arguments.
Axes: B rows, G = gamma, V vocabulary.
"""

import math

import jax.numpy as jnp
from jax import Array

from specjax import probs
from specjax.types import Draft, FusedRule, Law, Lossy, Table, Verdict, Verifier
from specjax.verifiers import token

RESIDUALS = ("target_minus_draft", "scaled")


def build(lenience: float, residual: str = "target_minus_draft") -> Verifier:
    """A verifier of this lenience; its noise is `verifiers.token.Noise`.

    A sampled row accepts x with probability min(1, p(x) / (l q(x))). On a rejection it
    draws from norm(max(0, p - q)), which leaves it beta_l - beta_1 from p in total
    variation, the least that any residual can; "scaled" draws from norm(max(0, p - l
    q)), A.5 to the letter, and is further away. Both keep the output at most p / l;
    drawing from p itself does not. An argmax row (temperature 0) accepts x if p_raw(x)
    >= l max p_raw, for p_raw the softmax of the raw logits, and emits the argmax on a
    rejection. A.5 prints <=, which cannot be meant: l = 1 would then accept everything,
    and alpha fall with l, where the paper's alpha at l = 1 is the strict 0.75 of Table
    2 and rises as l falls. Whatever the row, the token after a draft that is kept whole
    is drawn from p. A temperature of 1 that top-k, top-p or min-p cut to one id is the
    same `Law` as temperature 0, and is treated as that. Raises ValueError for a
    lenience outside (0, 1] or an unknown residual.
    """
    if not 0 < lenience <= 1:
        raise ValueError(
            f"lenience must be in (0, 1], and 1 is strict; got {lenience}:"
            " 0.5 lets no token be drawn with more than twice its probability"
        )
    if residual not in RESIDUALS:
        raise ValueError(f"residual must be one of {RESIDUALS}; got {residual!r}")
    guarantee = "lenient: at most p / l" if lenience < 1 else "exact law"

    def verify(
        target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
    ) -> Verdict:
        """As `verifiers.token.verify`, which see, with lenience."""
        gamma = draft.tokens.shape[1]
        p = probs.first(target, gamma)
        # Where an argmax row keeps x, its argmax stands in for x: it is sure to pass.
        near = tolerated(p, draft.tokens, lenience)
        judged = draft._replace(tokens=jnp.where(near, p.tie, draft.tokens))
        scaled = residual == "scaled" and gamma > 0
        if scaled:
            judged = judged._replace(law=_times(lenience, draft, target))
        else:  # u (l q) < p is (l u) q < p, which leaves q as it is in the residual
            noise = noise._replace(accept=lenience * noise.accept)
        verdict = token.verify(target, judged, noise, keep_residual)

        kept = jnp.arange(gamma + 1) < verdict.num_accepted[:, None]
        tokens = jnp.pad(draft.tokens, ((0, 0), (0, 1)))
        chance = verdict.accept_prob if scaled else verdict.accept_prob / lenience
        return verdict._replace(
            tokens=jnp.where(kept, tokens, verdict.tokens),
            accept_prob=jnp.minimum(1.0, chance),
        )

    rule = FusedRule(lenience, residual == "scaled")
    return Verifier(token.noise, verify, guarantee, rule=rule)


def tolerated(p: Law, ids: Array, lenience: float) -> Array:
    """Which `ids` [...] an argmax row of p [...] accepts by lenience; bool [...].

    False in sampled rows, and at l = 1 even where logits are equal: argmax is the first
    of them, and strict.
    """
    one_id = (p.scale == 1) & (p.tau == p.top) & (p.lse == 0)
    return one_id & (probs.at(relative(p), ids) >= lenience) & (lenience < 1)


def relative(p: Law) -> Law:
    """p before it was standardized: weights p_raw(x) / max p_raw, not normalised."""
    zero = jnp.zeros_like(p.lse)
    return p._replace(scale=zero + 1, tau=zero - jnp.inf, lse=zero)


def _times(lenience: float, draft: Draft, target: Law) -> Law:
    """l q of a draft, [B, G]; weights that sum to l."""
    q = draft.law
    if q is None:
        q = _certain(draft.tokens, target.logits.shape[-1])
    return q._replace(lse=q.lse - math.log(lenience))


def _certain(tokens: Array, vocab: int) -> Law:
    """All of the mass on `tokens` [B, G], by a table with a row for each."""
    row = jnp.arange(tokens.size, dtype=jnp.int32).reshape(tokens.shape)
    zero = jnp.zeros(tokens.shape)
    flat = tokens.reshape(-1, 1)
    empty = jnp.full(vocab, -jnp.inf)
    table = Table(empty, jnp.zeros(tokens.size), flat, jnp.zeros(flat.shape))
    last = jnp.full(tokens.shape, vocab - 1)
    return Law(table, zero + 1, zero, zero - jnp.inf, last, zero, row)


LOSSY = Lossy(build, 0.5, "l in (0, 1]: no token with more than p / l")
