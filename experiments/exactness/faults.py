"""Decoders that are broken on purpose, which an audit must reject.

Their texts look as good as right ones, and no test on a small vocabulary contains them.
Each function takes (draft, verifier) and returns both, one of them broken.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from specjax.drafts.source import SAMPLED, DraftSource, Recipe, recipe
from specjax.types import (
    Draft,
    Drafter,
    Law,
    Request,
    Sampling,
    State,
    Verdict,
    Verifier,
)
from specjax.verifiers import token

HOTTER = 1.1  # by how much a draft's law is hotter than what draws its tokens


def draft_temperature(
    draft: DraftSource, verifier: Verifier
) -> tuple[DraftSource, Verifier]:
    """Breaks the draft: tokens are drawn at T / HOTTER, while their law claims T."""
    if draft.regime != SAMPLED:
        raise ValueError(f"{draft.name} draws from no logits of its own: name a model")
    return draft._replace(
        factory=recipe(_build_colder_draft, factory=draft.factory)
    ), verifier


def _build_colder_draft(gamma: int, draw: Callable, factory: Recipe) -> Drafter:
    def begin(key: Array, request: Request, state: State, gamma: int) -> Callable:
        setting = Sampling(request.sampling.temperature / HOTTER)
        sharper = draw(key, request._replace(sampling=setting), state, gamma)
        claimed = draw(key, request, state, gamma)
        return lambda *at: (sharper(*at)[0], claimed(*at)[1])

    return factory(gamma=gamma, draw=begin)


def reused_key(draft: DraftSource, verifier: Verifier) -> tuple[DraftSource, Verifier]:
    """Breaks the verifier: the extra token is drawn with the uniform that rejected the
    draft.
    """
    if verifier.noise is not token.noise:
        raise ValueError("no uniform rejects in this rule: use token")

    def verify(
        target: Law, draft: Draft, noise: token.Noise, keep_residual: bool = False
    ) -> Verdict:
        n = verifier.verify(target, draft, noise).num_accepted[:, None]
        at = jnp.minimum(n, draft.tokens.shape[1] - 1)
        used = jnp.take_along_axis(noise.accept, at, axis=1)
        sample = jnp.where(n < draft.num[:, None], used, noise.sample)
        noise = noise._replace(sample=sample)
        return verifier.verify(target, draft, noise, keep_residual)

    return draft, Verifier(token.noise, verify)
