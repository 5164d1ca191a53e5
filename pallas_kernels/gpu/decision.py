"""Code that all blocks on a GPU share: scalars in lanes, and the decision on a draft.

The scalars of row i are in lane i of a vector, so that parts are merged elementwise.
Only maxima, sums, selects and exponentials are used, which every backend has. Axes: B
rows, G = gamma, V vocabulary.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from pallas_kernels import laws
from pallas_kernels.laws import Decision, LawRow
from pallas_kernels.plan import CERTAIN, DEFERRED, FIELDS, NONE, Plan

LANES = 128
FILLS = (1.0, 0.0, -jnp.inf, 0, 0.0)  # values in lanes without a row
LOG2E = 1.4426950408889634


class Block(NamedTuple):
    """The inputs of a block of threads, and its backend's operations.

    refs: references by name.
    load: (reference, index, start, size, width) -> a vector.
    iota: (size, width) -> 0 .. size - 1, where a thread has `width` neighbours at once.
    place: name of a grid axis -> this block's index on it.
    """

    plan: Plan
    refs: dict[str, Any]
    load: Callable
    iota: Callable
    place: Callable

    def lane(self) -> Array:
        return self.iota(LANES, 1)


def part_size(plan: Plan) -> tuple[int, int]:
    """Returns how many ids a block of statistics reads, and the number of blocks."""
    size = min(plan.tiles.stats, 1 << (plan.vocab.bit_length() - 1))
    return size, -(-plan.vocab // size)


def fill_lanes(lane: Array, fill: float | int) -> Array:
    """Returns a vector with the layout of `lane` and the same value in every lane."""
    return (lane * 0).astype(jnp.asarray(fill).dtype) + fill


def scalars_in_lanes(block: Block, name: str, b: Array, count: int, fill) -> Array:
    """Returns scalars [B, count] of a row in the first lanes."""
    lane = block.lane()
    value = fill_lanes(lane, fill)
    for k in range(count):
        value = jnp.where(lane == k, block.refs[name][b, k], value)
    return value


def known_law(block: Block, side: str, b: Array) -> LawRow:
    """Returns a law, one row per lane, from the scalars that the kernel was given."""
    rows = block.plan.rows(side)
    pairs = zip(FIELDS, FILLS, strict=True)
    return LawRow(
        *(scalars_in_lanes(block, f"{side}_{n}", b, rows, fill) for n, fill in pairs)
    )


def merge_parts(block: Block, side: str, b: Array) -> LawRow:
    """Returns a deferred law, one row per lane, merged from the parts that `statistics`
    stored."""
    plan, blocks = block.plan, part_size(block.plan)[1]
    rows = plan.rows(side)
    temperature = block.refs[f"{side}_temperature"][b]
    power = LOG2E * laws.inverse_temperature(temperature)

    def part(name: str, j: int) -> Array:
        return block.load(block.refs[f"{side}_{name}"], (b, j), 0, LANES, 1)

    tops = [part("top", j) for j in range(blocks)]
    top = functools.reduce(jnp.maximum, tops)
    total, first = None, None
    for j in range(blocks):
        value = part("sum", j) * jnp.exp2((tops[j] - top) * power)
        least = jnp.where(tops[j] == top, part("first", j), plan.vocab - 1)
        total = value if total is None else total + value
        first = least if first is None else jnp.minimum(first, least)
    cut = None
    if plan.cut(side):
        names = (f"{side}_tau", -jnp.inf), (f"{side}_tie", plan.vocab - 1)
        cut = tuple(scalars_in_lanes(block, n, b, rows, fill) for n, fill in names)
    return laws.law_row(
        temperature,
        top=top,
        first=first,
        lse=jnp.log(total),
        cut=cut,
        vocab=plan.vocab,
    )


def law(block: Block, side: str, b: Array) -> LawRow:
    deferred = block.plan.kind(side) == DEFERRED
    return (merge_parts if deferred else known_law)(block, side, b)


def law_at(block: Block, row: LawRow, index: Array) -> LawRow:
    """Returns the scalars of the row `index`, each as a sum in which the other rows are
    0."""
    here = block.lane() == index
    return LawRow(*(jnp.sum(jnp.where(here, x, 0)) for x in row))


def drafted_logits(block: Block, side: str, b: Array) -> Array:
    """Returns the logit of each drafted token, one per lane."""
    lane = block.lane()
    z = fill_lanes(lane, 0.0)
    for k in range(block.plan.gamma):
        token = block.refs["tokens"][b, k]
        z = jnp.where(lane == k, laws.to_float32(block.refs[side][b, k, token]), z)
    return z


def decide(block: Block, b: Array) -> Decision:
    """Decides on the drafted tokens; the result is the same in every block."""
    plan, lane, p = block.plan, block.lane(), law(block, "p", b)
    if plan.draft == NONE:
        return Decision(
            jnp.int32(0), law_at(block, p, 0), None, None, fill_lanes(lane, 0.0)
        )
    gamma, rule, num = plan.gamma, plan.rule, block.refs["num"][b]
    ids = scalars_in_lanes(block, "tokens", b, gamma, 0)
    z_p = drafted_logits(block, "p", b)
    p_x = laws.weight(z_p, ids, p, rule)
    q, q_x = None, fill_lanes(lane, 1.0)
    if "q" in plan.sides:
        q = law(block, "q", b)
        q_x = laws.weight(drafted_logits(block, "q", b), ids, q, rule)
    near = laws.within_lenience(z_p, p, rule)
    u = scalars_in_lanes(block, "accept", b, gamma, 1.0)
    good = laws.is_accepted(p_x, q_x, u, near, rule) & (lane < num)
    n = jnp.min(jnp.where(good & (lane < gamma), gamma, jnp.minimum(lane, gamma)))
    chance = jnp.where(lane < num, laws.chance(p_x, q_x, near, rule), 0.0)
    rejected, of_p = n < num, law_at(block, p, n)
    if q is None:
        x = jnp.sum(jnp.where(lane == n, ids, 0))
        return Decision(n, of_p, None, jnp.where(rejected, x, -1), chance)
    # A row that keeps nothing stands for q = 0.
    of_q = law_at(block, q, jnp.minimum(n, gamma - 1))
    of_q = of_q._replace(tau=jnp.where(rejected, of_q.tau, jnp.inf))
    return Decision(n, of_p, of_q, None, chance)


def save(block: Block, b: Array, slot: Array | int, outcome: Decision) -> None:
    """Stores a decision: n, the scalars of p, then those of q or the banned id."""
    values = [outcome.n, *outcome.p]
    if outcome.q is not None:
        values += [*outcome.q]
    if outcome.banned is not None:
        values += [outcome.banned]
    for k, value in enumerate(values):
        block.refs["found"][b, slot, k] = value.astype(jnp.float32)
    if block.plan.gamma:
        block.refs["chance"][b, slot] = outcome.chance


def load(block: Block, b: Array) -> Decision:
    """Loads the decision that `save` stored in the first slot."""

    def value(k: int, dtype=jnp.float32) -> Array:
        return block.refs["found"][b, 0, k].astype(dtype)

    def row(k: int) -> LawRow:
        kinds = [jnp.int32 if name == "tie" else jnp.float32 for name in FIELDS]
        return LawRow(*(value(k + i, kind) for i, kind in enumerate(kinds)))

    q = row(6) if "q" in block.plan.sides else None
    banned = value(6, jnp.int32) if block.plan.draft == CERTAIN else None
    return Decision(value(0, jnp.int32), row(1), q, banned, None)
