"""The decision on a draft, and the token after it, for a block of texts on a TPU.

Axes: T tokens (G + 1 of p, G of q), S texts of a block, V vocabulary, K blocks of the
inverse CDF.
"""

import functools

import jax.numpy as jnp
from jax import Array, lax

from pallas_kernels import laws
from pallas_kernels.laws import Decision, LawRow
from pallas_kernels.plan import DEFERRED, FIELDS, NONE
from pallas_kernels.tpu.block import Block, fold_blocks
from specjax.types import BLOCK


def known_law(block: Block, side: str) -> LawRow:
    """Returns a law from the scalars that the kernel was given."""
    fills = 1.0, 0.0, -jnp.inf, block.plan.vocab - 1, 0.0
    rows = block.plan.rows(side)
    pairs = zip(FIELDS, fills, strict=True)
    return LawRow(*(block.gather(f"{side}_{name}", rows, fill) for name, fill in pairs))


def read(block: Block, side: str) -> LawRow:
    """Returns the law of a deferred side, by two passes over its logits in VMEM."""
    plan, rows = block.plan, block.plan.rows(side)
    sizes, vocab = block.place.size(rows, BLOCK), plan.vocab
    temperature, cut = block.texts(f"{side}_temperature", 1.0), None
    scale = laws.inverse_temperature(temperature)
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
    top = fold_blocks(block, lambda k, best: jnp.maximum(best, part(k)[0]), lowest)
    top = jnp.max(top, axis=2, keepdims=True)
    finite = jnp.where(top == -jnp.inf, 0.0, top)

    def add(k, carry):
        total, first = carry
        z, ids = part(k)
        total += jnp.exp((z - finite) * scale)
        return total, jnp.minimum(first, jnp.where(z == top, ids, vocab - 1))

    initial = jnp.zeros(sizes), jnp.full(sizes, vocab - 1)
    total, first = fold_blocks(block, add, initial)
    lse = jnp.log(jnp.sum(total, axis=2, keepdims=True))
    first = jnp.min(first, axis=2, keepdims=True)
    return laws.law_row(
        temperature, top=top, first=first, lse=lse, cut=cut, vocab=vocab
    )


def law(block: Block, side: str) -> LawRow:
    """Returns the law of a side."""
    return (read if block.plan.kind(side) == DEFERRED else known_law)(block, side)


def drafted_logits(block: Block, side: str, tokens: Array) -> Array:
    """Returns the logit of each drafted token of each text, along the axes T and S."""
    plan, place = block.plan, block.place
    t, s = (block.iota(plan.gamma, 1, axis) for axis in place[1:])
    lane = block.iota(plan.rows(side), BLOCK, 2)
    rows = block.iota(plan.rows(side), BLOCK, place.t)
    texts = block.iota(plan.rows(side), BLOCK, place.s)
    logits = jnp.zeros(t.shape)
    for row in range(place.texts):
        for k in range(plan.gamma):
            token = block.refs["tokens"][block.row(row), k]
            start = token // BLOCK * BLOCK
            here = (lane + start == token) & (rows == k) & (texts == row)
            z = jnp.sum(jnp.where(here, block.logits(side, start), 0.0))
            logits = jnp.where((t == k) & (s == row), z, logits)
    return logits


def law_at(block: Block, row: LawRow, index: Array) -> LawRow:
    """Returns the scalars of the row at which each text stopped."""
    t = lax.broadcasted_iota(jnp.int32, row.top.shape, block.place.t)
    pick = functools.partial(jnp.sum, axis=block.place.t, keepdims=True)
    wide = [jnp.broadcast_to(x, t.shape) for x in row]
    return LawRow(*(pick(jnp.where(t == index, x, jnp.zeros_like(x))) for x in wide))


