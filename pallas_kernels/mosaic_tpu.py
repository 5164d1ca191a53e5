"""Verification on TPUs: Pallas, Mosaic TPU, one launch.

All rows of one text, or of eight, lie in VMEM at once, so that each logit is read from
HBM once whatever is then asked of it. One text has its positions along the sublanes;
eight have the texts there, which is how XLA lays out a large batch, and nothing is
copied. Every array has three axes, of which axis T is reduced with its size kept, so
that the same lines serve both.
Axes: B rows, T tokens (G + 1 of p, G of q), S texts of a block, V vocabulary, K blocks
of the inverse CDF.
"""

import functools
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels import laws
from pallas_kernels.laws import BLOCK, Row
from pallas_kernels.plan import DEFERRED, FIELDS, NONE, Plan, scalars, shape

SUBLANES = 8


class Place(NamedTuple):
    """Where a block lies: S texts, the axis of positions and that of texts."""

    texts: int
    t: int
    s: int

    def size(self, rows: int, lanes: int) -> tuple[int, int, int]:
        sizes = [0, 0, lanes]
        sizes[self.t], sizes[self.s] = rows, self.texts
        return tuple(sizes)


def place_of(plan: Plan) -> Place:
    if plan.batch < SUBLANES:
        return Place(1, t=1, s=0)
    return Place(SUBLANES, t=0, s=1)


