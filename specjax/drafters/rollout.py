"""The loop that drafters of one token at a time share: a law, a token, the next law.

How a token is drawn is an argument, (key, request, state) -> (logits [B, V], slot) ->
(token [B], its Law [B]): `independent`, or `coupled` for `verifiers.gumbel`; `for_rule`
says which a verifier wants.
Axes: B rows, G = gamma, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import keys, probs
from specjax.types import Draft, Law, Request, State, Table, Verifier


class Proposal(NamedTuple):
    """`logits` [B, V] to draw the next token by and what `advance` needs to go on.

    table, row [B]: where those logits are kept, if they are rows that many share.
    """

    logits: Array
    carry: Any
    table: Table | None = None
    row: Array | None = None


def drawn_by(function: Callable) -> Callable:
    """Draws by (logits [B, V], Sampling, u [B, 2]) -> (token [B], Law [B]), with the
    uniforms of this iteration's DRAFT key, which nothing else uses."""

    def begin(key: Array, request: Request, state: State) -> Callable:
        del state

        def draw(logits: Array, slot: Array | int) -> tuple[Array, Law]:
            return function(logits, request.sampling, keys.uniform(key, slot, (2,)))

        return draw

    return begin


independent = drawn_by(probs.draw)


def coupled(key: Array, request: Request, state: State) -> Callable:
    """The race that `verifiers.gumbel` runs for the same place of the text."""
    del key

    def draw(logits: Array, slot: Array | int) -> tuple[Array, Law]:
        law = probs.standardize(logits, request.sampling)
        gumbel = keys.gumbel(request.key, state.length + slot, logits.shape[-1])
        return probs.race(law, gumbel), law

    return draw


def for_rule(verifier: Verifier) -> Callable:
    return coupled if verifier.coupled else independent


def rollout(
    draw: Callable, state: State, gamma: int, begun: Proposal, advance: Callable
) -> tuple[Draft, Any]:
    """Draws up to `state.budget` of `gamma` tokens.

    draw: (logits [B, V], slot) -> (token [B], Law [B]). begun: the proposal for slot 0.
    advance: (carry, token [B], slot) -> the Proposal for the slot after it. Stops at
    the batch's largest budget; the shape stays G. Returns the draft and the last carry.
    """
    batch = state.length.shape[0]
    num = jnp.minimum(state.budget, gamma)

    def put(buffer: Array, value: Array, slot) -> Array:
        return buffer.at[:, slot].set(value)

    def drawn(proposal: Proposal, slot) -> tuple[Array, Law]:
        token, law = draw(proposal.logits, slot)
        if proposal.table is not None:  # a table is not copied: its row is named
            law = law._replace(logits=None, row=proposal.row)
        return token, law

    def record(buffers, proposal: Proposal, slot):
        token, law = drawn(proposal, slot)
        kept = jax.tree.map(lambda b, v: put(b, v, slot), buffers, (token, law))
        return kept, token

    def body(slot, carried):
        buffers, token, carry = carried
        proposal = advance(carry, token, slot - 1)
        buffers, token = record(buffers, proposal, slot)
        return buffers, token, proposal.carry

    empty = jax.tree.map(
        lambda leaf: jnp.zeros((batch, gamma, *leaf.shape[1:]), leaf.dtype),
        jax.eval_shape(lambda: drawn(begun, 0)),
    )
    buffers, token = record(empty, begun, slot=0)
    carried = buffers, token, begun.carry
    (tokens, law), _, carry = jax.lax.fori_loop(1, jnp.max(num), body, carried)
    if begun.table is not None:
        law = law._replace(logits=begun.table)
    return Draft(tokens, num, law), carry
