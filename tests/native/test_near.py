"""Operations in bfloat16 are as near to float32 as their twins are, and operations on
several threads as near to their twins as on one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import native
from specjax.models import families
from tests.native import test_rows as rows
from tests.support import devices

pytestmark = pytest.mark.skipif(
    native.problem() is not None, reason=f"no products: {native.problem()}"
)


@pytest.mark.parametrize(
    "family", ["llama", pytest.param("t5", marks=pytest.mark.slow)]
)
def test_bfloat16_is_as_near_to_float32_as_the_twin(family):
    _, params, run = rows.make_model(family, "bfloat16")
    exact = families.build(rows.CONFIGS[family])
    wide = jax.tree.map(lambda x: x.astype(jnp.float32), params)
    prompt = rows.make_prompt([[1]] * 2, rows.INPUTS[:2] if family == "t5" else None)
    first = np.zeros(2, np.int32)

    @jax.jit
    def read(params, tokens, start, cache):
        features, cache = exact.apply(params, tokens, start, cache)
        return exact.readout(params, features), cache

    cache = rows.initial_cache(family, "bfloat16", 2)
    fused = run(params, rows.TOKENS[:2], first, cache)
    with native.products(native.XLA):
        plain = run(params, rows.TOKENS[:2], first, cache)
        wanted = read(
            wide, rows.TOKENS[:2], first, exact.init(wide, prompt, rows.SLOTS)
        )
    for new, twin, of in zip(
        *map(jax.tree.leaves, (fused, plain, wanted)), strict=True
    ):
        assert error(new, of) <= 1.25 * error(twin, of)


def error(x, of) -> float:
    """Returns the root of the mean square error."""
    return float(np.sqrt(np.mean((np.float32(x) - np.float32(of)) ** 2)))


THREADS = """
import numpy as np
from specjax import native
from tests.native import test_rows as rows

for dtype in "float32", "int8", "int8_dynamic":
    def call():
        cache = rows.initial_cache("wide", dtype, 2)
        return np.asarray(rows.call("wide", dtype, rows.TOKENS[:2], [0, 0], cache)[0])
    fused = call()
    with native.products(native.XLA):
        plain = call()
    assert np.abs(fused - plain).max() <= rows.NEAR[dtype] * np.abs(plain).max(), dtype
print("near")
"""


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 4, 8])
def test_on_several_threads_they_are_near_their_twins(threads):
    assert "near" in devices.run_python("-c", THREADS, NPROC=str(threads))
