"""The benchmark of kernels: nobody is timed who is wrong, and nothing is left out.

Axes: B rows, G = gamma, V vocabulary, S sets.
"""

import importlib.util
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import catalogue_kernels as catalogue
from experiments import kernel_bench as bench
from experiments import kernel_bench_inputs as inputs
from experiments import kernel_bench_oracle as oracle
from experiments import kernel_bench_programs as programs
from experiments import kernel_bench_timing as times
from experiments import run
from experiments.gpu import (
    capture,
    device,
    equality,
    four_launches,
    sanitize,
    torch_bench,
    tune,
)
from experiments.kernel_bench_inputs import Shape
from experiments.kernel_bench_programs import Grid, Program
from pallas_kernels import dispatch
from pallas_kernels.plan import KNOWN, Plan, Tiles
from specjax import probs

SHAPE = Shape(2, 2, 300, "float32")
SETTING = bench.Setting(
    *SHAPE, acceptances=(0.7, 0.3), rounds=1, cache=1000, least=2, copied=2**16,
    grid=Grid((256,), (2,), (False,)), dry=True,
)  # fmt: skip
CONFIGS = run.ROOT / "gin_configs" / "kernels"
PLAIN = programs.reading(probs.standardize, programs.NONE)


def made(name: str, call=PLAIN, rows: int = 7) -> Program:
    return Program(name, call, rows)


def too_many(given):
    n, tokens = PLAIN(given)
    return jnp.minimum(n + 1, tokens.shape[1] - 1), tokens


def weightless(given):
    """The token after n is one that p never gives: where q is larger."""
    n, tokens = PLAIN(given)
    p, q = (jax.nn.softmax(x, -1) for x in (given.target[:, :-1], given.draft))
    rows = jnp.arange(n.size)
    worst = jnp.argmax(q - p, -1)[rows, jnp.minimum(n, tokens.shape[1] - 2)]
    return n, tokens.at[rows, n].set(worst)


def undrafted(given):
    n, tokens = PLAIN(given)
    return n, tokens.at[:, 0].add(jnp.where(n > 0, 1, 0))


@pytest.fixture(scope="module")
def sets():
    return inputs.sets(Shape(16, 3, 2000, "float32"), 0.7, 2)


@pytest.mark.parametrize("acceptance", [0.3, 0.7, 0.95])
def test_acceptance_is_about_what_was_asked_for(acceptance):
    (one,) = inputs.sets(Shape(16, 4, 16000, "float32"), acceptance, 1)
    found = inputs.answer(one).chance.mean()
    assert abs(found - acceptance) < 0.08
    for other in {0.3, 0.7, 0.95} - {acceptance}:
        assert abs(found - other) > 0.08


def test_enough_sets_that_none_is_read_from_a_cache():
    for name in catalogue.rows():
        shape = Shape(*catalogue.sizes(name)[:3], "bfloat16")
        count = inputs.cold(shape, inputs.CACHE, 4)
        assert count * shape.row_bytes(2 * shape.gamma + 1) > 2 * inputs.CACHE


@pytest.mark.parametrize("call", [PLAIN, too_many, weightless, undrafted])
def test_the_oracle_passes_the_reference_and_no_other(call, sets):
    faults = [
        oracle.wrong(inputs.answer(one), one.tokens, *jax.device_get(run(one)))
        for run in [jax.jit(call)]
        for one in sets
    ]
    assert (faults == [None, None]) == (call is PLAIN), faults


def test_the_last_call_waits_for_every_one(sets):
    text = times.compiled(PLAIN, sets).as_text()
    assert times.waited_for(text, sets[0].target.shape) == 2


@pytest.mark.parametrize(
    "wait",
    [
        lambda n, tokens: jnp.float32(0),
        lambda n, tokens: (n[0] * 0).astype(jnp.float32),
    ],
)
def test_a_chain_that_the_compiler_can_undo_is_refused(wait, sets):
    with pytest.raises(ValueError, match="waits for 1 of them"):
        times.compiled(PLAIN, sets, wait)


