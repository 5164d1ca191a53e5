"""Lenience: Algorithm 1 with q multiplied by l before it is compared with p.

p is the target, q the drafter, l the lenience in (0, 1], and beta_l the probability
that a token drawn from q is kept, as in Appendix A.5 of Leviathan et al. (2023). The
output no longer follows p, but no token is drawn with a probability above p / l. At l =
1 every verdict equals that of `verifiers.token`, which also decides here, on modified
arguments. Axes: B rows, G = gamma, V vocabulary.
"""

import math

import jax.numpy as jnp
from jax import Array

from specjax import probs
from specjax.types import Draft, FusedRule, Law, Lossy, Table, Verdict, Verifier
from specjax.verifiers import token

RESIDUALS = ("target_minus_draft", "scaled")


def build(lenience: float, residual: str = "target_minus_draft") -> Verifier:
    """Returns a verifier with this lenience; its noise is `verifiers.token.Noise`.

    A sampled row accepts x with probability min(1, p(x) / (l q(x))). After a rejection,
    "target_minus_draft" draws from norm(max(0, p - q)); the output is then beta_l -
    beta_1 from p in total variation, the least that any residual can reach. "scaled"
    draws from norm(max(0, p - l q)), as A.5 states, and ends farther from p. Both keep
    the output at most p / l; drawing from p itself does not.

    An argmax row (temperature 0) accepts x if p_raw(x) >= l max p_raw, where p_raw is
    the softmax of the raw logits, and emits the argmax after a rejection. A.5 prints
    <=, which cannot be meant: l = 1 would then accept everything and alpha would fall
    with l, whereas the paper's alpha at l = 1 is the strict 0.75 of Table 2 and rises
    as l falls.

    In every row, the token after a fully accepted draft is drawn from p. A row at
    temperature 1 whose top-k, top-p or min-p leaves a single id has the same `Law` as a
    row at temperature 0, and is treated as one.

    Args:
      lenience: l in (0, 1].
      residual: "target_minus_draft" or "scaled".

    Raises:
      ValueError: for a lenience outside (0, 1] or an unknown residual.
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
        """Decides as `verifiers.token.verify` does, with lenience."""
        gamma = draft.tokens.shape[1]
        p = probs.first_tokens(target, gamma)
        # Where an argmax row keeps x, its argmax replaces x, which is always accepted.
        near = within_lenience(p, draft.tokens, lenience)
        judged = draft._replace(tokens=jnp.where(near, p.tie, draft.tokens))
        scaled = residual == "scaled" and gamma > 0
        if scaled:
            judged = judged._replace(law=_scaled_law(lenience, draft, target))
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


def within_lenience(p: Law, ids: Array, lenience: float) -> Array:
    """Returns which `ids` [...] of an argmax row of p [...] lenience accepts, [...].

    It is False in sampled rows. At l = 1 it is False even between equal logits, because
    argmax takes the first of them and l = 1 is strict.
    """
    one_id = (p.scale == 1) & (p.tau == p.top) & (p.lse == 0)
    return one_id & (probs.at(relative_weights(p), ids) >= lenience) & (lenience < 1)


def relative_weights(p: Law) -> Law:
    """Returns the law of p_raw(x) / max p_raw, which is not normalized.

    It is p without its settings.
    """
    zero = jnp.zeros_like(p.lse)
    return p._replace(scale=zero + 1, tau=zero - jnp.inf, lse=zero)


def _scaled_law(lenience: float, draft: Draft, target: Law) -> Law:
    """Returns l times the law q of a draft, [B, G]: weights that sum to l."""
    q = draft.law
    if q is None:
        q = _certain_law(draft.tokens, target.logits.shape[-1])
    return q._replace(lse=q.lse - math.log(lenience))


def _certain_law(tokens: Array, vocab: int) -> Law:
    """Returns the law with all mass on `tokens` [B, G]: a table with a row for each."""
    row = jnp.arange(tokens.size, dtype=jnp.int32).reshape(tokens.shape)
    zero = jnp.zeros(tokens.shape)
    flat = tokens.reshape(-1, 1)
    empty = jnp.full(vocab, -jnp.inf)
    table = Table(empty, jnp.zeros(tokens.size), flat, jnp.zeros(flat.shape))
    last = jnp.full(tokens.shape, vocab - 1)
    return Law(table, zero + 1, zero, zero - jnp.inf, last, zero, row)


LOSSY = Lossy(build, 0.5, "l in (0, 1]: no token with more than p / l")
