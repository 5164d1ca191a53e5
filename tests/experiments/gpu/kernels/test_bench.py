"""The benchmark of kernels times only right kernels and leaves none out; its rows
decide which kernels are chosen.

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
    tune,
)
from experiments.gpu.kernels.inputs import Shape
from experiments.gpu.kernels.programs import Grid, Program
from experiments.records import kernel_times, records
from experiments.records.words import FAILED, UNCLEAR
from experiments.report import kernels, tables
from pallas_kernels import dispatch
from pallas_kernels.plan import KNOWN, Plan, Tiles

SHAPE = Shape(2, 2, 300, "float32")
SETTING = bench.KernelSetting(
    *SHAPE, acceptances=(0.7, 0.3), rounds=1, cache=1000, length=3, copied=2**16,
    grid=Grid((256,), (2,), (False,)), dry=True,
)  # fmt: skip
SIZES = re.compile(r"(?:torch_)?b(\d+)_g(\d+)_v(\d+)_")
HERE = programs.find_device(True, "")
PLAIN = programs.program(programs.REF, programs.NONE, shape=SHAPE, place=HERE).call


def light_verify(batch):
    """Algorithm 1 of Leviathan et al. (2023) in few instructions: the token after n is
    the most likely one of the residual."""
    heat = batch.temperature[:, None, None]
    p, q = (jax.nn.softmax(z / heat, -1) for z in (batch.target, batch.draft))
    gamma, rows = batch.tokens.shape[1], jnp.arange(len(batch.tokens))
    at = rows[:, None], jnp.arange(gamma), batch.tokens
    n = jnp.cumprod(batch.accept < p[at] / q[at], 1).sum(1)
    less = jnp.where((n < gamma)[:, None], q[rows, jnp.minimum(n, gamma - 1)], 0)
    tokens = jnp.pad(batch.tokens, ((0, 0), (0, 1)))
    return n, tokens.at[rows, n].set(jnp.argmax(p[rows, n] - less, -1))


def program(name: str, call=light_verify) -> Program:
    return Program(name, call, rows=7)


def too_many(batch):
    n, tokens = light_verify(batch)
    return jnp.minimum(n + 1, tokens.shape[1] - 1), tokens


def emit_impossible(batch):
    """Emits a token that p gives probability zero, where q is larger."""
    n, tokens = light_verify(batch)
    p, q = (jax.nn.softmax(x, -1) for x in (batch.target[:, :-1], batch.draft))
    rows = jnp.arange(n.size)
    worst = jnp.argmax(q - p, -1)[rows, jnp.minimum(n, tokens.shape[1] - 2)]
    return n, tokens.at[rows, n].set(worst)


def change_first_kept(batch):
    n, tokens = light_verify(batch)
    return n, tokens.at[:, 0].add(jnp.where(n > 0, 1, 0))


@pytest.fixture(scope="module")
def sets():
    return inputs.make_sets(Shape(16, 3, 2000), 0.7, count=2)


def test_acceptance_is_about_what_was_asked_for():
    for acceptance in (0.3, 0.7, 0.95):  # further apart than twice the tolerance
        (batch,) = inputs.make_sets(Shape(16, 4, 4000), acceptance, count=1)
        assert abs(inputs.answer(batch).chance.mean() - acceptance) < 0.08


def test_enough_sets_that_none_is_read_from_a_cache():
    sizes = filter(None, map(SIZES.match, records.rows("kernels")))
    for batch, gamma, vocab in (map(int, name.groups()) for name in sizes):
        shape = Shape(batch, gamma, vocab, "bfloat16")
        count = inputs.count_cold_sets(shape, inputs.CACHE, 4)
        assert count * shape.row_bytes(2 * shape.gamma + 1) > 2 * inputs.CACHE


@pytest.mark.parametrize(
    "call", [PLAIN, light_verify, too_many, emit_impossible, change_first_kept]
)
def test_the_oracle_passes_the_reference_and_no_other(call, sets):
    run = jax.jit(call)
    faults = [
        oracle.find_error(inputs.answer(batch), batch.tokens, n=n, tokens=tokens)
        for batch in sets
        for n, tokens in [jax.device_get(run(batch))]
    ]
    assert (faults == [None, None]) == (call in (PLAIN, light_verify)), faults


def raise_not_implemented(batch):
    raise NotImplementedError("no such instruction")


def right_at_first(batch):
    """Is wrong where few drafts are likely to be kept."""
    p, q = (jax.nn.softmax(x, -1) for x in (batch.target[:, :-1], batch.draft))
    near = jnp.minimum(p, q).sum(-1).mean() > 0.5
    return jax.tree.map(partial(jnp.where, near), light_verify(batch), too_many(batch))


def test_what_is_wrong_or_fails_is_told_and_has_no_time():
    """This includes errors on later inputs; the fastest tiles of a right kernel are
    timed at every acceptance."""
    few = [
        Program("read", programs.read, 5, verifies=False),
        program("ref_jnp/none"),
        program("onepass/none", too_many),
        program("triton/none", raise_not_implemented),
        program("mosaic_gpu/none/a", right_at_first),
        program("mosaic_gpu/draft/a"),
        program("mosaic_gpu/draft/b"),
    ]
    told = []
    record = bench.measure(SETTING, few, told.append)
    failed = {line["name"]: line["error"] for line in record["failed"]}
    assert failed.keys() == {it.name for it in few[2:5]}
    assert "not timed, as its output is wrong: row" in failed["onepass/none"]
    assert failed["triton/none"] == "NotImplementedError: no such instruction"
    lines = record["programs"]
    assert not failed.keys() & {line["name"] for line in lines}
    alone = {"empty", "read", "ref_jnp/none", "mosaic_gpu/draft"}
    assert {*record["latency"]} == alone
    shown = [it["name"] for it in told if "alone" in it]
    assert sorted(shown) == sorted([*alone, "mosaic_gpu/none"])  # it was right at first
    for quantity in ("onepass", "triton", "fused"):
        assert record[f"{quantity}_us"] == FAILED
    assert record["fused_share"] == record["over_triton"] == FAILED
    json.dumps(record, allow_nan=False)
    tiles = [line for line in lines if line["name"].startswith("mosaic_gpu")]
    *first, warm, again = tiles
    best = min(first, key=lambda line: line["us"])
    wanted = best["us"] if best["us"] > 0 else UNCLEAR
    assert len(first) == 2 and record["fused_draft_us"] == wanted
    assert [line["cache"] for line in tiles] == ["cold", "cold", "warm", "cold"]
    assert [line["acceptance"] for line in tiles] == [0.7, 0.7, 0.7, 0.3]
    assert warm["name"] == again["name"] == best["name"]
    timed = [line for line in told if "chain_us" in line]
    assert [line for line in timed if line["name"] != "mosaic_gpu/none/a"] == lines
    for line in lines:
        assert line["p10"] <= line["us"] <= line["p90"]
        if line["us"] > 0:
            share = line["bytes"] / (line["us"] * 1e-6) / (record["copy_gb_s"] * 1e9)
            np.testing.assert_allclose(line["share"], share)
        if line["name"] != "empty":  # one round: its median is itself
            np.testing.assert_allclose(line["us"], line["chain_us"] - line["empty_us"])
    assert [rate["wanted"] for rate in record["acceptance"]] == [0.7, 0.3]
    assert record["interpreted"] and record["steps"] == 3
    for name, whose in (("ref_jnp/none", "reference"), ("empty", "empty chain")):
        with pytest.raises(RuntimeError, match=f"the {whose} itself fails"):
            bench.collect_results({name: partial(raise_not_implemented, None)})


def test_a_ratio_blames_whose_fault_it_is():
    both = {"acceptance": 0.7, "cache": "cold", "share": 0.5}
    lines = [both | {"name": "mosaic_gpu/none", "us": 2.0}]
    lines += [both | {"name": "onepass/none", "us": 3.0}]
    lines += [both | {"name": "mosaic_gpu/none", "us": 1.0, "cache": "warm"}]
    lines += [both | {"name": "sigmoid/both", "us": -0.1}]
    asked = {"acceptances": (0.7,), "skip": ("triton",)}
    ratios = kernel_times.quantities(lines, asked)
    assert ratios["over_onepass"] == 1.5
    assert ratios["over_triton"] == "the other has no time: skipped"
    assert ratios["over_four_launches"] == "the other has no time: failed"
    assert ratios["sigmoid_us"] == ratios["sigmoid_over_exact"] == UNCLEAR
    ratios = kernel_times.quantities(lines[1:2], asked)
    assert ratios["over_onepass"] == ratios["over_ref_jnp"] == "failed"
    few = asked | {"only": ("onepass/none",)}
    assert kernel_times.quantities(lines, few)["four_launches_us"] == "skipped"


def test_what_is_not_asked_for_is_left_out(sets):
    few = [program("ref_jnp/none"), program("triton/none", raise_not_implemented)]
    given, setting = bench.operands(sets[0], SETTING), SETTING
    for change in ({"skip": ("triton",)}, {"only": ("ref_jnp/none",)}):
        setting = SETTING._replace(**change)
        assert [it.name for it in few if bench.is_wanted(it, setting)] == [
            "ref_jnp/none"
        ]
    _, left_out = bench.compile_chains(few[1:], given, batch=sets[0], setting=setting)
    assert left_out[0]["error"].startswith("skipped")
    with pytest.raises(RuntimeError, match="the reference itself fails"):
        bench.compile_chains(
            few, given, batch=sets[0], setting=SETTING._replace(skip=("ref_jnp",))
        )


def test_a_chain_is_as_long_as_its_bytes_need_and_no_longer():
    assert SETTING.steps == 3
    small, large = (
        bench.KernelSetting(*Shape(*sizes, "float32")).steps
        for sizes in ((1, 5, 32000), (64, 5, 128256))
    )
    assert 500 < small < 600 and 100 < large < 150


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
        ({"length": 2}, "length must be more than 2"),
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
    wanted = set(kernel_times.CHOICES.values())
    assert {kernel_times.group(name) for name in names} == wanted
    rows = {each.name: each.rows for each in all_of}
    assert rows["ref_jnp/none"] == 2 * 2 + 1 + 2  # p and q at n are read again
    assert (rows["ref_jnp/draft"], rows["ref_jnp/both"], rows["read"]) == (5, 2, 5)


# Rows: what is chosen from them, their goals and their lines.


def make_lines(carried: str, plain: float, mosaic: float, noise: float = 0.1) -> list:
    kind = "ref_jnp" if carried == "both" else "onepass"
    name, first, second = f"mosaic_gpu/{carried}", [1024, 4, False], [4096, 8, True]
    lines = (
        (f"{kind}/{carried}", plain, None, 0.7, "cold"),
        (f"triton/{carried}", 0.1, None, 0.7, "cold"),
        (f"{name}/a", mosaic + 1, first, 0.7, "cold"),
        (f"{name}/b", mosaic, second, 0.7, "cold"),
        (f"{name}/a", 0.0, first, 0.3, "cold"),
        (f"{name}/a", 0.0, first, 0.7, "warm"),
    )
    names = "name", "us", "tiles", "acceptance", "cache"
    each = (dict(zip(names, line, strict=True)) for line in lines)
    return [it | {"p10": it["us"] - noise, "p90": it["us"] + noise} for it in each]


def kernels_record(**change) -> dict:
    measured = {"batch": 1, "gamma": 5, "vocab": 32000, "dtype": "float32"}
    lines = make_lines("none", 30, 10) + make_lines("draft", 9, 10)
    measured |= {
        "acceptances": [0.7, 0.3],
        "programs": lines + make_lines("both", 12, 3),
    }
    origin = {"device": {"kind": "NVIDIA H200"}, "date": "2026-12-01", "commit": "abc"}
    measured |= {"interpreted": False, **change}
    return {"row": "b1_g5_v32000_f32", "measured": measured, "provenance": origin}


def test_the_fastest_becomes_what_dispatch_chooses(tmp_path, monkeypatch):
    """A trial on a CPU changes no choice."""
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


@pytest.mark.parametrize(
    ("noise", "before", "name"),
    [
        (0.1, None, "onepass"),
        (0.6, None, "mosaic_gpu"),  # which `dispatch` takes of itself
        (0.6, ("onepass", None), "onepass"),
        (0.1, ("mosaic_gpu", Tiles(4096, 8, True)), "onepass"),
        (1.5, ("mosaic_gpu", Tiles(1024, 4, False)), "mosaic_gpu"),
        (0.6, ("mosaic_gpu", Tiles(2048, 1, False)), "mosaic_gpu"),  # not tried
    ],
)
def test_a_choice_changes_by_more_than_noise_alone(noise, before, name):
    """One pass takes 9 us, and Mosaic GPU 10 us, or 11 us with the other tiles."""
    lines = [it for it in make_lines("draft", 9, 10, noise) if it["us"] > 1]
    chosen = tune.choose_one(lines, before)
    assert chosen["name"] == name
    fastest = [4096, 8, True] if name == "mosaic_gpu" else None
    assert chosen["tiles"] == ([1024, 4, False] if noise == 1.5 else fastest)


def test_what_one_file_chose_is_kept_by_the_next(tmp_path):
    record, path = kernels_record(), dispatch.tuned_file("NVIDIA H200", tmp_path)
    (once,) = tune.tables([record], tmp_path).values()
    path.write_text(json.dumps(once))
    record["measured"]["programs"] = make_lines("draft", 10.1, 10)  # as good as equal
    (again,) = tune.tables([record], tmp_path).values()
    assert [it["name"] for it in again["shapes"]] == ["onepass"]


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


def earlier_record() -> dict:
    """Returns a record of a harness that timed the host too, 30 us of the time."""
    names = "name", "us", "p10", "p90", "acceptance", "bytes", "share"
    lines = (
        ("empty", 30.0, 29.0, 31.0, 0.7, 0, 0.0),
        ("mosaic_gpu/none/a", 40.0, 38.0, 44.0, 0.7, 20, 0.25),
        ("mosaic_gpu/none/b", 45.0, 44.0, 46.0, 0.7, 20, 0.2),
        ("four_launches/none", 50.0, 49.0, 51.0, 0.7, 20, 0.2),
        ("ref_jnp/none", 75.0, 49.0, 51.0, 0.7, 20, 0.2),
    )
    programs = [dict(zip(names, line, strict=True)) for line in lines]
    numbers = {"fused_us": 40.0, "empty_us": 30.0, "over_ref_jnp": 1.875}
    asked = {"acceptances": [0.7], "skip": []}
    return {**numbers, **asked, "programs": programs, "latency": {}}


def test_goals_of_an_earlier_record_are_judged_without_the_host():
    measured = kernel_times.update_record(earlier_record())
    assert (measured["fused_us"], measured["host_us"]) == (10.0, 30.0)
    assert measured["over_four_launches"] == 2.0 and measured["fused_share"] == 1.0
    rows = {ROW: {"measured": measured}}
    found = {it["name"]: it["verdict"] for it in kernels.goals(rows)}
    assert found["3, time"] == found["3, reference"] == "met, less the host's time"
    state = tables.state(FUSED, {"measured": measured})
    assert "less 30.0 us of the host" in state
    own = [it for it in kernels.times(rows) if it["name"].endswith("none/a")]
    assert [(it["us"], it["chain"], it["around"]) for it in own] == [
        ("10", "40", "8 to 14")
    ]
    assert all("less 30.0 us" in it["state"] for it in own)
    assert kernel_times.update_record(measured | {"steps": 9}) == measured | {
        "steps": 9
    }


def test_a_time_says_what_its_chain_did_beside():
    """In a record without steps each step also copied the logits, and 20 copies were
    counted as 19."""
    line = {"name": "mosaic_gpu/none", "cache": "cold", "acceptance": 0.7, "us": 2.0}
    new = {"programs": [line | {"share": 0.8}], "empty_us": 1.0, "fused_us": 2.0}
    new |= {"copy_gb_s": 1900.0, "copy_us": 20.0, "acceptances": [0.7], "skip": []}
    told = kernel_times.update_record(new)
    np.testing.assert_allclose(told["fused_share"], 0.8 * 19 / 20)
    np.testing.assert_allclose([told["copy_gb_s"], told["copy_us"]], [2000, 19])
    state = tables.state(FUSED, {"measured": told})
    assert state == (
        "ok, with a note: each step also copied the logits: data that fit in a cache"
        " were warm"
    )
    new |= {"steps": 9}
    assert kernel_times.update_record(new) == new
    assert tables.state(FUSED, {"measured": new}) == "ok"


def test_a_call_alone_has_the_time_of_its_kernels_or_why_not():
    line = {"name": "read", "cache": "warm", "us": 2.0, "p10": 1.0, "p90": 3.0}
    cold = line | {"cache": "cold"}
    for told in ({"device_us": 1.5}, {"device": "not measured"}):
        latency = {"read": {"us": 90.0, **told}}
        it = {"programs": [cold, line], "latency": latency, "steps": 9}
        shown = [each["device"] for each in kernels.timed_programs(ROW, it)]
        assert shown == ["", "1.5" if "device_us" in told else "not measured"]


FUSED = next(it for it in kernels.lines() if (it.row, it.quantity) == (ROW, "fused_us"))


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
