"""Lines of walltime: what was fitted is not a prediction, what is absent says so."""

import pytest

from experiments.leviathan import walltime_table
from experiments.report import tables, walltime_tables
from experiments.report.walltime_tables import BEFORE, FITTED, LAWLESS
from specjax.bench import inside
from tests.bench.test_inside import GAMMAS, TWO, row
from tests.support.claim_records import record

STORED = 9.87  # a prediction that a record from before holds


def before(best=5, **changes):
    """`measured` from before: its prediction was of steps measured at the gamma."""
    count = len(GAMMAS)
    it = row() | {"target": "code_target", "draft": "code_small", "temperature": 0.0}
    it |= {"alpha": 0.7, "alpha_se": 0.01, "tokens": 384, "best_gamma": best}
    it |= dict.fromkeys(("overhead", "predicted", "residual"), [STORED] * count)
    it |= dict.fromkeys(("step_ms", "exp", "tokens_per_call"), [1.25] * count)
    it |= {"predicted_tokens_per_call": [1.25] * count, "v": [1.5] * count}
    it |= {"c": [None, *[0.05] * 10], "c_ci": [None, *[[0.04, 0.06]] * 10]}
    it |= dict.fromkeys(("v_ci", "speedup_ci"), [[1.4, 1.6]] * count)
    it |= {"best_c": 0.05, "best_v": 1.5, "best_exp": 1.2, "best_speedup_ci": [1, 2]}
    it |= {"best_speedup": it["speedup"][best], "best_speedup_se": 0.1}
    names = (f"best_{name}" for name in ("overhead", "predicted", "residual"))
    it |= dict.fromkeys(names, STORED)
    return it | changes


def lines(measured):
    """Cells of both kinds of tables, by the columns' names."""
    stored = record("table2", "small_t0_b1", walltime_tables.current(measured))
    (best,) = walltime_tables.best({"small_t0_b1": stored})
    every = walltime_tables.every_gamma(stored)
    names = walltime_tables.EVERY
    return dict(zip(walltime_tables.HEAD, best, strict=True)), [
        dict(zip(names, cells, strict=True)) for cells in every
    ]


def test_what_an_old_record_called_a_prediction_is_not_shown():
    best, every = lines(before())
    cells = [*best.values(), *(cell for line in every for cell in line.values())]
    assert not any("9.87" in cell or "987" in cell for cell in cells)
    assert best["overhead"] == best["c inside"] == best["v inside"] == BEFORE
    assert {line["overhead"] for line in every[1:]} == {BEFORE}
    assert best["fitted at"] == "2 and 9"


def test_an_old_record_is_predicted_again_where_it_was_not_fitted():
    best, every = lines(before())
    wanted = inside.speeds(row())["predicted"]
    for gamma, (line, speed) in enumerate(zip(every, wanted, strict=True)):
        if gamma in (0, *TWO):
            assert line["predicted speed"] == (FITTED if gamma else "baseline")
            assert line["prediction / EMP - 1"] == ""
        else:
            assert float(line["predicted speed"]) == pytest.approx(speed, rel=1e-3)
    assert best["predicted"] == every[5]["predicted speed"]
    # Its steps were those of other texts; now they are of the texts that are timed.
    assert float(every[5]["step, ms"]) == pytest.approx(inside.steps(row())[5], 1e-3)


def line_of(measured, quantity):
    stored = record("table2", "small_t0_b1", walltime_tables.current(measured))
    records = {"table2": {"small_t0_b1": stored}}
    (line,) = [
        line
        for line in walltime_table.table4().lines + walltime_table.figure5().lines
        if (line.row, line.quantity) == ("small_t0_b1", quantity)
    ]
    cells = tables.cells(line, records)
    return cells[tables.HEAD.index("ours")], cells[tables.HEAD.index("state")]


@pytest.mark.parametrize(
    ("measured", "quantity", "why"),
    [
        (before(best=2), "best_predicted", FITTED),
        (before(predicted_steps=[None] * 11), "best_predicted", LAWLESS),
        (before(), "best_overhead", BEFORE),
    ],
)
def test_a_line_without_a_number_says_why_and_is_not_ok(
    measured, quantity, why, monkeypatch
):
    monkeypatch.setattr(tables.records, "stale", lambda record: False)
    assert line_of(measured, quantity) == (why, why)
    assert line_of(before(), "best_predicted")[1] == "ok"


def test_a_record_of_today_is_shown_as_it_is():
    errors = {f"{name}_se": 0.01 for name in inside.PARTS}
    parts = {"c": 0.05, "v0": 0.8, "v1": 0.2, "rest": 0.1} | errors
    today = before() | inside.speeds(row()) | {"inside": parts}
    today |= {"overhead": [0.003, *[0.1] * 10], "overhead_se": [0.002] * 11}
    today |= {"best_predicted": 1.5, "best_residual": 0.1, "best_overhead": 0.1}
    assert walltime_tables.current(today) is today
    best, every = lines(today)
    assert best["c inside"] == "0.0500 ± 0.0100" and best["v inside"] == "2"
    assert best["overhead"] == "0.1000 ± 0.0020"
    assert every[0]["overhead"] == "0.0030 ± 0.0020"
    assert every[0]["c inside"] == every[0]["v inside"] == ""
    assert walltime_tables.current({"alpha": 0.5}) == {"alpha": 0.5}


def test_stored_rows_hold_no_tautology():
    """A record's prediction does not move with what was measured at its own gamma."""
    records = tables.collect(tables.records.ROOT / "results")["table2"]
    assert len(records) >= 20
    for stored in records.values():
        it = stored["measured"]
        apart = [g for g in it["gamma"] if g not in (0, *it["fitted"])]
        at = [it["gamma"].index(gamma) for gamma in apart]
        other = it | {"seconds": list(it["seconds"]), "prefill_ms": [*it["prefill_ms"]]}
        for i in at:
            other["seconds"][i] *= 2
            other["prefill_ms"][i] += 1
        moved, kept = (inside.speeds(x)["predicted"] for x in (other, it))
        assert moved == kept == it["predicted"]
