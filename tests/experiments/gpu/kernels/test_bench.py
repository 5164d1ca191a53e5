"""The benchmark of kernels: nobody is timed who is wrong, and nothing is left out; what
is chosen from its rows, their goals and their lines.

Axes: B rows, G = gamma, V vocabulary, S sets.
"""

import json
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.gpu.kernels import (
    bench,
    equality,
    inputs,
    oracle,
    programs,
    timing,
    tune,
)
from experiments.gpu.kernels.inputs import Shape
from experiments.gpu.kernels.programs import Grid, Program
from experiments.records import records
from experiments.report import kernels, tables
from pallas_kernels import dispatch
from pallas_kernels.plan import KNOWN, Plan, Tiles

SHAPE = Shape(2, 2, 300, "float32")
SETTING = bench.KernelSetting(
    *SHAPE, acceptances=(0.7, 0.3), rounds=1, cache=1000, least=2, copied=2**16,
    grid=Grid((256,), (2,), (False,)), dry=True,
)  # fmt: skip
SIZES = re.compile(r"(?:torch_)?b(\d+)_g(\d+)_v(\d+)_")
HERE = programs.here(True, "")
PLAIN = programs.program(programs.REF, programs.NONE, SHAPE, HERE).call


def program(name: str, call=PLAIN) -> Program:
    return Program(name, call, rows=7)


def too_many(batch):
    n, tokens = PLAIN(batch)
    return jnp.minimum(n + 1, tokens.shape[1] - 1), tokens


def weightless(batch):
    """The token after n is one that p never gives: where q is larger."""
    n, tokens = PLAIN(batch)
    p, q = (jax.nn.softmax(x, -1) for x in (batch.target[:, :-1], batch.draft))
    rows = jnp.arange(n.size)
    worst = jnp.argmax(q - p, -1)[rows, jnp.minimum(n, tokens.shape[1] - 2)]
    return n, tokens.at[rows, n].set(worst)


def undrafted(batch):
    n, tokens = PLAIN(batch)
    return n, tokens.at[:, 0].add(jnp.where(n > 0, 1, 0))


@pytest.fixture(scope="module")
def sets():
    return inputs.sets(Shape(16, 3, 2000), 0.7, 2)


def test_acceptance_is_about_what_was_asked_for():
    for acceptance in (0.3, 0.7, 0.95):  # further apart than twice the tolerance
        (batch,) = inputs.sets(Shape(16, 4, 4000), acceptance, 1)
        assert abs(inputs.answer(batch).chance.mean() - acceptance) < 0.08


def test_enough_sets_that_none_is_read_from_a_cache():
    sizes = filter(None, map(SIZES.match, records.rows("kernels")))
    for batch, gamma, vocab in (map(int, name.groups()) for name in sizes):
        shape = Shape(batch, gamma, vocab, "bfloat16")
        count = inputs.cold(shape, inputs.CACHE, 4)
        assert count * shape.row_bytes(2 * shape.gamma + 1) > 2 * inputs.CACHE


@pytest.mark.parametrize("call", [PLAIN, too_many, weightless, undrafted])
def test_the_oracle_passes_the_reference_and_no_other(call, sets):
    run = jax.jit(call)
    faults = [
        oracle.wrong(inputs.answer(batch), batch.tokens, *jax.device_get(run(batch)))
        for batch in sets
    ]
    assert (faults == [None, None]) == (call is PLAIN), faults


def test_a_chain_waits_for_every_call_and_changes_no_result(sets):
    chain = timing.chained(PLAIN, sets)
    timing.check_chain(chain, sets)
    for batch, verdict in zip(sets, jax.device_get(chain(sets)), strict=True):
        alone = jax.device_get(jax.jit(PLAIN)(batch))
        jax.tree.map(np.testing.assert_array_equal, tuple(verdict), tuple(alone))

    def wait(n, tokens):  # which the compiler can undo
        return (n[0] * 0).astype(jnp.float32)

    with pytest.raises(ValueError, match="waits for 1 of them"):
        timing.check_chain(timing.chained(PLAIN, sets, wait), sets)


def failing(batch):
    raise NotImplementedError("no such instruction")


def right_at_first(batch):
    """Wrong where few drafts are likely to be kept."""
    p, q = (jax.nn.softmax(x, -1) for x in (batch.target[:, :-1], batch.draft))
    near = jnp.minimum(p, q).sum(-1).mean() > 0.5
    return jax.tree.map(partial(jnp.where, near), PLAIN(batch), too_many(batch))


