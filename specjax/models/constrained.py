"""A model whose logits are masked by an automaton that reads the text.

The automaton's state after each token lies in a slot beside the model's cache, so that
drafted tokens advance it as committed ones do, and rejecting them needs no undo. The
features of a call are those of the model, and beside them the states of its tokens.
Axes: B rows, T tokens in one call, S cache slots, V vocabulary.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax.models.tree_mask import parent_indices
from specjax.types import Branches, Model, Prompt, TargetCall, TokenAutomaton

AT_ONCE = 64  # slots of a prompt whose states are worked out together
UNROLLED = 8  # tokens of a call, up to which no loop is needed


class Cache(NamedTuple):
    """The cache of a constrained model: that of the model, and the states of its
    automaton.

    model: the model's. states: after the token of each slot, leaves [B, S, ...]. last:
    [B], the slot of the prompt's last token: up to there states stay as they were.
    """

    model: Any
    states: Any
    last: Array


class Ruled(NamedTuple):
    """The features of a model, and the states of its automaton: leaves [B, T, ...]."""

    model: Any
    states: Any


def constrained(model: Model, rules: TokenAutomaton) -> Model:
    """Returns the same model, limited to tokens that `rules` allow.

    It serves as a target and as a draft; a draft that is not constrained is as exact,
    and is accepted less often.

    Args:
      rules: the tokens that a text may go on with; every state must allow an id.

    Raises:
      ValueError: the rules are of another vocabulary, or their state has numbers that
        are not of four bytes.
    """
    shapes = jax.eval_shape(rules.begin, _ints(1, 1), _ints(1))
    if any(leaf.dtype.itemsize != 4 for leaf in jax.tree.leaves(shapes)):
        raise ValueError(
            "a state of rules is int32, uint32 or float32: cast its leaves"
        )
    wide = jax.ShapeDtypeStruct((1, model.vocab), jnp.float32)
    jax.eval_shape(rules.apply, shapes, wide)

    def init(params: Any, prompt: Prompt, slots: int) -> Cache:
        return Cache(
            model.init(params, prompt, slots),
            _prompt_states(rules, prompt, slots),
            prompt.length - 1,
        )

    def apply(
        params: Any,
        tokens: Array,
        start: Array,
        cache: Cache,
        branches: Branches | None = None,
    ) -> tuple[Ruled, Cache]:
        features, own = model.apply(params, tokens, start, cache.model, branches)
        states = _states(rules, tokens, start, cache, branches)
        kept = jax.tree.map(
            lambda old, new: _write_row(old, new, start), cache.states, states
        )
        return Ruled(features, states), Cache(own, kept, cache.last)

    def readout(params: Any, features: Ruled) -> Array:
        return rules.apply(features.states, model.readout(params, features.model))

    constrained = model._replace(init=init, apply=apply, readout=readout)
    if model.hidden is not None:
        hidden = model.hidden
        constrained = constrained._replace(hidden=lambda ruled: hidden(ruled.model))
    if model.observe is not None:
        observe = model.observe

        def observe_own(params: Any, cache: Cache, call: TargetCall) -> Cache:
            return cache._replace(model=observe(params, cache.model, call))

        constrained = constrained._replace(observe=observe_own)
    if model.keep is None:
        return constrained
    keep_path = model.keep

    def keep(cache: Cache, start: Array, path: Array) -> Cache:
        def move_states(leaf: Array) -> Array:
            return _write_row(leaf, _read_slots(leaf, start[:, None] + path), start)

        states = jax.tree.map(move_states, cache.states)
        return Cache(keep_path(cache.model, start, path), states, cache.last)

    return constrained._replace(keep=keep)


def _ints(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def _prompt_states(rules: TokenAutomaton, prompt: Prompt, slots: int) -> Any:
    """Returns the states of the automaton after each token of a prompt, in a buffer [B,
    S, ...]."""
    count = prompt.tokens.shape[1]

    def state_after(place: Array) -> Any:
        return rules.begin(prompt.tokens, jnp.full_like(prompt.length, place + 1))

    states = jax.lax.map(state_after, jnp.arange(count), batch_size=AT_ONCE)

    def buffer(leaf: Array) -> Array:
        rest = [(0, 0)] * (leaf.ndim - 2)
        return jnp.pad(leaf.swapaxes(0, 1), [(0, 0), (0, slots - count), *rest])

    return jax.tree.map(buffer, states)


def _states(
    rules: TokenAutomaton,
    tokens: Array,
    start: Array,
    cache: Cache,
    branches: Branches | None,
) -> Any:
    """Returns the states of the automaton after each token of a call, leaves [B, T,
    ...]."""
    count = whole = tokens.shape[1]
    if branches is not None:
        whole = branches.sees.shape[2]
    earlier = whole - count  # tokens of the tree that were read before
    index = start[:, None] + jnp.arange(-1, whole) - earlier  # from the slot before
    index = jnp.maximum(index, 0)
    stored = jax.tree.map(lambda leaf: _read_slots(leaf, index), cache.states)
    before = jax.tree.map(lambda leaf: leaf[:, 0], stored)
    kept = jax.tree.map(lambda leaf: leaf[:, 1:], stored)
    depth = jnp.arange(count) if branches is None else branches.depth
    own = start[:, None] - earlier + depth > cache.last[:, None]  # not of the prompt

    def state_after(state: Any, place: Array) -> Any:
        moved = rules.advance(state, tokens[:, place - earlier])
        return jax.tree.map(
            lambda new, old: _choose_rows(own[:, place], new, old[:, place]),
            moved,
            kept,
        )

    if branches is None:

        def chain(state: Any, place: Array) -> tuple[Any, Any]:
            state = state_after(state, place)
            return state, state

        unroll = count if count <= UNROLLED else 1
        states = jax.lax.scan(chain, before, jnp.arange(count), unroll=unroll)[1]
        return jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), states)

    parent = parent_indices(branches)

    def branch(place: Array, states: Any) -> Any:
        above = parent[:, place - earlier]
        state = jax.tree.map(
            lambda leaf, first: _choose_rows(
                above >= 0, _read_slots(leaf, above), first
            ),
            states,
            before,
        )
        return jax.tree.map(
            lambda leaf, new: leaf.at[:, place].set(new),
            states,
            state_after(state, place),
        )

    states = jax.lax.fori_loop(earlier, whole, branch, kept)
    return jax.tree.map(lambda leaf: leaf[:, earlier:], states)


def _choose_rows(rows: Array, left: Array, right: Array) -> Array:
    """Chooses between leaves [B, ...] by row, as `jnp.where`."""
    return jnp.where(rows.reshape(-1, *(1,) * (left.ndim - 1)), left, right)


def _read_slots(leaf: Array, slots: Array) -> Array:
    """Returns the entries of a leaf [B, S, ...] in slots [B] or [B, T] of each row."""
    return jax.vmap(lambda row, at: row[at])(leaf, slots)


@jax.vmap
def _write_row(row: Array, new: Array, start: Array) -> Array:
    """Returns a leaf [B, S, ...] with `new` [B, T, ...] from slots `start` [B] on."""
    return jax.lax.dynamic_update_slice_in_dim(row, new.astype(row.dtype), start, 0)
