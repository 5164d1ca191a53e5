"""The distribution that tokens are sampled from, as a law of logits (Section 2.2).

Temperature, top-k, top-p, min-p and argmax, in that order, keep a prefix of the ids
ordered by (logit descending, id ascending). A `Law` is the raw logits and the end of
that prefix, so that a distribution is written out only where it is read. Axes: B rows,
T tokens, V vocabulary, M places of a table row, K ids of a reduced vocabulary.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import truncation
from specjax.native import laws
from specjax.runtime import hosts
from specjax.types import BLOCK, Law, Reduced, Sampling, Table


def standardize(logits: Array | Reduced, sampling: Sampling) -> Law:
    """Returns the law of `logits` [B, ..., V] under each row's settings (Section 2.2).

    An id whose logit is -inf or NaN is never drawn; each row needs a finite logit.
    """
    if isinstance(logits, Reduced):  # its ids ascend, so ties keep their order
        law = standardize(logits.logits, sampling)
        return law._replace(logits=logits, tie=logits.ids[law.tie])
    if all(setting is None for setting in sampling[1:]):
        scalars = laws.standardize(_law_scalars, logits, sampling.temperature)
        return Law(logits, *scalars)
    return _standardize(logits, sampling)


def _standardize(logits: Array, sampling: Sampling) -> Law:
    def broadcast(setting: Array) -> Array:
        extra = (1,) * (logits.ndim - 2)
        return jnp.broadcast_to(setting.reshape(-1, *extra), logits.shape[:-1])

    z = _to_float(logits)
    z = jnp.where(jnp.isnan(z), -jnp.inf, z)
    temperature = broadcast(sampling.temperature)
    greedy = temperature == 0
    # Argmax is the law that keeps one id, never a division by a small number.
    scale = jnp.where(greedy, 1.0, 1 / jnp.where(greedy, 1.0, temperature))
    top, first_top = jax.lax.platform_dependent(
        z, cpu=_top_by_two_reductions, default=_top_by_one_reduction
    )
    tau, vocab = jnp.where(greedy, top, -jnp.inf), z.shape[-1]
    tie = jnp.where(greedy, first_top, vocab - 1)
    if any(setting is not None for setting in sampling[1:]):
        # An argmax row ignores its settings, and 1 is the cheapest value of each.
        cuts = {
            name: None if cut is None else jnp.where(greedy, 1, broadcast(cut))
            for name, cut in zip(sampling._fields[1:], sampling[1:], strict=True)
        }
        cut_tau, cut_tie = truncation.last_kept(z, top, scale, **cuts)
        tau, tie = jnp.where(greedy, tau, cut_tau), jnp.where(greedy, tie, cut_tie)
    law = Law(logits, scale, top, tau, tie.astype(jnp.int32), jnp.zeros_like(scale))
    # The top is always kept and weighs 1, so the sum cannot overflow or underflow.
    weights = jnp.where(_is_kept(law, z), jnp.exp(_log_weights(z, scale, top)), 0.0)
    return law._replace(lse=jnp.log(weights.sum(-1)))


def _law_scalars(of: laws.LawOperands) -> list[Array]:
    law = _standardize(of.logits, Sampling(of.temperature))
    return [getattr(law, name) for name in laws.SCALARS]


def _top_by_two_reductions(z: Array) -> tuple[Array, Array]:
    """Returns the largest of z [..., V] and the smallest id that has it, [...] each.

    It uses two reductions, which a CPU's compiler vectorizes.
    """
    top, ids = z.max(-1), jnp.arange(z.shape[-1], dtype=jnp.int32)
    return top, jnp.min(jnp.where(z == top[..., None], ids, ids[-1]), axis=-1)


def _top_by_one_reduction(z: Array) -> tuple[Array, Array]:
    """Returns the same by one reduction, which on a GPU takes half as many kernels."""

    def pick_larger(pair: Any, other: Any) -> tuple[Array, Array]:
        (value, at), (rival, place) = pair, other
        first = (value > rival) | ((value == rival) & (at < place))
        return jnp.where(first, value, rival), jnp.where(first, at, place)

    ids = jax.lax.broadcasted_iota(jnp.int32, z.shape, z.ndim - 1)
    least = jnp.array(-jnp.inf, z.dtype), jnp.int32(z.shape[-1] - 1)
    return jax.lax.reduce((z, ids), least, pick_larger, (z.ndim - 1,))


def _to_float(logits: Array) -> Array:
    """Returns logits in the precision of probabilities: float32, or kept float64."""
    return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))


def _log_weights(z: Array, scale: Array, top: Array) -> Array:
    """Returns log p without its normalizer, [..., V]; 0 at the largest logit."""
    return (z - top[..., None]) * scale[..., None]


def _is_kept(law: Law, z: Array, ids: Array | None = None) -> Array:
    """Returns which ids the law can draw, [..., V] bool, for its float logits `z`.

    With `ids` [K], `z` are the logits of these ids.
    """
    tau, tie = law.tau[..., None], law.tie[..., None]
    ids = jnp.arange(z.shape[-1]) if ids is None else ids
    return (z > tau) | ((z == tau) & (ids <= tie))


def dense(law: Law) -> Array:
    """Returns the probabilities of all ids, [..., V] float32; rows sum to 1."""
    if isinstance(law.logits, Reduced):
        weights, place = _weights(law), law.logits.place
        return jnp.take(weights, place, axis=-1, mode="fill", fill_value=0.0)
    return _weights(law)


def _weights(law: Law) -> Array:
    """Returns the probabilities of the ids that a row has logits for."""
    z, ids = _dense_logits(law), None
    if isinstance(law.logits, Reduced):
        ids = law.logits.ids
    weights = jnp.exp(_log_weights(z, law.scale, law.top) - law.lse[..., None])
    return jnp.where(_is_kept(law, z, ids), weights, 0.0)


def _dense_logits(law: Law) -> Array:
    """Returns the logits as dense rows [..., V], or [..., K] of reduced ones."""
    match law.logits:
        case Table():
            assert law.row is not None  # as of tables
            return _to_float(table_rows(law.logits, law.row))
        case Reduced():
            return _to_float(law.logits.logits)
    return _to_float(law.logits)


def expand_logits(logits: Array | Reduced, none: float = -jnp.inf) -> Array:
    """Returns the logits of all ids [..., V]; `none` for ids without one."""
    if not isinstance(logits, Reduced):
        return logits
    z, place = logits.logits, logits.place
    return jnp.take(z, place, axis=-1, mode="fill", fill_value=none)


def vocab_size(logits: Array | Reduced) -> int:
    """Returns V of logits [..., V], or of the whole vocabulary of reduced ones."""
    return logits.place.size if isinstance(logits, Reduced) else logits.shape[-1]


def at(law: Law, ids: Array) -> Array:
    """Returns the probability of one id per row: ids [...] -> [...].

    It reads one logit per row.
    """
    match law.logits:
        case Table():
            assert law.row is not None  # as of tables
            z = _table_at(law.logits, law.row, ids)
        case Reduced(logits, _, place):
            at_place = place[ids][..., None]
            z = jnp.take_along_axis(
                logits, at_place, axis=-1, mode="fill", fill_value=-jnp.inf
            )[..., 0]
        case logits:
            z = jnp.take_along_axis(logits, ids[..., None], axis=-1)[..., 0]
    z = _to_float(z)
    kept = (z > law.tau) | ((z == law.tau) & (ids <= law.tie))
    return jnp.where(kept, jnp.exp((z - law.top) * law.scale - law.lse), 0.0)


def at_temperature_one(law: Law, ids: Array) -> Array:
    """Returns the probability of one id per row at temperature 1, with no truncation.

    ids [...] -> [...]. For an argmax law it tells how sure the model is.
    """
    least = jnp.full_like(law.top, -jnp.inf)
    lse = jax.nn.logsumexp(_dense_logits(law) - law.top[..., None], axis=-1)
    whole = dict(scale=jnp.ones_like(lse), tau=least, lse=lse)
    return at(law._replace(tie=jnp.full_like(law.tie, 2**31 - 1), **whole), ids)


def table_rows(table: Table, row: Array) -> Array:
    """Returns the logits of contexts `row` [...] as dense rows [..., V]."""
    flat = row.reshape(-1)
    z = table.base + table.offset[flat][:, None]
    places = jnp.arange(flat.size)[:, None]
    z = z.at[places, table.ids[flat]].set(table.logits[flat], mode="drop")
    return z.reshape(*row.shape, -1)


def _table_at(table: Table, row: Array, ids: Array) -> Array:
    matches = table.ids[row] == ids[..., None]  # [..., M]
    special = jnp.max(
        jnp.where(matches, table.logits[row], -jnp.inf), axis=-1, initial=-jnp.inf
    )
    return jnp.where(matches.any(-1), special, table.base[ids] + table.offset[row])


def first_tokens(law: Law, count: int) -> Law:
    """Returns the law of the first `count` of T tokens: [B, T] -> [B, count]."""
    return _map_rows(law, lambda leaf: leaf[:, :count])


def take(law: Law, index: Array) -> Law:
    """Returns the law of one token per row: [B, T] at `index` [B] -> [B]."""
    return _map_rows(law, take_fn(index))


def take_fn(index: Array, rows: Array | None = None) -> Callable[[Array], Array]:
    """Returns a function that takes entries of arrays along their second axis.

    It maps [B, T, ...] at `index` [B] to [B, ...]; with `rows` [B, 1], at `index` [B,
    N] to [B, N, ...].
    """
    if not jax.sharding.get_abstract_mesh().empty:  # rows stay on their devices
        each = jax.vmap(lambda leaf, at: leaf[at])
        return lambda leaf: each(leaf, index)
    rows = jnp.arange(index.shape[0]) if rows is None else rows
    return lambda leaf: leaf[rows, index]


def put_fn(index: Array, rows: Array) -> Callable[[Array, Array], Array]:
    """Returns a function that puts [B, ...] into [B, T, ...] at `index` of `rows`, [B].

    An index beyond T puts nothing.
    """
    if not jax.sharding.get_abstract_mesh().empty:
        each = jax.vmap(lambda leaf, at, x: leaf.at[at].set(x, mode="drop"))
        return lambda leaf, x: each(leaf, index, x)
    return lambda leaf, x: leaf.at[rows, index].set(x, mode="drop")


def mask_certain(law: Law, certain: Array) -> Law:
    """Returns a law [B, T] without any id where `certain` [T] or [B, T].

    Tokens there are certain: they were not drawn from a law.
    """
    none = jnp.where(certain, jnp.inf, law.tau)
    return law._replace(tau=none.astype(law.tau.dtype))


def _map_rows(law: Law, function: Any) -> Law:
    """Applies a function to every leaf that has a row of its own."""
    return with_shared(jax.tree.map(function, per_row(law)), law.logits)


def per_row(law: Law) -> Law:
    """Returns the law without the arrays that its rows share; every leaf then has the
    axes of the rows first."""
    match law.logits:
        case Table():
            return law._replace(logits=None)
        case Reduced(logits):
            return law._replace(logits=logits)
    return law


def with_shared(law: Law, logits: Array | Table | Reduced | None) -> Law:
    """Returns the law with the arrays that `per_row` left out, taken from `logits`."""
    match logits:
        case Table():
            return law._replace(logits=logits)
        case Reduced():
            return law._replace(logits=logits._replace(logits=law.logits))
    return law


def sample(law: Law, u: Array) -> Array:
    """Draws one id per row: law [B], uniforms u [B, 2] -> [B] int32."""
    if isinstance(law.logits, Reduced):
        logits, ids, place = law.logits
        return ids[sample(law._replace(logits=logits, tie=place[law.tie]), u)]
    if isinstance(law.logits, Table):
        return pick(_weights(law), u)
    return laws.sample(_pick_of_law, laws.DrawOperands(law, u))


def _pick_of_law(of: laws.DrawOperands) -> list[Array]:
    return [pick(_weights(of.law), of.u)]


def draw(logits: Array | Reduced, sampling: Sampling, u: Array) -> tuple[Array, Law]:
    """Draws a drafted token from logits [B, V]: ids [B] int32, and their law."""
    law = standardize(logits, sampling)
    return sample(law, u), law


def race(law: Law, gumbel: Array) -> Array:
    """Returns argmax(log p + g), which follows the law for Gumbel variables g [..., V].

    Two laws with the same g agree with probability at least beta / (2 - beta) and at
    most beta. The result is [...] int32, the first of equals. An id outside the law
    never wins.
    """
    z, ids = _dense_logits(law), None
    if isinstance(law.logits, Reduced):
        ids = law.logits.ids
        gumbel = gumbel[..., ids]
    ahead = _log_weights(z, law.scale, law.top) + gumbel  # log p plus a constant
    first = jnp.argmax(jnp.where(_is_kept(law, z, ids), ahead, -jnp.inf), axis=-1)
    return (first if ids is None else ids[first]).astype(jnp.int32)


def sample_distinct(law: Law, gumbel: Array, count: int) -> Array:
    """Draws `count` ids per row without replacement, in the order in which they are
    drawn.

    They are the ids with the largest log p + g for Gumbel variables g [..., V]. Where
    the law keeps fewer ids, those with the next largest logits follow. The result is
    [..., count] int32.
    """
    if isinstance(law.logits, Reduced):
        logits, ids, place = law.logits
        own = law._replace(logits=logits, tie=place[law.tie])
        return ids[sample_distinct(own, gumbel[..., ids], count)]
    law = law._replace(logits=_dense_logits(law))
    most = min(count, law.logits.shape[-1])
    of = laws.OrderOperands(law, gumbel)
    drawn = laws.distinct(_first_in_order(most), of, most)
    more = [(0, 0)] * (drawn.ndim - 1) + [(0, count - most)]
    return jnp.pad(drawn, more, mode="edge")


@functools.cache
def _first_in_order(count: int) -> Callable:
    def ids_of(of: laws.OrderOperands) -> list[Array]:
        law, z = of.law, of.law.logits
        ahead = _log_weights(z, law.scale, law.top) + of.gumbel  # log p and a constant
        behind = z - law.top[..., None] - 1e4  # below everything that the law keeps
        order = jnp.where(_is_kept(law, z), ahead, behind)
        order = jnp.where(jnp.isnan(order), -jnp.inf, order)
        return [largest(order, count)[1].astype(jnp.int32)]

    return ids_of


def largest(values: Array, count: int) -> tuple[Array, Array]:
    """Returns the `count` largest of values [..., V] and their ids, [..., count] each.

    They descend; of equals the smaller id comes first.
    """
    vocab, spread = values.shape[-1], jax.sharding.get_abstract_mesh()
    if spread.empty:
        return jax.lax.top_k(values, count)
    # A top_k would gather the rows of a mesh; a sort by parts leaves parts in place.
    lead, size = values.shape[:-1], -(-vocab // spread.size)
    more = [(0, 0)] * len(lead) + [(0, size * spread.size - vocab)]
    parts = -jnp.pad(values, more, constant_values=-jnp.inf)
    parts = parts.reshape(*lead, spread.size, size)
    ids = jnp.arange(size * spread.size, dtype=jnp.int32).reshape(spread.size, size)
    best = parts, jnp.broadcast_to(ids, parts.shape)
    for shape in ((*lead, -1), (*lead, count)):
        best = jax.lax.sort(best, num_keys=2)
        best = tuple(x[..., :count].reshape(shape) for x in best)
    return -best[0], best[1]


def pick(weights: Array, u: Array) -> Array:
    """Draws by inverse CDF in two steps: a block of BLOCK ids, then an id in it.

    The block is drawn by u[:, 0] and the id by u[:, 1]. weights [B, V] are at least 0,
    with any sum above 0; u [B, 2] is in [0, 1). The result is [B] int32. An id of
    weight 0 is never returned, whatever the rounding.
    """
    vocab = weights.shape[-1]
    width = min(vocab, BLOCK)  # a single block needs no padding
    blocks = jnp.pad(weights, ((0, 0), (0, -vocab % width)))
    blocks = blocks.reshape(weights.shape[0], -1, width)
    block = _invert(blocks.sum(-1), u[:, 0])
    chosen = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
    token = block * width + _invert(chosen, u[:, 1])
    return jnp.minimum(token, vocab - 1).astype(jnp.int32)


def _invert(weights: Array, u: Array) -> Array:
    """Returns the first index of positive weight with cumulative weight > u * total."""
    total, size = jnp.cumsum(weights, axis=-1), weights.shape[-1]
    passed = total > u[:, None] * total[:, -1:]
    # Rounding may let none pass if u is next to 1: then the last positive one is right.
    # One reduction finds either: indices that pass count up, others down from 2 V.
    index = jnp.arange(size)
    order = jnp.where(passed, index, 2 * size - index)
    least = jnp.min(jnp.where(weights > 0, order, 2 * size), axis=-1)
    return jnp.where(least < size, least, 2 * size - least)


LEAST, MOST = 1.18e-38, 10_000  # temperatures above 0: normal float32, with a margin
RANGES = {
    "temperature": (
        lambda x: (x == 0) | ((x >= float(np.float32(LEAST))) & (x <= MOST)),
        f"0, which is argmax, or from {LEAST} to {MOST}",
    ),
    **{name: (it.in_range, it.wanted) for name, it in truncation.SETTINGS.items()},
}


def check(sampling: Sampling, batch: int) -> None:
    """Raises ValueError for a setting whose shape is not [batch], or whose value is out
    of range."""
    for name, setting in sampling._asdict().items():
        if setting is None:
            continue
        values, (valid, wanted) = np.asarray(hosts.read(setting)), RANGES[name]
        if values.shape != (batch,):
            raise ValueError(
                f"{name} has shape {values.shape} for {batch} rows:"
                f" give one value a row, jnp.full({batch}, value)"
            )
        if not valid(values).all():
            raise ValueError(
                f"{name} must be {wanted}; got {values[~valid(values)][0]}"
            )
