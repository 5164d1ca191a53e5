"""The GPU script's stages: skipped when done, picked by name, stopped by a failure."""

import os
import subprocess
from pathlib import Path

import pytest

from experiments.report import kernels
from tests.support import gin_rows

ROOT = Path(__file__).resolve().parents[4]
SCRIPT = ROOT / "experiments/gpu/run_all.sh"
ONCE = 7  # device, equality, default, sanitizer, capture, tune, pair


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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder in which everything ran, and what was printed."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(folder, "echo")


def test_finished_stages_are_not_run_again(whole):
    folder, first = whole
    assert first.returncode == 0, first.stderr
    assert "experiments.training.paper_pair --out" in first.stdout
    assert "gin_configs/table3_paper/gpt.gin:gpt_small_t1\n" in first.stdout
    assert {outcome.split()[0] for outcome in outcomes(first).values()} == {"ok"}
    again = run(folder, "echo")
    assert started(again) == [
        f"-m experiments.{name} {folder / 'results'}"
        for name in ("report.page", "gpu.kernels.default")
    ]
    before = list(outcomes(again).values()).count("done before")
    assert before == len(outcomes(first)) - 1


def test_every_row_has_a_stage_and_a_time_limit(whole):
    _, done = whole
    lines = "\n".join(started(done))
    names = "kernels", "chip", "wagner_time", "wagner_text", "wagner_scale"
    rows = gin_rows.every(*names).values()
    for row in rows:
        place = row._replace(path=row.path.relative_to(ROOT))
        assert lines.count(f"{place}\n") == 1, row
    papers = gin_rows.every("table2_paper", "table3_paper")
    pairs = [name for name in papers if "/gpt_" in name]
    assert len(started(done)) == ONCE - 3 + len(rows) + len(pairs) + 2
    assert outcomes(done)["page"].startswith("ok")


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


def test_a_stage_that_takes_too_long_is_stopped(tmp_path):
    slow = run(tmp_path, command(tmp_path, "exec sleep 20"), LIMIT="1")
    assert slow.returncode == 124
    assert outcomes(slow)["device"].startswith("stopped after")


def test_stages_are_picked_by_name(tmp_path):
    picked = run(tmp_path, "echo", STAGES="table3")
    assert outcomes(picked)["pair"] == "not asked for"
    assert all(
        "gin_configs/table3_paper/gpt.gin:gpt_" in line for line in started(picked)
    )
    assert len(started(picked)) == 6


def test_without_text_the_stages_that_read_it_say_so(tmp_path):
    names = "pair", "table3", "table2"
    done = run(tmp_path, "echo", "", str(tmp_path / "results"), STAGES=" ".join(names))
    assert done.returncode == 0, done.stderr
    for name in names:
        assert outcomes(done)[name] == "skipped: no TEXT_FOLDER was named"
    assert not started(done)


def test_what_cannot_run_is_skipped_and_leaves_no_mark(tmp_path):
    lacking = command(tmp_path, '[ "$1" = -c ] && exit 1; echo "$@"')
    done = run(tmp_path, lacking, STAGES="sanitizer torch", PATH="/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert outcomes(done)["sanitizer"].startswith("skipped: compute-sanitizer")
    assert outcomes(done)["torch"].startswith("skipped: ") and not started(done)
    again = run(tmp_path, "echo", STAGES="sanitizer torch")
    assert "done before" not in again.stdout and len(started(again)) == 20


def test_goals_are_told_at_the_end(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    shown = (ROOT / "results/kernels.md").read_text("utf-8")
    (results / "kernels.md").write_text(shown, "utf-8")
    done = run(tmp_path, "echo", STAGES="page")
    goals = [line for line in done.stdout.splitlines() if line.startswith("goal ")]
    assert len(goals) == len(kernels.expectations()["goals"])
    assert goals[4] == "goal 3, time (<= 15): unmeasured"
    met = shown.replace("8 to 14 | unmeasured | unmeasured |", "8 to 14 | 12 | met |")
    (results / "kernels.md").write_text(met, "utf-8")
    done = run(tmp_path, "echo", STAGES="page")
    assert "goal 3, time (<= 15): 12, met\n" in done.stdout


def test_an_implementation_is_left_out_of_the_kernels_alone(tmp_path):
    done = run(tmp_path, "echo", STAGES="kernels torch", SKIP="triton mosaic_gpu")
    setting = "--set SKIP = ('triton', 'mosaic_gpu',)"
    for line in started(done):
        assert (setting in line) == ("shapes.gin:b" in line), line


def test_a_dry_run_is_one_small_row_of_everything_on_a_cpu(tmp_path):
    echo = command(tmp_path, 'echo "-m $JAX_PLATFORMS $*"')
    done = run(tmp_path, echo, "", "", DRY="1", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = started(done)
    assert all(line.startswith("-m cpu ") for line in lines)
    rows = [line for line in lines if "experiments.run" in line]
    folders = [line.split("gin_configs/")[1].split("/")[0] for line in rows]
    others = ["wagner_scale", "wagner_text", "wagner_time", "chip"]
    others += ["table3_paper", "table2_paper"]
    assert folders == ["kernels"] * 5 + others
    assert all(str(tmp_path) in line for line in rows)
    assert not any("--out results" in line for line in lines)
    (pair,) = (line for line in lines if "paper_pair --out" in line)
    assert "--tiny --steps 4 --text README.md" in pair and str(tmp_path) in pair
    for row in rows[-2:]:
        assert f"sides.model.name = '{tmp_path}" in row
    for row in rows:  # by the kernels that are the default
        assert ("KERNELS = 'auto'" in row) == ("gin_configs/kernels" not in row)
    trial = next(line for line in rows if "shapes.gin:b1_g5_v32000_f32" in line)
    assert "--set DRY = True" in trial
