"""What verifies is decided by device and shape, before anything is lowered."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels import dispatch, fuse
from pallas_kernels.dispatch import Device, choose
from pallas_kernels.laws import Deferred
from pallas_kernels.plan import plan
from specjax.types import Draft, FusedRule, Law
from tests.support import kernel_cases
from tests.support.kernel_cases import A100, CPU, H200, V5E

T4 = Device("gpu", "Tesla T4", (7, 5))
RTX = Device("gpu", "NVIDIA GeForce RTX 2080 Ti", (7, 5))
B200 = Device("gpu", "NVIDIA B200", (10, 0))
V4, V6E = Device("tpu", "TPU v4"), Device("tpu", "TPU v6 lite")


def of(batch=1, gamma=5, vocab=32000, known=False):
    """The plan of a deferred target, or a known one, and a known draft."""

    def law(rows: int, told: bool) -> Law | Deferred:
        row = jnp.zeros((batch, rows))
        logits = jax.ShapeDtypeStruct((batch, rows, vocab), jnp.float32)
        return Law(logits, *[row] * 5) if told else Deferred(logits, row[:, 0])

    tokens = jnp.zeros((batch, gamma), jnp.int32)
    draft = Draft(tokens, jnp.zeros(batch, int), law(gamma, True) if gamma else None)
    return plan(law(gamma + 1, known), draft)


@pytest.mark.parametrize(
    ("device", "sizes", "name"),
    [
        (CPU, {}, "reference"),
        (T4, {}, "onepass"),
        (RTX, {}, "onepass"),
        (A100, {}, "onepass"),
        (H200, {}, "mosaic_gpu"),
        (B200, {}, "mosaic_gpu"),
        (V5E, {}, "mosaic_tpu"),
        (V6E, {}, "mosaic_tpu"),
        (V4, {}, "mosaic_tpu"),
        (H200, dict(vocab=255), "onepass"),
        (H200, dict(vocab=262145), "onepass"),
        (H200, dict(gamma=0), "mosaic_gpu"),
        (H200, dict(gamma=128), "onepass"),
        (V4, dict(vocab=256000), "onepass"),  # 16 MiB of vector memory
        (V5E, dict(batch=64, gamma=20, vocab=128256), "onepass"),
        (V5E, dict(batch=64, vocab=128256), "mosaic_tpu"),
        (V5E, dict(known=True), "onepass"),
    ],
)
def test_by_device_and_shape(device, sizes, name):
    choice = choose(of(**sizes), 4, device)
    assert choice.name == name and choice.why


@pytest.mark.parametrize(
    ("device", "asked", "message"),
    [
        (A100, "mosaic_gpu", "sm_80, and Mosaic needs sm_90"),
        (T4, "mosaic_gpu", "sm_75"),
        (T4, "triton", "older than what Triton compiles for"),
        (CPU, "triton", "needs a GPU"),
        (H200, "mosaic_tpu", "needs a TPU"),
        (CPU, "cuda", "no implementation 'cuda'"),
    ],
)
def test_what_cannot_run_is_refused_before_it_is_lowered(device, asked, message):
    with pytest.raises(ValueError, match=message):
        choose(of(), 4, device, asked)


def test_triton_is_for_those_who_ask():
    for device in (A100, H200):
        assert choose(of(), 4, device).name != "triton"
        assert choose(of(), 4, device, "triton").name == "triton"


def test_rows_of_a_shared_table_have_no_kernel():
    """Whatever was deferred is read first, and the reference goes on."""
    fused = fuse.build(kernel_cases.reference(), H200)
    case = kernel_cases.random_case(0, (2, 2, 640))
    row = jnp.zeros((2, 2), jnp.int32)
    law = Law(None, row, row, row, row, row, row)
    choice = fused.ran(fused.law(case.target, case.sampling), Draft(row, row[0], law))
    assert choice.name == "onepass" and "table" in choice.why


def test_this_machine_is_known():
    assert dispatch.here().platform == "cpu"
    case = kernel_cases.random_case(0, (2, 2, 300))
    verify = kernel_cases.verdicts(fuse.build(kernel_cases.reference()))
    kernel_cases.check_same(verify(case), kernel_cases.expected(case))


def test_measurements_decide_near_their_shape(tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "TUNED", tmp_path)
    base = dict(itemsize=4, target="deferred", draft="known", gamma=5, vocab=32000)
    shapes = [
        base | dict(batch=1, name="mosaic_gpu", tiles=[2048, 2, True]),
        base | dict(batch=64, name="onepass", tiles=None),
    ]
    path = tmp_path / "nvidia_h200.json"
    path.write_text(json.dumps({"shapes": shapes}))
    assert choose(of(), 4, H200).tiles == (2048, 2, True)
    assert choose(of(batch=32), 4, H200).name == "onepass"
    assert "B 64" in choose(of(batch=32), 4, H200).why
    away = choose(of(batch=8, vocab=262144), 4, H200)  # 3 + 3 doublings
    assert away.name == "mosaic_gpu" and "nothing near" in away.why
    assert "nothing near" in choose(of(), 2, H200).why  # of bfloat16
    assert choose(of(), 4, B200).name == "mosaic_gpu"


def test_a_rule_without_a_meaning_is_refused():
    for rule, message in (
        (FusedRule(0.0), "lenience"),
        (FusedRule(0.5, False, (-1, 1)), "sigm"),
    ):
        with pytest.raises(ValueError, match=message):
            fuse.build(kernel_cases.reference(), CPU, fuse.Options(rule=rule))


def test_tiles_fill_a_chip_and_then_grow():
    small, large = (choose(of(batch=b), 4, H200).tiles for b in (1, 64))
    assert small.stats < large.stats and not small.apart and large.apart
    assert np.prod(small[:2]) > 0