def test_what_is_wrong_or_fails_is_told_and_has_no_time():
    """On later inputs too; and of what is right the fastest tiles are measured at every
    acceptance."""
    few = [
        Program("read", programs.read, 5, verifies=False),
        program("ref_jnp/none"),
        program("onepass/none", too_many),
        program("triton/none", failing),
        program("sigmoid/both", weightless),
        program("mosaic_gpu/none/a", right_at_first),
        program("mosaic_gpu/draft/a"),
        program("mosaic_gpu/draft/b"),
    ]
    record = bench.measure(SETTING, few)
    failed = {line["name"]: line["error"] for line in record["failed"]}
    assert failed.keys() == {it.name for it in few[2:6]}
    assert "not timed, as its output is wrong: row" in failed["onepass/none"]
    assert failed["triton/none"] == "NotImplementedError: no such instruction"
    lines = record["programs"]
    assert not failed.keys() & {line["name"] for line in lines}
    assert {*record["latency"]} == {"read", "ref_jnp/none", "mosaic_gpu/draft"}
    for quantity in ("onepass", "triton", "sigmoid", "fused"):
        assert record[f"{quantity}_us"] == bench.FAILED
    assert record["fused_share"] == record["both_over_sigmoid"] == bench.FAILED
    json.dumps(record, allow_nan=False)
    tiles = [line for line in lines if line["name"].startswith("mosaic_gpu")]
    *first, again = sorted(tiles, key=lambda line: -line["acceptance"])
    best = min(first, key=lambda line: line["us"])
    assert len(first) == 2 and record["fused_draft_us"] == best["us"]
    assert (again["name"], again["acceptance"]) == (best["name"], 0.3)
    for line in lines:
        assert line["p10"] <= line["us"] <= line["p90"]
        share = line["bytes"] / (line["us"] * 1e-6) / (record["copy_gb_s"] * 1e9)
        np.testing.assert_allclose(line["share"], share)
    assert [rate["wanted"] for rate in record["acceptance"]] == [0.7, 0.3]
    assert record["interpreted"] and record["sets"] == 2
    with pytest.raises(RuntimeError, match="the reference itself fails"):
        bench.measure(SETTING, [program("ref_jnp/none", right_at_first)])


def test_a_ratio_blames_whose_fault_it_is():
    lines = [{"name": "mosaic_gpu/none", "acceptance": 0.7, "us": 2.0, "share": 0.5}]
    lines += [{"name": "onepass/none", "acceptance": 0.7, "us": 3.0, "share": 0.5}]
    ratios = bench.quantities(lines, SETTING._replace(skip=("triton",)))
    assert ratios["over_onepass"] == 1.5
    assert ratios["over_triton"] == "the other has no time: skipped"
    assert ratios["over_four_launches"] == "the other has no time: failed"
    ratios = bench.quantities(lines[1:], SETTING)
    assert ratios["over_onepass"] == ratios["over_ref_jnp"] == "failed"
    few = [program("ref_jnp/none"), program("triton/none", failing)]
    _, left_out = bench.compiled(few, inputs.sets(SHAPE, 0.7, 2), ("triton",))
    assert left_out[0]["error"].startswith("skipped")


def test_on_a_cpu_nothing_is_measured_but_a_trial():
    with pytest.raises(ValueError, match="here is none"):
        bench.measure(SETTING._replace(dry=False))
    with pytest.raises(ValueError, match="here is none"):
        equality.calls(equality.EqualityRows())


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
    all_of = programs.programs(SHAPE, HERE, Grid())
    names = [each.name for each in all_of]
    assert len(set(names)) == len(names)
    assert {bench.group(name) for name in names} == set(bench.CHOICES.values())
    rows = {each.name: each.rows for each in all_of}
    assert rows["ref_jnp/none"] == 2 * 2 + 1 + 2  # p and q at n are read again
    assert (rows["ref_jnp/draft"], rows["ref_jnp/both"], rows["read"]) == (5, 2, 5)


# Rows: what is chosen from them, their goals and their lines.


def lines_of(carried: str, plain: float, mosaic: float) -> list[dict]:
    kind = "ref_jnp" if carried == "both" else "onepass"
    name, first, second = f"mosaic_gpu/{carried}", [1024, 4, False], [4096, 8, True]
    lines = (
        (f"{kind}/{carried}", plain, None, 0.7),
        (f"triton/{carried}", 0.1, None, 0.7),
        (f"{name}/a", mosaic + 1, first, 0.7),
        (f"{name}/b", mosaic, second, 0.7),
        (f"{name}/a", 0.0, first, 0.3),
    )
    names = "name", "us", "tiles", "acceptance"
    return [dict(zip(names, line, strict=True)) for line in lines]


