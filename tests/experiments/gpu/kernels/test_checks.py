"""The checks of the GPU script detect wrong numbers."""

import functools
import importlib.util
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.gpu.aot import device, inspect
from experiments.gpu.kernels import (
    capture,
    default,
    equality,
    four_launches,
    inputs,
    oracle,
    programs,
    sanitize,
    torch_bench,
)
from experiments.gpu.kernels.inputs import Shape
from specjax import probs
from specjax.fused import CPU
from specjax.measure import jsonl

needs_torch = pytest.mark.skipif(
    not importlib.util.find_spec("torch"), reason="no torch"
)
HERE = programs.find_device(True, "")
PLAIN = programs.program(
    programs.REF, programs.NONE, shape=Shape(1, 1, 256), place=HERE
).call


def test_four_launches_keep_what_the_reference_keeps():
    (batch,) = inputs.make_sets(Shape(6, 3, 1500, "bfloat16"), 0.7, count=1)
    four, answer = jax.jit(programs.four_launch_program(True)), inputs.answer(batch)
    n, tokens = jax.device_get(four(batch))
    np.testing.assert_array_equal(n, jax.device_get(jax.jit(PLAIN)(batch))[0])
    assert oracle.find_error(answer, batch.tokens, n=n, tokens=tokens) is None
    late = batch._replace(accept=batch.accept * 0.5)  # the check sees another verdict
    n, tokens = jax.device_get(four(late))
    assert oracle.find_error(answer, batch.tokens, n=n, tokens=tokens)


def test_the_noise_of_the_race_is_gumbels():
    ids = jnp.arange(2**16, dtype=jnp.int32)
    x, y = (four_launches.gumbel(jnp.uint32(k), jnp.uint32(7), ids) for k in (1, 2))
    for noise in map(np.asarray, (x, y)):
        assert abs(noise.mean() - np.euler_gamma) < 4 * np.pi / 6**0.5 / 256
        assert abs(noise.var() - np.pi**2 / 6) < 0.05
    assert abs(np.corrcoef(x, y)[0, 1]) < 4 / 256
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 4 / 256


MANY = equality.EqualityRows(rows=512, batch=512, trials=2**12, small=256, dry=True)


def draw_from_target(batch):
    """Draws from p where it should draw from the residual."""
    n, tokens = PLAIN(batch)
    p = batch.p._replace(logits=batch.target)
    extra = probs.sample(probs.take(p, n), batch.sample)
    return n, tokens.at[jnp.arange(n.size), n].set(extra)


def raise_not_implemented(batch):
    raise NotImplementedError("no such instruction")


@pytest.mark.slow
def test_equality_counts_the_rows_that_differ():
    calls = {equality.REFERENCE: PLAIN, "shifted": draw_from_target}
    record = equality.measure(MANY, calls)
    reference, wrong = record["by_implementation"]
    assert reference["differing_outside"] == 0 and reference["chi_square_p"] > 1e-3
    assert wrong["differing_outside"] > 20 and wrong["chi_square_p"] < 1e-3
    assert wrong["from_reference_outside"] == wrong["differing_outside"]
    assert record["differing_outside"] == wrong["differing_outside"]
    assert record["chi_square_p"] == wrong["chi_square_p"]
    assert record["inside_margin"] < 0.05 * MANY.rows
    record = equality.measure(
        MANY, {equality.REFERENCE: PLAIN, "failing": raise_not_implemented}
    )
    error = "NotImplementedError: no such instruction"
    assert record["by_implementation"][1] == {"name": "failing", "error": error}
    # A check that did not run is not an agreement.
    assert {record["differing_outside"], record["chi_square_p"]} == {"failed"}


@pytest.mark.slow
def test_all_kernels_are_equal_on_a_few_rows():
    few = equality.EqualityRows(rows=8, batch=8, gamma=2, trials=8, dry=True)
    record = equality.measure(few)
    assert record["differing_outside"] == record["failed_implementations"] == 0
    assert len(record["by_implementation"]) == 8


