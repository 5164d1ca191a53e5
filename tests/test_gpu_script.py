"""The GPU script's stages: skipped when done, picked by name, stopped by a failure."""

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "experiments/gpu/run_all.sh"


def run(folder: Path, python: str, **environment: str) -> subprocess.CompletedProcess:
    own = {"RUNS": str(folder / "runs"), "PYTHON": python, **environment}
    return subprocess.run(
        ["bash", str(SCRIPT), str(folder), str(folder / "results")],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
    )


def test_finished_stages_are_not_run_again(tmp_path):
    first = run(tmp_path, "echo")
    assert first.returncode == 0, first.stderr
    assert "experiments.gpu.paper_pair --out" in first.stdout
    assert "gin_configs/table3_paper/gpt_small_t1.gin" in first.stdout
    again = run(tmp_path, "echo")
    assert again.stdout.count("done before") == first.stdout.count("== ")
    assert "paper_pair --out" not in again.stdout


def test_a_failed_stage_stops_and_is_tried_again(tmp_path):
    assert run(tmp_path, "false").returncode != 0
    again = run(tmp_path, "echo")
    assert again.returncode == 0
    assert "done before" not in again.stdout


def test_stages_are_picked_by_name(tmp_path):
    picked = run(tmp_path, "echo", STAGES="table3")
    assert "pair: not asked for" in picked.stdout
    assert "experiments.run" in picked.stdout


def test_the_text_folder_must_be_named():
    done = subprocess.run(["bash", str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode != 0
    assert "usage" in done.stderr
