import jax.numpy as jnp

from specjax import Drafter, Policy
from specjax.drafters.nothing import no_cache
from specjax.types import Draft
from specjax.verifiers import token


def repeat(gamma: int, longest: int = 8):  # a drafter: the last token again
    def draft(key, params, request, state):
        last = jnp.take_along_axis(state.tokens, state.length[:, None] - 1, axis=1)
        num = jnp.minimum(state.budget, longest)
        return Draft(jnp.tile(last, (1, gamma)), num, law=None), state.draft_cache

    return Drafter(no_cache, draft, gamma)


def short(most: int = 2):  # a verifier: Algorithm 1 on the first `most` drafted tokens
    def verify(law, draft, noise, keep_residual=False):
        first = draft._replace(num=jnp.minimum(draft.num, most))
        return token.verify(law, first, noise, keep_residual)

    return token.verifier._replace(verify=verify, rule=None)


def double(start: int = 1):  # a policy: twice as much after a draft kept whole
    def update(budget, carry, info):
        return jnp.where(info.full, jnp.minimum(2 * budget, 64), start), carry

    return Policy(lambda batch, gamma: (jnp.full(batch, start), None), update)
