"""A job of several processes writes the texts of one process, and a lost process is
named."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from specjax.measure import jsonl
from specjax.runtime import hosts
from tests import conftest
from tests.support import devices

ROOT, MESH = Path(__file__).resolve().parents[2], "data=2,model=2"
ROWS = f"""include 'gin_configs/runs/alpha.gin'
include 'gin_configs/checkpoints/bundled.gin'
include 'gin_configs/tasks/prompts.gin'
TARGET = %CODE_SMALL
DRAFT = 'bigram'
TASK = 'prompts.jsonl'
MESH = '{MESH}'
TOKENS = 32
NEW_TOKENS = 8
BATCH = 4
GAMMA = 2
ROWS = {{'greedy': {{'TEMPERATURE': 0.0}}, 'drawn': {{'TEMPERATURE': 1.0}}}}
"""
PROMPTS = ["def add(", "import ", "class A", "for i in"]


@contextlib.contextmanager
def start_processes(
    count: int, folder: Path, command: list[str], *more: dict
) -> Iterator[list]:
    """Starts `count` processes that have four devices in all; `more`: the environment
    of the last one. PORT,I,N stands for what each process is told of the others."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    own = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    own |= {"XLA_FLAGS": devices.device_flags(4 // count)}
    own |= {"JAX_COMPILATION_CACHE_DIR": str(conftest.CACHE)}
    own |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    processes = []
    for i in range(count):
        told = f"{address},{i},{count}" if count > 1 else ""
        words = [
            word.replace("PORT,I,N", told).replace("{i}", str(i)) for word in command
        ]
        out, err = (open(folder / f"{i}.{end}", "w") for end in ("out", "err"))
        env = own | (more[0] if more and i == count - 1 else {})
        begun = [sys.executable, "-m", *words]
        process = subprocess.Popen(begun, env=env, cwd=folder, stdout=out, stderr=err)
        processes.append(process)
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def error_output(folder: Path, process: int) -> str:
    return (folder / f"{process}.err").read_text()


def texts(count: int, folder: Path) -> list:
    folder.mkdir()
    command = ["tests.support.hosted", "PORT,I,N", MESH]
    with start_processes(count, folder, command) as processes:
        assert [process.wait(200) for process in processes] == [0] * count
    assert not any((folder / f"{i}.out").read_text() for i in range(1, count))
    return json.loads((folder / "0.out").read_text())


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_write_the_texts_of_one(count, tmp_path):
    one, several = (texts(n, tmp_path / str(n)) for n in (1, count))
    assert one == several and sum(one[1]) > 0


@pytest.fixture
def rows(tmp_path):
    lines = (json.dumps({"prompt": text}) for text in PROMPTS)
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines))
    (tmp_path / "pair.gin").write_text(ROWS)
    return ["specjax", "run", "pair.gin", "--distributed", "PORT,I,N", "--out", "out"]


def test_processes_that_differ_are_told_how(rows, tmp_path):
    other = tmp_path / "other" / "flax-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Name: flax\nVersion: 0.0.1\n")
    last = {"PYTHONPATH": f"{other.parent}:{ROOT}"}
    with start_processes(2, tmp_path, [*rows, "--gin.GAMMA=1{i}"], last) as processes:
        assert [process.wait(100) for process in processes] == [2, 2]
    for process in range(2):
        error = error_output(tmp_path, process).splitlines()[-1]
        assert "flax is 0.0.1 on process 1" in error
        assert "GAMMA of drawn is 11 on process 1" in error and "and 10 on" in error
        assert "VERIFIER" not in error and "Traceback" not in error_output(
            tmp_path, process
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victims", "number", "codes"),
    [
        ((1,), signal.SIGKILL, (1, -9)),
        ((0,), signal.SIGKILL, (-9, 1)),
        ((1,), signal.SIGSTOP, (1, None)),
        ((0,), signal.SIGSTOP, (None, 1)),
        ((0, 1), signal.SIGTERM, ((143, 1), (143, 1))),  # 1: the other was sooner
    ],
)
def test_a_lost_process_ends_the_others_and_the_command_goes_on(
    victims, number, codes, rows, tmp_path
):
    records = tmp_path / "out" / f"{tmp_path.name}.jsonl"
    with start_processes(2, tmp_path, rows) as processes:
        while not records.exists() or not jsonl.read(records):
            assert processes[0].poll() is None
            time.sleep(0.1)
        for victim in victims:
            processes[victim].send_signal(number)
        for i, (process, code) in enumerate(zip(processes, codes, strict=True)):
            if code is not None:
                assert process.wait(60) in np.atleast_1d(code)
            if code in (1, 143):
                assert "start the same command again to continue" in error_output(
                    tmp_path, i
                )
    (before,) = jsonl.read(records)
    with start_processes(2, tmp_path, rows) as processes:
        assert [process.wait(200) for process in processes] == [0, 0]
    out = (tmp_path / "0.out").read_text()
    assert out.count("kept") == 1 and out.count("measured in") == 1
    assert [record["row"] for record in jsonl.read(records)] == ["greedy", "drawn"]
    assert jsonl.read(records)[0] == before


def test_who_the_others_are_is_read(capsys):
    assert hosts.parse("[::1]:80,1,2") == ("[::1]:80", 2, 1)
    for wrong in ("here", "here:80", "here:80,2,2", ":80,0,1", "here:x,0,1"):
        with pytest.raises(ValueError, match=r"10\.0\.0\.1:1234,0,2"):
            hosts.parse(wrong)


def test_a_process_alone_moves_nothing():
    with hosts.join(None):
        assert hosts.is_first() and not hosts.is_distributed()
        assert hosts.broadcast([1.5]) == [1.5]
        hosts.check_agreement(lambda: 1 / 0)
