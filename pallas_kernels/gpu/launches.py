"""Verification on GPUs in three launches, for any backend.

`statistics` splits the rows of deferred laws over blocks of the vocabulary and leaves a
maximum and a sum of each block. `remainder` decides how many tokens are kept, in each
block separately from these few numbers, and sums the residual of row n by blocks of the
inverse CDF. `choice` draws from it. Known laws need no statistics: two launches, which
read 2 G logits and two rows. Axes: B rows, G = gamma, V vocabulary, K blocks of the
inverse CDF.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from pallas_kernels import laws
from pallas_kernels.gpu.decision import (
    LANES,
    LOG2E,
    Block,
    decide,
    load,
    part_size,
    save,
)
from pallas_kernels.laws import Decision
from pallas_kernels.plan import NONE, Plan, results, struct
from specjax.types import BLOCK

MOST = 1024 * BLOCK  # ids: the sums of their blocks fit a vector


def width(dtype, vocab: int, size: int) -> int:
    """Returns how many logits a thread loads at once: 16 bytes if the sizes allow
    it."""
    vector = 16 // jnp.dtype(dtype).itemsize
    while vector > 1 and (vocab % vector or size % (LANES * vector)):
        vector //= 2
    return vector


def statistics(block: Block) -> None:
    """Finds the largest logits, sums of exponentials, and first ids of argmax rows."""
    plan, i = block.plan, block.place("i")
    if len(plan.unread) == 1:
        read(block, plan.unread[0], i)
        return

    @pl.when(i <= plan.gamma)  # rows of p, then rows of q
    def _():
        read(block, "p", i)

    @pl.when(i > plan.gamma)
    def _():
        read(block, "q", i - (plan.gamma + 1))


def read(block: Block, side: str, i: Array) -> None:
    """Reads one part of row i of a side."""
    plan, refs, b, j = block.plan, block.refs, block.place("b"), block.place("j")
    size, _ = part_size(plan)
    vector = width(refs[side].dtype, plan.vocab, size)
    start = jnp.minimum(j * size, plan.vocab - size)  # the last part is moved back
    z = laws.to_float32(block.load(refs[side], (b, i), start, size, vector))
    z = jnp.where(z == z, z, -jnp.inf)  # NaN counts as -inf
    temperature, ids = refs[f"{side}_temperature"][b], start + block.iota(size, vector)
    if plan.cut(side):
        tau, tie = refs[f"{side}_tau"][b, i], refs[f"{side}_tie"][b, i]
        z = jnp.where((z > tau) | ((z == tau) & (ids <= tie)), z, -jnp.inf)
    if plan.vocab % size:
        z = jnp.where(ids >= j * size, z, -jnp.inf)

    top = jnp.max(z)
    finite = jnp.where(top == -jnp.inf, 0.0, top)
    power = LOG2E * laws.inverse_temperature(temperature)
    refs[f"{side}_top"][b, j, i] = top
    refs[f"{side}_sum"][b, j, i] = jnp.sum(jnp.exp2((z - finite) * power))

    @pl.when(temperature == 0)
    def _():
        least = jnp.min(jnp.where(z == top, ids, plan.vocab - 1))
        refs[f"{side}_first"][b, j, i] = least

    @pl.when(temperature > 0)
    def _():
        refs[f"{side}_first"][b, j, i] = jnp.int32(0)


def decision(block: Block) -> None:
    """Decides in a separate launch, for sizes at which many blocks would make the same
    decision."""
    b = block.place("b")
    save(block, b, 0, decide(block, b))


def remainder(block: Block) -> None:
    """Sums the residual, and p, in the blocks of the inverse CDF."""
    plan, b, j = block.plan, block.place("b"), block.place("j")
    if plan.tiles.apart:
        outcome = load(block, b)
    else:
        outcome = decide(block, b)
        save(block, b, j, outcome)
    for k in range(plan.tiles.blocks):
        place = j * plan.tiles.blocks + k

        @pl.when(place < plan.count)
        def _(place=place):
            rest, p, _ = residual_block(block, b, outcome, place)
            block.refs["rest"][b, place] = jnp.sum(rest)
            block.refs["whole"][b, place] = jnp.sum(p)


def residual_block(block: Block, b: Array, outcome: Decision, place: Array) -> tuple:
    """Returns the residual of p_{n+1} in a block of the inverse CDF, p there, and the
    ids."""
    plan, refs = block.plan, block.refs
    vector = width(refs["p"].dtype, plan.vocab, BLOCK)
    start = jnp.minimum(place * BLOCK, plan.vocab - BLOCK)
    ids = start + block.iota(BLOCK, vector)

    def row(side: str, i: Array) -> Array:
        return laws.to_float32(block.load(refs[side], (b, i), start, BLOCK, vector))

    p = laws.weight(row("p", outcome.n), ids, outcome.p, plan.rule)
    p = jnp.where(ids >= place * BLOCK, p, 0.0)
    if outcome.banned is not None:
        return jnp.where(ids == outcome.banned, 0.0, p), p, ids
    if outcome.q is None:
        return p, p, ids
    z = row("q", jnp.minimum(outcome.n, plan.gamma - 1))
    return (
        laws.residual_weight(p, laws.weight(z, ids, outcome.q, plan.rule), plan.rule),
        p,
        ids,
    )


def choice(block: Block) -> None:
    """Draws the token after n kept ones, and writes the verdict."""
    plan, refs, b = block.plan, block.refs, block.place("b")
    outcome, size = load(block, b), sums(plan)
    places = block.iota(size, 1)

    def total(name: str) -> Array:
        value = block.load(refs[name], (b,), 0, size, 1)
        return jnp.where(places < plan.count, value, 0.0)

    rest = total("rest")
    none = jnp.sum(rest) == 0  # rounding can reject where p = q: then p is right
    rest = jnp.where(none, total("whole"), rest)
    place = laws.invert(rest, places, refs["sample"][b, 0], size=size)
    weights, p, ids = residual_block(block, b, outcome, place)
    weights = jnp.where(none, p, weights)
    start = jnp.minimum(place * BLOCK, plan.vocab - BLOCK)
    extra = start + laws.invert(weights, ids - start, refs["sample"][b, 1], size=BLOCK)
    refs["num_accepted"][b] = outcome.n
    for k in range(plan.gamma + 1):
        token = jnp.where(outcome.n == k, extra, 0)
        if k < plan.gamma:
            token = jnp.where(k < outcome.n, refs["tokens"][b, k], token)
            refs["accept_prob"][b, k] = refs["chance"][b, 0, k]
        refs["verdict"][b, k] = token
    if plan.draft == NONE:
        for name, value in outcome.p._asdict().items():
            refs[name][b] = value


def sums(plan: Plan) -> int:
    """Returns the length of a vector of block sums: a power of two, at least LANES."""
    return max(LANES, 1 << (plan.count - 1).bit_length())


def verdict(
    plan: Plan, operands: dict[str, Array], launch: Callable
) -> dict[str, Array]:
    """Launches a verification, and returns the arrays of `plan.results`.

    launch: (body, name, plan, grid, operands, out) -> arrays by the names of `out`; it
    launches `body(Block)` over a grid of named axes.
    """
    batch, saved = plan.batch, {}
    if plan.unread:
        saved = read_parts(plan, operands, launch)
    inputs = {name: x for name, x in operands.items() if name != "sample"} | saved
    tiles = -(-plan.count // plan.tiles.blocks)
    slots = 1 if plan.tiles.apart else tiles
    decided = {"found": struct((batch, slots, 16))}
    if plan.gamma:
        decided["chance"] = struct((batch, slots, LANES))
    weights = {name: struct((batch, sums(plan))) for name in ("rest", "whole")}
    logits = {side: operands[side] for side in plan.sides}
    grid = {"b": batch, "j": tiles}
    if plan.tiles.apart:
        saved = launch(
            decision,
            "decision",
            plan,
            grid={"b": batch},
            operands=inputs,
            out=decided,
        )
        saved |= launch(
            remainder,
            "remainder",
            plan,
            grid=grid,
            operands=logits | saved,
            out=weights,
        )
    else:
        saved = launch(
            remainder,
            "remainder",
            plan,
            grid=grid,
            operands=inputs,
            out=decided | weights,
        )
    last = {name: operands[name] for name in ("sample", "tokens") if name in operands}
    return launch(
        choice,
        "choice",
        plan,
        grid={"b": batch},
        operands=last | logits | saved,
        out=results(plan),
    )


def read_parts(
    plan: Plan, operands: dict[str, Array], launch: Callable
) -> dict[str, Array]:
    """Launches `statistics`, and returns the arrays described by `parts`."""
    grid = {"b": plan.batch, "i": sum(plan.rows(side) for side in plan.unread)}
    grid["j"] = part_size(plan)[1]
    mine = {name: x for name, x in operands.items() if belongs_to(name, plan.unread)}
    return launch(
        statistics, "statistics", plan, grid=grid, operands=mine, out=parts(plan)
    )


def parts(plan: Plan) -> dict:
    """Returns the shapes of the arrays that `statistics` stores for each row, with rows
    in lanes."""
    sizes = plan.batch, part_size(plan)[1], LANES
    kinds = {"top": jnp.float32, "sum": jnp.float32, "first": jnp.int32}
    return {
        f"{side}_{name}": struct(sizes, kind)
        for side in plan.unread
        for name, kind in kinds.items()
    }


def belongs_to(name: str, sides: tuple[str, ...]) -> bool:
    return name.partition("_")[0] in sides
