"""Decoders that are broken on purpose, which an audit must not pass.

Their texts look as good, and no test on a small vocabulary has them in hand. Each takes
(draft, verifier) and gives both, one of them broken.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from specjax import sides
from specjax.drafters.rollout import independent
from specjax.sides import Side
from specjax.types import Draft, Law, Request, Sampling, State, Verdict, Verifier
from specjax.verifiers import token

HOTTER = 1.1  # by how much a draft's law is hotter than what draws its tokens


def draft_temperature(draft: Side, verifier: Verifier) -> tuple[Side, Verifier]:
    """Tokens are drawn at T / HOTTER from a law that says T."""
    if draft.regime != sides.SAMPLED:
        raise ValueError(f"{draft.name} draws from no logits of its own: name a model")

    def colder(draw: Callable) -> Callable:
        def begin(key: Array, request: Request, state: State, gamma: int) -> Callable:
            setting = Sampling(request.sampling.temperature / HOTTER)
            sharper = draw(key, request._replace(sampling=setting), state, gamma)
            claimed = draw(key, request, state, gamma)
            return lambda *at: (sharper(*at)[0], claimed(*at)[1])

        return begin

    def drafter(gamma: int, draw: Callable = independent):
        return draft.drafter(gamma, colder(draw))

    return draft._replace(drafter=drafter), verifier


def reused_key(draft: Side, verifier: Verifier) -> tuple[Side, Verifier]:
    """The extra token is drawn with the very uniform that rejected the draft."""
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
