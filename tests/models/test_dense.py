"""Products with learned matrices: `models.dense`."""

import jax.numpy as jnp
import numpy as np

from specjax.models import dense


def test_a_factor_of_a_product_comes_before_its_rounding():
    """In float16 the product alone would be infinite."""
    by = dense.Dense((64, 8), jnp.float16)
    weights = {"params": {"kernel": jnp.ones((64, 8))}}

    def product(module, x):
        return dense.multiply(x, module, factor=jnp.full((1, 1), 1e-3))[0]

    y = by.apply(weights, jnp.full((1, 64), 2000, jnp.float16), method=product)
    np.testing.assert_array_equal(y, np.full((1, 8), 128, np.float16))
