"""Chains of verifications are compiled for an H100: nothing is computed before the
loop, and no step copies the logits."""

import jax
import jax.numpy as jnp
import pytest

from experiments.gpu.aot import compilers
from experiments.gpu.kernels import inputs, programs, timing
from experiments.gpu.kernels.programs import Place, Program
from experiments.gpu.kernels.timing import Fixed, State

MISSING = compilers.missing_reason("gpu")
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
SHAPE = inputs.Shape(1, 5, 32000)
PLACE = Place(compilers.DEVICES["h100"])
LENGTH = 100


def all_programs() -> list[Program]:
    grid = programs.Grid((4096,), (4,), (False,))
    return programs.programs(SHAPE, PLACE, grid)


def cold_operands() -> tuple[Fixed, State]:
    """Returns the shapes of `timing.operands` for cold caches."""
    batch, like = inputs.shapes(SHAPE), jax.ShapeDtypeStruct
    first, whole = like((1, 1, 1), jnp.float32), like((), jnp.int32)
    rows = 2 * inputs.CACHE // (4 * timing.COLUMNS)
    other = like((timing.PARTS, rows, timing.COLUMNS), jnp.float32)
    fixed = Fixed(batch._replace(target=None, draft=None), (first, first), whole, other)
    verdict = like((1,), jnp.int32), like((1, SHAPE.gamma + 1), jnp.int32)
    return fixed, State(batch.target, batch.draft, *verdict)


@pytest.mark.parametrize(
    "name", ["empty", "read", "onepass/draft", "mosaic_gpu/none", "four_launches/none"]
)
def test_a_chain_on_an_h100_is_a_loop_of_its_call_alone(name):
    (program,) = (it for it in all_programs() if it.name.startswith(name))
    run, arguments = (
        timing.chain(timing.build_step(program.call), LENGTH),
        cold_operands(),
    )
    compiled = compilers.compile(run, arguments, device="h100")
    timing.check_loop(compiled.text, arguments[1], LENGTH)
    (loop,) = compiled.program.loops
    assert loop.trips == LENGTH  # known: the host is not asked
    least = SHAPE.row_bytes(SHAPE.gamma)
    assert not [it for it in loop.body.kernels if it.moves and it.bytes >= least]
    # What clears the caches is read where it lies: a slice is not copied.
    assert compiled.temp_bytes < 10 * least