def test_a_chain_changes_no_result(sets):
    found = jax.device_get(times.compiled(PLAIN, sets)(sets))
    for one, (n, tokens) in zip(sets, found, strict=True):
        alone = jax.device_get(jax.jit(PLAIN)(one))
        np.testing.assert_array_equal(n, alone[0])
        np.testing.assert_array_equal(tokens, alone[1])


def failing(given):
    raise NotImplementedError("no such instruction")


@pytest.fixture(scope="module")
def record():
    """A row of few programs: two wrong ones, one that does not compile."""
    place = programs.here()
    few = [
        Program("read", programs.read, 5, verifies=False),
        Program("empty", programs.empty, 0, verifies=False),
        made("ref_jnp/none"),
        made("onepass/none", too_many),
        made("triton/none", failing),
        made("four_launches/none", programs.four(place.interpreted)),
        programs.kernel("mosaic_gpu", "none", SHAPE, place, Tiles(256, 2, False)),
        made("mosaic_gpu/none/slower", programs.four(place.interpreted)),
        made("sigmoid/both", weightless),
    ]
    return bench.measure(SETTING, few)


def test_what_is_wrong_or_fails_is_told_and_never_timed(record):
    failed = {one["name"]: one["error"] for one in record["failed"]}
    assert set(failed) == {"onepass/none", "triton/none", "sigmoid/both"}
    assert "not timed, as its output is wrong: row" in failed["onepass/none"]
    assert failed["triton/none"] == "NotImplementedError: no such instruction"
    names = {line["name"] for line in record["programs"]}
    assert not names & set(failed)
    for quantity in ("onepass_us", "triton_us", "sigmoid_us", "over_onepass"):
        assert record[quantity] == bench.FAILED
    json.dumps(record, allow_nan=False)


def test_the_fastest_tiles_are_measured_at_every_acceptance(record):
    lines = record["programs"]
    first = [line for line in lines if line["acceptance"] == 0.7]
    mosaic = [one for one in first if one["name"].startswith("mosaic_gpu/none")]
    assert len(mosaic) == 2
    best = min(mosaic, key=lambda one: one["us"])
    assert record["fused_us"] == best["us"]
    again = {line["name"] for line in lines if line["acceptance"] == 0.3}
    assert {name for name in again if "mosaic" in name} == {best["name"]}
    for line in lines:
        assert line["p10"] <= line["us"] <= line["p90"]
        share = line["bytes"] / (line["us"] * 1e-6) / (record["copy_gb_s"] * 1e9)
        np.testing.assert_allclose(line["share"], share)
    assert record["over_ref_jnp"] == record["ref_jnp_us"] / record["fused_us"]
    assert [one["wanted"] for one in record["acceptance"]] == [0.7, 0.3]
    assert record["interpreted"] and record["sets"] == 2


def test_without_a_reference_there_is_no_row():
    with pytest.raises(RuntimeError, match="the reference itself fails"):
        bench.measure(SETTING, [made("ref_jnp/none", too_many)])


def test_an_implementation_can_be_left_out():
    setting = SETTING._replace(skip=("triton",))
    given = inputs.sets(SHAPE, 0.7, 2)
    few = [made("ref_jnp/none"), made("triton/none", failing)]
    ready, failed = bench.prepare(few, given, setting)
    assert [one.program.name for one in ready] == ["ref_jnp/none"]
    assert failed[0]["error"].startswith("skipped")


def test_on_a_cpu_nothing_is_measured_but_a_trial():
    with pytest.raises(ValueError, match="here is none"):
        bench.measure(SETTING._replace(dry=False))
    with pytest.raises(ValueError, match="here is none"):
        equality.calls(equality.Rows())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "batch must be"),
        ({"vocab": 100}, "kernels need 256 ids"),
        ({"least": 1}, "one set cannot wait"),
        ({"dtype": "float64"}, "dtype must be"),
        ({"acceptances": (0.7, 1.0)}, "acceptances must be in"),
    ],
)
def test_settings_that_mean_nothing_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        bench.build(SETTING._replace(**change))


