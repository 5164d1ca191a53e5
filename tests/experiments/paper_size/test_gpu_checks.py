"""What the script for a GPU checks and compares with notices what is wrong."""

import functools
import importlib.util
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.aot import device
from experiments.kernels import (
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
from experiments.kernels.inputs import Shape
from specjax import probs
from specjax.bench import jsonl
from specjax.commands.kernels import CPU

PLAIN = programs.reading(probs.standardize, programs.NONE)


@pytest.mark.parametrize(("vocab", "dtype"), [(256, "float32"), (1500, "bfloat16")])
def test_four_launches_keep_what_the_reference_keeps(vocab, dtype):
    one = inputs.sets(Shape(6, 3, vocab, dtype), 0.7, 1, seed=vocab)[0]
    four = jax.jit(programs.four(True))
    n, tokens = jax.device_get(four(one))
    np.testing.assert_array_equal(n, jax.device_get(jax.jit(PLAIN)(one))[0])
    assert oracle.wrong(inputs.answer(one), one.tokens, n, tokens) is None
    late = one._replace(accept=one.accept * 0.5)  # the check sees another verdict
    n, tokens = jax.device_get(four(late))
    assert oracle.wrong(inputs.answer(one), one.tokens, n, tokens)


def test_the_noise_of_the_race_is_gumbels():
    ids = jnp.arange(2**16, dtype=jnp.int32)
    x, y = (four_launches.gumbel(jnp.uint32(k), jnp.uint32(7), ids) for k in (1, 2))
    for noise in map(np.asarray, (x, y)):
        assert abs(noise.mean() - np.euler_gamma) < 4 * np.pi / 6**0.5 / 256
        assert abs(noise.var() - np.pi**2 / 6) < 0.05
    assert abs(np.corrcoef(x, y)[0, 1]) < 4 / 256
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 4 / 256


MANY = equality.EqualityRows(rows=512, batch=512, trials=2**14, small=256, dry=True)


def shifted(given):
    """Draws from p where it should draw from what is left of it."""
    n, tokens = PLAIN(given)
    p = given.p._replace(logits=given.target)
    extra = probs.sample(probs.take(p, n), given.sample)
    return n, tokens.at[jnp.arange(n.size), n].set(extra)


def believing(given):
    n, tokens = PLAIN(given)
    return n, tokens.at[:, 0].set(given.tokens[:, 0])


def failing(given):
    raise NotImplementedError("no such instruction")


@pytest.mark.slow
def test_equality_counts_the_rows_that_differ():
    calls = {equality.REFERENCE: PLAIN, "shifted": shifted, "failing": failing}
    found = equality.measure(MANY, calls)
    reference, wrong, failed = found["by_implementation"]
    assert reference["differing_outside"] == 0 and reference["chi_square_p"] > 1e-3
    assert wrong["differing_outside"] > 20 and wrong["chi_square_p"] < 1e-3
    assert wrong["from_reference_outside"] == wrong["differing_outside"]
    assert failed == {"name": "failing", "error": "NotImplementedError: no such"
                      " instruction"}  # fmt: skip
    # What did not run is no agreement.
    assert {found["differing_outside"], found["chi_square_p"]} == {"failed"}
    del calls["failing"]
    found = equality.measure(MANY, calls)
    assert found["differing_outside"] == wrong["differing_outside"]
    assert found["chi_square_p"] == wrong["chi_square_p"]
    assert found["inside_margin"] < 0.05 * MANY.rows


def test_a_drafts_law_is_not_the_targets():
    assert equality.chi_square(jax.jit(believing), MANY) < 1e-6
    assert equality.p_value(np.ones(4), np.ones(4)) is None


def test_sanitizing_is_told_whatever_came_of_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    absent = sanitize.measure(["true"])
    assert set(absent.values()) == {"not run: compute-sanitizer is not on PATH"}
    tool = tmp_path / sanitize.TOOL
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for status, said in ((0, "clean"), (9, "found: out of bounds"), (1, "not run: ")):
        tool.write_text(f"#!/bin/sh\necho out of bounds\nexit {status}\n")
        tool.chmod(0o755)
        found = sanitize.measure(["true"])
        assert all(value.startswith(said) for value in found.values()), found
    tool.write_text("#!/bin/sh\nexec sleep 9\n")
    assert "longer than 1 s" in sanitize.measure(["true"], 1)["memcheck"]


def test_capture_reads_the_list_of_launches(tmp_path):
    assert set(capture.measure().values()) == {capture.NOT_ON_CPU}
    assert "no list" in capture.told(tmp_path, "loop")
    text = (
        "000: kKernel        [a] fusion.1\n"
        "001: kCommandBuffer [b] command_buffer\n"
        "  000: kKernel      [c] fusion.2\n"
        "  001: kCustomCall  [d] call\n"
    )
    name = "module_1.jit_measured_loop.sm_9.0_gpu_thunk_sequence.txt"
    (tmp_path / name).write_text(text)
    assert capture.told(tmp_path, "loop") == "2 of 3 launches in CUDA graphs"
    assert "no list" in capture.told(tmp_path, "onepass")


def test_the_device_is_described(tmp_path):
    device.main([str(tmp_path)])
    found = json.loads((tmp_path / "device.json").read_text())
    assert found["device"]["platform"] == "cpu"
    written = (tmp_path / "target_config.txtpb").exists()
    assert written == (found["target_config"] == "written")


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="no torch")
def test_torch_runs_in_a_process_of_its_own():
    setting = torch_bench.TorchSetting(1, 2, 600, "float32", 2, 1000, 2, dry=True)
    found = torch_bench.measure(setting)
    names = {line["name"] for line in found["lines"]}
    if found["on"] == "cpu":
        assert names == {"hf_eager", "eager"}, found
        assert found["skipped"] == {"compiled": torch_bench.NEEDS_GRAPHS}
        assert found["compiled_us"] == "skipped" and not found["failed"]
    assert found["eager_us"] > 0 and found["hf_eager_us"] > 0


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="no torch")
def test_what_torch_gets_wrong_has_no_time(monkeypatch):
    def late(torch, given, u=None):
        n, token = torch_bench.batched(torch, given, u)
        return n * 0, token

    sizes = 3, 4, 600, "float32", 1, 1000, 2
    sound = torch_bench.told(torch_bench.TorchSetting(*sizes, dry=True))
    assert [line["name"] for line in sound["lines"]][:1] == ["eager"]
    made = {"eager": functools.partial(late, importlib.import_module("torch"))}
    monkeypatch.setattr(torch_bench, "implementations", lambda *_: (made, {}))
    found = torch_bench.told(torch_bench.TorchSetting(*sizes, dry=True))
    assert found["lines"] == [] and found["failed"][0]["name"] == "eager"
    assert "output is wrong" in found["failed"][0]["error"]


