"""Several drafters and verifiers in one program: who is asked is an argument."""

import jax
import jax.numpy as jnp
from jax import Array

from specjax.types import Draft, Drafter, Law, Request, State, Verifier


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


def one_of_each(
    drafters: tuple[Drafter, ...], rules: tuple[tuple[Verifier, ...], ...], which: Array
) -> tuple[Drafter, Verifier]:
    """The drafter of number which[0], and the one of number which[1] of its rules.

    Its parameters and its cache are lists of those of each, and so is a draft's law: of
    zeros, but for its own. gamma is one for all.
    """

    def init(params, prompt, slots: int) -> list:
        own = zip(drafters, params, strict=True)
        return [drafter.init(weights, prompt, slots) for drafter, weights in own]

    def draft(key: Array, params, request: Request, state: State) -> tuple[Draft, list]:
        def asked(place: int, caches: list) -> tuple[Draft, list]:
            own = state._replace(draft_cache=caches[place])
            draft, cache = drafters[place].draft(key, params[place], request, own)
            return draft, [*caches[:place], cache, *caches[place + 1 :]]

        def branch(place: int):
            def run(caches: list):
                draft, after = asked(place, caches)
                laws = [*empty[:place], draft.law, *empty[place + 1 :]]
                return draft._replace(law=laws), after

            return run

        places, caches = range(len(drafters)), state.draft_cache
        laws = jax.eval_shape(lambda: [asked(at, caches)[0].law for at in places])
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), laws)
        return jax.lax.switch(which[0], list(map(branch, places)), caches)

    def verify(target: Law, draft: Draft, noise: tuple):
        def branch(place: int):
            verifier = one_of(rules[place], which[1])
            return lambda: verifier.verify(
                target, draft._replace(law=draft.law[place]), noise
            )

        return jax.lax.switch(which[0], list(map(branch, range(len(rules)))))

    noise = one_of(rules[0], which[1]).noise
    return Drafter(init, draft, drafters[0].gamma), Verifier(noise, verify)
