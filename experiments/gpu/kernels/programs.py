"""Everything that verifies, side by side: (Inputs) -> (n [B], tokens [B, G + 1]).

Named "implementation/carried": what is known of the laws before a verification, "none"
of them (raw logits of both sides), the "draft"'s, as a drafter leaves it, or "both".
Axes: B rows, G = gamma, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from experiments.gpu.kernels import four_launches
from experiments.gpu.kernels.inputs import Inputs, Shape
from pallas_kernels import compat, dispatch, fuse, onepass
from pallas_kernels.dispatch import MOSAIC_GPU, TRITON, Device
from pallas_kernels.fuse import Options, Reference
from pallas_kernels.laws import EXACT
from pallas_kernels.plan import Tiles
from specjax import probs
from specjax.types import Draft, Rule, Sampling
from specjax.verifiers import token

NONE, DRAFT, BOTH = "none", "draft", "both"
CARRIED = NONE, DRAFT, BOTH
SIGMOID = -1e4, 1e4  # alpha, beta of Wagner et al. (2024), for texts
REFERENCE = Reference(probs.standardize, probs.sample, token.verify)
EMPTY, READ, REF, ONEPASS = "empty", "read", "ref_jnp", "onepass"
FOUR = "four_launches"


class Place(NamedTuple):
    """Where programs run. interpreted: a CPU stands for a Hopper GPU, to try them."""

    device: Device
    interpreted: bool


class Program(NamedTuple):
    """rows: of logits a text that it must read at least. tiles: of a kernel. sigmoid:
    whose rule it has. verifies: a limit does not."""

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


def here() -> Place:
    device = dispatch.here()
    if device.platform == "gpu":
        return Place(device, False)
    return Place(Device("gpu", "a Hopper GPU, interpreted", dispatch.HOPPER), True)


def programs(shape: Shape, place: Place, grid: Grid) -> list[Program]:
    """All of them, by unique names; the tiles of a kernel are part of its name."""
    listed = [Program(READ, read, 2 * shape.gamma + 1, verifies=False)]
    listed.append(Program(EMPTY, empty, 0, verifies=False))
    for carried in CARRIED:
        rows = rows_of(shape, carried)
        plain = reading(probs.standardize, carried)
        listed.append(Program(f"{REF}/{carried}", plain, rows))
        if carried != BOTH:  # nothing is left to read
            once = reading(onepass.standardize, carried)
            listed.append(Program(f"{ONEPASS}/{carried}", once, rows))
        listed.append(kernel(TRITON, carried, shape, place))
        for tiles in tried(grid, carried):
            listed.append(kernel(MOSAIC_GPU, carried, shape, place, tiles))
    tiles = sorted(
        {program.tiles for program in listed if program.name.startswith(MOSAIC_GPU)}
    )
    lossy = [tile for tile in tiles if tile in tried(grid, BOTH)]
    listed += [kernel("sigmoid", BOTH, shape, place, tile) for tile in lossy]
    rows = rows_of(shape, NONE)
    return [*listed, Program(f"{FOUR}/{NONE}", four(place.interpreted), rows)]


def rows_of(shape: Shape, carried: str) -> int:
    """Rows of logits that must be read: those without statistics, then p and q at n."""
    left = {NONE: 2 * shape.gamma + 1, DRAFT: shape.gamma + 1, BOTH: 0}
    return left[carried] + 2


def tried(grid: Grid, carried: str) -> list[Tiles]:
    """Every size of statistics, then every way to sum what is left, at one of them."""
    middle, few = grid.stats[len(grid.stats) // 2], grid.blocks[len(grid.blocks) // 2]
    sizes = [Tiles(size, few, grid.apart[0]) for size in grid.stats]
    rest = [Tiles(middle, n, apart) for n in grid.blocks for apart in grid.apart]
    chosen = {NONE: sizes + rest, DRAFT: sizes, BOTH: rest}[carried]
    return list(dict.fromkeys(chosen))


def laws_of(batch: Inputs) -> tuple:
    """Both laws as they are carried."""
    return batch.p._replace(logits=batch.target), batch.q._replace(logits=batch.draft)


def verified(verify: Callable, target, law, inputs: Inputs) -> tuple[Array, Array]:
    batch, gamma = inputs.tokens.shape
    draft = Draft(inputs.tokens, jnp.full(batch, gamma, jnp.int32), law)
    verdict = verify(target, draft, token.Noise(inputs.accept, inputs.sample))
    return verdict.num_accepted, verdict.tokens


def reading(read: Callable, carried: str, verify: Callable = token.verify) -> Callable:
    """Laws that are not carried are read by `read`, then `verify`."""

    def call(inputs: Inputs) -> tuple[Array, Array]:
        (p, q), sampling = laws_of(inputs), Sampling(inputs.temperature)
        target = p if carried == BOTH else read(inputs.target, sampling)
        law = read(inputs.draft, sampling) if carried == NONE else q
        return verified(verify, target, law, inputs)

    return call


def kernel(
    name: str, carried: str, shape: Shape, place: Place, tiles: Tiles | None = None
) -> Program:
    """name: of `dispatch`, or "sigmoid": that rule by Mosaic GPU."""
    sigmoid = SIGMOID if name == "sigmoid" else None
    asked = MOSAIC_GPU if sigmoid else name
    options = Options(asked, Rule(sigmoid=sigmoid) if sigmoid else EXACT, tiles)
    options = options._replace(interpret=interpreter(asked, place))
    fused = fuse.build(REFERENCE, place.device, options)
    full = f"{name}/{carried}" + (f"/{spelled(tiles)}" if tiles else "")
    call = reading(fused.law, carried, fused.verify)
    return Program(full, call, rows_of(shape, carried), tiles, sigmoid)


def interpreter(name: str, place: Place) -> Any:
    if not place.interpreted:
        return None
    return compat.interpreted() if name == MOSAIC_GPU else True


def spelled(tiles: Tiles) -> str:
    return f"{tiles.stats}.{tiles.blocks}{'.apart' if tiles.apart else ''}"


def read(inputs: Inputs) -> tuple[Array, Array]:
    """A limit: every logit is read once and a maximum taken; it verifies nothing."""
    top = inputs.target.max((1, 2)).astype(jnp.float32)
    top = jnp.maximum(top, inputs.draft.max((1, 2)).astype(jnp.float32))
    n = (jnp.abs(top) * inputs.temperature).astype(jnp.int32)
    return n, jnp.zeros((n.size, inputs.tokens.shape[1] + 1), jnp.int32) + n[:, None]


def empty(inputs: Inputs) -> tuple[Array, Array]:
    """What a chain of calls takes where a call does next to nothing; not subtracted."""
    n = (inputs.temperature + inputs.accept[:, 0]).astype(jnp.int32)
    return n, inputs.tokens + n[:, None]


def four(interpret: bool) -> Callable:
    def call(inputs: Inputs) -> tuple[Array, Array]:
        seed = jax.lax.bitcast_convert_type(inputs.sample, jnp.uint32)
        sides = four_launches.Sides(inputs.target, inputs.draft, inputs.tokens)
        return four_launches.verify(
            sides, inputs.accept, seed, inputs.temperature, interpret
        )

    return call
