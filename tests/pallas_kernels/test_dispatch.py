"""Timings and tile sizes choose a kernel by device and shape."""

import json

import jax
import jax.numpy as jnp
import pytest

from pallas_kernels import dispatch, fuse
from pallas_kernels.dispatch import Device, choose
from pallas_kernels.laws import Deferred
from pallas_kernels.plan import plan
from specjax.types import Draft, FusedRule, Law
from tests.support import kernel_cases
from tests.support.kernel_cases import CPU, H200, V5E

B200 = Device("gpu", "NVIDIA B200", (10, 0))


def make_plan(batch=1, gamma=5, vocab=32000, known=False):
    """Returns the plan for a deferred target, or a known one, and a known draft."""

    def law(rows: int, told: bool) -> Law | Deferred:
        row = jnp.zeros((batch, rows))
        logits = jax.ShapeDtypeStruct((batch, rows, vocab), jnp.float32)
        return Law(logits, *[row] * 5) if told else Deferred(logits, row[:, 0])

    tokens, num = jnp.zeros((batch, gamma), jnp.int32), jnp.zeros(batch, int)
    return plan(law(gamma + 1, known), Draft(tokens, num, law(gamma, True)))


def test_measurements_decide_near_their_shape(tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "TUNED", tmp_path)
    base = dict(itemsize=4, target="deferred", draft="known", gamma=5, vocab=32000)
    one = base | dict(batch=1, name="mosaic_gpu", tiles=[2048, 2, True])
    shapes = [one, base | dict(batch=64, name="onepass", tiles=None)]
    (tmp_path / "nvidia_h200.json").write_text(json.dumps({"shapes": shapes}))
    assert choose(make_plan(), 4, H200).tiles == (2048, 2, True)
    assert choose(make_plan(batch=32), 4, H200).name == "onepass"
    assert "B 64" in choose(make_plan(batch=32), 4, H200).why
    away = choose(make_plan(batch=8, vocab=262144), 4, H200)  # 3 + 3 doublings
    assert away.name == "mosaic_gpu" and "nothing near" in away.why
    assert "nothing near" in choose(make_plan(), 2, H200).why  # of bfloat16
    assert choose(make_plan(), 4, B200).name == "mosaic_gpu"


def test_a_known_target_has_no_kernel_of_a_tpu():
    assert choose(make_plan(known=True), 4, V5E).name == "onepass"


def test_tiles_fill_a_chip_and_then_grow():
    small, large = (choose(make_plan(batch=b), 4, H200).tiles for b in (1, 64))
    assert small.stats < large.stats and not small.apart and large.apart


def test_a_rule_without_a_meaning_is_refused():
    both = FusedRule(0.5, False, (-1, 1))
    for rule, message in ((FusedRule(0.0), "lenience"), (both, "sigm")):
        with pytest.raises(ValueError, match=message):
            fuse.build(kernel_cases.reference(), CPU, fuse.Options(rule=rule))
