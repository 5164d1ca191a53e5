"""Everything that verifies, side by side: what is compiled, timed and compared.

Named "implementation/carried": what is known of the laws before a verification, "none"
of them (raw logits of both sides), the "draft"'s, as a drafter leaves it, or "both".
Axes: B rows, G = gamma, V vocabulary.
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
    """Where programs run. interpreted: a CPU stands for a Hopper GPU, to try them."""

    device: Device
    interpreted: bool = False


class Program(NamedTuple):
    """call: (Inputs) -> (n [B], tokens [B, G + 1]). rows: of logits a text that it must
    read at least. tiles: of a kernel. sigmoid: whose rule it has. verifies: a limit
    does not."""

    name: str
    call: Callable[[Inputs], tuple[Array, Array]]
    rows: int
    tiles: Tiles | None = None
    sigmoid: tuple | None = None
    verifies: bool = True


class Grid(NamedTuple):
    """Tiles that are tried: see `pallas_kernels.plan.Tiles`."""

    stats: tuple[int, ...] = (1024, 2048, 4096, 8192)
    blocks: tuple[int, ...] = (1, 4, 8)
    apart: tuple[bool, ...] = (False, True)


def here(dry: bool, how: str) -> Place:
    """Raises ValueError on a CPU, but for a trial; how: to ask for one."""
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
    """All of them, by unique names; the tiles of a kernel are part of its name."""
    listed = [Program(READ, read, 2 * shape.gamma + 1, verifies=False)]
    listed.append(nothing())
    for carried in CARRIED:
        names = [REF, TRITON] if carried == BOTH else [REF, ONEPASS, TRITON]
        each = [(name, None) for name in names]  # nothing is left to read of both
        each += [(MOSAIC_GPU, tiles) for tiles in tried(grid, carried)]
        if carried == BOTH:
            each += [(LOSSY, tiles) for tiles in tried(grid, carried)]
        listed += [program(name, carried, shape, place, tiles) for name, tiles in each]
    rows = rows_of(shape, NONE)
    return [*listed, Program(f"{FOUR}/{NONE}", four(place.interpreted), rows)]


def nothing() -> Program:
    return Program(EMPTY, empty, 0, verifies=False)


def rows_of(shape: Shape, carried: str) -> int:
    """Rows of logits that must be read: those without statistics, then p and q at n."""
    left = {NONE: 2 * shape.gamma + 1, DRAFT: shape.gamma + 1, BOTH: 0}
    return left[carried] + 2


def tried(grid: Grid, carried: str) -> list[Tiles]:
    """Every size of statistics, then every way to sum what is left, at one of them."""
    middle, few = grid.stats[len(grid.stats) // 2], grid.blocks[len(grid.blocks) // 2]
    sizes = [Tiles(size, few, grid.apart[0]) for size in grid.stats]
    rest = [Tiles(middle, n, apart) for n in grid.blocks for apart in grid.apart]
    return list(dict.fromkeys({NONE: sizes + rest, DRAFT: sizes, BOTH: rest}[carried]))


def program(
    name: str, carried: str, shape: Shape, place: Place, tiles: Tiles | None = None
) -> Program:
    """name: REF, LOSSY (by Mosaic GPU), or one of `dispatch.NAMES`."""
    verify = verification(name, carried, place, tiles)
    sizes = f"/{tiles.stats}.{tiles.blocks}" if tiles else ""
    full = f"{name}/{carried}{sizes}{'.apart' if tiles and tiles.apart else ''}"
    sigmoid = SIGMOID if name == LOSSY else None
    rows = rows_of(shape, carried)
    return Program(full, lambda inputs: verify(inputs)[:2], rows, tiles, sigmoid)


def verification(
    name: str, carried: str, place: Place, tiles: Tiles | None = None
) -> Callable[[Inputs], Verdict]:
    """As `program`, or "auto": what is chosen. Laws that are not carried are read."""
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
    """A limit: every logit is read once and a maximum taken; it verifies nothing."""
    top = inputs.target.max((1, 2)).astype(jnp.float32)
    top = jnp.maximum(top, inputs.draft.max((1, 2)).astype(jnp.float32))
    n = (jnp.abs(top) * inputs.temperature).astype(jnp.int32)
    return n, jnp.zeros((n.size, inputs.tokens.shape[1] + 1), jnp.int32) + n[:, None]


def empty(inputs: Inputs) -> tuple[Array, Array]:
    """What a chain of calls takes where a call does next to nothing."""
    n = (inputs.temperature + inputs.accept[:, 0]).astype(jnp.int32)
    return n, jnp.zeros((n.size, inputs.tokens.shape[1] + 1), jnp.int32) + n[:, None]


def four(interpret: bool) -> Callable:
    def call(inputs: Inputs) -> tuple[Array, Array]:
        seed = jax.lax.bitcast_convert_type(inputs.sample, jnp.uint32)
        logits = four_launches.Logits(inputs.target, inputs.draft, inputs.tokens)
        heat = inputs.temperature
        return four_launches.verify(logits, inputs.accept, seed, heat, interpret)

    return call
