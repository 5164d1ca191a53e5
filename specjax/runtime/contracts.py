"""Whether what a drafter or a verifier returns is what the step reads, by its shapes.

Axes: B rows, G = gamma.
"""

from typing import Any

import jax
import jax.numpy as jnp

from specjax.types import Draft, Law, Verdict


def draft_of(made: Any, batch: int, gamma: int) -> tuple[Draft, Any]:
    """Returns the draft and the cache that `Drafter.draft` gave.

    Raises:
      ValueError: it gave something else, in one line that says what to give.
    """
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], Draft):
        names = type(made).__name__
        if type(made) is tuple:
            names = f"({', '.join(type(each).__name__ for each in made)})"
        raise ValueError(
            f"the drafter returns {names}: return a pair, types.Draft(tokens, num, law)"
            " and the cache"
        )
    draft = made[0]
    check_whole("the draft's tokens", draft.tokens, (batch, gamma))
    check_whole("the draft's num", draft.num, (batch,))
    for law in jax.tree.leaves(draft.law, is_leaf=lambda it: isinstance(it, Law)):
        check_law(law, (batch, gamma))
    return made


def check_law(law: Any, shape: tuple[int, int]) -> None:
    """Raises ValueError for what is no law of this shape [B, G]. A custom rule may read
    several, in any tree."""
    if not isinstance(law, Law):
        raise ValueError(
            f"the draft's law is of class {type(law).__name__}: give"
            " probs.standardize(logits, request.sampling) of logits [B, G, V] that the"
            " tokens were drawn from, or None where nothing was drawn"
        )
    if jnp.shape(law.top) != shape:
        raise ValueError(
            f"the draft's law must be of {shape} rows and tokens; got"
            f" {jnp.shape(law.top)}"
        )


def check_verdict(verdict: Any, batch: int, gamma: int) -> None:
    """Raises ValueError, in one line, for what `Verifier.verify` gave that is no
    verdict on G drafted tokens of B rows."""
    if not isinstance(verdict, Verdict):
        raise ValueError(
            f"the verifier returns {type(verdict).__name__}: return"
            " types.Verdict(num_accepted, tokens, accept_prob)"
        )
    check_whole("the verdict's num_accepted", verdict.num_accepted, (batch,))
    check_whole("the verdict's tokens", verdict.tokens, (batch, gamma + 1))


def check_whole(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Raises ValueError for what are no integers of this shape."""
    dtype = getattr(array, "dtype", type(array).__name__)
    whole = hasattr(array, "dtype") and jnp.issubdtype(dtype, jnp.integer)
    if not whole or jnp.shape(array) != shape:
        raise ValueError(
            f"{name} must be integers {shape}; got {dtype} {jnp.shape(array)}"
        )
