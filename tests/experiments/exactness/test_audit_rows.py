"""The rows of the audit's table, the command `specjax audit`, and what both refuse."""

import json

import numpy as np
import pytest
import scipy.stats

from experiments import catalogue, tasks
from experiments.exactness import faults
from specjax import sides
from specjax.cli import audit as command
from specjax.exactness import audit, audit_row
from tests.support.audit_samples import PROMPTS, TASK, groups, pair, sampled

pytestmark = pytest.mark.slow


def built(pair, protocol, fault=None):
    known = tasks.Task(PROMPTS, [], ())
    return audit_row.audit(*pair, protocol, lambda *_: known, fault)


def test_a_row_is_plain_numbers():
    row = built(pair(), TASK._replace(tokens=2000)).run()
    json.dumps(row, allow_nan=False)
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


BAD = [
    ({"gamma": 0, "fault": faults.reused_key}, "gamma to at least 1"),
    ({"rule": "match", "fault": faults.reused_key}, "use token"),
    ({"draft": sides.random(4), "fault": faults.draft_temperature}, "name a model"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments_are_named(change, message):
    sizes = {name: x for name, x in change.items() if name in TASK._fields}
    draft, fault = change.get("draft", pair()[1]), change.get("fault")
    with pytest.raises(ValueError, match=message):
        built((pair()[0], draft), TASK._replace(**sizes), fault)


def test_what_cannot_be_judged_is_named():
    with pytest.raises(ValueError, match="level and"):
        audit.judge(audit.total(groups(5, 40, 2, 600)[0]), 0)
    with pytest.raises(ValueError, match="no tokens"):
        audit.limits(audit.Sums(0, 0, 0, *np.zeros((4, 5))))
    lost = sides.of_model("lost", pair()[0].model, pair()[0].params * np.nan)
    with pytest.raises(ValueError, match="lost or draft gives probabilities"):
        audit.score((lost, pair()[1]), sampled(pair()[0], 2, 5, 0), 1.0)


def test_the_command_says_what_cannot_be_seen(capsys):
    """A text that was drawn, against argmax; what else it says is asked of families."""
    text = sampled(pair()[0], 4, 20, 0)
    steps = audit.score(pair(), text, 0.0)
    verdict = audit.judge(audit.total(steps))
    command.report(verdict, audit.evidence(steps)[0], audit.LEVEL)
    printed = capsys.readouterr().out
    for word in ("cannot vary", "alarm after", "without freedom", "FAILED at level"):
        assert word in printed
