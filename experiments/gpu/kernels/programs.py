"""The implementations of a verification, which are compiled, timed and compared.

Their names are "implementation/carried": the laws that are known before a verification
are "none" (raw logits of both models), the "draft"'s, as a drafter leaves it, or
"both". Axes: B rows, G = gamma, V vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from experiments.gpu.kernels import four_launches
from experiments.gpu.kernels.inputs import Inputs, Shape
from pallas_kernels import compat, dispatch, fuse
from pallas_kernels.dispatch import MOSAIC_GPU, TRITON, Device
from pallas_kernels.fuse import Options
from pallas_kernels.laws import EXACT
from pallas_kernels.plan import DEFERRED, KNOWN, Tiles
from specjax.types import Draft, FusedRule, Sampling, Verdict
from specjax.verifiers import token

NONE, DRAFT, BOTH = "none", "draft", "both"
# What a plan says of the target's law and of the draft's.
CARRIED = {NONE: (DEFERRED, DEFERRED), DRAFT: (DEFERRED, KNOWN), BOTH: (KNOWN, KNOWN)}
EMPTY, READ, REF, ONEPASS = "empty", "read", "ref_jnp", "onepass"
FOUR, LOSSY = "four_launches", "sigmoid"
SIGMOID = -1e4, 1e4  # alpha, beta of Wagner et al. (2024), for texts
# By what `dispatch` calls it, where that is another name.
ASKED = {REF: dispatch.REFERENCE, LOSSY: MOSAIC_GPU}


class Place(NamedTuple):
    """The device that programs run on.

    Attributes:
        interpreted: whether a CPU replaces a Hopper GPU, for a trial.
    """

    device: Device
    interpreted: bool = False


class Program(NamedTuple):
    """An implementation of a verification.

    Attributes:
        call: (Inputs) -> (n [B], tokens [B, G + 1]).
        rows: rows of logits of a text that it must read at least.
        tiles: the tiles of a kernel.
        sigmoid: the parameters of its rule.
        verifies: false for a program that only measures a limit.
    """

    name: str
    call: Callable[[Inputs], tuple[Array, Array]]
    rows: int
    tiles: Tiles | None = None
    sigmoid: tuple | None = None
    verifies: bool = True


class Grid(NamedTuple):
    """The tiles to try: see `pallas_kernels.plan.Tiles`."""

    stats: tuple[int, ...] = (1024, 2048, 4096, 8192)
    blocks: tuple[int, ...] = (1, 4, 8)
    apart: tuple[bool, ...] = (False, True)


def find_device(dry: bool, how: str) -> Place:
    """Returns the device. Raises ValueError on a CPU, except for a dry run.

    Args:
        how: how to ask for a trial.
    """
    device = dispatch.here()
    if device.platform == "gpu":
        return Place(device)
    if not dry:
        raise ValueError(
            f"kernels run on a GPU, and here is none: {how}.dry = True tries it on a"
            " CPU"
        )
    return Place(Device("gpu", "a Hopper GPU, interpreted", dispatch.HOPPER), True)


def programs(shape: Shape, place: Place, grid: Grid) -> list[Program]:
    """Returns all programs, by unique names; the tiles of a kernel are part of its
    name.
    """
    listed = [Program(READ, read, 2 * shape.gamma + 1, verifies=False)]
    listed.append(empty_program())
    for carried in CARRIED:
        names = [REF, TRITON] if carried == BOTH else [REF, ONEPASS, TRITON]
        each = [(name, None) for name in names]  # nothing is left to read of both
        each += [(MOSAIC_GPU, tiles) for tiles in tiles_to_try(grid, carried)]
        if carried == BOTH:
            each += [(LOSSY, tiles) for tiles in tiles_to_try(grid, carried)]
        listed += [
            program(name, carried, shape=shape, place=place, tiles=tiles)
            for name, tiles in each
        ]
    rows = rows_read(shape, NONE)
    return [
        *listed,
        Program(f"{FOUR}/{NONE}", four_launch_program(place.interpreted), rows),
    ]


def empty_program() -> Program:
    return Program(EMPTY, do_nothing, 0, verifies=False)


def rows_read(shape: Shape, carried: str) -> int:
    """Returns how many rows of logits must be read.

    They are the rows whose statistics are not carried, then p and q at n, the number of
    kept tokens.
    """
    left = {NONE: 2 * shape.gamma + 1, DRAFT: shape.gamma + 1, BOTH: 0}
    return left[carried] + 2


def tiles_to_try(grid: Grid, carried: str) -> list[Tiles]:
    """Returns the tiles to try: every size of statistics, then every way to sum the
    rest at one of those sizes.
    """
    middle, few = grid.stats[len(grid.stats) // 2], grid.blocks[len(grid.blocks) // 2]
    sizes = [Tiles(size, few, grid.apart[0]) for size in grid.stats]
    rest = [Tiles(middle, n, apart) for n in grid.blocks for apart in grid.apart]
    return list(dict.fromkeys({NONE: sizes + rest, DRAFT: sizes, BOTH: rest}[carried]))


def program(
    name: str, carried: str, *, shape: Shape, place: Place, tiles: Tiles | None = None
) -> Program:
    """Returns the program with this name: REF, LOSSY (by Mosaic GPU), or one of
    `dispatch.NAMES`.
    """
    verify = verification(name, carried, place=place, tiles=tiles)
    sizes = f"/{tiles.stats}.{tiles.blocks}" if tiles else ""
    full = f"{name}/{carried}{sizes}{'.apart' if tiles and tiles.apart else ''}"
    sigmoid = SIGMOID if name == LOSSY else None
    rows = rows_read(shape, carried)
    return Program(full, lambda inputs: verify(inputs)[:2], rows, tiles, sigmoid)


def verification(
    name: str, carried: str, *, place: Place, tiles: Tiles | None = None
) -> Callable[[Inputs], Verdict]:
    """Returns a verification, by the name of an implementation or by "auto", the
    default; laws that are not carried are read.
    """
    asked = ASKED.get(name, name)
    rule = FusedRule(sigmoid=SIGMOID) if name == LOSSY else EXACT
    mosaic = place.interpreted and asked == MOSAIC_GPU
    interpreter = compat.interpret_params() if mosaic else place.interpreted or None
    options = Options(asked, rule, tiles, interpreter)
    fused = fuse.build(token.verify, place.device, options)

    def verify(inputs: Inputs) -> Verdict:
        sampling = Sampling(inputs.temperature)
        target = inputs.p._replace(logits=inputs.target)
        law = inputs.q._replace(logits=inputs.draft)
        if carried != BOTH:
            target = fused.law(inputs.target, sampling)
        if carried == NONE:
            law = fused.law(inputs.draft, sampling)
        draft = Draft(inputs.tokens, inputs.num, law)
        return fused.verify(target, draft, token.Noise(inputs.accept, inputs.sample))

    return verify


def read(inputs: Inputs) -> tuple[Array, Array]:
    """Reads every logit once and takes a maximum: a lower limit of time, which verifies
    nothing."""
    top = inputs.target.max((1, 2)).astype(jnp.float32)
    top = jnp.maximum(top, inputs.draft.max((1, 2)).astype(jnp.float32))
    n = (jnp.abs(top) * inputs.temperature).astype(jnp.int32)
    return n, jnp.zeros((n.size, inputs.tokens.shape[1] + 1), jnp.int32) + n[:, None]


def do_nothing(inputs: Inputs) -> tuple[Array, Array]:
    """Does almost nothing, to measure the cost of a chain of calls."""
    n = (inputs.temperature + inputs.accept[:, 0]).astype(jnp.int32)
    return n, jnp.zeros((n.size, inputs.tokens.shape[1] + 1), jnp.int32) + n[:, None]


def four_launch_program(interpret: bool) -> Callable:
    def call(inputs: Inputs) -> tuple[Array, Array]:
        seed = jax.lax.bitcast_convert_type(inputs.sample, jnp.uint32)
        logits = four_launches.Logits(inputs.target, inputs.draft, inputs.tokens)
        heat = inputs.temperature
        return four_launches.verify(
            logits, inputs.accept, seed=seed, temperature=heat, interpret=interpret
        )

    return call
