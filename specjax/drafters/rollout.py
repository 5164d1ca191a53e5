"""The loop that drafters of one token at a time share: a law, a token, the next law.

How a token is drawn from its law is an argument, (key, request, state) -> (law [B],
slot) -> token [B]: `independent`, or `coupled` for `verifiers.gumbel`; `for_rule` says
which a verifier wants.
Axes: B rows, G = gamma.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import keys, probs
from specjax.types import Draft, Law, Request, State, Verifier


class Proposal(NamedTuple):
    """`law` [B] to draw the next token from, what the draft records of it (the same, or
    a row of a shared table), and what `advance` needs to go on."""

    law: Law
    record: Law
    carry: Any


def independent(key: Array, request: Request, state: State) -> Callable:
    """Uniforms of this iteration's DRAFT key, which nothing else uses."""
    del request, state
    return lambda law, slot: probs.sample(law, keys.uniform(key, slot, (2,)))


def coupled(key: Array, request: Request, state: State) -> Callable:
    """The race that `verifiers.gumbel` runs for the same place of the text."""
    del key

    def draw(law: Law, slot: Array | int) -> Array:
        vocab = law.logits.shape[-1]
        return probs.race(law, keys.gumbel(request.key, state.length + slot, vocab))

    return draw


def for_rule(verifier: Verifier) -> Callable:
    return coupled if verifier.coupled else independent


def rollout(
    draw: Callable, state: State, gamma: int, begun: Proposal, advance: Callable
) -> tuple[Draft, Any]:
    """Draws up to `state.budget` of `gamma` tokens.

    draw: (law [B], slot) -> token [B]. begun: the proposal for slot 0. advance: (carry,
    token [B], slot) -> the Proposal for the slot after it. Stops at the batch's largest
    budget; the shape stays G. Returns the draft and the last carry.
    """
    batch = state.length.shape[0]
    num = jnp.minimum(state.budget, gamma)

    def put(buffer: Array, value: Array, slot) -> Array:
        return buffer.at[:, slot].set(value)

    def record(buffers, proposal: Proposal, slot):
        token = draw(proposal.law, slot)
        tokens, law = buffers
        kept = jax.tree.map(lambda b, v: put(b, v, slot), law, _own(proposal.record))
        return (put(tokens, token, slot), kept), token

    def body(slot, carried):
        buffers, token, carry = carried
        proposal = advance(carry, token, slot - 1)
        buffers, token = record(buffers, proposal, slot)
        return buffers, token, proposal.carry

    empty = jax.tree.map(
        lambda leaf: jnp.zeros((batch, gamma, *leaf.shape[1:]), leaf.dtype),
        _own(begun.record),
    )
    buffers, token = record(
        (jnp.zeros((batch, gamma), jnp.int32), empty), begun, slot=0
    )
    carried = buffers, token, begun.carry
    (tokens, law), _, carry = jax.lax.fori_loop(1, jnp.max(num), body, carried)
    if law.logits is None:
        law = law._replace(logits=begun.record.logits)
    return Draft(tokens, num, law), carry


def _own(law: Law) -> Law:
    """The leaves that belong to a row: a shared table is not copied."""
    return law if law.row is None else law._replace(logits=None)
