"""Who takes part in a measurement, of every family."""

import jax
import pytest

from specjax import sides
from tests.support.model_cases import CASES, SLOTS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_early_exit_has_the_first_layers(case):
    """And caches of local layers only where those are local."""
    exits, small = sides.first_layers(case.config, 1), case.module.build(case.small)
    assert exits.shapes == small.shapes != case.world().target.shapes
    params, prompt = case.world().target_weights, case.prompt()
    caches = (
        jax.eval_shape(lambda model=model: model.init(params, prompt, 600 + SLOTS))
        for model in (exits, small)
    )
    assert next(caches) == next(caches)
    assert exits.portion == small.portion


def test_an_early_exit_before_a_local_layer_has_none():
    (config,) = (case.config for case in CASES if case.name == "gemma2")
    exits = sides.first_layers(config._replace(local=(1,)), 1)
    assert exits.portion is None  # its caches keep all
