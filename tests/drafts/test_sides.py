"""Who takes part in a measurement, of every family."""

import jax
import pytest

from specjax.drafts import source as sides
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


def test_a_record_says_how_weights_were_stored():
    side = sides.model("code_small")
    draft = sides.random()
    assert sides.names(side, draft).keys() == {"target", "draft", "draft_regime"}
    stored = side.pretrained._replace(stored="Q4_1 210, F32 61")
    named = sides.names(side._replace(pretrained=stored), draft)
    assert named["stored"] == "Q4_1 210, F32 61"
