"""From logits to the distribution that is sampled from: Section 2.2 as one law.

Temperature, top-k, top-p, min-p and argmax, in that order, keep a prefix of the ids
ordered by (logit descending, id ascending). A `Law` is the raw logits and where that
prefix ends, so that nobody writes a distribution that nobody reads.
Axes: B rows, T tokens, V vocabulary, M places of a table row, K ids of a reduced one.
"""

import numbers
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import truncation
from specjax.runtime import hosts
from specjax.types import BLOCK, Law, Reduced, Sampling, Table


def standardize(logits: Array | Reduced, sampling: Sampling) -> Law:
    """The law of `logits` [B, ..., V] under each row's settings [B] (Section 2.2).

    An id whose logit is -inf or NaN is never drawn; each row needs one that is finite.
    """
    if isinstance(logits, Reduced):  # its ids ascend: the order of all is its own
        law = standardize(logits.logits, sampling)
        return law._replace(logits=logits, tie=logits.ids[law.tie])

    def a_row(setting: Array) -> Array:
        extra = (1,) * (logits.ndim - 2)
        return jnp.broadcast_to(setting.reshape(-1, *extra), logits.shape[:-1])

    z = _wide(logits)
    z = jnp.where(jnp.isnan(z), -jnp.inf, z)
    temperature = a_row(sampling.temperature)
    greedy = temperature == 0
    # Argmax is the law that keeps one id, never a division by a small number.
    scale = jnp.where(greedy, 1.0, 1 / jnp.where(greedy, 1.0, temperature))
    top, first_top = jax.lax.platform_dependent(z, cpu=_top_twice, default=_top_once)
    tau, vocab = jnp.where(greedy, top, -jnp.inf), z.shape[-1]
    tie = jnp.where(greedy, first_top, vocab - 1)
    if any(setting is not None for setting in sampling[1:]):
        # An argmax row's settings are of no account, and 1 is the cheapest of each.
        cuts = [
            None if cut is None else jnp.where(greedy, 1, a_row(cut))
            for cut in sampling[1:]
        ]
        cut_tau, cut_tie = truncation.last_kept(z, top, scale, *cuts)
        tau, tie = jnp.where(greedy, tau, cut_tau), jnp.where(greedy, tie, cut_tie)
    law = Law(logits, scale, top, tau, tie.astype(jnp.int32), jnp.zeros_like(scale))
    # The top is always kept and weighs 1, so that nothing over- or underflows.
    weights = jnp.where(_kept(law, z), jnp.exp(_scaled(z, scale, top)), 0.0)
    return law._replace(lse=jnp.log(weights.sum(-1)))


def _top_twice(z: Array) -> tuple[Array, Array]:
    """The largest of z [..., V], and the smallest id that has it, [...] each, by two
    reductions, which a CPU's compiler vectorizes."""
    top, ids = z.max(-1), jnp.arange(z.shape[-1], dtype=jnp.int32)
    return top, jnp.min(jnp.where(z == top[..., None], ids, ids[-1]), axis=-1)


def _top_once(z: Array) -> tuple[Array, Array]:
    """The same by one, which on a GPU is half as many kernels."""

    def larger(pair, other):
        (value, at), (rival, place) = pair, other
        first = (value > rival) | ((value == rival) & (at < place))
        return jnp.where(first, value, rival), jnp.where(first, at, place)

    ids = jax.lax.broadcasted_iota(jnp.int32, z.shape, z.ndim - 1)
    least = jnp.array(-jnp.inf, z.dtype), jnp.int32(z.shape[-1] - 1)
    return jax.lax.reduce((z, ids), least, larger, (z.ndim - 1,))


def _wide(logits: Array) -> Array:
    """In the precision of probabilities: float32, or float64 where logits are."""
    return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))


def _scaled(z: Array, scale: Array, top: Array) -> Array:
    """[..., V]: log-probabilities but for their normaliser, 0 at the largest."""
    return (z - top[..., None]) * scale[..., None]


def _kept(law: Law, z: Array, ids: Array | None = None) -> Array:
    """[..., V] bool: the ids that the law can draw, for its widened logits `z`; or of
    `ids` [K], for theirs."""
    tau, tie = law.tau[..., None], law.tie[..., None]
    ids = jnp.arange(z.shape[-1]) if ids is None else ids
    return (z > tau) | ((z == tau) & (ids <= tie))


def dense(law: Law) -> Array:
    """The probabilities themselves, [..., V] float32; rows sum to 1."""
    if isinstance(law.logits, Reduced):
        weights, place = _weights(law), law.logits.place
        return jnp.take(weights, place, axis=-1, mode="fill", fill_value=0.0)
    return _weights(law)


def _weights(law: Law) -> Array:
    """The probabilities of the ids that a row has logits of."""
    z, ids = _rows(law), None
    if isinstance(law.logits, Reduced):
        ids = law.logits.ids
    weights = jnp.exp(_scaled(z, law.scale, law.top) - law.lse[..., None])
    return jnp.where(_kept(law, z, ids), weights, 0.0)