def vmem_bytes(plan: Plan, itemsize: int) -> int:
    """What the logits of a block take, padded as VMEM pads them, once."""
    place, packed = place_of(plan), SUBLANES * 4 // itemsize
    total = 0
    for side in plan.sides:
        sizes = list(place.size(plan.rows(side), plan.count * BLOCK))
        sizes[1] = -(-sizes[1] // packed) * packed
        total += sizes[0] * sizes[1] * sizes[2] * itemsize
    return total


class Block(NamedTuple):
    """What a step of the grid works on. first: its first row of the batch."""

    plan: Plan
    place: Place
    refs: dict
    first: Array

    def row(self, s: int) -> Array:
        return jnp.minimum(self.first + s, self.plan.batch - 1)

    def iota(self, rows: int, lanes: int, axis: int) -> Array:
        return lax.broadcasted_iota(jnp.int32, self.place.size(rows, lanes), axis)

    def gather(self, name: str, rows: int, fill) -> Array:
        """Scalars [B, rows] of this block as an array over T and S."""
        sizes = self.place.size(rows, 1)
        t, s = (lax.broadcasted_iota(jnp.int32, sizes, a) for a in self.place[1:])
        value = jnp.full(sizes, fill)
        for row in range(self.place.texts):
            for k in range(rows):
                here = (t == k) & (s == row)
                value = jnp.where(here, self.refs[name][self.row(row), k], value)
        return value

    def texts(self, name: str, fill) -> Array:
        """A scalar of each text [B], as an array over S."""
        sizes = self.place.size(1, 1)
        s = lax.broadcasted_iota(jnp.int32, sizes, self.place.s)
        value = jnp.full(sizes, fill)
        for row in range(self.place.texts):
            value = jnp.where(s == row, self.refs[name][self.row(row)], value)
        return value

    def logits(self, side: str, start: Array) -> Array:
        """BLOCK ids of every row, in float32."""
        at = pl.multiple_of(start, BLOCK)
        return laws.wide(self.refs[side][:, :, pl.ds(at, BLOCK)])


def over(block: Block, function, start):
    """Folds (block of ids, carry) -> carry over the vocabulary."""
    return lax.fori_loop(0, block.plan.count, function, start)


def known(block: Block, side: str) -> Row:
    fills = 1.0, 0.0, -jnp.inf, block.plan.vocab - 1, 0.0
    rows = block.plan.rows(side)
    pairs = zip(FIELDS, fills, strict=True)
    return Row(*(block.gather(f"{side}_{name}", rows, fill) for name, fill in pairs))


def read(block: Block, side: str) -> Row:
    """The law of a deferred side: two passes over what lies in VMEM."""
    plan, rows = block.plan, block.plan.rows(side)
    sizes, vocab = block.place.size(rows, BLOCK), plan.vocab
    heat, cut = block.texts(f"{side}_heat", 1.0), None
    scale = laws.scale_of(heat)
    lane = lax.broadcasted_iota(jnp.int32, sizes, 2)
    if plan.cut(side):
        fills = {"tau": -jnp.inf, "tie": vocab - 1}
        cut = tuple(block.gather(f"{side}_{n}", rows, f) for n, f in fills.items())

    def part(k) -> tuple[Array, Array]:
        z, ids = block.logits(side, k * BLOCK), lane + k * BLOCK
        good = (ids < vocab) & (z == z)  # NaN counts as -inf
        if cut is not None:
            good &= (z > cut[0]) | ((z == cut[0]) & (ids <= cut[1]))
        return jnp.where(good, z, -jnp.inf), ids

    lowest = jnp.full(sizes, -jnp.inf)
    top = over(block, lambda k, best: jnp.maximum(best, part(k)[0]), lowest)
    top = jnp.max(top, axis=2, keepdims=True)
    finite = jnp.where(top == -jnp.inf, 0.0, top)

    def add(k, carry):
        total, first = carry
        z, ids = part(k)
        total += jnp.exp((z - finite) * scale)
        return total, jnp.minimum(first, jnp.where(z == top, ids, vocab - 1))

    begun = jnp.zeros(sizes), jnp.full(sizes, vocab - 1)
    total, first = over(block, add, begun)
    lse = jnp.log(jnp.sum(total, axis=2, keepdims=True))
    first = jnp.min(first, axis=2, keepdims=True)
    return laws.merged(heat, top, first, lse, cut, vocab)


def law(block: Block, side: str) -> Row:
    return (read if block.plan.kind(side) == DEFERRED else known)(block, side)


def drafted(block: Block, side: str, tokens: Array) -> Array:
    """The logit of each drafted token, over T and S."""
    plan, place = block.plan, block.place
    t, s = (block.iota(plan.gamma, 1, axis) for axis in place[1:])
    lane = block.iota(plan.rows(side), BLOCK, 2)
    rows = block.iota(plan.rows(side), BLOCK, place.t)
    texts = block.iota(plan.rows(side), BLOCK, place.s)
    found = jnp.zeros(t.shape)
    for row in range(place.texts):
        for k in range(plan.gamma):
            token = block.refs["tokens"][block.row(row), k]
            start = token // BLOCK * BLOCK
            here = (lane + start == token) & (rows == k) & (texts == row)
            z = jnp.sum(jnp.where(here, block.logits(side, start), 0.0))
            found = jnp.where((t == k) & (s == row), z, found)
    return found


class Found(NamedTuple):
    """n and the laws of row n over S; `banned`: what a certain draft was sure of."""

    n: Array
    p: Row
    q: Row | None
    banned: Array | None
    chance: Array | None


def at(block: Block, row: Row, index: Array) -> Row:
    """The scalars of the row that each text stopped at."""
    t = lax.broadcasted_iota(jnp.int32, row.top.shape, block.place.t)
    pick = functools.partial(jnp.sum, axis=block.place.t, keepdims=True)
    wide = [jnp.broadcast_to(x, t.shape) for x in row]
    return Row(*(pick(jnp.where(t == index, x, jnp.zeros_like(x))) for x in wide))


def decide(block: Block) -> Found:
    """n, the first token that is not accepted."""
    plan, place = block.plan, block.place
    p = law(block, "p")
    if plan.draft == NONE:
        zero = jnp.zeros(place.size(1, 1), jnp.int32)
        return Found(zero, at(block, p, zero), None, None, None)
    gamma = plan.gamma
    tokens = block.gather("tokens", gamma, 0)
    num = block.texts("num", 0)
    u = block.gather("accept", gamma, 1.0)
    t = block.iota(gamma, 1, place.t)
    first = Row(*(lax.slice_in_dim(x, 0, gamma, axis=place.t) for x in full(block, p)))
    z_p = drafted(block, "p", tokens)
    p_x = laws.weight(z_p, tokens, first, plan.rule)
    q, q_x = None, jnp.ones(p_x.shape)
    if "q" in plan.sides:
        q = law(block, "q")
        q_x = laws.weight(drafted(block, "q", tokens), tokens, q, plan.rule)
    near = laws.tolerated(z_p, first, plan.rule)
    good = laws.accepted(p_x, q_x, u, near, plan.rule) & (t < num)
    n = jnp.min(jnp.where(good, gamma, t), axis=place.t, keepdims=True)
    chance = jnp.where(t < num, laws.chance(p_x, q_x, near, plan.rule), 0.0)
    rejected, of_p = n < num, at(block, p, n)
    if q is None:
        x = jnp.sum(jnp.where(t == n, tokens, 0), axis=place.t, keepdims=True)
        return Found(n, of_p, None, jnp.where(rejected, x, -1), chance)
    # A row that keeps nothing stands for q = 0.
    of_q = at(block, q, jnp.minimum(n, gamma - 1))
    of_q = of_q._replace(tau=jnp.where(rejected, of_q.tau, jnp.inf))
    return Found(n, of_p, of_q, None, chance)


def full(block: Block, row: Row) -> Row:
    return Row(*(jnp.broadcast_to(x, row.top.shape) for x in row))


def left(block: Block, found: Found, k) -> tuple[Array, Array]:
    """What is left of p_{n+1} in block `k` of the inverse CDF, and p itself; over S."""
    plan, place = block.plan, block.place

    def row(side: str, index: Array) -> Array:
        z = block.logits(side, k * BLOCK)
        t = lax.broadcasted_iota(jnp.int32, z.shape, place.t)
        return jnp.sum(jnp.where(t == index, z, 0.0), axis=place.t, keepdims=True)

    z = row("p", found.n)
    ids = lax.broadcasted_iota(jnp.int32, z.shape, 2) + k * BLOCK
    p = jnp.where(ids < plan.vocab, laws.weight(z, ids, found.p, plan.rule), 0.0)
    if found.banned is not None:
        return jnp.where(ids == found.banned, 0.0, p), p
    if found.q is None:
        return p, p
    q = laws.weight(
        row("q", jnp.minimum(found.n, plan.gamma - 1)), ids, found.q, plan.rule
    )
    return jnp.where(ids < plan.vocab, laws.left(p, q, plan.rule), 0.0), p


def invert(weights: Array, u: Array) -> Array:
    """The first lane of positive weight whose cumulative weight exceeds u * total, the
    last positive one if rounding lets none; by bisection, as there is no scan."""
    places, size = lax.broadcasted_iota(jnp.int32, weights.shape, 2), weights.shape[2]
    sums = functools.partial(jnp.sum, axis=2, keepdims=True)
    goal = u * sums(weights)

    def halve(_, ends):
        low, high = ends
        middle = (low + high) // 2
        past = sums(jnp.where(places <= middle, weights, 0.0)) > goal
        low = jnp.where(past, low, jnp.minimum(middle + 1, high))
        return low, jnp.where(past, middle, high)

    ends = jnp.zeros(goal.shape, jnp.int32), jnp.full(goal.shape, size - 1)
    _, first = lax.fori_loop(0, (size - 1).bit_length() + 1, halve, ends)
    positive = weights > 0
    ahead = jnp.where(positive & (places >= first), places, size)
    ahead = jnp.min(ahead, axis=2, keepdims=True)
    last = jnp.max(jnp.where(positive, places, 0), axis=2, keepdims=True)
    return jnp.where(ahead < size, ahead, last)


def choose(block: Block, found: Found) -> Array:
    """The token after n kept ones, over S."""
    plan, place = block.plan, block.place
    sizes = place.size(1, -(-plan.count // 128) * 128)
    lane = lax.broadcasted_iota(jnp.int32, sizes, 2)

    def sum_block(k, carry):
        both = left(block, found, k)
        here = lane == k
        return tuple(
            jnp.where(here, jnp.sum(w, axis=2, keepdims=True), sums)
            for w, sums in zip(both, carry, strict=True)
        )

    rest, whole = over(block, sum_block, (jnp.zeros(sizes),) * 2)
    # Rounding can reject where p = q, and leave nothing: then p is right.
    none = jnp.sum(rest, axis=2, keepdims=True) == 0
    u = block.gather("sample", 2, 0.0)
    u_block, u_id = (lax.slice_in_dim(u, i, i + 1, axis=place.t) for i in range(2))
    chosen = invert(jnp.where(none, whole, rest), u_block)
    s = lax.broadcasted_iota(jnp.int32, place.size(1, BLOCK), place.s)
    texts = lax.broadcasted_iota(jnp.int32, chosen.shape, place.s)
    weights = jnp.zeros(place.size(1, BLOCK))
    for row in range(place.texts):
        k = jnp.sum(jnp.where(texts == row, chosen, 0))
        mine, p = left(block, found, k)
        weights = jnp.where(s == row, jnp.where(none, p, mine), weights)
    return chosen * BLOCK + invert(weights, u_id)


def body(plan: Plan, names: list[str], *refs) -> None:
    place = place_of(plan)
    refs = dict(zip(names, refs, strict=True))
    block = Block(plan, place, refs, pl.program_id(0) * place.texts)
    found = decide(block)
    extra = choose(block, found)
    texts = lax.broadcasted_iota(jnp.int32, extra.shape, place.s)
    for row in range(place.texts):

        @pl.when(block.first + row < plan.batch)
        def _(row=row):
            b = block.first + row
            n, token = (
                jnp.sum(jnp.where(texts == row, x, 0)) for x in (found.n, extra)
            )
            refs["num_accepted"][b] = n
            for k in range(plan.gamma + 1):
                value = jnp.where(n == k, token, 0)
                if k < plan.gamma:
                    value = jnp.where(k < n, refs["tokens"][b, k], value)
                refs["verdict"][b, k] = value
            put_chances(block, found, row)
            if plan.draft == NONE:
                for name, x in found.p._asdict().items():
                    refs[name][b] = jnp.sum(jnp.where(texts == row, x, 0))


def put_chances(block: Block, found: Found, row: int) -> None:
    if found.chance is None:
        return
    t, s = (
        lax.broadcasted_iota(jnp.int32, found.chance.shape, axis)
        for axis in block.place[1:]
    )
    for k in range(block.plan.gamma):
        value = jnp.sum(jnp.where((t == k) & (s == row), found.chance, 0.0))
        block.refs["accept_prob"][block.first + row, k] = value


def verdict(
    plan: Plan, given: dict[str, Array], interpret=False, vmem: int | None = None
) -> dict[str, Array]:
    """As `gpu_launches.verdict`.

    vmem: bytes that the kernel may use, None for the compiler's own limit.
    """
    place, given = place_of(plan), dict(given)
    lanes, batch, gamma = plan.count * BLOCK, plan.batch, plan.gamma
    groups = -(-batch // place.texts)
    small = pl.BlockSpec(memory_space=pltpu.SMEM)
    specs = []
    for name in given:
        if name in plan.sides:
            sizes = place.size(plan.rows(name), lanes)
            where = (lambda i: (0, i, 0)) if place.s == 1 else (lambda i: (i, 0, 0))
            mode = pl.Buffered(1) if groups == 1 else None
            specs.append(pl.BlockSpec(sizes, where, pipeline_mode=mode))
        else:
            specs.append(small)
    if place.s == 1:
        given |= {side: given[side].swapaxes(0, 1) for side in plan.sides}
    out = {
        "num_accepted": shape((batch,), jnp.int32),
        "verdict": shape((batch, gamma + 1), jnp.int32),
    }
    if gamma:
        out["accept_prob"] = shape((batch, gamma))
    else:
        out |= scalars(batch)
    options = dict(dimension_semantics=("arbitrary",), vmem_limit_bytes=vmem)
    call = pl.pallas_call(
        functools.partial(body, plan, [*given, *out]),
        grid=(groups,),
        in_specs=specs,
        out_specs=[small] * len(out),
        out_shape=[*out.values()],
        interpret=interpret,
        name="specjax_verify",
        compiler_params=pltpu.CompilerParams(**options),
    )
    return dict(zip(out, call(*given.values()), strict=True))
