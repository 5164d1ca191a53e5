"""Truncation by top-k, top-p and min-p, by selection: without sorting the vocabulary.

Truncation (Section 2.2 of Leviathan et al. 2023; top-p is Section 3.1 of Holtzman et
al. 2020) keeps a prefix of the ids ordered by (logit descending, id ascending), so one
logit and one id describe what is kept. The end of the prefix is usually near the top
and is then read from the NEAR largest logits. Otherwise it is found by bisection over
the floats themselves, whose bits have the order of integers. On a CPU a sort takes 10
to 80 times as long. Axes: R rows, V vocabulary, K = min(NEAR, V).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

NEAR = 128
LANES = 256  # columns that are summed in parallel: vectorized, with less rounding
# With more ids than LARGE, the largest of each stripe come first.
LARGE, STRIPE = 1 << 16, 32


class Row(NamedTuple):
    """The rows to truncate: logits [R, V], largest logit and 1 / temperature [R].

    No logit is NaN or +inf.
    """

    logits: Array
    top: Array
    scale: Array

    def log_weight(self, logit: Array) -> Array:
        """Returns log p without its normalizer, 0 at the top: [R, N] -> [R, N]."""
        return (logit - self.top[:, None]) * self.scale[:, None]


class End(NamedTuple):
    """The end of a prefix: its smallest logit, and how many of its equals are kept.

    Both are [R].
    """

    logit: Array
    number: Array


class Setting(NamedTuple):
    """A setting of truncation, for checks, messages and flags.

    in_range: values -> which of them are allowed. wanted: the range in words.
    unlimited: the value that keeps every id. keeps: the ids that it keeps, in words.
    """

    in_range: Callable[[Any], Any]
    wanted: str
    unlimited: float
    keeps: str


SETTINGS = {
    "top_k": Setting(
        lambda x: x >= 1,
        "at least 1; leave top_k out for no limit",
        2**31 - 1,
        "this many of the most likely ids",
    ),
    "top_p": Setting(
        lambda x: (x > 0) & (x <= 1),
        "in (0, 1]; leave top_p out for no limit",
        1.0,
        "the most likely ids whose probabilities sum to at least this",
    ),
    "min_p": Setting(
        lambda x: (x >= 0) & (x <= 1),
        "in [0, 1]; leave min_p out for none",
        0.0,
        "ids of at least this share of the largest probability",
    ),
}


def last_kept(
    logits: Array,
    top: Array,
    scale: Array,
    *,
    top_k: Array | None = None,
    top_p: Array | None = None,
    min_p: Array | None = None,
) -> tuple[Array, Array]:
    """Returns the logit and the id of the last token that truncation keeps, in the
    order described above.

    Args:
      logits: [..., V] float32 or float64 without NaN; -inf is an impossible id.
      top: [...], the largest logit of each row.
      scale: [...], 1 / temperature.
      top_k: [...] int32, at least 1: the number of ids that are kept.
      top_p: [...] in (0, 1]: of those, the fewest whose share reaches it; 1 keeps all.
      min_p: [...] in [0, 1]: of those, the ids with p >= min_p * the largest p.

    Returns:
      (tau, tie) [...] each: an id is kept if its logit is above tau, or equal to tau
      and the id is at most tie.
    """
    lead, vocab = logits.shape[:-1], logits.shape[-1]
    top, scale = top.reshape(-1), scale.reshape(-1)
    top_k, top_p, min_p = (
        x if x is None else x.reshape(-1) for x in (top_k, top_p, min_p)
    )
    row = Row(logits.reshape(-1, vocab), top, scale)
    end = End(jnp.full_like(top, -jnp.inf), jnp.full(top.shape, vocab, jnp.int32))
    if min_p is not None:
        likely = row.log_weight(row.logits) >= jnp.log(min_p)[:, None]
        end = end._replace(logit=jnp.min(row.logits, -1, where=likely, initial=jnp.inf))
    if top_k is not None or top_p is not None:
        end = _shorter_prefix(end, _end_by_rank(row, end.logit, top_k, top_p))
    tie = _nth_equal(row.logits, end)
    return end.logit.reshape(lead), tie.reshape(lead)


def _shorter_prefix(floor: End, end: End) -> End:
    """Returns the shorter of two prefixes; `floor` keeps all ids equal to its logit."""
    further = floor.logit > end.logit
    return End(*(jnp.where(further, a, b) for a, b in zip(floor, end, strict=True)))


def _end_by_rank(
    row: Row, floor: Array, top_k: Array | None, top_p: Array | None
) -> End:
    """Returns the end of the prefix that top-k and then top-p keep.

    Where it would be below the logit `floor` [R] it may be any end below it, because
    min-p ends that row earlier.
    """
    count, vocab = row.logits.shape
    most = min(NEAR, vocab)
    best = _largest(row.logits, most)
    size = jnp.full(count, vocab) if top_k is None else jnp.minimum(top_k, vocab)
    size = size.astype(jnp.int32)
    # The prefix has `kept` of `best` where it `ended` there; `whole` if all are kept.
    kept, ended, whole = jnp.minimum(size, most), size <= most, size == vocab
    by_floor = floor > best[:, -1]
    if top_p is not None:
        inside = jnp.arange(most) < size[:, None]
        mass = jnp.cumsum(jnp.where(inside, jnp.exp(row.log_weight(best)), 0.0), -1)
        total, limited = mass[:, -1], top_p < 1
        if most < vocab:  # the mass that top_k keeps is known for so few ids, or all
            every = _sum(jnp.exp(row.log_weight(row.logits)))
            total = jnp.where(ended, total, every)
            by_floor &= ended | whole | ~limited
        short = jnp.sum(mass < (top_p * total)[:, None], axis=-1, dtype=jnp.int32)
        ended |= whole & limited & (short < most)
        kept = jnp.where(limited, jnp.minimum(short + 1, kept), kept)
        whole &= ~limited
    tau = jnp.take_along_axis(best, jnp.maximum(kept, 1)[:, None] - 1, axis=-1)
    number = kept - jnp.sum(best > tau, axis=-1, dtype=jnp.int32)
    tau, number = jnp.where(whole, -jnp.inf, tau[:, 0]), jnp.where(whole, vocab, number)
    near = End(tau, number)
    if most == vocab:
        return near
    ended |= whole | by_floor

    def beyond() -> End:
        below = _end_by_bisection(row, ended, best[:, -1], size, top_p)
        return End(*(jnp.where(ended, a, b) for a, b in zip(near, below, strict=True)))

    return jax.lax.cond(ended.all(), lambda: near, beyond)


def _largest(logits: Array, count: int) -> Array:
    """Returns the `count` largest logits of each row [R, V], descending: [R, count].

    Those of a large vocabulary are in the `count` stripes with the largest maxima.
    """
    vocab, spread = logits.shape[-1], jax.sharding.get_abstract_mesh()
    if not spread.empty:  # top_k would gather rows; a sort by parts leaves them
        padding = (0, 0), (0, -vocab % spread.size)
        parts = jnp.pad(logits, padding, constant_values=-jnp.inf)
        parts = parts.reshape(len(logits), spread.size, -1)
        near = jnp.sort(parts, descending=True)[..., :count]
        near = near.reshape(len(logits), -1)
        return jnp.sort(near, descending=True)[:, :count]
    if vocab > LARGE:
        padding = (0, 0), (0, -vocab % STRIPE)
        stripes = jnp.pad(logits, padding, constant_values=-jnp.inf)
        stripes = stripes.reshape(len(logits), -1, STRIPE)
        chosen = jax.lax.top_k(stripes.max(-1), count)[1]
        logits = jnp.take_along_axis(stripes, chosen[..., None], axis=1)
        logits = logits.reshape(len(logits), -1)
    # The barrier keeps XLA from turning a top_k that is sliced later into a sort.
    return jax.lax.optimization_barrier(jax.lax.top_k(logits, count))[0]


def _end_by_bisection(
    row: Row, ended: Array, most: Array, size: Array, top_p: Array | None
) -> End:
    """Returns the end of the prefix that top-k and then top-p keep, found at the logit
    `most` or below it.

    `size` [R] is the number of ids of top-k. Rows that have `ended` [R] return
    anything, and cost no iteration of the search.
    """
    key, dtype = _order_key(row.logits), row.logits.dtype
    every = size == row.logits.shape[-1]
    high = _order_key(most)
    low = jnp.where(ended, high, key.min(-1))

    def enough_ids(at: Array) -> Array:
        return jnp.sum(key >= at[:, None], axis=-1, dtype=jnp.int32) >= size

    last = _bisect_greatest(enough_ids, low, jnp.where(every, low, high))
    number = size - jnp.sum(key > last[:, None], axis=-1, dtype=jnp.int32)
    if top_p is None:
        return End(_float_of_key(last, dtype), number)
    weight = jnp.exp(row.log_weight(row.logits))

    def mass(kept: Array) -> Array:
        return _sum(jnp.where(kept, weight, 0.0))

    def weight_at(at: Array) -> Array:
        return jnp.exp(row.log_weight(_float_of_key(at, dtype)[:, None]))[:, 0]

    goal = top_p * (mass(key > last[:, None]) + number * weight_at(last))
    high = jnp.where(ended, last, _order_key(row.top))
    at = _bisect_greatest(lambda at: mass(key >= at[:, None]) >= goal, last, high)
    share, missing = weight_at(at), goal - mass(key > at[:, None])
    needed = jnp.ceil(missing / jnp.where(share > 0, share, 1.0)).astype(jnp.int32)
    needed = jnp.maximum(needed, 1)
    needed = jnp.where(at == last, jnp.minimum(needed, number), needed)
    limited = top_p < 1
    tau = _float_of_key(jnp.where(limited, at, last), dtype)
    return End(tau, jnp.where(limited, needed, number))


def _bisect_greatest(holds: Callable, low: Array, high: Array) -> Array:
    """Returns the greatest integer [R] in `low` .. `high` for which `holds`.

    `holds` must be true up to some number and false above it; `low` if it never is.
    """

    def halve_interval(bounds: tuple) -> tuple:
        low, high = bounds
        middle = (low | high) - ((low ^ high) >> 1)  # the mean, rounded up
        yes = holds(middle)
        return jnp.where(yes, middle, low), jnp.where(yes, high, middle - 1)

    return jax.lax.while_loop(
        lambda b: (b[0] < b[1]).any(), halve_interval, (low, high)
    )[0]


def _order_key(logits: Array) -> Array:
    """Returns floats as integers of the same order and width; the two zeros are one."""
    kind = jnp.int64 if logits.dtype == jnp.float64 else jnp.int32
    bits = jax.lax.bitcast_convert_type(jnp.where(logits == 0, 0.0, logits), kind)
    return jnp.where(bits < 0, bits ^ jnp.iinfo(kind).max, bits)


def _float_of_key(key: Array, dtype: Any) -> Array:
    """Returns the float from which `_order_key` made an integer."""
    bits = jnp.where(key < 0, key ^ jnp.iinfo(key.dtype).max, key)
    return jax.lax.bitcast_convert_type(bits, dtype)


def _nth_equal(logits: Array, end: End) -> Array:
    """Returns the id of the `end.number`-th logit equal to `end.logit`, [R] int32.

    It is the last of them if there are fewer, and V - 1 if there is none. The block
    that contains it is found first.
    """
    count, vocab = logits.shape
    blocks = jnp.pad(logits, ((0, 0), (0, -vocab % LANES)), constant_values=jnp.nan)
    blocks = blocks.reshape(count, -1, LANES)
    equal = (blocks == end.logit[:, None, None]).sum(-1, dtype=jnp.int32)
    until = jnp.cumsum(equal, axis=-1)
    number = jnp.minimum(end.number, until[:, -1])[:, None]
    passed = until < number
    before = jnp.max(until, -1, where=passed, initial=0, keepdims=True)
    block = passed.sum(-1, dtype=jnp.int32)
    here = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
    inside = jnp.cumsum(here == end.logit[:, None], axis=-1, dtype=jnp.int32)
    at = block * LANES + jnp.sum(inside < number - before, axis=-1, dtype=jnp.int32)
    return jnp.where(number[:, 0] > 0, at, vocab - 1)


def _sum(x: Array) -> Array:
    """Sums [R, V] over the ids -> [R]."""
    columns = jnp.pad(x, ((0, 0), (0, -x.shape[-1] % LANES)))
    return columns.reshape(len(x), -1, LANES).sum(1).sum(-1)
