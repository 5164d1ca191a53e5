"""The microscope's command prints what differs and fails; its rows fill their lines."""

import functools

import jax
import numpy as np
import pytest

from experiments import run
from experiments.exactness import microscope as row
from experiments.exactness import microscope_table
from experiments.report import tables
from specjax.bench import players
from specjax.commands import microscope
from specjax.exactness import divergence
from specjax.exactness.divergence import Found, Report
from specjax.exactness.rungs import Oracle, Rung
from tests.verifiers.test_numerics import table_pair

pytestmark = pytest.mark.slow

GOOD = Rung(4, 4, 0, 0, 64, 0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
APART = GOOD._replace(identical=3, explained=1, equal=0.5, eps_max=2e-5)
FOUND = Found(4, GOOD, APART, Oracle(64, 0, 1e-5))
REPORT = Report(np.linspace(0, 1, 64), [FOUND])
WRONG = {
    "unexplained in natural": FOUND._replace(natural=APART._replace(unexplained=2)),
    "unexplained in matched": FOUND._replace(matched=APART._replace(unexplained=2)),
    "below the full": FOUND._replace(oracle=Oracle(64, 1, 1e-5)),
}
STRICT = {
    "differ in matched": FOUND._replace(matched=APART),
    "not what their logits": FOUND._replace(natural=APART._replace(lost=3)),
}


@pytest.mark.parametrize("strict", [True, False])
def test_what_fails(strict):
    assert divergence.failures(FOUND, strict) == []
    for message, rung in (WRONG | STRICT).items():
        failed = divergence.failures(rung, strict)
        assert any(message in line for line in failed) == (strict or message in WRONG)


@pytest.fixture
def models_read_once(monkeypatch):
    monkeypatch.setattr(players, "model", read_once)


read_once = functools.cache(players.model)


def run_command(monkeypatch, rung: Found) -> int:
    """The command, with this in the place of what is measured."""
    report = Report(np.linspace(0, 1, 64), [rung])
    monkeypatch.setattr(microscope, "look", lambda *_: report)
    return microscope.main(["--dtype", "float32"])


def test_the_command_prints_and_fails(models_read_once, monkeypatch, capsys):
    assert run_command(monkeypatch, FOUND) == 0
    printed = capsys.readouterr().out
    assert "code_9m with code_05m, float32" in printed and "2.0e-05" in printed
    assert "Nothing differs by more" in printed and "Not a CPU" not in printed
    for wrong, rung in (WRONG | STRICT).items():
        assert run_command(monkeypatch, rung) == 1
        assert wrong in capsys.readouterr().out
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for rung in STRICT.values():
        assert run_command(monkeypatch, rung) == 0
        assert "Not a CPU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--target t5_target --draft t5_small", "name its inputs with --data"),
        ("--target absent", "no checkpoint at 'absent'"),
        ("--target bigram", "only drafts"),
        ("--draft t5_small", "one tokenizer"),
        ("--batch 3", "16 texts do not fill batches of 3"),
        ("--data absent.jsonl", "absent.jsonl"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    models_read_once, flags, message, capsys
):
    with pytest.raises(SystemExit) as stopped:
        microscope.main(flags.split())
    printed = capsys.readouterr().err.strip()
    assert stopped.value.code == 2 and message in printed and "\n" not in printed


def test_a_row_fills_its_lines():
    numbers = row.numbers(REPORT)
    assert numbers["identical_percent"] == 75
    assert numbers["matched_percent"] == numbers["matched_percent_g4"] == 100
    assert numbers["explained"] == 1 and numbers["unexplained"] == 0
    assert numbers["eps_max"] == numbers["eps_max_g4"] == 2e-5
    assert numbers["margin_min"] <= numbers["margin_10%"] <= numbers["margin_50%"]
    table = microscope_table.microscope()
    assert {line.quantity for line in table.lines} <= set(numbers)
    assert all(cells[-1] == "not run" for cells in tables.rows(table, {}))


def test_every_row_of_the_table_is_a_file():
    files = sorted((run.ROOT / "gin_configs" / "microscope").glob("*.gin"))
    lines = microscope_table.microscope().lines
    assert {path.stem for path in files} == {line.row for line in lines}
    for path in files:
        measurement = run.build(path).row.measurement
        assert measurement.module == "experiments.exactness.microscope"
        assert path.stem.endswith(measurement.dtype)
        assert f"gin_configs/microscope/{path.name}" in path.read_text()


def test_gammas_are_lines_of_their_own():
    numbers = row.numbers(REPORT) | {"target": "p", "draft": "q"}
    record = {"measured": numbers, "provenance": {"dtype": "bfloat16"}}
    (cells,) = microscope_table.by_gamma({"halves": record})
    assert len(cells) == len(microscope_table.HEAD)
    assert cells[:3] == ["p with q, bfloat16", "4", "100 %"]


def test_a_row_refuses_sizes_that_mean_nothing():
    with pytest.raises(ValueError, match="gammas must be at least 1"):
        row.build(*table_pair(), "code", (), 4, 4)