def _rows(law: Law) -> Array:
    """Logits as dense rows: [..., V], or [..., K] of a reduced one."""
    match law.logits:
        case Table():
            return _wide(table_rows(law.logits, law.row))
        case Reduced():
            return _wide(law.logits.logits)
    return _wide(law.logits)


def spread(logits: Array | Reduced, none: float = -jnp.inf) -> Array:
    """Logits of all ids [..., V], `none` of those that have none."""
    if not isinstance(logits, Reduced):
        return logits
    filled = {"mode": "fill", "fill_value": none}
    return jnp.take(logits.logits, logits.place, axis=-1, **filled)


def vocab_of(logits: Array | Reduced) -> int:
    """V of logits [..., V] or of a part of them."""
    return logits.place.size if isinstance(logits, Reduced) else logits.shape[-1]


def at(law: Law, ids: Array) -> Array:
    """The probability of one id a row, reading one logit a row: ids [...] -> [...]."""
    match law.logits:
        case Table():
            z = _table_at(law.logits, law.row, ids)
        case Reduced(logits, _, place):
            fill = {"mode": "fill", "fill_value": -jnp.inf}
            at_place = place[ids][..., None]
            z = jnp.take_along_axis(logits, at_place, axis=-1, **fill)[..., 0]
        case logits:
            z = jnp.take_along_axis(logits, ids[..., None], axis=-1)[..., 0]
    z = _wide(z)
    kept = (z > law.tau) | ((z == law.tau) & (ids <= law.tie))
    return jnp.where(kept, jnp.exp((z - law.top) * law.scale - law.lse), 0.0)


def at_temperature_one(law: Law, ids: Array) -> Array:
    """The probability of one id a row by the logits themselves, at temperature 1 and
    with nothing cut: ids [...] -> [...]. Of a greedy law it says how sure it is."""
    least = jnp.full_like(law.top, -jnp.inf)
    lse = jax.nn.logsumexp(_rows(law) - law.top[..., None], axis=-1)
    whole = dict(scale=jnp.ones_like(lse), tau=least, lse=lse)
    return at(law._replace(tie=jnp.full_like(law.tie, 2**31 - 1), **whole), ids)


def table_rows(table: Table, row: Array) -> Array:
    """The logits of contexts `row` [...] as dense rows [..., V]."""
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


def first(law: Law, count: int) -> Law:
    """The law of the first `count` of T tokens: [B, T] -> [B, count]."""
    return _map_rows(law, lambda leaf: leaf[:, :count])


def take(law: Law, index: Array) -> Law:
    """One token's law a row: [B, T] at `index` [B] -> [B]."""
    return _map_rows(law, taking(index))


def taking(index: Array, rows: Array | None = None) -> Callable[[Array], Array]:
    """What takes [B, T, ...] at `index` [B] -> [B, ...], or, with `rows` [B, 1], at [B,
    N] -> [B, N, ...]."""
    if not jax.sharding.get_abstract_mesh().empty:  # no row leaves its device
        each = jax.vmap(lambda leaf, at: leaf[at])
        return lambda leaf: each(leaf, index)
    rows = jnp.arange(index.shape[0]) if rows is None else rows
    return lambda leaf: leaf[rows, index]


def putting(index: Array, rows: Array) -> Callable[[Array, Array], Array]:
    """What puts [B, ...] into [B, T, ...] at `index` [B] of `rows` [B], and nothing
    beyond T."""
    if not jax.sharding.get_abstract_mesh().empty:
        each = jax.vmap(lambda leaf, at, x: leaf.at[at].set(x, mode="drop"))
        return lambda leaf, x: each(leaf, index, x)
    return lambda leaf, x: leaf.at[rows, index].set(x, mode="drop")


def but_where(law: Law, certain: Array) -> Law:
    """The law [B, T], but none of any id where `certain` [T] or [B, T]: of tokens that
    were not drawn from one."""
    none = jnp.where(certain, jnp.inf, law.tau)
    return law._replace(tau=none.astype(law.tau.dtype))


def _map_rows(law: Law, function) -> Law:
    """Applies to every leaf that has a row of its own."""
    return shared(jax.tree.map(function, apart(law)), law.logits)


def apart(law: Law) -> Law:
    """The law without what its rows share: leaves [..., ] of rows alone."""
    match law.logits:
        case Table():
            return law._replace(logits=None)
        case Reduced(logits):
            return law._replace(logits=logits)
    return law


def shared(law: Law, logits: Array | Table | Reduced | None) -> Law:
    """What `apart` took away, put back from any logits of the same kind."""
    match logits:
        case Table():
            return law._replace(logits=logits)
        case Reduced():
            return law._replace(logits=logits._replace(logits=law.logits))
    return law


def sample(law: Law, u: Array) -> Array:
    """Draws an id a row: law [B], uniforms u [B, 2] -> [B] int32."""
    drawn = pick(_weights(law), u)
    return law.logits.ids[drawn] if isinstance(law.logits, Reduced) else drawn