def test_every_implementation_is_among_the_programs():
    all_of = programs.programs(SHAPE, programs.here(), Grid())
    names = [one.name for one in all_of]
    assert len(set(names)) == len(names)
    assert {bench.group(name) for name in names} == set(bench.CHOICES.values())
    tried = [one.tiles for one in all_of if one.name.startswith("mosaic_gpu/none")]
    assert {tiles.stats for tiles in tried} == {1024, 2048, 4096, 8192}
    both = {(tiles.blocks, tiles.apart) for tiles in tried}
    assert both == {(n, apart) for n in (1, 4, 8) for apart in (False, True)}
    rows = {one.name: one.rows for one in all_of}
    assert rows["ref_jnp/none"] == 2 * 2 + 1 + 2  # p and q at n are read again
    assert (rows["ref_jnp/draft"], rows["ref_jnp/both"], rows["read"]) == (5, 2, 5)


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


MANY = equality.Rows(rows=512, batch=512, trials=2**14, small=256, dry=True)


def shifted(given):
    """Draws from p where it should draw from what is left of it."""
    n, tokens = PLAIN(given)
    p = given.p._replace(logits=given.target)
    extra = probs.sample(probs.take(p, n), given.sample)
    return n, tokens.at[jnp.arange(n.size), n].set(extra)


def believing(given):
    n, tokens = PLAIN(given)
    return n, tokens.at[:, 0].set(given.tokens[:, 0])


def test_equality_counts_the_rows_that_differ():
    calls = {equality.REFERENCE: PLAIN, "shifted": shifted, "failing": failing}
    found = equality.measure(MANY, calls)
    reference, wrong, failed = found["by_implementation"]
    assert reference["differing_outside"] == 0 and reference["chi_square_p"] > 1e-3
    assert wrong["differing_outside"] > 20 and wrong["chi_square_p"] < 1e-3
    assert wrong["from_reference_outside"] == wrong["differing_outside"]
    assert failed == {"name": "failing", "error": "NotImplementedError: no such"
                      " instruction"}  # fmt: skip
    assert found["differing_outside"] == wrong["differing_outside"]
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
    setting = torch_bench.Setting(1, 2, 600, "float32", 2, 1000, 2, dry=True)
    found = torch_bench.measure(setting)
    names = {line["name"] for line in found["lines"]}
    if found["on"] == "cpu":
        assert names == {"hf_eager", "eager"}, found
        assert found["skipped"] == {"compiled": torch_bench.NEEDS_GRAPHS}
        assert found["compiled_us"] == torch_bench.FAILED
    assert found["eager_us"] > 0 and found["hf_eager_us"] > 0