def test_without_torch_there_is_no_record(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install torch"):
        torch_bench.measure(torch_bench.TorchSetting(1, 2, 600, "float32"))


@pytest.mark.slow
def test_all_kernels_are_equal_on_a_few_rows():
    few = equality.EqualityRows(rows=8, batch=8, gamma=2, trials=8, dry=True)
    found = equality.measure(few)
    assert found["differing_outside"] == found["failed_implementations"] == 0
    assert len(found["by_implementation"]) == 8


def test_what_reads_logits_is_told_by_shape_and_by_table(tmp_path, capsys):
    record = {"asked": "auto", "verify": "mosaic_gpu", "draw": "none", "why": "."}
    plain = record | {"verify": "reference"}
    for name, told in (
        ("table2", [record, plain, record]),
        ("wagner_text", [{"exact": record, "baseline": plain, "always": plain}]),
        ("table1", [None]),
    ):
        for i, one in enumerate(told):
            measured = {} if one is None else {"kernels": one}
            row = {"row": str(i), "measured": measured, "provenance": {}}
            jsonl.append(tmp_path / f"{name}.jsonl", row)
    default.main([str(tmp_path)])
    *shapes, table2, wagner = capsys.readouterr().out.splitlines()
    assert len(shapes) == len(default.SHAPES)
    assert all(line.endswith(f"kernels: reference ({CPU})") for line in shapes)
    assert table2 == "table2: mosaic_gpu 2, reference 1"
    assert wagner == "wagner_text: mosaic_gpu 1, reference 1"
