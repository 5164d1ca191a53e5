"""The canary compares speeds under equal conditions and detects a change."""

import re

import pytest

from experiments.canary import __main__ as command


def seconds(**changed):
    same = {"alone": 2.0, "drafted": 1.0, "target_1": 0.1, "target_6": 0.12}
    return [same | {"draft_1": 0.01} | changed] * 3


def test_a_change_is_told_with_its_sign():
    rows, warnings = command.compare(seconds(), seconds())
    assert {row[-1] for row in rows} == {"+0.0 %"} and warnings == []
    assert [row[1] for row in rows[:3]] == ["0.1000", "1.2", "2"]
    _, warnings = command.compare(seconds(), seconds(drafted=1.25))
    assert warnings[0] == "warning: speed changed by -20.0 %"
    _, warnings = command.compare(seconds(), seconds(target_6=0.135))
    assert warnings == ["warning: v(5) changed by +12.5 %"]


def test_what_is_no_commit_is_named(capsys):
    with pytest.raises(SystemExit):
        command.main(["nothing"])
    assert "no commit and no wheel nothing" in capsys.readouterr().err


@pytest.mark.slow
def test_both_sides_are_timed(capsys):
    flags = "HEAD --seconds 2 --pair code_small code_small"
    assert command.main(flags.split()) in (0, 1)
    assert re.search(r"^v\(5\) ", capsys.readouterr().out, re.MULTILINE)
