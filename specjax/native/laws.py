"""Laws, draws and keys by compiled code on a CPU, and elsewhere by their definitions.

XLA makes more than a hundred small programs of what one step draws and verifies, each
of which takes about as long to begin as to run. Here they are some ten calls. Each
function is given its twin, which defines what it computes, and calls it on other
devices, in batches (`jax.vmap`), on a mesh, and where there is no compiled code.
Axes: B rows, T tokens in one call, G = gamma, V vocabulary, N data.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.native import operation

MOST = 1024  # rows of a call
SCALARS = ("scale", "top", "tau", "tie", "lse")  # of a row's law, in this order
KEYS = "threefry2x32"  # keys that compiled code folds


def serves(logits: Any) -> bool:
    """Tells whether compiled code reads these logits [..., V]."""
    if not isinstance(logits, jax.Array) or logits.dtype != jnp.float32:
        return False
    some = 1 <= math.prod(logits.shape[:-1]) <= MOST and logits.shape[-1] > 0
    return some and jax.sharding.get_abstract_mesh().empty and operation.in_use()


def serves_keys(key: Array) -> bool:
    """Tells whether compiled code folds these keys [...], which are typed.

    JAX's check that no key is used twice knows its own operations alone.
    """
    some = 1 <= key.size <= MOST and str(jax.random.key_impl(key)) == KEYS
    some = some and not jax.debug_key_reuse.value
    return some and jax.sharding.get_abstract_mesh().empty and operation.in_use()


def _run(
    twin: Callable, of: Any, *, native: Callable, shapes: Callable, here: bool
) -> Sequence[Array]:
    """Returns the arrays of an operation; by its twin if no compiled code is here."""
    if not here:
        return twin(of)
    return operation.run(operation.Operation(twin.__name__, twin, native, shapes), of)


@functools.cache  # the same object again, by which JAX knows an operation
def _fix(function: Callable, first: Any) -> Callable:
    return functools.partial(function, first)


class LawOperands(NamedTuple):
    """The operands of laws of logits [B, ..., V] at temperatures [B]; 0 is argmax."""

    logits: Array
    temperature: Array


def standardize(twin: Callable, logits: Array, temperature: Array) -> Sequence[Array]:
    """Returns the scalars of the laws of logits [B, ..., V], in the order of `SCALARS`.

    twin: (`LawOperands`) -> the same.
    """
    of = LawOperands(logits, temperature)
    return _run(
        twin, of, native=native_standardize, shapes=scalar_shapes, here=serves(logits)
    )


def scalar_shapes(of: LawOperands) -> list[jax.ShapeDtypeStruct]:
    """Returns the shapes of the scalars of a law, in the order of `SCALARS`."""
    shape = of.logits.shape[:-1]
    kinds = (jnp.int32 if name == "tie" else jnp.float32 for name in SCALARS)
    return [jax.ShapeDtypeStruct(shape, kind) for kind in kinds]


def native_standardize(of: LawOperands) -> Sequence[Array]:
    """Calls laws.cc for the scalars of laws."""
    call = jax.ffi.ffi_call("specjax_laws_standardize", scalar_shapes(of))
    return call(of.logits, of.temperature.astype(jnp.float32))


class DrawOperands(NamedTuple):
    """The operands of a draw: a `types.Law` [B] of rows of logits, and uniforms u
    [B, 2]."""

    law: Any
    u: Array


def sample(twin: Callable, of: DrawOperands) -> Array:
    """Returns an id [B] of each law, by u. twin: (`DrawOperands`) -> [ids]."""
    return _run(
        twin, of, native=native_sample, shapes=id_shapes, here=serves(of.law.logits)
    )[0]


def id_shapes(of: Any) -> list[jax.ShapeDtypeStruct]:
    """Returns the shape of an id for each row of uniforms."""
    return [jax.ShapeDtypeStruct(of.u.shape[:1], jnp.int32)]


def native_sample(of: DrawOperands) -> Sequence[Array]:
    """Calls laws.cc for an id of each law."""
    return jax.ffi.ffi_call("specjax_laws_sample", id_shapes(of))(*of.law[:6], of.u)


class OrderOperands(NamedTuple):
    """The operands of an order of ids by log p + g: a `types.Law` [...] of rows of
    logits, and Gumbel variables g [..., V]."""

    law: Any
    gumbel: Array


def distinct(twin: Callable, of: OrderOperands, count: int) -> Array:
    """Returns the first `count` ids [..., count] in the order of log p + g.

    twin: (`OrderOperands`) -> [ids]. count is at most V.
    """
    native, shapes = _fix(native_distinct, count), _fix(distinct_shapes, count)
    here = serves(of.law.logits) and of.gumbel.dtype == jnp.float32
    return _run(twin, of, native=native, shapes=shapes, here=here)[0]


def distinct_shapes(count: int, of: OrderOperands) -> list[jax.ShapeDtypeStruct]:
    """Returns the shape of `count` ids a row."""
    return [jax.ShapeDtypeStruct((*of.law.logits.shape[:-1], count), jnp.int32)]


def native_distinct(count: int, of: OrderOperands) -> Sequence[Array]:
    """Calls laws.cc for ids drawn without replacement."""
    call = jax.ffi.ffi_call("specjax_laws_distinct", distinct_shapes(count, of))
    return call(*of.law[:6], of.gumbel)


class Trial(NamedTuple):
    """The operands of what a rule decides on a draft.

    Attributes:
      target: a `types.Law` [B, G + 1].
      draft: one [B, G], or None of certain drafts.
      tokens: [B, G], drafted.
      num: [B], of them that are real.
    """

    target: Any
    draft: Any
    tokens: Array
    num: Array


def serves_trial(of: Trial) -> bool:
    """Tells whether compiled code reads the logits of both sides."""
    if not serves(of.target.logits):
        return False
    if of.draft is None:
        return True
    logits = of.draft.logits  # of all ids, or of some: see `types.Reduced`
    return serves(logits.logits if hasattr(logits, "place") else logits)


def _trial_buffers(of: Trial) -> Sequence[Array]:
    """Returns the arrays of a trial as handlers_laws.cc reads them."""
    number, whole = jnp.zeros(0, jnp.float32), jnp.zeros(0, jnp.int32)
    draft, place = [number, number, number, number, whole, number], whole
    if of.draft is not None:
        draft = list(of.draft[:6])
        if not isinstance(draft[0], jax.Array):
            draft[0], _, place = draft[0]
            draft[4] = place[draft[4]]
    counts = (x.astype(jnp.int32) for x in (place, of.tokens, of.num))
    return [*of.target[:6], *draft, *counts]


class ResidualOperands(NamedTuple):
    """The operands of what a rule adds after `n` [B] drafted tokens, by u [B, 2]."""

    trial: Trial
    n: Array
    u: Array


def residual(twin: Callable, of: ResidualOperands) -> Array:
    """Returns an id [B] of each row's residual, by u.

    twin: (`ResidualOperands`) -> [ids].
    """
    here = serves_trial(of.trial)
    return _run(twin, of, native=native_residual, shapes=id_shapes, here=here)[0]


def native_residual(of: ResidualOperands) -> Sequence[Array]:
    """Calls laws.cc for an id of each residual."""
    call = jax.ffi.ffi_call("specjax_laws_residual", id_shapes(of))
    return call(*_trial_buffers(of.trial), of.n.astype(jnp.int32), of.u)


class VerdictOperands(NamedTuple):
    """The operands of a rule's verdict, by uniforms for each drafted token [B, G] and
    for the one that is added, u [B, 2]."""

    trial: Trial
    accept: Array
    u: Array


def block(twin: Callable, of: VerdictOperands) -> Sequence[Array]:
    """Returns what `verifiers.block` decides: n [B], h [B, G] and the id added, [B].

    twin: (`VerdictOperands`) -> the same.
    """
    here = serves_trial(of.trial)
    return _run(twin, of, native=native_block, shapes=verdict_shapes, here=here)


def verdict_shapes(of: VerdictOperands) -> list[jax.ShapeDtypeStruct]:
    """Returns the shapes of n, h and ids."""
    ids = id_shapes(of)[0]
    return [ids, jax.ShapeDtypeStruct(of.accept.shape, jnp.float32), ids]


def native_block(of: VerdictOperands) -> Sequence[Array]:
    """Calls laws.cc for block verification."""
    call = jax.ffi.ffi_call("specjax_laws_block", verdict_shapes(of))
    return call(*_trial_buffers(of.trial), of.accept, of.u)


class TreeOperands(NamedTuple):
    """The operands of a verdict on trees with parents [B, G], see `VerdictOperands`."""

    trial: Trial
    parent: Array
    accept: Array
    u: Array


def traversal(
    twin: Callable, of: TreeOperands, with_replacement: bool
) -> Sequence[Array]:
    """Returns what `verifiers.traversal` decides.

    The results are the path [B, G], n [B], the chance of each node [B, G] and the id
    added, [B]. twin: (`TreeOperands`) -> the same.
    """
    native = _fix(native_traversal, with_replacement)
    return _run(
        twin, of, native=native, shapes=traversal_shapes, here=serves_trial(of.trial)
    )


def traversal_shapes(of: TreeOperands) -> list[jax.ShapeDtypeStruct]:
    """Returns the shapes of a path, n, chances and ids."""
    nodes, ids = of.parent.shape, id_shapes(of)[0]
    path = jax.ShapeDtypeStruct(nodes, jnp.int32)
    return [path, ids, jax.ShapeDtypeStruct(nodes, jnp.float32), ids]


def native_traversal(with_replacement: bool, of: TreeOperands) -> Sequence[Array]:
    """Calls laws.cc for traversal verification."""
    call = jax.ffi.ffi_call("specjax_laws_traverse", traversal_shapes(of))
    parent = of.parent.astype(jnp.int32)
    trial = _trial_buffers(of.trial)
    return call(*trial, parent, of.accept, of.u, replaced=with_replacement)


class FoldOperands(NamedTuple):
    """The operands of keys [...] with data [N] folded in, uint32.

    Of the last axis of keys there are as many as data, and each has its own; if
    `outer`, each key has all: [..., N].
    """

    key: Array
    data: Array


def fold(
    twin: Callable, key: Array, data: Array | np.ndarray, *, outer: bool = False
) -> Array:
    """Returns keys with data folded in, see `FoldOperands`.

    twin: (`FoldOperands`) -> [keys].
    """
    of = FoldOperands(key, jnp.asarray(data).astype(jnp.uint32))
    native, shapes = _fix(native_fold, outer), _fix(folded_shapes, outer)
    return _run(twin, of, native=native, shapes=shapes, here=serves_keys(key))[0]


def folded_shapes(outer: bool, of: FoldOperands) -> list[jax.ShapeDtypeStruct]:
    """Returns the shape of folded keys."""
    shape = (*of.key.shape, *of.data.shape) if outer else of.key.shape
    return [jax.ShapeDtypeStruct(shape, of.key.dtype)]


def native_fold(outer: bool, of: FoldOperands) -> Sequence[Array]:
    """Calls threefry.cc for keys."""
    (keys,) = folded_shapes(outer, of)
    words = jax.ShapeDtypeStruct((*keys.shape, 2), jnp.uint32)
    call = jax.ffi.ffi_call("specjax_keys_fold", words)
    return [_wrap(call(jax.random.key_data(of.key), of.data, outer=outer))]


def _wrap(words: Any) -> Array:
    return jax.random.wrap_key_data(words, impl=KEYS)


class KeyOperands(NamedTuple):
    """The operands of uniforms in [0, 1), of keys [...]."""

    key: Array


def uniform(twin: Callable, key: Array, shape: tuple[int, ...]) -> Array:
    """Returns uniforms u [..., *shape] of keys [...]. twin: (`KeyOperands`) -> [u]."""
    native, shapes = _fix(native_uniform, shape), _fix(uniform_shapes, shape)
    return _run(
        twin, KeyOperands(key), native=native, shapes=shapes, here=serves_keys(key)
    )[0]


def uniform_shapes(
    shape: tuple[int, ...], of: KeyOperands
) -> list[jax.ShapeDtypeStruct]:
    """Returns the shape of uniforms, of which each key has `shape`."""
    return [jax.ShapeDtypeStruct((*of.key.shape, *shape), jnp.float32)]


def native_uniform(shape: tuple[int, ...], of: KeyOperands) -> Sequence[Array]:
    """Calls threefry.cc for uniforms."""
    call = jax.ffi.ffi_call("specjax_keys_uniform", uniform_shapes(shape, of))
    return call(jax.random.key_data(of.key))


def gumbel(twin: Callable, key: Array, vocab: int) -> Array:
    """Returns Gumbel variables g [..., V] of keys [...].

    twin: (`KeyOperands`) -> [g].
    """
    shape = (vocab,)
    native, shapes = _fix(native_gumbel, shape), _fix(uniform_shapes, shape)
    here = serves_keys(key) and 1 <= vocab < 2**31
    return _run(twin, KeyOperands(key), native=native, shapes=shapes, here=here)[0]


def native_gumbel(shape: tuple[int, ...], of: KeyOperands) -> Sequence[Array]:
    """Calls threefry.cc for Gumbel variables."""
    call = jax.ffi.ffi_call("specjax_keys_gumbel", uniform_shapes(shape, of))
    return call(jax.random.key_data(of.key))
