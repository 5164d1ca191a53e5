"""Lines of walltime: speeds are of the record's seconds, what is absent says so."""

import pytest

from experiments import catalogue
from experiments.report import tables, walltime
from experiments.report.walltime import BEFORE, LAWLESS
from specjax.theory import speedup
from tests.support.claim_records import record
from tests.theory.test_speedup import row

STORED = 9.87  # what a record says and its seconds do not


def new(**changes):
    """`measured` whose seconds tell its speeds, and whose speeds are wrong."""
    it = row() | {"target": "code_target", "draft": "code_small", "temperature": 0.0}
    it |= {"batch": 1, "alpha_se": 0.01, "tokens": 384, "c_ci": [None, [0, 1], [0, 1]]}
    it |= {"v_ci": [[1, 1]] * 3, "predicted_steps": it["steps"]}
    it |= {"predicted_tokens_per_call": [1.25] * 3} | speedup.speedup_from(it)
    it |= {"speedup": [STORED] * 3, "predicted": [STORED] * 3}
    return it | {"best_speedup": STORED, "best_predicted": STORED} | changes


def before():
    """`measured` of a record that keeps no seconds and whose prediction was none."""
    it = new(fitted=[1, 3], inside=None)
    it |= {"speedup": [1.0, 1.5, 2.0], "speedup_ci": [[1, 1], [1.4, 1.6], [1.9, 2.1]]}
    it |= {"best_speedup": 2.0, "best_speedup_ci": [1.9, 2.1], "overhead": [STORED] * 3}
    lost = "timed", "chosen_on", "prompts", "predicted_ci", "expected_tokens_per_call"
    return {name: value for name, value in it.items() if name not in lost}


def lines(measured):
    """Cells of both kinds of tables, by the columns' names."""
    stored = record("table2", "small_t0_b1", walltime.current(measured))
    records = {"table2": {"small_t0_b1": stored}}
    (_, head, (best,)), *_ = walltime.in_the_papers_shape(records)
    (_, _, (pair,)), (_, heads, every) = walltime.every_gamma("table2", records)
    assert len(every) == 3 and pair[-2] == best[head.index("EMP [95 %]")]
    return dict(zip(head, best, strict=True)), [
        dict(zip(heads, cells, strict=True)) for cells in every
    ]


def test_speeds_and_predictions_are_those_of_the_seconds():
    best, every = lines(new())
    wanted = speedup.speedup_from(row())
    for at, line in enumerate(every):
        speed, *_, high = line["EMP [95 %]"].replace("]", "").split(" ")
        assert float(speed) == pytest.approx(wanted["speedup"][at], rel=1e-3)
        assert float(high) == pytest.approx(wanted["speedup_ci"][at][1], rel=1e-3)
    assert every[0]["predicted speed [95 %]"] == "baseline"
    assert best["predicted [95 %]"] == every[2]["predicted speed [95 %]"]
    assert best["chosen on"] == "6 others"
    assert not any("9.87" in cell for line in (best, *every) for cell in line.values())


def test_an_old_record_shows_its_interval_as_recorded_and_no_prediction():
    best, every = lines(before())
    assert best["EMP [95 %]"] == "2 [1.9, 2.1] as recorded"
    assert best["predicted [95 %]"] == every[1]["predicted speed [95 %]"] == BEFORE
    assert best["chosen on"] == "the same texts"
    assert float(best["overhead"]) == pytest.approx(0.2, abs=0.02)
    assert not any("9.87" in cell for line in (best, *every) for cell in line.values())
    assert walltime.current({"alpha": 0.5}) == {"alpha": 0.5}


def line_of(measured, quantity):
    stored = record("table2", "small_t0_b1", walltime.current(measured))
    records = {"table2": {"small_t0_b1": stored}}
    (line,) = [
        line
        for line in catalogue.named("table4").lines
        if (line.row, line.quantity) == ("small_t0_b1", quantity)
    ]
    cells = tables.cells(line, records)
    return cells[tables.HEAD.index("ours")], cells[tables.HEAD.index("state")]


def test_a_line_without_a_number_says_why_and_is_not_ok():
    lawless = new()
    lawless["timed"]["others"]["expected_steps"] = None
    assert line_of(lawless, "best_predicted") == (LAWLESS, LAWLESS)
    assert line_of(before(), "best_predicted") == (BEFORE, BEFORE)
    assert line_of(new(), "best_predicted")[1] == "ok"
