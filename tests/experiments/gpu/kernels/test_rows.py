"""Rows of kernels: what is chosen from them, their goals and their lines."""

import json

import pytest

from experiments.gpu.kernels import tune
from experiments.records import records
from experiments.report import kernels, tables
from pallas_kernels import dispatch
from pallas_kernels.plan import KNOWN, Plan, Tiles

ROWS = records.rows("kernels")


def lines_of(carried: str, plain: float, mosaic: float) -> list[dict]:
    kind, name = (
        ("ref_jnp" if carried == "both" else "onepass"),
        f"mosaic_gpu/{carried}",
    )
    first, second = [1024, 4, False], [4096, 8, True]
    lines = [
        (f"{kind}/{carried}", plain, None, 0.7),
        (f"triton/{carried}", 0.1, None, 0.7),
        (f"{name}/a", mosaic + 1, first, 0.7),
        (f"{name}/b", mosaic, second, 0.7),
        (f"{name}/a", 0.0, first, 0.3),
    ]
    return [
        dict(zip(("name", "us", "tiles", "acceptance"), it, strict=True))
        for it in lines
    ]


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
TORCH, THIRD = f"torch_{ROW}", list(EVERY)[3]


@pytest.mark.parametrize(
    ("name", "verdict", "records"),
    [
        ("3, time", "missed: it failed", {ROW: OVER | {"fused_us": "failed"}}),
        ("3, time", "unmeasured: skipped", {ROW: OVER | {"fused_us": "skipped"}}),
        ("3, time", kernels.TRIAL, {ROW: {"fused_us": 1.0, "dry": True}}),
        # Which is not a miss of ours.
        (
            "3, transformers",
            f"unmeasured: {WHY}",
            OURS | {TORCH: {"hf_eager_us": "failed"}},
        ),
        ("7, tokens", "missed", {"equality": LAW | {"differing_outside": 1}}),
        ("4", "missed", EVERY | {THIRD: EVERY[THIRD] | {"over_four_launches": 0.9}}),
        ("4", "unmeasured", dict(list(EVERY.items())[1:])),
    ],
)
def test_a_goal_whose_records_fail_lack_or_are_trials_is_not_met(
    name, verdict, records
):
    measured = {row: {"measured": it} for row, it in records.items()}
    found = next(it for it in kernels.goals(measured) if it["name"] == name)
    assert found["verdict"] == verdict


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
    assert rows <= ROWS.keys()
