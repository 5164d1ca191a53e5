"""The loop that drafters of one token at a time share: a law, a token, the next law.

How a token is drawn is an argument, (key, request, state, gamma) -> (logits [B, V],
slot) -> (token [B], its Law [B]): `independent`, or `coupled` for `verifiers.gumbel`;
`for_rule` says which a verifier wants.
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
    """`logits` [B, V] to draw the next token by and what `advance` needs to go on.
    table, row [B]: where those logits are kept, if they are rows that many share."""

    logits: Array | Reduced
    carry: Any
    table: Table | None = None
    row: Array | None = None


def drawn_by(function: Callable) -> Callable:
    """Draws by (logits [B, V], Sampling, u [B, 2]) -> (token [B], Law [B]), with the
    uniforms of this iteration's DRAFT key, which nothing else uses."""

    def begin(key: Array, request: Request, state: State, gamma: int) -> Callable:
        del state
        u = keys.uniforms(key, jnp.arange(gamma), (2,))  # [B, G, 2]

        def draw(logits: Array | Reduced, slot: Array | int) -> tuple[Array, Law]:
            return function(logits, request.sampling, u[:, slot])

        return draw

    return begin


independent = drawn_by(probs.draw)


def coupled(key: Array, request: Request, state: State, gamma: int) -> Callable:
    """The race that `verifiers.gumbel` runs for the same place of the text."""
    del key, gamma

    def draw(logits: Array | Reduced, slot: Array | int) -> tuple[Array, Law]:
        law = probs.standardize(logits, request.sampling)
        vocab = probs.vocab_of(logits)
        gumbel = keys.gumbel(request.key, state.length + slot, vocab)
        return probs.race(law, gumbel), law

    return draw


def for_rule(verifier: Verifier) -> Callable:
    return coupled if verifier.coupled else independent


def rollout(
    draw: Callable,
    state: State,
    gamma: int,
    begun: Proposal,
    advance: Callable,
    positions: int | None = None,
    go_on: Callable | None = None,
) -> tuple[Draft, Any]:
    """Draws up to `state.budget` of `gamma` tokens. draw: (logits [B, V], slot) ->
    (token [B], Law [B]). begun: the proposal for slot 0. advance: (carry, token [B],
    slot) -> the Proposal for the slot after it. positions: how many the drafter knows,
    None for any: what would follow a token beyond them is not drafted, so that the
    target goes on alone where a text is longer. go_on: see `types.Policy`; a row that
    it stops keeps the token it was told of. Stops at the batch's longest draft, or
    after as many as `known` says; the shape stays G. Returns the draft and the last
    carry."""
    batch = state.length.shape[0]
    count = None if go_on else known(state, gamma, positions)
    num = jnp.minimum(state.budget, gamma)
    if positions is not None:
        num = jnp.clip(positions + 1 - state.length, 0, num)

    def of(proposal: Proposal, slot) -> tuple[Array, Law]:
        token, law = draw(proposal.logits, slot)
        if proposal.table is not None:  # a table is not copied: its row is named
            law = law._replace(logits=proposal.table, row=proposal.row)
        return token, law

    def own(drawn: tuple[Array, Law]) -> tuple[Array, Law]:
        return drawn[0], probs.apart(drawn[1])

    def packed(drawn: tuple[Array, Law]) -> dict[str, Array]:
        return _packed(jax.tree.leaves(own(drawn)))

    def record(buffers, held: tuple, proposal: Proposal, slot):
        drawn = of(proposal, slot)
        put = lambda buffer, value: buffer.at[:, slot].set(value)  # noqa: E731
        buffers = jax.tree.map(put, buffers, packed(drawn))
        return buffers, told(held, *drawn, slot)

    def told(held: tuple, token: Array, law: Law, slot) -> tuple:
        """(num, the policy's carry), as they are once it knows of a slot."""
        if go_on is None:
            return held
        num, before = held
        after, going = go_on(before, law, token, slot)
        drafting = slot < num
        num = jnp.where(drafting & ~going, slot + 1, num)
        return num, jax.tree.map(partial(_where, drafting), after, before)

    held = () if go_on is None else (num, state.policy)
    most, first = jnp.max(num), jax.eval_shape(lambda: of(begun, 0))
    shapes = jax.eval_shape(own, first)

    def longest(held: tuple) -> Array:
        return jnp.max(held[0]) if held else most

    def further(slot, drafted: tuple) -> tuple:
        buffers, held, carry = drafted
        # Read where it was recorded: carried besides, it is a kernel more on a GPU.
        last = jax.tree.map(lambda b: b[:, slot - 1], buffers)
        proposal = advance(carry, _unpacked(last, shapes)[0], slot - 1)
        return *record(buffers, held, proposal, slot), proposal.carry

    def while_longest(carried: tuple) -> tuple:
        _, slot, *drafted = carried
        drafted, after = further(slot, drafted), slot + 1
        # Whether to go on is a kernel more, where it is not computed with the slot.
        return after < longest(drafted[1]), after, *drafted

    empty = jax.tree.map(
        lambda leaf: jnp.zeros((batch, gamma, *leaf.shape[1:]), leaf.dtype),
        jax.eval_shape(packed, first),
    )
    drafted = *record(empty, held, begun, slot=0), begun.carry
    if gamma > 1 and count is None:
        carried = longest(drafted[1]) > 1, jnp.int32(1), *drafted
        carried = jax.lax.while_loop(lambda it: it[0], while_longest, carried)
        drafted = carried[2:]
    elif gamma > 1:
        # A `fori_loop`, but that it copies its count: a kernel more on a GPU.
        turn = lambda it: (it[0] + 1, further(*it))  # noqa: E731
        carried = jnp.int32(1), drafted
        drafted = jax.lax.while_loop(lambda it: it[0] < count, turn, carried)[1]
    buffers, held, carry = drafted
    tokens, law = _unpacked(buffers, shapes)
    kind = type(first[1].logits)
    rows = (each for each in (begun.table, begun.logits) if isinstance(each, kind))
    law = probs.shared(law, next(rows, None))
    num, policy = held or (num, None)
    return Draft(tokens, num, law, policy=policy), carry


def known(state: State, gamma: int, positions: int | None) -> int | None:
    """How many tokens are drafted, where the compiler may know: a loop whose end only
    the device knows makes a GPU's host wait once a token. None where the budget is the
    device's own, or where a text may outgrow the positions; one that fills them has its
    last drafts cut, and no fewer are drawn."""
    outgrown = positions is not None and (
        state.tokens.shape[1] > positions + gamma + 1  # slots to spare, see `State`
    )
    if outgrown or not isinstance(state.budget, np.ndarray):
        return None
    return min(int(state.budget.max()), gamma)


def _where(rows: Array, x: Array, y: Array) -> Array:
    """x in these rows [B], y in the others."""
    return jnp.where(rows.reshape(-1, *(1,) * (x.ndim - 1)), x, y)


def _packed(leaves: list[Array]) -> dict[str, Array]:
    """Numbers a row [B] in one array [B, n] of bits for each width: a draft is recorded
    by as many writes as there are arrays, and on a GPU each is a kernel."""
    packed = {f"leaf {i}": x for i, x in enumerate(leaves) if x.ndim > 1}
    bits = [_bits(x) for x in leaves if x.ndim == 1]
    for dtype in {x.dtype: None for x in bits}:
        packed[dtype.name] = jnp.stack([x for x in bits if x.dtype == dtype], axis=-1)
    return packed


def _unpacked(packed: dict[str, Array], shapes: Any) -> Any:
    """The tree of `shapes`, whose leaves are [B, ...], from records [B, ..., n]."""
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