def draw(logits: Array | Reduced, sampling: Sampling, u: Array) -> tuple[Array, Law]:
    """What a draft does with logits [B, V]: ids [B] int32 and the law they are from."""
    law = standardize(logits, sampling)
    return sample(law, u), law


def race(law: Law, gumbel: Array) -> Array:
    """argmax(log p + g): follows the law where g [..., V] are Gumbel variables.

    Two laws that race with the same g agree at least beta / (2 - beta) of the time, and
    at most beta. -> [...] int32, the first of equals. An id outside never wins.
    """
    z, ids = _rows(law), None
    if isinstance(law.logits, Reduced):
        ids = law.logits.ids
        gumbel = gumbel[..., ids]
    ahead = _scaled(z, law.scale, law.top) + gumbel  # log p but for a constant
    first = jnp.argmax(jnp.where(_kept(law, z, ids), ahead, -jnp.inf), axis=-1)
    return (first if ids is None else ids[first]).astype(jnp.int32)


def several(law: Law, gumbel: Array, count: int) -> Array:
    """Draws `count` ids a row without replacement, in the order drawn: those whose log
    p + g are the largest, of Gumbel variables g [..., V]. Where the law keeps fewer,
    the next are those of the next largest logits. -> [..., count] int32."""
    z, ids = _rows(law), None
    if isinstance(law.logits, Reduced):
        ids = law.logits.ids
        gumbel = gumbel[..., ids]
    ahead = _scaled(z, law.scale, law.top) + gumbel  # log p but for a constant
    behind = z - law.top[..., None] - 1e4  # of all that the law keeps
    order = jnp.where(_kept(law, z, ids), ahead, behind)
    most = min(count, order.shape[-1])
    drawn = largest(jnp.where(jnp.isnan(order), -jnp.inf, order), most)[1]
    drawn = (drawn if ids is None else ids[drawn]).astype(jnp.int32)
    more = [(0, 0)] * (drawn.ndim - 1) + [(0, count - most)]
    return jnp.pad(drawn, more, mode="edge")


def largest(values: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest of values [..., V] and their ids, descending, the smaller id
    first among equals: [..., count] each."""
    vocab, spread = values.shape[-1], jax.sharding.get_abstract_mesh()
    if spread.empty:
        return jax.lax.top_k(values, count)
    # A top_k gathers rows; of a sort by parts each stays.
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
    """Inverse CDF in two steps: a block of BLOCK ids by u[:, 0], an id by u[:, 1].

    weights [B, V] at least 0, any sum above 0; u [B, 2] in [0, 1) -> [B] int32. An id
    of weight 0 is never returned, whatever the rounding.
    """
    vocab = weights.shape[-1]
    width = min(vocab, BLOCK)  # one block need not be filled up
    blocks = jnp.pad(weights, ((0, 0), (0, -vocab % width)))
    blocks = blocks.reshape(weights.shape[0], -1, width)
    block = _invert(blocks.sum(-1), u[:, 0])
    chosen = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
    token = block * width + _invert(chosen, u[:, 1])
    return jnp.minimum(token, vocab - 1).astype(jnp.int32)


def _invert(weights: Array, u: Array) -> Array:
    """The first index of positive weight whose cumulative weight exceeds u * total."""
    total, size = jnp.cumsum(weights, axis=-1), weights.shape[-1]
    passed = total > u[:, None] * total[:, -1:]
    # Rounding may let none pass when u is next to 1: the last positive one is meant.
    # One reduction finds either: those that pass count up, the others down from 2 V.
    index = jnp.arange(size)
    order = jnp.where(passed, index, 2 * size - index)
    least = jnp.min(jnp.where(weights > 0, order, 2 * size), axis=-1)
    return jnp.where(least < size, least, 2 * size - least)


LEAST, MOST = 1.18e-38, 10_000  # temperatures above 0: normal float32, with room
RANGES = {
    "temperature": (
        lambda x: (x == 0) | ((x >= np.float32(LEAST)) & (x <= MOST)),
        f"0, which is argmax, or from {LEAST} to {MOST}",
    ),
    "top_k": (lambda x: x >= 1, "at least 1; leave top_k out for no limit"),
    "top_p": (lambda x: (x > 0) & (x <= 1), "in (0, 1]; leave top_p out for no limit"),
    "min_p": (lambda x: (x >= 0) & (x <= 1), "in [0, 1]; leave min_p out for none"),
}


def check_numbers(**settings: float | None) -> None:
    """Raises ValueError for a setting of `RANGES` that is no number or out of range;
    None is left out."""
    for name, value in settings.items():
        if value is not None:
            check_number(name, value)


def check_number(name: str, value: float) -> None:
    """Raises ValueError for a value that a setting of `RANGES` cannot have."""
    kind, word = numbers.Real, "a number"
    if name == "top_k":
        kind, word = numbers.Integral, "a whole number"
    valid, wanted = RANGES[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name} must be {word}, {wanted}; got {value!r}")
    if not valid(value):
        raise ValueError(f"{name} must be {wanted}; got {value}")


def check(sampling: Sampling, batch: int) -> None:
    """Raises ValueError for a setting of another shape than [batch] or out of range."""
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