def kernels_record(**change) -> dict:
    measured = {"batch": 1, "gamma": 5, "vocab": 32000, "dtype": "float32"}
    lines = lines_of("none", 30, 10) + lines_of("draft", 9, 10)
    measured |= {"acceptances": [0.7, 0.3], "programs": lines + lines_of("both", 12, 3)}
    origin = {"device": {"kind": "NVIDIA H200"}, "date": "2026-12-01", "commit": "abc"}
    measured |= {"interpreted": False, **change}
    return {"row": "b1_g5_v32000_f32", "measured": measured, "provenance": origin}


def test_the_fastest_becomes_what_dispatch_chooses(tmp_path, monkeypatch):
    """And a trial on a CPU tunes nothing."""
    path, tuned = tmp_path / "kernels.jsonl", tmp_path / "tuned"
    trial = json.dumps(kernels_record(interpreted=True)) + "\n"
    path.write_text(trial)
    with pytest.raises(SystemExit):
        tune.main([str(tmp_path), "--out", str(tuned)])
    assert not tuned.exists()
    path.write_text(trial + json.dumps(kernels_record()) + "\n")
    tune.main([str(tmp_path), "--out", str(tuned)])
    monkeypatch.setattr(dispatch, "TUNED", tuned)
    h200 = dispatch.Device("gpu", "NVIDIA H200", (9, 0))
    known = Plan(1, 5, 32000, KNOWN, KNOWN, False, False, None, Tiles())
    wanted = {
        ("deferred", "deferred"): ("mosaic_gpu", Tiles(4096, 8, True)),
        ("deferred", "known"): ("onepass", None),
        ("known", "known"): ("mosaic_gpu", Tiles(4096, 8, True)),
    }
    for (target, draft), (name, tiles) in wanted.items():
        plan = known._replace(target=target, draft=draft)
        choice = dispatch.choose(plan, 4, h200)
        assert (choice.name, choice.tiles) == (name, tiles), choice


ROW, WHY = "b1_g5_v32000_f32", "the other has no time: failed"
OVER = {"over_ref_jnp": 1.0, "over_four_launches": 1.1}
OURS, LAW = {ROW: OVER | {"fused_us": 10.0}}, {"chi_square_p": 0.5}
GOAL_4 = "fused_us fused_share over_ref_jnp over_onepass fused_draft_us"
GOAL_4 = dict.fromkeys(f"{GOAL_4} sigmoid_over_exact both_over_sigmoid".split(), 1.0)
EVERY = {it: OVER | GOAL_4 for it in kernels.shapes() if not it.startswith("torch_")}
THEIRS, THIRD = {f"torch_{ROW}": {"hf_eager_us": "failed"}}, list(EVERY)[3]


@pytest.mark.parametrize(
    ("name", "verdict", "found"),
    [
        ("3, time", "missed: it failed", {ROW: OVER | {"fused_us": "failed"}}),
        ("3, time", "unmeasured: skipped", {ROW: OVER | {"fused_us": "skipped"}}),
        ("3, time", kernels.TRIAL, {ROW: {"fused_us": 1.0, "dry": True}}),
        ("3, transformers", f"unmeasured: {WHY}", OURS | THEIRS),  # no miss of ours
        ("7, tokens", "missed", {"equality": LAW | {"differing_outside": 1}}),
        ("4", "missed", EVERY | {THIRD: EVERY[THIRD] | {"over_four_launches": 0.9}}),
        ("4", "unmeasured", dict(list(EVERY.items())[1:])),
    ],
)
def test_a_goal_whose_records_fail_lack_or_are_trials_is_not_met(name, verdict, found):
    measured = {row: {"measured": it} for row, it in found.items()}
    (goal,) = (it for it in kernels.goals(measured) if it["name"] == name)
    assert goal["verdict"] == verdict


def test_a_line_without_a_number_is_not_ok():
    line = next(it for it in kernels.lines() if it.quantity == "triton_us")
    for told, state in ((30.0, "ok"), ("failed", "failed"), ("skipped", "skipped")):
        assert tables.state(line, {"measured": {"triton_us": told}}) == state


def test_all_that_is_expected_is_a_row():
    named = {line.row for line in kernels.lines()}
    assert {*kernels.shapes(), "equality", "sanitizer", "capture"} == named
    told = kernels.expectations()
    rows = {prediction["row"] for prediction in told["predictions"]}
    for goal in told["goals"]:
        rows |= {row for row, _ in [*goal.get("of", ()), *goal.get("under", ())]}
    assert rows <= records.rows("kernels").keys()
