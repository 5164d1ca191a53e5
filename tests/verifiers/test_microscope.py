"""The microscope's numbers by hand, what makes its command fail, and its rows."""

import functools

import jax
import numpy as np
import pytest

from experiments import catalogue
from experiments.exactness import microscope as row
from experiments.records import records
from experiments.report import details, tables
from specjax import configs, sides
from specjax.cli import microscope
from specjax.exactness import divergence
from specjax.exactness.divergence import Comparison, Found, Oracle, Places, Report
from tests.verifiers.test_numerics import table_pair

pytestmark = pytest.mark.slow


# Numbers by hand.


def places(**fields) -> Places:
    """Two texts of four places; the first parts at its third."""
    live = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], bool)
    differ = np.array([[0, 0, 1, 0], [0, 0, 0, 0]], bool)
    zero = np.zeros((2, 4))
    usual = dict(margin=zero + 1, gap=zero, eps=zero, shift=zero, tv=zero)
    return Places(live, differ, **usual | {"lost": zero} | fields)


@pytest.mark.parametrize(
    ("eps", "gap", "explained"),
    [
        ([0.0, 0.0, 0.5, 0.0], 1.0, 1),  # gap = 2 eps
        ([0.0, 0.0, 0.5, 0.0], 1.01, 0),
        ([0.5, 0.0, 0.1, 0.0], 1.0, 1),  # eps of an earlier place
        ([0.0, 0.0, 0.1, 9.0], 1.0, 0),  # eps after the divergence
        ([0.0, 0.0, np.nan, 0.0], 0.0, 0),
        ([0.0, 0.0, 0.5, 0.0], np.inf, 0),  # the text ended
    ],
)
def test_what_is_explained(eps, gap, explained):
    gaps = np.array([[0, 0, gap, 0], [0, 0, 0, 0]])
    other = np.full(4, 100.0)  # the eps of another text
    rung = divergence.summarize(places(eps=np.array([eps, other]), gap=gaps))
    assert (rung.explained, rung.unexplained) == (explained, 1 - explained)
    assert rung.texts == 2 and rung.identical == 1 and rung.places == 7
    assert rung.observed == 1 / 7


def test_rates_of_flips():
    margin = np.array([[0.1, 0.2, 0.3, 0.0], [0.4, 0.5, 0.6, 0.7]])
    shift = np.array([[-0.3, 0.25, 0.0, 9.0], [0.0, 0.0, 0.1, 0.0]])
    eps = np.array([[0.0, 0.15, 0.0, 9.0], [0.0, 0.0, 0.1, 0.0]])
    rung = divergence.summarize(places(margin=margin, shift=shift, eps=eps))
    assert rung.bound == pytest.approx(3 / 7)  # 0.1, 0.2 and 0.3 are within 0.3
    # 0.25 beats 0.1 and 0.2, and 0.1 beats 0.1.
    assert rung.expected == pytest.approx(3 / 49)
    assert rung.eps_max == 0.15 and rung.eps_mean == pytest.approx(0.25 / 7)
    assert rung.equal == pytest.approx(5 / 7)


def test_a_law_moves_by_no_more_than_its_bound():
    rng = np.random.default_rng(0)
    for eps in (0.01, 0.3, 2.0):
        base = rng.normal(size=(1, 50, 3)).astype(np.float32)
        moved = base + eps * rng.choice([-1, 1], base.shape).astype(np.float32)
        ids = np.zeros((1, 50), int)
        text, other = (divergence.Text(None, ids, z[None]) for z in (base, moved))
        compared = divergence.compare(text, other)
        rung = divergence.summarize(compared)
        assert rung.eps_max == pytest.approx(eps, rel=1e-4)
        assert rung.tv_max <= rung.tv_bound
        assert rung.tv_bound == pytest.approx(min(np.expm1(2 * eps) / 2, 1), rel=1e-3)
        law = np.exp(np.stack([base, moved]))
        law /= law.sum(-1, keepdims=True)
        tv = np.abs(law[0] - law[1]).sum(-1) / 2
        np.testing.assert_allclose(compared.tv, tv, atol=1e-6)


# What fails, the command and its rows.

GOOD = Comparison(4, 4, 0, 0, 64, 0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
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
    monkeypatch.setattr(sides, "model", read_once)


read_once = functools.cache(sides.model)


def run_command(monkeypatch, rung: Found) -> int:
    """The command, with this in the place of what is measured."""
    report = Report(np.linspace(0, 1, 64), [rung])
    monkeypatch.setattr(microscope, "look", lambda *_: report)
    return microscope.main(["--dtype", "float32"])


def test_the_command_prints_and_fails(models_read_once, monkeypatch, capsys):
    assert run_command(monkeypatch, FOUND) == 0
    printed = capsys.readouterr().out
    assert "code_target with code_small, float32" in printed and "2.0e-05" in printed
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
    table = catalogue.named("microscope")
    assert {line.quantity for line in table.lines} <= set(numbers)
    assert all(cells[-1] == "not run" for cells in tables.rows(table, {}))


def test_every_line_of_the_table_has_its_row():
    rows = records.rows("microscope")
    assert rows.keys() == {line.row for line in catalogue.named("microscope").lines}
    for name, file in rows.items():
        measurement = configs.build(file).row.measurement
        assert measurement.module == "experiments.exactness.microscope"
        assert name.endswith(measurement.dtype)


def test_gammas_are_lines_of_their_own():
    numbers = row.numbers(REPORT) | {"target": "p", "draft": "q"}
    record = {"measured": numbers, "provenance": {"dtype": "bfloat16"}}
    ((_, head, (cells,)),) = details.microscope({"microscope": {"halves": record}})
    assert len(cells) == len(head)
    assert cells[:3] == ["p with q, bfloat16", "4", "100 %"]


def test_a_row_refuses_sizes_that_mean_nothing():
    with pytest.raises(ValueError, match="gammas must be at least 1"):
        row.build(*table_pair(), "code", (), 4, 4)
