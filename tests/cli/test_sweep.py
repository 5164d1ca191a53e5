"""Rows are run as tasks: when workers die, rows fail or the command is stopped, nothing
is lost and nothing is measured twice."""

import json
import shutil
import sys
from importlib.util import find_spec

import pytest

from specjax.cli import sweep, workers
from specjax.configs import RowFile
from specjax.measure import jsonl
from specjax.runtime import console
from tests.cli.test_decode import Dying

GRID = """include 'gin_configs/runs/table1.gin'
GAMMA = 2
ROWS = {'slow': {'ALPHA': 0.6}, 'fast': {'ALPHA': 0.8}, 'wrong': {'ALPHA': 2.0}}
"""
# What a worker does to a row, told by its name; a line in `ran` each time it begins.
WORKER = """
import json, os, pathlib, signal, sys
name, ran, part = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
begun = ran.read_text().split() if ran.exists() else []
if part.exists():
    sys.exit(0)
ran.open("a").write(name + "\\n")
if name == "wrong":
    sys.exit("no such thing")
if name == "idle":
    sys.exit(0)
if name == "hit" and name not in begun or name == "doomed":
    os.kill(os.getpid(), signal.SIGKILL)
part.parent.mkdir(parents=True)
record = {"row": name, "table": "t", "measured": {"x": 1}, "provenance": {}}
part.write_text(json.dumps(record) + "\\n")
"""


@pytest.fixture
def rows(tmp_path, monkeypatch):
    def command(row, out):
        part = out / "t.jsonl"
        return [sys.executable, "-c", WORKER, row.row, str(tmp_path / "ran"), str(part)]

    monkeypatch.setattr(sweep, "command", command)
    monkeypatch.setattr(workers, "POLL", 0)
    path = tmp_path / "t" / "t.gin"
    names = "calm", "hit", "wrong", "doomed"
    return {name: RowFile(path, row=name) for name in names}


def test_a_row_survives_its_worker_and_others_a_row(rows, tmp_path, capsys):
    tasks = sweep.Tasks(Dying(0), tmp_path / "out")
    out, every = tmp_path / "out" / "t.jsonl", [*rows.values()]
    ends = {name: end for name, *end in sweep.measure_rows(tasks, every, 2)}
    assert {name for name, (_, good) in ends.items() if good} == {"t/calm", "t/hit"}
    assert ends["t/wrong"][0] == "no such thing"
    doomed = "3 workers died in turn (killed by signal 9)"
    assert ends["t/doomed"][0] == doomed
    assert "killed by signal 9" in capsys.readouterr().out
    records = jsonl.read(out)
    assert sorted(record["row"] for record in records) == ["calm", "hit"]
    assert all(record["provenance"]["host"] for record in records)
    # Again: what is there goes along and is kept, whoever measured it.
    before, ran = out.read_bytes(), (tmp_path / "ran").read_text().split()
    assert sorted(ran) == ["calm", "doomed", "doomed", "doomed", "hit", "hit", "wrong"]
    ends = [*sweep.measure_rows(tasks, [rows["calm"], rows["hit"]], 1)]
    assert [said for _, said, _ in ends] == ["kept", "kept"]
    assert out.read_bytes() == before
    assert (tmp_path / "ran").read_text().split() == ran


def test_a_worker_that_leaves_nothing_has_no_record(rows, tmp_path):
    tasks = sweep.Tasks(Dying(0), tmp_path / "out")
    ends = [*sweep.measure_rows(tasks, [rows["calm"]._replace(row="idle")], 1)]
    assert ends == [("t/idle", "its worker wrote no record", False)]


def test_a_stopped_sweep_ends_its_workers_and_takes_over_what_they_left(rows, tmp_path):
    tasks = sweep.Tasks(Dying(0), tmp_path / "out")
    every = [rows["calm"], rows["hit"]]
    going = sweep.measure_rows(tasks, every, 2)
    assert next(going)[2]
    going.close()  # as Ctrl-C does, between two rows
    ends = [*sweep.measure_rows(tasks, every, 2)]
    assert [good for *_, good in ends] == [True, True]
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(ran) == ["calm", "hit", "hit"]  # once killed; neither is done twice


def test_a_copy_that_a_stopped_sweep_left_is_not_a_new_record(rows, tmp_path):
    tasks = sweep.Tasks(Dying(0), tmp_path / "out")
    assert [good for *_, good in sweep.measure_rows(tasks, [rows["calm"]], 1)] == [True]
    tasks.begin(rows["calm"])  # and then it is stopped
    assert tasks.part_path(rows["calm"]).exists()
    ends = [*sweep.measure_rows(tasks._replace(again=True), [rows["calm"]], 1)]
    assert [good for *_, good in ends] == [True]
    assert (tmp_path / "ran").read_text().split() == ["calm", "calm"]


def test_a_damaged_file_of_records_is_told_before_any_row_is_measured(
    tmp_path, refused, monkeypatch
):
    monkeypatch.setattr(workers, "make_launcher", None)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "t.gin").write_text(GRID)
    (tmp_path / "t.jsonl").write_text('{"row": "slow"}\n{"row"\n{"row": "fast"}\n')
    said = refused(sweep.main, [tmp_path / "t", "--out", tmp_path])
    assert f"{tmp_path}/t.jsonl, line 2: not a record" in said


def test_what_cannot_be_swept_is_one_line(tmp_path, refused):
    (tmp_path / "empty").mkdir()
    for asked, said in (
        ([tmp_path / "empty"], "has no .gin files"),
        ([tmp_path / "none.gin"], "none.gin"),
    ):
        assert said in refused(sweep.main, [*asked, "--out", tmp_path])
    if find_spec("submitit") and shutil.which("sbatch") is None:
        (tmp_path / "t").mkdir()
        (tmp_path / "t" / "t.gin").write_text(GRID)
        flags = [tmp_path / "t", "--on", "slurm", "--out", tmp_path]
        assert "no sbatch" in refused(sweep.main, flags)


@pytest.mark.slow
def test_rows_are_measured_by_processes_of_their_own(tmp_path, capsys):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "grid.gin").write_text(GRID)
    argv = [str(tmp_path / "table"), "--out", str(tmp_path / "out"), "--workers", "2"]
    assert sweep.main(argv) == 1
    records = jsonl.read(tmp_path / "out" / "table.jsonl")
    assert sorted(record["row"] for record in records) == ["fast", "slow"]
    assert "alpha" in capsys.readouterr().out  # what is wrong with the third
    assert sweep.main(argv) == 1
    assert jsonl.read(tmp_path / "out" / "table.jsonl") == records
    assert capsys.readouterr().out.count(": kept") == 2
    assert json.dumps(records)


def test_a_worker_that_is_told_to_stop_is_lost_whatever_a_scheduler_asks(monkeypatch):
    monkeypatch.setenv(console.PREEMPTED, "0")
    told = "import os; from specjax.runtime import console"
    told += "; raise SystemExit(console.termination_code())"
    assert sweep.work([sys.executable, "-c", told])[0] in workers.KILLED
