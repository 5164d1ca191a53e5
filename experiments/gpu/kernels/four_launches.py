"""Verification in four launches, as a serving engine arranges it, for comparison.

The launches are statistics of every row of logits by blocks of 8192 ids; acceptance,
one drafted token after another; a Gumbel race over the residual of row n by blocks of
1024; and the write of the token. The arrangement is that of the model runner of vLLM's
second version, described in its pull request 38496; the code is our own, in the Triton
style of Pallas, for a comparison with `pallas_kernels`. Random bits are made in the
kernel. Axes: B rows, G = gamma, V vocabulary, J blocks.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

STATS, RACE = 8192, 1024  # ids of a block
ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = 0x1BD11BDA


class Logits(NamedTuple):
    """The logits of the target [B, G + 1, V] and the draft [B, G, V], and the draft's
    tokens [B, G].
    """

    p: Array
    q: Array
    tokens: Array


def verify(
    logits: Logits, accept: Array, *, seed: Array, temperature: Array, interpret=False
) -> tuple[Array, Array]:
    """Returns (n [B], tokens [B, G + 1]): n drafted tokens, one more, then 0.

    Args:
        accept: uniforms [B, G].
        seed: uint32 [B, 2], of the race.
        temperature: [B], above 0.
        interpret: run on a CPU.
    """
    (batch, gamma), vocab = logits.tokens.shape, logits.p.shape[-1]
    heat = 1 / temperature
    sizes = block_size(vocab, STATS), block_size(vocab, RACE)
    launch = partial(_launch, interpret=interpret)
    held = blocks(vocab, sizes[0])
    body, operands = partial(_statistics, size=sizes[0]), (*logits[:2], heat)
    part = jax.ShapeDtypeStruct((batch, 2 * gamma + 1, held), jnp.float32)
    stats = launch(body, "statistics", operands, [part] * 2)
    operands = *logits, accept, heat, *stats
    out = [jax.ShapeDtypeStruct((batch,), jnp.int32)]
    out += [jax.ShapeDtypeStruct((batch, 2), jnp.float32)]
    count = -(-vocab // sizes[0])
    n, lses = launch(partial(_accept, count=count), "accept", operands, out)
    raced = blocks(vocab, sizes[1])
    kinds = jnp.float32, jnp.int32
    out = [jax.ShapeDtypeStruct((batch, raced), kind) for kind in kinds]
    operands = logits.p, logits.q, n, lses, heat, seed
    best = launch(partial(_race, size=sizes[1], gamma=gamma), "race", operands, out)
    out = [jax.ShapeDtypeStruct((batch, gamma + 1), jnp.int32)]
    count = -(-vocab // sizes[1])
    operands = logits.tokens, n, *best
    (tokens,) = launch(partial(_insert, count=count), "insert", operands, out)
    return n, tokens


def block_size(vocab: int, most: int) -> int:
    """Returns the ids of a block: a power of two, not above the vocabulary."""
    return min(most, 1 << (vocab.bit_length() - 1))


def blocks(vocab: int, size: int) -> int:
    """Returns the number of blocks, rounded up to a power of two, as a vector must
    have.
    """
    return 1 << (-(-vocab // size) - 1).bit_length()


def _launch(body: Callable, name: str, operands: tuple, out: list, interpret) -> list:
    """Launches a kernel, whose grid is that of its output."""
    grid = {"statistics": out[0].shape, "race": out[0].shape}
    call = pl.pallas_call(
        body,
        out_shape=out,
        grid=grid.get(name, out[0].shape[:1]),
        interpret=interpret,
        name=f"four_{name}",
        compiler_params=pltriton.CompilerParams(num_warps=1 if name == "accept" else 4),
    )
    return call(*operands)


def _place(index: Array, size: int, vocab: int) -> tuple[Array, Array, Array]:
    """Returns the start of a block (the last block is moved back to fit), its ids, and
    which ids are its own.
    """
    start = jnp.minimum(index * size, vocab - size)
    ids = start + lax.broadcasted_iota(jnp.int32, (size,), 0)
    return start, ids, ids >= index * size


def _statistics(p, q, heat, top, total, *, size: int) -> None:
    b, i, j = (pl.program_id(axis) for axis in range(3))
    start, _, own = _place(j, size, p.shape[-1])

    def read(z, row) -> None:
        x = z[b, row, pl.ds(start, size)].astype(jnp.float32) * heat[b]
        x = jnp.where(own, x, -jnp.inf)
        largest = jnp.max(x)
        top[b, i, j] = largest
        safe = jnp.where(largest == -jnp.inf, 0.0, largest)
        total[b, i, j] = jnp.sum(jnp.exp(x - safe))

    pl.when(i < p.shape[1])(lambda: read(p, i))
    pl.when(i >= p.shape[1])(lambda: read(q, i - p.shape[1]))


def _normaliser(top, total, b, i, count: int) -> Array:
    """Returns the log of the sum of exponentials of a row, from the sums of its
    blocks."""
    lane = lax.broadcasted_iota(jnp.int32, (top.shape[-1],), 0)
    tops = jnp.where(lane < count, top[b, i, :], -jnp.inf)
    sums = jnp.where(lane < count, total[b, i, :], 0.0)
    most = jnp.max(tops)
    return most + jnp.log(jnp.sum(sums * jnp.exp(tops - most)))


def _accept(p, q, tokens, accept, heat, top, total, kept, lses, *, count) -> None:
    """Tests one token after another; writes n and both normalizers at n."""
    b, gamma = pl.program_id(0), tokens.shape[1]

    def log_weight(z, i, row):
        lse = _normaliser(top, total, b, row, count)
        return z[b, i, tokens[b, i]].astype(jnp.float32) * heat[b] - lse

    def step(i, n):
        p_x, q_x = log_weight(p, i, i), log_weight(q, i, gamma + 1 + i)
        keep = accept[b, i] < jnp.exp(p_x - q_x)
        return jnp.where((n == i) & keep, n + 1, n)

    n = lax.fori_loop(0, gamma, step, jnp.int32(0))
    kept[b] = n
    row = gamma + 1 + jnp.minimum(n, gamma - 1)
    lses[b, 0] = _normaliser(top, total, b, n, count)
    lses[b, 1] = _normaliser(top, total, b, row, count)


def _race(p, q, n, lses, heat, seed, best, where, *, size: int, gamma: int) -> None:
    """Writes the largest log weight plus noise of a block, and its id; -inf where no id
    has a weight."""
    b, j = pl.program_id(0), pl.program_id(1)
    start, ids, own = _place(j, size, p.shape[-1])
    at = n[b]
    z_p = p[b, at, pl.ds(start, size)].astype(jnp.float32) * heat[b]
    row = q[b, jnp.minimum(at, gamma - 1), pl.ds(start, size)]
    z_q = row.astype(jnp.float32) * heat[b]
    less = jnp.where(at < gamma, jnp.exp(z_q - lses[b, 1]), 0.0)
    rest = jnp.exp(z_p - lses[b, 0]) - less
    positive = own & (rest > 0)
    noise = gumbel(seed[b, 0], seed[b, 1], ids)
    score = jnp.where(positive, jnp.log(jnp.where(positive, rest, 1.0)) + noise, -1e30)
    largest = jnp.max(score)
    best[b, j] = largest
    where[b, j] = jnp.min(jnp.where(score == largest, ids, p.shape[-1] - 1))


def gumbel(low: Array, high: Array, ids: Array) -> Array:
    """Returns -log(-log u) for each id: Threefry of 20 rounds (Salmon et al. 2011)."""
    keys = low, high, low ^ high ^ jnp.uint32(PARITY)
    x, y = ids.astype(jnp.uint32) + keys[0], jnp.zeros_like(ids, jnp.uint32) + keys[1]
    for turn in range(5):
        for bits in ROTATIONS[turn % 2]:
            x = x + y
            y = (y << jnp.uint32(bits)) | (y >> jnp.uint32(32 - bits))
            y = y ^ x
        x = x + keys[(turn + 1) % 3]
        y = y + keys[(turn + 2) % 3] + jnp.uint32(turn + 1)
    u = (x >> jnp.uint32(9)).astype(jnp.int32).astype(jnp.float32)
    return -jnp.log(-jnp.log((u + 0.5) * jnp.float32(2**-23)))


def _insert(tokens, n, best, where, out, *, count: int) -> None:
    b, gamma = pl.program_id(0), tokens.shape[1]
    lane = lax.broadcasted_iota(jnp.int32, (best.shape[1],), 0)
    scores = jnp.where(lane < count, best[b, :], -jnp.inf)
    first = jnp.min(jnp.where(scores == jnp.max(scores), lane, count))
    extra = where[b, first]
    for k in range(gamma + 1):
        token = jnp.where(n[b] == k, extra, 0)
        if k < gamma:
            token = jnp.where(k < n[b], tokens[b, k], token)
        out[b, k] = token
