"""Checks that drafters and verifiers return the types and shapes that a step reads.

Axes: B rows, G = gamma."""

from typing import Any

import jax
import jax.numpy as jnp

from specjax.types import Draft, Law, Verdict


def check_draft(value: Any, batch: int, gamma: int) -> tuple[Draft, Any]:
    """Returns the draft and the cache that `Drafter.draft` returned, after checks.

    Raises:
      ValueError: it is something else; the message says in one line what to return.
    """
    is_pair = isinstance(value, tuple) and len(value) == 2
    if not is_pair or not isinstance(value[0], Draft):
        names = type(value).__name__
        if type(value) is tuple:
            names = f"({', '.join(type(each).__name__ for each in value)})"
        raise ValueError(
            f"the drafter returns {names}: return a pair, types.Draft(tokens, num, law)"
            " and the cache"
        )
    draft = value[0]
    check_integers("the draft's tokens", draft.tokens, (batch, gamma))
    check_integers("the draft's num", draft.num, (batch,))
    for law in jax.tree.leaves(draft.law, is_leaf=lambda it: isinstance(it, Law)):
        check_law(law, (batch, gamma))
    return value


def check_law(law: Any, shape: tuple[int, int]) -> None:
    """Raises ValueError for a value that is not a law of this shape [B, G].

    A custom rule may read several laws, in any tree."""
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
    """Raises ValueError, in one line, where `Verifier.verify` returned no valid
    verdict.

    A verdict is on G drafted tokens of B rows."""
    if not isinstance(verdict, Verdict):
        raise ValueError(
            f"the verifier returns {type(verdict).__name__}: return"
            " types.Verdict(num_accepted, tokens, accept_prob)"
        )
    check_integers("the verdict's num_accepted", verdict.num_accepted, (batch,))
    check_integers("the verdict's tokens", verdict.tokens, (batch, gamma + 1))


def check_integers(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Raises ValueError for a value that is not an integer array of this shape."""
    dtype = getattr(array, "dtype", type(array).__name__)
    whole = hasattr(array, "dtype") and jnp.issubdtype(dtype, jnp.integer)
    if not whole or jnp.shape(array) != shape:
        raise ValueError(
            f"{name} must be integers {shape}; got {dtype} {jnp.shape(array)}"
        )
