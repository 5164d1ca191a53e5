"""Weights that are made for the bench: what they compute, and which models can."""

import jax
import numpy as np
import pytest

from experiments.rivals import ours, weights
from specjax import checkpoints
from specjax.models import t5

pytestmark = pytest.mark.slow

DRAFT = weights.SIZES["tiny"].draft


def test_sizes_are_those_of_t5_small():
    target, draft = (t5.num_params(side.config) for side in weights.SIZES["small"])
    assert target == 60_506_624  # as published, see tests of the T5 model
    assert draft == 11_898_112


def test_every_id_turns_into_its_successor():
    order = np.random.default_rng(3).permutation(50)
    table, rotation = weights.circle(np.random.default_rng(4), order, 8)
    assert (table[: weights.SPECIAL] == 0).all()
    real = [i for i in range(49) if min(order[i], order[i + 1]) >= weights.SPECIAL]
    after = table[order[real]] @ rotation
    np.testing.assert_allclose(after, table[order[np.add(real, 1)]], atol=1e-4)
    assert np.abs(after - table[order[real]]).max() > 0.5  # the twin: no rotation
    into, out = np.zeros((8, 20), np.float32), np.zeros((20, 8), np.float32)
    weights.turn(into, out, rotation)
    x = np.random.default_rng(5).standard_normal((3, 8)).astype(np.float32)
    mlp = np.maximum(x @ into, 0) @ out
    np.testing.assert_allclose(x + mlp, x @ rotation, atol=1e-5)


def test_weights_follow_from_the_seed():
    first, same, other = (weights.build(DRAFT, seed, 1) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, first, same)
    key = "token_embedder"
    assert (first[key]["embedding"] != other[key]["embedding"]).any()


@pytest.mark.parametrize("change", [{"tied": False}, {"gated": True}, {"mlp_dim": 31}])
def test_a_model_that_cannot_turn_is_refused(change):
    side = DRAFT._replace(config=DRAFT.config._replace(**change))
    with pytest.raises(ValueError, match="the rotation needs a tied embedding"):
        weights.build(side, 0, 1)


def test_all_of_a_padded_vocabulary_may_be_emitted(tmp_path):
    config = weights.config(32128, 8, 1, 1, 4)
    params = weights.build(weights.Side(config, 0.1), 0, 0)
    checkpoints.save(tmp_path / "wide", (config, params))
    assert ours.load(tmp_path / "wide", 32128).config.pieces is None
    assert checkpoints.load(tmp_path / "wide").config.pieces == 32100
