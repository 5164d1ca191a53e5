"""Several verifiers in one program: which of them decides is an argument."""

import jax
import jax.numpy as jnp
from jax import Array

from specjax.types import Draft, Law, Verifier


def one_of(rules: tuple[Verifier, ...], which: Array) -> Verifier:
    """The verifier rules[which], for a `which` that is traced.

    Rules that differ in their noise alone are compiled once.
    """
    kinds = tuple(dict.fromkeys(rule.verify for rule in rules))
    noises = [[rule.noise for rule in rules if rule.verify is kind] for kind in kinds]
    kind_of = jnp.array([kinds.index(rule.verify) for rule in rules])
    noise_of = [noises[kinds.index(rule.verify)].index(rule.noise) for rule in rules]
    noise_of = jnp.array(noise_of)

    def noise(key: Array, start: Array, gamma: int, vocab: int) -> tuple:
        return key, start

    def verify(target: Law, draft: Draft, noise: tuple):
        sizes = draft.tokens.shape[1], target.logits.shape[-1]

        def branch(place: int):
            drawn = [lambda *at, of=of: of(*at, *sizes) for of in noises[place]]

            def decide(target: Law, draft: Draft, noise: tuple):
                own = noise_of[which] if len(drawn) > 1 else 0
                return kinds[place](target, draft, jax.lax.switch(own, drawn, *noise))

            return decide

        branches = list(map(branch, range(len(kinds))))
        return jax.lax.switch(kind_of[which], branches, target, draft, noise)

    return Verifier(noise, verify)
