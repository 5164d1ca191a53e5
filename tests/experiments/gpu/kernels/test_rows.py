"""Rows of kernels: what is chosen from them, their goals and their lines."""

import json
import re

import pytest

from experiments.gpu.kernels import tune
from experiments.records import records
from experiments.report import kernels, tables
from pallas_kernels import dispatch
from pallas_kernels.plan import KNOWN, Plan, Tiles
from specjax import configs

ROWS = records.rows("kernels")
SHAPE = re.compile(r"b(\d+)_g(\d+)_v(\d+)_(f32|bf16)$")
DTYPES = {"f32": "float32", "bf16": "bfloat16"}


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
    origin = {"device": {"kind": "NVIDIA H200"}, "date": "2026-12-01", "commit": "abc"}
    row = "b1_g5_v32000_f32"
    return {"row": row, "measured": measured, "provenance": origin}


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
        choice = dispatch.choose(plan, 4, h200)
        assert (choice.name, choice.tiles) == (name, tiles), choice
        assert "fastest at B 1" in choice.why


def test_a_trial_on_a_cpu_tunes_nothing(tmp_path):
    path = tmp_path / "kernels.jsonl"
    path.write_text(json.dumps(kernels_record(interpreted=True)) + "\n")
    with pytest.raises(SystemExit):
        tune.main([str(tmp_path), "--out", str(tmp_path / "tuned")])
    assert not (tmp_path / "tuned").exists()


def test_with_no_record_every_goal_is_unmeasured():
    for row in kernels.goals({}):
        assert row["verdict"].startswith("unmeasured")
    states = {row["state"] for row in kernels.times({})}
    assert states == {"unmeasured"}


def goal(name: str, records: dict) -> list[str]:
    found = next(it for it in kernels.goals(records) if it["name"] == name)
    return [found["measured"], found["verdict"]]


def test_goals_are_met_or_missed_by_records():
    def of(row: str, **measured) -> dict:
        return {row: {"measured": measured}}

    row, rest = "b1_g5_v32000_f32", {"over_ref_jnp": 1.0, "over_four_launches": 1.1}
    assert goal("3, time", of(row, fused_us=14.9, **rest)) == ["14.9", "met"]
    assert goal("3, time", of(row, fused_us=15.1, **rest)) == ["15.1", "missed"]
    failed = of(row, fused_us="failed", **rest)
    assert goal("3, time", failed)[1] == "missed: it failed"
    trial = of(row, fused_us=1.0, dry=True)
    assert goal("3, time", trial)[1] == kernels.TRIAL
    torch = of(f"torch_{row}", hf_eager_us=300.0)
    assert goal("3, transformers", torch)[1] == "unmeasured"
    both = torch | of(row, fused_us=10.0, **rest)
    assert goal("3, transformers", both) == ["30", "met"]
    ours = of(row, fused_us=10.0, **rest)
    peerless = of(f"torch_{row}", hf_eager_us="failed") | ours
    why = "the other has no time: failed"  # which is not a miss of ours
    assert goal("3, transformers", peerless) == [why, f"unmeasured: {why}"]
    left_out = of(row, fused_us="skipped", **rest)
    assert goal("3, time", left_out)[1] == "unmeasured: skipped"
    law = {"chi_square_p": 0.5}
    assert goal("7, tokens", of("equality", differing_outside=0, **law))[1] == "met"
    assert goal("7, tokens", of("equality", differing_outside=1, **law))[1] == "missed"
    void = of("equality", differing_outside="failed", **law)
    assert goal("7, tokens", void)[1] == "missed: it failed"
    shapes = [row for row in kernels.shapes() if not row.startswith("torch_")]
    numbers = ["fused_us", "fused_share", "over_ref_jnp", "over_onepass"]
    numbers += ["fused_draft_us", "sigmoid_over_exact", "both_over_sigmoid"]
    numbers = dict.fromkeys(numbers, 1.0) | {"over_four_launches": 1.1}
    every = {row: {"measured": dict(numbers)} for row in shapes}
    assert goal("4", every)[1] == "met"
    every[shapes[3]]["measured"]["over_four_launches"] = 0.9
    assert goal("4", every)[1] == "missed"
    assert goal("4", dict(list(every.items())[1:]))[1] == "unmeasured"
    every[shapes[2]]["measured"]["over_four_launches"] = why
    assert goal("4", every)[1].startswith("unmeasured")
    every[shapes[3]]["measured"]["over_four_launches"] = "failed"
    assert goal("4", every)[1] == "missed: it failed"


@pytest.mark.parametrize("word", ["failed", "skipped"])
def test_a_line_without_a_number_is_not_ok(word):
    line = next(it for it in kernels.lines() if it.quantity == "triton_us")
    assert tables.state(line, {"measured": {"triton_us": 30.0}}) == "ok"
    assert tables.state(line, {"measured": {"triton_us": word}}) == word


def test_every_shape_has_its_rows_and_lines():
    wanted = {(1, 5, 32000), (1, 5, 128256), (1, 20, 128256), (8, 5, 128256)}
    wanted |= {(64, 5, 32000), (64, 5, 128256), (64, 5, 256000), (1, 5, 50257)}
    wanted |= {(16, 5, 32000), (32, 8, 128256)}
    shapes = kernels.shapes()
    assert len(shapes) == 2 * (2 * 9 + 1)
    for row, name in shapes.items():
        batch, gamma, vocab, dtype = SHAPE.search(row).groups()
        sizes = int(batch), int(gamma), int(vocab)
        assert sizes in wanted and f"{sizes} {DTYPES[dtype]}" in name
        assert ("PyTorch" in name) == row.startswith("torch_")
    named = {line.row for line in kernels.lines()}
    assert {*shapes, "equality", "sanitizer", "capture"} == named
    for goal in kernels.expectations()["goals"]:
        for row, _ in [*goal.get("of", ()), *goal.get("under", ())]:
            assert row in ROWS
    for prediction in kernels.expectations()["predictions"]:
        assert prediction["row"] in ROWS


def test_rows_are_those_of_their_names():
    for name in ("b1_g5_v32000_f32", "b32_g8_v128256_bf16", "torch_b1_g5_v50257_bf16"):
        setting = configs.build(ROWS[name]).row.measurement.run.args[0]
        *named, dtype = SHAPE.search(name).groups()
        assert [setting.batch, setting.gamma, setting.vocab] == [*map(int, named)]
        assert setting.dtype == DTYPES[dtype]


def test_what_others_published_is_told_with_machine_and_work():
    told = kernels.peers()
    assert [str(it["value"]) for it in told] == ["27.2", "78.3", "17", "9 to 63"]
    assert all(all(it[name] for name in it) for it in told)
