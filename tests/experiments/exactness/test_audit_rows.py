"""The rows of the audit's table, the command `specjax audit`, and what both refuse."""

import json

import numpy as np
import pytest
import scipy.stats

from experiments import catalogue, tasks
from experiments.exactness import faults
from specjax import sides, verifiers
from specjax.cli import audit as command
from specjax.cli import flags
from specjax.exactness import audit, audit_row
from specjax.pretrained import Pretrained
from specjax.verifiers import lenient
from tests.support.audit_samples import PROMPTS, TASK, groups, pair, sampled

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def prompts(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "tiny", lambda: tasks.Task(PROMPTS, [], ()))


def built(pair, protocol, fault=None):
    return audit_row.audit(*pair, protocol, tasks.of, fault)


def test_a_row_is_plain_numbers():
    row = built(pair(), TASK._replace(tokens=2000)).run()
    assert json.loads(json.dumps(row, allow_nan=False)) == json.loads(json.dumps(row))
    assert row["passed"] and row["max_z"] == max(map(abs, row["z"].values()))
    assert row["guarantee"] == "exact law" and row["fault"] == ""
    assert 0 < row["accepted"] < row["tested"]
    assert row["kernels"]["verify"] == "reference"
    fault = built(pair(), TASK, faults.reused_key).run()
    assert fault["fault"] == "reused key"
    assert not fault["passed"] and fault["guarantee"] == "none: broken on purpose"


def test_the_note_says_how_often_a_score_is_as_large():
    table = catalogue.named("audit")
    for share, z in ((0.05, "2.6"), (audit.LEVEL, "4.3")):
        assert f"{scipy.stats.norm.isf(share / 2 / len(audit.NAMES)):.1f}" == z
        assert f"above {z} one time in {1 / share:,.0f}" in table.note
    assert {line.quantity for line in table.lines} == {"max_z"}
    assert all(line.published is None for line in table.lines)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: built(pair(), TASK._replace(rule="hope")), "no rule 'hope'"),
        (lambda: built(pair(), TASK._replace(policy="hope")), "no policy 'hope'"),
        (
            lambda: built(pair(), TASK._replace(gamma=0), faults.reused_key),
            "gamma to at least 1",
        ),
        (
            lambda: built(pair(), TASK._replace(rule="match"), faults.reused_key),
            "use token",
        ),
        (
            lambda: built((pair()[0], sides.random(4)), TASK, faults.draft_temperature),
            "name a model",
        ),
        (lambda: audit.judge(audit.total(groups(5, 40, 2, 600)[0]), 0), "level and"),
        (lambda: audit.limits(audit.Sums(0, 0, 0, *np.zeros((4, 5)))), "no tokens"),
    ],
)
def test_bad_arguments_are_named(wrong, text):
    with pytest.raises(ValueError, match=text):
        wrong()


def test_laws_that_are_no_numbers_are_named():
    lost = sides.of_model("lost", pair()[0].model, pair()[0].params * np.nan)
    with pytest.raises(ValueError, match="lost or draft gives probabilities"):
        audit.score((lost, pair()[1]), sampled(pair()[0], 2, 5, 0), 1.0)


FAST = "--tokens 120 --length 30 --batch 4 --gamma 2".split()


@pytest.fixture
def named(monkeypatch):
    model, params = pair()[0].model, pair()[0].params
    whole = Pretrained("target", None, model, params, "float32", (), 1, (2,), None)
    known = pair()[0]._replace(pretrained=whole), pair()[1]
    monkeypatch.setattr(flags, "pair", lambda names, dtype: known)
    return ["--target", "target", "--draft", "draft", *FAST]


def test_the_command_says_what_it_found(named, capsys, monkeypatch):
    assert command.main(named) == 0
    text = capsys.readouterr().out
    for word in ("rule token (exact law)", "surprisal", "never an alarm", "passed at"):
        assert word in text
    assert command.main([*named, "--temperature", "0"]) == 0
    assert "cannot vary" in capsys.readouterr().out
    monkeypatch.setattr(verifiers, "named", lambda name: lenient.build(0.01))
    assert command.main([*named, "--tokens", "3000", "--batch", "100"]) == 1
    assert "FAILED at level" in capsys.readouterr().out