def decide(block: Block) -> Decision:
    """Decides on the drafted tokens: n is the index of the first that is not
    accepted."""
    plan, place = block.plan, block.place
    p = law(block, "p")
    if plan.draft == NONE:
        zero = jnp.zeros(place.size(1, 1), jnp.int32)
        return Decision(zero, law_at(block, p, zero), None, None, None)
    gamma = plan.gamma
    tokens = block.gather("tokens", gamma, 0)
    num = block.texts("num", 0)
    u = block.gather("accept", gamma, 1.0)
    t = block.iota(gamma, 1, place.t)
    first = LawRow(
        *(lax.slice_in_dim(x, 0, gamma, axis=place.t) for x in broadcast_row(block, p))
    )
    z_p = drafted_logits(block, "p", tokens)
    p_x = laws.weight(z_p, tokens, first, plan.rule)
    q, q_x = None, jnp.ones(p_x.shape)
    if "q" in plan.sides:
        q = law(block, "q")
        q_x = laws.weight(drafted_logits(block, "q", tokens), tokens, q, plan.rule)
    near = laws.within_lenience(z_p, first, plan.rule)
    good = laws.is_accepted(p_x, q_x, u, near, plan.rule) & (t < num)
    n = jnp.min(jnp.where(good, gamma, t), axis=place.t, keepdims=True)
    chance = jnp.where(t < num, laws.chance(p_x, q_x, near, plan.rule), 0.0)
    rejected, of_p = n < num, law_at(block, p, n)
    if q is None:
        x = jnp.sum(jnp.where(t == n, tokens, 0), axis=place.t, keepdims=True)
        return Decision(n, of_p, None, jnp.where(rejected, x, -1), chance)
    # A row that keeps nothing stands for q = 0.
    of_q = law_at(block, q, jnp.minimum(n, gamma - 1))
    of_q = of_q._replace(tau=jnp.where(rejected, of_q.tau, jnp.inf))
    return Decision(n, of_p, of_q, None, chance)


def broadcast_row(block: Block, row: LawRow) -> LawRow:
    """Returns the scalars of a law, broadcast to the shape of `top`."""
    return LawRow(*(jnp.broadcast_to(x, row.top.shape) for x in row))


def residual_block(block: Block, outcome: Decision, k) -> tuple[Array, Array]:
    """Returns the residual of p_{n+1}, and p, in block `k` of the inverse CDF."""
    plan, place = block.plan, block.place

    def row(side: str, index: Array) -> Array:
        z = block.logits(side, k * BLOCK)
        t = lax.broadcasted_iota(jnp.int32, z.shape, place.t)
        return jnp.sum(jnp.where(t == index, z, 0.0), axis=place.t, keepdims=True)

    z = row("p", outcome.n)
    ids = lax.broadcasted_iota(jnp.int32, z.shape, 2) + k * BLOCK
    p = jnp.where(ids < plan.vocab, laws.weight(z, ids, outcome.p, plan.rule), 0.0)
    if outcome.banned is not None:
        return jnp.where(ids == outcome.banned, 0.0, p), p
    if outcome.q is None:
        return p, p
    q = laws.weight(
        row("q", jnp.minimum(outcome.n, plan.gamma - 1)), ids, outcome.q, plan.rule
    )
    return jnp.where(ids < plan.vocab, laws.residual_weight(p, q, plan.rule), 0.0), p


def invert(weights: Array, u: Array) -> Array:
    """Returns `laws.invert` along the lanes."""
    places = lax.broadcasted_iota(jnp.int32, weights.shape, 2)
    return laws.invert(weights, places, u, size=weights.shape[2], axis=2)


def choose(block: Block, outcome: Decision) -> Array:
    """Draws the token after n kept ones, over S."""
    plan, place = block.plan, block.place
    sizes = place.size(1, -(-plan.count // 128) * 128)
    lane = lax.broadcasted_iota(jnp.int32, sizes, 2)

    def sum_block(k, carry):
        both = residual_block(block, outcome, k)
        here = lane == k
        return tuple(
            jnp.where(here, jnp.sum(w, axis=2, keepdims=True), sums)
            for w, sums in zip(both, carry, strict=True)
        )

    rest, whole = fold_blocks(block, sum_block, (jnp.zeros(sizes),) * 2)
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
        mine, p = residual_block(block, outcome, k)
        weights = jnp.where(s == row, jnp.where(none, p, mine), weights)
    return chosen * BLOCK + invert(weights, u_id)
