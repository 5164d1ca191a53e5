"""No edit moves a text, a count or alpha without saying so: see `tests.golden`."""

import json
from pathlib import Path

import pytest

from specjax.measure import provenance
from tests.golden.cases import CASES, draft_of, program, run, target_of

FOLDER = Path(__file__).parent
ALPHA = 1e-4  # rounding, on another machine


@pytest.fixture(autouse=True, scope="module")
def models_are_let_go():
    yield
    target_of.cache_clear()
    draft_of.cache_clear()
    program.cache_clear()


@pytest.mark.parametrize("name", CASES)
def test_the_texts_are_those_that_were_recorded(name):
    wanted, got = json.loads((FOLDER / f"{name}.json").read_text()), run(CASES[name])
    assert got.pop("alpha", 0) == pytest.approx(wanted.pop("alpha", 0), abs=ALPHA)
    assert got == wanted


def test_every_golden_has_a_case_and_its_number_is_told():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(CASES)
    told = (FOLDER.parents[1] / "CHANGELOG.md").read_text()
    for number in range(2, provenance.GOLDENS + 1):
        assert f"Goldens {number}:" in told
