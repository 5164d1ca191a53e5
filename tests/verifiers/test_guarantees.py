"""Custom parts are certified only after they passed, with their file as it is now."""

import sys
from pathlib import Path

import pytest

from specjax import verifiers
from specjax.cli import by_gamma
from specjax.measure import verdict
from specjax.verifiers import guarantees

SOURCE = """
from specjax.verifiers import lenient, token


def verify(law, draft, noise, keep_residual=False):
    return token.verify(law, draft, noise, keep_residual)


own = token.verifier._replace(verify=verify)
alias = token.verifier
loose = lenient.build(0.5)
"""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch) -> Path:
    file = tmp_path / "parts_of_mine.py"
    file.write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SPECJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "parts_of_mine", raising=False)
    return file


def test_what_was_certified_holds_until_its_file_changes(parts):
    rule, draft = "parts_of_mine:own", "parts_of_mine:draft"
    assert guarantees.combine("token", "copying", "adaptive") == "exact law"
    assert guarantees.combine(rule) == f"not certified: {rule}"
    assert guarantees.combine(rule, draft) == f"not certified: {rule}, {draft}"
    within = f"copying, else {draft}"
    assert guarantees.combine("token", within) == f"not certified: {draft}"
    assert guarantees.combine("token", "copying, else code_small") == "exact law"
    guarantees.record(rule, True)
    guarantees.record("token", True)  # ours needs no record
    assert guarantees.combine(rule) == "exact law"
    assert guarantees.combine(rule, draft) == f"not certified: {draft}"
    assert [*guarantees.read()] == [rule]
    parts.write_text(SOURCE + "\n")
    assert guarantees.combine(rule) == f"not certified: {rule}"
    guarantees.record(rule, True)
    guarantees.record(rule, False)  # it fails now
    assert guarantees.combine(rule) == f"not certified: {rule}"
    guarantees.file_path().write_text("{")
    assert guarantees.combine(rule, None, "none") == f"not certified: {rule}"


def test_a_rule_that_says_that_it_is_lossy_is_believed(parts):
    assert guarantees.combine("parts_of_mine:loose", "parts_of_mine:draft").startswith(
        "lenient: "
    )


def test_no_kernel_stands_for_a_verdict_of_ones_own(parts):
    """It is made from a rule for which a kernel exists."""
    assert verifiers.find("parts_of_mine:own").rule is None
    assert verifiers.find("parts_of_mine:alias").rule == verifiers.find("token").rule


def test_measure_says_that_nobody_knows():
    promise = "not certified: mine:own"
    row = {"exactness": promise, "texts": 3, "temperature": 1.0, "draft_regime": "it"}
    assert f"unknown ({promise})" in by_gamma.same_text(row)
    assert (
        verdict.text_guarantee(row) == promise
        and verdict.law_guarantee(row) == f"{promise}; it"
    )
    greedy = row | {"temperature": 0.0, "same_greedy_texts": 3}
    assert verdict.text_guarantee(greedy) == f"greedy texts 3 of 3 identical, {promise}"
