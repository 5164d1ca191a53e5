"""Copies what followed the last tokens when they occurred before (Section 3.6).

Known as prompt lookup. The draft is certain (law None): accepted where the target draws
the same, exact by the same theorem. Axes: B rows, L buffer, G = gamma.
"""

import jax
import jax.numpy as jnp
from jax import Array

from specjax.drafters.nothing import no_cache
from specjax.types import Draft, Drafter, Encoded, Features, Request, State


def build(gamma: int, longest: int = 3) -> Drafter:
    """Drafts up to `gamma` tokens after the latest match of the last `longest` tokens,
    or of fewer, down to one; nothing where none matches. It looks in `state.context`
    (tokens [B, S] and length [B], an encoder's input) if there is one of tokens, else
    in the text so far. Raises ValueError if either is below 1."""
    if gamma < 1 or longest < 1:
        raise ValueError(
            f"gamma and longest must be at least 1; got {gamma} and {longest}"
        )

    def draft(
        key: Array, params, request: Request, state: State
    ) -> tuple[Draft, tuple]:
        del key, params, request
        own = state.context is None or isinstance(state.context, (Features, Encoded))
        source, length = (state.tokens, state.length) if own else state.context
        find = jax.vmap(lambda *row: _continuation(*row, gamma, longest))
        tokens, num = find(state.tokens, state.length, source, length)
        return Draft(tokens, jnp.minimum(num, state.budget), None), ()

    return Drafter(no_cache, draft, gamma)


def _continuation(
    text: Array, length: Array, source: Array, end: Array, gamma: int, longest: int
) -> tuple[Array, Array]:
    """One row: what follows the best match in `source` [S], and how long it is. A
    position's merit is how many tokens before it agree with the end of the text; the
    greatest merit wins, and among equals the latest position."""
    position = jnp.arange(source.size)
    agree, merit = jnp.ones(source.size, bool), jnp.zeros(source.size, jnp.int32)
    for back in range(1, longest + 1):
        at = jnp.maximum(position - back, 0)
        same = source[at] == text[jnp.maximum(length - back, 0)]
        agree &= same & (position >= back) & (length >= back)
        merit += agree
    merit = jnp.where(position < end, merit, 0)  # something must follow
    best = source.size - 1 - jnp.argmax(merit[::-1])
    padded = jnp.pad(source, (0, gamma))
    tokens = jax.lax.dynamic_slice(padded, (best,), (gamma,))
    num = jnp.where(merit[best] > 0, jnp.minimum(end - best, gamma), 0)
    return tokens, num
