"""The GPU script's stages: skipped when done, picked by name, stopped by a failure."""

import os
import re
import subprocess
from pathlib import Path

from experiments.records import records
from experiments.report import kernels

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "experiments/gpu/run_all.sh"
ONCE = 7  # device, equality, default, sanitizer, capture, tune, pair
FETCHED = 13  # a model, and a row of each task of questions at each temperature


def run(folder: Path, python: str, *folders: str, **environment: str):
    tool = folder / "bin" / "compute-sanitizer"
    tool.parent.mkdir(exist_ok=True)
    tool.touch(0o755)
    path = f"{tool.parent}:{os.environ['PATH']}"
    own = {"RUNS": str(folder / "runs"), "PYTHON": python, "PATH": path, **environment}
    folders = folders or (str(folder), str(folder / "results"))
    return subprocess.run(
        ["bash", str(SCRIPT), *folders],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
    )


def command(folder: Path, text: str) -> str:
    """A program that stands for Python."""
    path = folder / "stand_in"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def started(done) -> list[str]:
    """Commands that were run, as `echo` shows them."""
    return [line for line in done.stdout.splitlines() if line.startswith("-m ")]


def outcomes(done) -> dict[str, str]:
    last = done.stdout.partition("== stages and outcomes")[2].splitlines()[1:]
    return dict(line.split(": ", 1) for line in last)


def test_every_row_has_a_stage_and_finished_ones_are_not_run_again(tmp_path):
    models = {"MODELS": str(tmp_path)}
    first = run(tmp_path, "echo", **models)
    assert first.returncode == 0, first.stderr
    lines = "\n".join(started(first))
    names = "kernels", "chip", "wagner_time", "wagner_text", "wagner_scale"
    rows = [row for name in names for row in records.rows(name).values()]
    for row in rows:
        place = row._replace(path=row.path.relative_to(ROOT))
        assert lines.count(f"{place}\n") == 1, row
    papers = (records.rows(name) for name in ("table2_paper", "table3_paper"))
    pairs = [name for rows in papers for name in rows if name.startswith("gpt_")]
    assert len(started(first)) == ONCE - 3 + len(rows) + len(pairs) + 2 + FETCHED
    assert {outcome.split()[0] for outcome in outcomes(first).values()} == {"ok"}
    again = run(tmp_path, "echo", **models)
    names = ("report.page", "gpu.kernels.default")
    wanted = [f"-m experiments.{name} {tmp_path / 'results'}" for name in names]
    assert started(again) == wanted
    before = list(outcomes(again).values()).count("done before")
    assert before == len(outcomes(first)) - 1


def test_a_failed_stage_stops_and_alone_is_tried_again(tmp_path):
    first = "device", "equality.kernels.equality", "default"
    last, stages = "sanitizer.kernels.sanitizer", "device equality default sanitizer"
    broken = command(tmp_path, 'case "$*" in *sanitizer*) exit 3;; esac; echo "$@"')
    failed = run(tmp_path, broken, STAGES=f"{stages} capture")
    assert failed.returncode == 3
    assert list(outcomes(failed)) == [*first, last]
    assert outcomes(failed)[last].startswith("FAILED (3)")
    again = run(tmp_path, "echo", STAGES=stages)
    assert again.returncode == 0
    assert [outcomes(again)[name] for name in first] == ["done before"] * 3
    assert outcomes(again)[last].startswith("ok")
    slow = run(
        tmp_path, command(tmp_path, "exec sleep 20"), STAGES="capture", LIMIT="1"
    )
    assert slow.returncode == 124
    assert any(told.startswith("stopped after") for told in outcomes(slow).values())


def test_stages_are_picked_by_name_and_what_cannot_run_leaves_no_mark(tmp_path):
    picked = run(tmp_path, "echo", STAGES="table3")
    assert outcomes(picked)["pair"] == "not asked for"
    place = "gin_configs/table3_paper/gpt.gin:gpt_"
    assert [place in line for line in started(picked)] == [True] * 6
    names = "pair", "table3", "table2"
    done = run(tmp_path, "echo", "", str(tmp_path / "a"), STAGES=" ".join(names))
    assert done.returncode == 0 and not started(done)
    told = {outcomes(done)[name] for name in names}
    assert told == {"skipped: no TEXT_FOLDER was named"}
    lacking = command(tmp_path, '[ "$1" = -c ] && exit 1; echo "$@"')
    done = run(tmp_path, lacking, STAGES="sanitizer torch", PATH="/usr/bin:/bin")
    assert done.returncode == 0 and not started(done)
    assert outcomes(done)["sanitizer"].startswith("skipped: compute-sanitizer")
    assert outcomes(done)["torch"].startswith("skipped: ")
    again = run(tmp_path, "echo", STAGES="sanitizer torch")
    assert "done before" not in again.stdout and len(started(again)) == 20


def test_an_implementation_is_left_out_of_the_kernels_and_goals_are_told(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    shown = (ROOT / "results/kernels.md").read_text("utf-8")
    shown, count = re.subn(
        r"8 to 14 \| [^|]+ \| \w+ \|", "8 to 14 | 12 | met |", shown, count=1
    )
    assert count == 1
    (results / "kernels.md").write_text(shown, "utf-8")
    stages = "kernels torch page"
    done = run(tmp_path, "echo", STAGES=stages, SKIP="triton mosaic_gpu")
    setting = "--set SKIP = ('triton', 'mosaic_gpu',)"
    for line in started(done):
        assert (setting in line) == ("shapes.gin:b" in line), line
    goals = [line for line in done.stdout.splitlines() if line.startswith("goal ")]
    assert len(goals) == len(kernels.expectations()["goals"])
    assert goals[4] == "goal 3, time (<= 15): 12, met"


def test_a_dry_run_is_one_small_row_of_everything_on_a_cpu(tmp_path):
    echo = command(tmp_path, 'echo "-m $JAX_PLATFORMS $*"')
    done = run(tmp_path, echo, "", "", DRY="1", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = started(done)
    assert all(line.startswith("-m cpu ") for line in lines)
    rows = [line for line in lines if "experiments.run" in line]
    folders = {line.split("gin_configs/")[1].split("/")[0] for line in rows}
    names = {"kernels", "wagner_scale", "wagner_text", "wagner_time", "chip"}
    assert folders == names | {"table3_paper", "table2_paper"} and len(rows) == 11
    assert all(str(tmp_path) in line for line in rows)
    assert not any("--out results" in line for line in lines)
    (pair,) = (line for line in lines if "paper_pair --out" in line)
    assert "--tiny --steps 4 --text README.md" in pair and str(tmp_path) in pair
    for row in rows:  # by the kernels that are the default
        assert ("KERNELS = 'auto'" in row) == ("gin_configs/kernels" not in row)
    trial = next(line for line in rows if "shapes.gin:b1_g5_v32000_f32" in line)
    assert "--set DRY = True" in trial
