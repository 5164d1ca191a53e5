"""The loop shared by drafters of one token at a time: a law, a token, the next law.

How a token is drawn is an argument: `draw(key, request, state, gamma)` returns a
function (logits [B, V], slot) -> (token [B], its Law [B]). It is `draw_independent`, or
`draw_coupled` for `verifiers.gumbel`; `for_rule` returns the one that a verifier wants.
Axes: B rows, G = gamma, V vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import keys, probs
from specjax.types import Draft, Law, Reduced, Request, State, Table, Verifier


class Proposal(NamedTuple):
    """The next token's logits, and what is needed to continue after it.

    logits: [B, V], or `Reduced`.
    carry: what `advance` needs.
    table, row: where the logits are stored, [B], if they are rows that many share.
    """

    logits: Array | Reduced
    carry: Any
    table: Table | None = None
    row: Array | None = None


def draw_with(function: Callable) -> Callable:
    """Returns a `draw` that applies a function (logits, Sampling, u) -> (token, Law).

    The function takes logits [B, V] and u [B, 2] and returns token [B] and law [B]. The
    uniforms are those of this iteration's DRAFT key, which nothing else uses.
    """

    def begin(key: Array, request: Request, state: State, gamma: int) -> Callable:
        del state
        u = keys.uniforms(key, jnp.arange(gamma), (2,))  # [B, G, 2]

        def draw(logits: Array | Reduced, slot: Array | int) -> tuple[Array, Law]:
            return function(logits, request.sampling, u[:, slot])

        return draw

    return begin


draw_independent = draw_with(probs.draw)


def draw_coupled(key: Array, request: Request, state: State, gamma: int) -> Callable:
    """Returns a `draw` that uses the Gumbel noise of `verifiers.gumbel` at the same
    place."""
    del key, gamma

    def draw(logits: Array | Reduced, slot: Array | int) -> tuple[Array, Law]:
        law = probs.standardize(logits, request.sampling)
        vocab = probs.vocab_size(logits)
        gumbel = keys.gumbel(request.key, state.length + slot, vocab)
        return probs.race(law, gumbel), law

    return draw


def for_rule(verifier: Verifier) -> Callable:
    """Returns the `draw` that a verifier wants."""
    return draw_coupled if verifier.coupled else draw_independent


def rollout(
    draw: Callable,
    state: State,
    gamma: int,
    *,
    initial: Proposal,
    advance: Callable,
    positions: int | None = None,
    go_on: Callable | None = None,
) -> tuple[Draft, Any]:
    """Draws up to `state.budget` of `gamma` tokens.

    It stops at the batch's longest draft, or after `known_count` tokens; the shape
    stays G.

    Args:
      draw: (logits [B, V], slot) -> (token [B], Law [B]).
      state: before the step.
      gamma: G.
      initial: the proposal for slot 0.
      advance: (carry, token [B], slot) -> the Proposal for the next slot.
      positions: how many positions the drafter knows, None for any number. What would
        follow a token beyond them is not drafted, so the target goes on alone where a
        text is longer.
      go_on: see `types.Policy`; a row that it stops keeps the token it was called with.

    Returns:
      The draft and the last carry.
    """
    batch = state.length.shape[0]
    count = None if go_on else known_count(state, gamma, positions)
    num = jnp.minimum(state.budget, gamma)
    if positions is not None:
        num = jnp.clip(positions + 1 - state.length, 0, num)

    def draw_token(proposal: Proposal, slot: Any) -> tuple[Array, Law]:
        token, law = draw(proposal.logits, slot)
        if proposal.table is not None:  # refers to the table's row: no copy
            law = law._replace(logits=proposal.table, row=proposal.row)
        return token, law

    def without_shared(drawn: tuple[Array, Law]) -> tuple[Array, Law]:
        return drawn[0], probs.per_row(drawn[1])

    def pack(drawn: tuple[Array, Law]) -> dict[str, Array]:
        return _pack(jax.tree.leaves(without_shared(drawn)))

    def record(
        buffers: Any, policy: tuple, proposal: Proposal, slot: Any
    ) -> tuple[Any, tuple]:
        token, law = draw_token(proposal, slot)
        put = lambda buffer, value: buffer.at[:, slot].set(value)  # noqa: E731
        buffers = jax.tree.map(put, buffers, pack((token, law)))
        return buffers, update_policy(policy, token, law, slot)

    def update_policy(policy: tuple, token: Array, law: Law, slot: Any) -> tuple:
        """Returns (num, the policy's carry) after a slot; () without a hook."""
        if go_on is None:
            return policy
        num, before = policy
        after, going = go_on(before, law, token, slot)
        drafting = slot < num
        num = jnp.where(drafting & ~going, slot + 1, num)
        return num, jax.tree.map(partial(_choose_rows, drafting), after, before)

    policy = () if go_on is None else (num, state.policy)
    most, first = jnp.max(num), jax.eval_shape(lambda: draw_token(initial, 0))
    shapes = jax.eval_shape(without_shared, first)

    def longest_budget(policy: tuple) -> Array:
        return jnp.max(policy[0]) if policy else most

    def draft_next(slot: Any, drafted: tuple) -> tuple:
        buffers, policy, carry = drafted
        # Read from the record: to carry it as well costs a GPU one more kernel.
        last = jax.tree.map(lambda b: b[:, slot - 1], buffers)
        proposal = advance(carry, _unpack(last, shapes)[0], slot - 1)
        return *record(buffers, policy, proposal, slot), proposal.carry

    def while_longest(carried: tuple) -> tuple:
        slot, before = carried[1], carried[2:]
        drafted, after = draft_next(slot, before), slot + 1
        # Computed with the slot, since a GPU would otherwise need one more kernel.
        return after < longest_budget(drafted[1]), after, *drafted

    empty = jax.tree.map(
        lambda leaf: jnp.zeros((batch, gamma, *leaf.shape[1:]), leaf.dtype),
        jax.eval_shape(pack, first),
    )
    drafted = *record(empty, policy, initial, slot=0), initial.carry
    if gamma > 1 and count is None:
        carried = longest_budget(drafted[1]) > 1, jnp.int32(1), *drafted
        carried = jax.lax.while_loop(lambda it: it[0], while_longest, carried)
        drafted = carried[2:]
    elif gamma > 1:
        # Not a `fori_loop`, which copies its count: one more kernel on a GPU.
        turn = lambda it: (it[0] + 1, draft_next(*it))  # noqa: E731
        carried = jnp.int32(1), drafted
        drafted = jax.lax.while_loop(lambda it: it[0] < count, turn, carried)[1]
    buffers, policy, carry = drafted
    tokens, law = _unpack(buffers, shapes)
    kind = type(first[1].logits)
    rows = (each for each in (initial.table, initial.logits) if isinstance(each, kind))
    law = probs.with_shared(law, next(rows, None))
    num, policy = policy or (num, None)
    return Draft(tokens, num, law, policy=policy), carry


def known_count(state: State, gamma: int, positions: int | None) -> int | None:
    """Returns how many tokens are drafted, if that is known when the program is
    compiled, else None.

    A loop whose end only the device knows makes a GPU's host wait once per token. It is
    None where the budget is on the device, or where a text may outgrow the positions. A
    text that just fills them has its last drafts cut, and no fewer are drawn.
    """
    outgrown = positions is not None and (
        state.tokens.shape[1] > positions + gamma + 1  # the spare slots, see `State`
    )
    if outgrown or not isinstance(state.budget, np.ndarray):
        return None
    return min(int(state.budget.max()), gamma)


def _choose_rows(rows: Array, x: Array, y: Array) -> Array:
    """Returns x in the rows [B] that are True, y in the others."""
    return jnp.where(rows.reshape(-1, *(1,) * (x.ndim - 1)), x, y)


def _pack(leaves: list[Array]) -> dict[str, Array]:
    """Packs numbers per row [B] into one array [B, n] of bits for each width.

    A draft is recorded by as many writes as there are arrays, and on a GPU each is a
    kernel.
    """
    packed = {f"leaf {i}": x for i, x in enumerate(leaves) if x.ndim > 1}
    bits = [_bits(x) for x in leaves if x.ndim == 1]
    for dtype in {x.dtype: None for x in bits}:
        packed[dtype.name] = jnp.stack([x for x in bits if x.dtype == dtype], axis=-1)
    return packed


def _unpack(packed: dict[str, Array], shapes: Any) -> Any:
    """Returns the tree of `shapes`, with leaves [B, ...], from records [B, ..., n]."""
    leaves, tree = jax.tree.flatten(shapes)
    place, unpacked = dict.fromkeys(packed, 0), []
    for i, leaf in enumerate(leaves):
        if leaf.ndim > 1:
            unpacked.append(packed[f"leaf {i}"])
            continue
        name = jax.eval_shape(_bits, leaf).dtype.name
        number = packed[name][..., place[name]]
        unpacked.append(jax.lax.bitcast_convert_type(number, leaf.dtype))
        place[name] += 1
    return jax.tree.unflatten(tree, unpacked)


def _bits(x: Array) -> Array:
    width = 8 * x.dtype.itemsize
    return jax.lax.bitcast_convert_type(x, jnp.dtype(f"uint{width}"))