def test_sanitizing_is_told_whatever_came_of_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    absent = sanitize.measure(["true"])
    assert set(absent.values()) == {"not run: compute-sanitizer is not on PATH"}
    tool = tmp_path / sanitize.TOOL
    tool.touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for status, told in ((0, "clean"), (9, "found: out of bounds"), (1, "not run: ")):
        tool.write_text(f"#!/bin/sh\necho out of bounds\nexit {status}\n")
        outcome = sanitize.measure(["true"])
        assert all(value.startswith(told) for value in outcome.values()), outcome
    tool.write_text("#!/bin/sh\nexec sleep 9\n")
    assert "longer than 1 s" in sanitize.measure(["true"], 1)["memcheck"]


def test_capture_reads_the_list_of_launches(tmp_path):
    """The capture distinguishes launches in command buffers."""
    assert set(capture.measure().values()) == {capture.NOT_ON_CPU}
    with pytest.raises(RuntimeError, match="no list"):
        inspect.launches(tmp_path)
    lines = "001: kCopy [source | next] kCopy", "002: kWhile [prev | sink]"
    lines += "condition:", "    003: kCustomKernel [source | sink] compare", "  body:"
    lines += ("    000: kCommandBuffer [source | sink]",)
    lines += ("        004: kCustomKernel [source | next] gemm",)
    lines += ("        005: kCustomCall [prev | sink] kCustomCall",)
    path = tmp_path / "module_2.jit_inspected.sm_9.0_gpu_thunk_sequence.txt"
    path.write_text("\n".join([*lines, "    006: kCustomKernel [source | sink] add"]))
    assert inspect.launches(tmp_path) == (5, 2)


def test_the_device_and_what_reads_logits_are_told(tmp_path, capsys):
    device.main([str(tmp_path)])
    description = json.loads((tmp_path / "device.json").read_text())
    assert description["device"]["platform"] == "cpu"
    fused = {"asked": "auto", "verify": "mosaic_gpu", "draw": "none", "why": "."}
    several = {"exact": fused, "baseline": fused | {"verify": "reference"}}
    row = {"row": "a", "measured": {"kernels": several}, "provenance": {}}
    jsonl.append(tmp_path / "wagner_text.jsonl", row)
    default.main([str(tmp_path)])
    *shapes, wagner = capsys.readouterr().out.splitlines()[-len(default.SHAPES) - 1 :]
    assert all(line.endswith(f"kernels: reference ({CPU})") for line in shapes)
    assert wagner == "wagner_text: mosaic_gpu 1, reference 1"


@needs_torch
@pytest.mark.slow
def test_torch_is_timed_in_a_process_of_its_own_and_never_what_is_wrong(monkeypatch):
    sizes = 1, 2, 600, "float32", 2, 1000, 2
    record = torch_bench.measure(torch_bench.TorchSetting(*sizes, dry=True))
    assert record["eager_us"] > 0 and record["hf_eager_us"] > 0
    if record["on"] == "cpu":
        assert record["skipped"] == {"compiled": torch_bench.NEEDS_GRAPHS}
        assert record["compiled_us"] == "skipped" and not record["failed"]

    def late(torch, batch, u=None):
        n, token = torch_bench.verify_batch(torch, batch, u)
        return n * 0, token

    sizes = 3, 4, 600, "float32", 1, 1000, 2
    broken = {"eager": functools.partial(late, importlib.import_module("torch"))}
    monkeypatch.setattr(torch_bench, "implementations", lambda *_: (broken, {}))
    record = torch_bench.run_all(torch_bench.TorchSetting(*sizes, dry=True))
    assert record["lines"] == [] and "output is wrong" in record["failed"][0]["error"]


def test_without_torch_there_is_no_record(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install torch"):
        torch_bench.measure(torch_bench.TorchSetting(1, 2, 600, "float32"))