def test_without_torch_the_row_says_so(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = torch_bench.measure(torch_bench.Setting(1, 2, 600, "float32"))
    assert found["skipped"] == dict.fromkeys(torch_bench.NAMES, torch_bench.NO_TORCH)
    assert found["hf_eager_us"] == torch_bench.FAILED


def lines_of(carried: str, plain: float, mosaic: float) -> list[dict]:
    base = {"acceptance": 0.7, "tiles": None}
    kind = "ref_jnp" if carried == "both" else "onepass"
    return [
        {**base, "name": f"{kind}/{carried}", "us": plain},
        {**base, "name": f"triton/{carried}", "us": 0.1},
        {**base, "name": f"mosaic_gpu/{carried}/a", "us": mosaic + 1,
         "tiles": [1024, 4, False]},
        {**base, "name": f"mosaic_gpu/{carried}/b", "us": mosaic,
         "tiles": [4096, 8, True]},
        {**base, "name": f"mosaic_gpu/{carried}/a", "us": 0.0, "acceptance": 0.3,
         "tiles": [1024, 4, False]},
    ]  # fmt: skip


def kernels_record(**change) -> dict:
    sizes = {"batch": 1, "gamma": 5, "vocab": 32000, "dtype": "float32"}
    lines = lines_of("none", 30, 10) + lines_of("draft", 9, 10)
    lines += lines_of("both", 12, 3)
    measured = {**sizes, "acceptances": [0.7, 0.3], "programs": lines}
    measured |= {"interpreted": False, **change}
    made = {"device": {"kind": "NVIDIA H200"}, "date": "2026-12-01", "commit": "abc"}
    row = "b1_g5_v32000_f32"
    return {"row": row, "measured": measured, "provenance": made}


def test_the_fastest_becomes_what_dispatch_chooses(tmp_path, monkeypatch):
    trial = kernels_record(interpreted=True)
    path = tmp_path / "kernels.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in (trial, kernels_record())))
    tune.main([str(tmp_path), "--out", str(tmp_path / "tuned")])
    monkeypatch.setattr(dispatch, "TUNED", tmp_path / "tuned")
    h200 = dispatch.Device("gpu", "NVIDIA H200", (9, 0))
    known = Plan(1, 5, 32000, KNOWN, KNOWN, False, False, None, Tiles())
    wanted = {
        ("deferred", "deferred"): ("mosaic_gpu", Tiles(4096, 8, True)),
        ("deferred", "known"): ("onepass", None),
        ("known", "known"): ("mosaic_gpu", Tiles(4096, 8, True)),
    }
    for (target, draft), (name, tiles) in wanted.items():
        plan = known._replace(target=target, draft=draft)
        found = dispatch.choose(plan, 4, h200)
        assert (found.name, found.tiles) == (name, tiles), found
        assert "fastest at B 1" in found.why


def test_a_trial_on_a_cpu_tunes_nothing(tmp_path):
    path = tmp_path / "kernels.jsonl"
    path.write_text(json.dumps(kernels_record(interpreted=True)) + "\n")
    with pytest.raises(SystemExit):
        tune.main([str(tmp_path), "--out", str(tmp_path / "tuned")])
    assert not (tmp_path / "tuned").exists()


def test_with_no_record_every_goal_is_unmeasured():
    for row in catalogue.goals({}):
        assert row[-1].startswith("unmeasured")
    states = {row[-1] for row in catalogue.times({})}
    assert states == {"unmeasured"}


def goal(name: str, records: dict) -> list[str]:
    return next(row for row in catalogue.goals(records) if row[0] == name)[-2:]


def test_goals_are_met_or_missed_by_records():
    def of(row: str, **measured) -> dict:
        return {row: {"measured": measured}}

    row, rest = "b1_g5_v32000_f32", {"over_ref_jnp": 1.0, "over_four_launches": 1.1}
    assert goal("3, time", of(row, fused_us=14.9, **rest)) == ["14.9", "met"]
    assert goal("3, time", of(row, fused_us=15.1, **rest)) == ["15.1", "missed"]
    failed = of(row, fused_us="failed", **rest)
    assert goal("3, time", failed)[1] == "missed: it failed"
    trial = of(row, fused_us=1.0, dry=True)
    assert goal("3, time", trial)[1] == catalogue.TRIAL
    torch = of(f"torch_{row}", hf_eager_us=300.0)
    assert goal("3, transformers", torch)[1] == "unmeasured"
    both = torch | of(row, fused_us=10.0, **rest)
    assert goal("3, transformers", both) == ["30", "met"]
    law = {"chi_square_p": 0.5}
    assert goal("7, tokens", of("equality", differing_outside=0, **law))[1] == "met"
    assert goal("7, tokens", of("equality", differing_outside=1, **law))[1] == "missed"
    shapes = [row for row in catalogue.rows() if not row.startswith("torch_")]
    none = dict.fromkeys(
        ("fused_us", "fused_share", "over_ref_jnp", "over_onepass"), 1.0
    )
    none |= dict.fromkeys(("fused_draft_us", "sigmoid_over_exact"), 1.0)
    none |= {"both_over_sigmoid": 1.0, "over_four_launches": 1.1}
    every = {row: {"measured": dict(none)} for row in shapes}
    assert goal("4", every)[1] == "met"
    every[shapes[3]]["measured"]["over_four_launches"] = 0.9
    assert goal("4", every)[1] == "missed"
    assert goal("4", dict(list(every.items())[1:]))[1] == "unmeasured"


def test_a_record_is_shown_beside_its_prediction(record):
    it = {**record, "dry": False}
    found = catalogue.times({"b1_g5_v32000_f32": {"measured": it}})
    shown = [row for row in found if row[0] == "(1, 5, 32000) float32"]
    assert len(shown) == len(record["programs"]) + len(record["failed"])
    mosaic = [row for row in shown if row[1].startswith("mosaic_gpu/none")]
    assert mosaic[0][3] == "8 to 14" and mosaic[0][-1] == "ok"
    wrong = next(row for row in shown if row[1] == "onepass/none")
    assert wrong[4] == "" and "output is wrong" in wrong[-1]


def test_every_shape_has_its_rows_and_lines():
    shapes = {catalogue.sizes(row)[:3] for row in catalogue.rows()}
    wanted = {(1, 5, 32000), (1, 5, 128256), (1, 20, 128256), (8, 5, 128256)}
    wanted |= {(64, 5, 32000), (64, 5, 128256), (64, 5, 256000), (1, 5, 50257)}
    assert shapes == wanted | {(16, 5, 32000), (32, 8, 128256)}
    assert len(catalogue.rows()) == 2 * (2 * 9 + 1)
    named = {line.row for line in catalogue.kernels().lines}
    assert set(catalogue.rows()) | {"equality", "sanitizer", "capture"} == named
    for goal in catalogue.said()["goals"]:
        for row, _ in [*goal.get("of", ()), *goal.get("under", ())]:
            assert (CONFIGS / f"{row}.gin").exists(), row
    for one in catalogue.said()["predictions"]:
        assert (CONFIGS / f"{one['row']}.gin").exists(), one


def test_rows_are_those_of_their_names():
    for name in ("b1_g5_v32000_f32", "b32_g8_v128256_bf16", "torch_b1_g5_v50257_bf16"):
        setting = run.build(CONFIGS / f"{name}.gin").row.measurement.run.args[0]
        batch, gamma, vocab, dtype = catalogue.sizes(name)
        found = setting.batch, setting.gamma, setting.vocab, setting.dtype
        assert found == (batch, gamma, vocab, catalogue.DTYPES[dtype])


def test_what_others_published_is_told_with_machine_and_work():
    told = catalogue.peers()
    assert [row[2] for row in told] == ["27.2", "78.3", "17", "9 to 63"]
    assert all(all(cell for cell in row) for row in told)


@pytest.mark.slow
def test_a_whole_row_runs_from_its_file_to_its_record(tmp_path: Path):
    small = {"dry": True, "gamma": 2, "vocab": 600, "rounds": 1, "least": 2}
    small |= {"cache": 1000, "copied": 65536, "acceptances": (0.7,)}
    small |= {"grid": ((256,), (2,), (False,))}
    bindings = [f"kernel_bench.Setting.{name} = {v!r}" for name, v in small.items()]
    run.run([CONFIGS / "b1_g5_v32000_f32.gin"], tmp_path, bindings)
    it = json.loads((tmp_path / "kernels.jsonl").read_text())["measured"]
    assert not it["failed"]
    assert all(it[f"{name}_us"] > 0 for name in bench.CHOICES)


@pytest.mark.slow
def test_all_kernels_are_equal_on_a_few_rows():
    few = equality.Rows(rows=8, batch=8, gamma=2, trials=8, dry=True)
    found = equality.measure(few)
    assert found["differing_outside"] == found["failed_implementations"] == 0
    assert len(found["by_implementation"]) == 8
