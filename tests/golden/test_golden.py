"""No edit changes a text, a count or alpha unnoticed: see `tests.golden`."""

import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest

from specjax import drafts, native, policies, verifiers, zoo
from specjax.exactness import small_drafts
from specjax.measure import provenance
from tests.golden import runs
from tests.golden.cases import CASES, Case
from tests.golden.runs import run
from tests.support import slow

FOLDER = Path(__file__).parent
NEAR = 1e-4  # rounding, on another machine
DECODED = [case for case in CASES.values() if isinstance(case, Case)]
# Each has a program of its own; of each family of models, of each way to draft and of
# what changes a target there is one among the fast tests.
BRIEF = (
    "code_alone",
    "code_token",
    "t5_token",
    "llama_token",
    "gemma2_block",
    "speech_token",
    "int8_token",
    "bigram_gumbel",
    "copying_token",
    "early_exit_token",
    "random_token",
    "table_q_block_grammar",
    "table_q_token_renewal",
    "table_recycling_accept_0_6_0_3_match",
    "table_suffix_paths_2_recursive",
    "table_tree_draft_q_accept_0_6_0_3_longest_2_recursive",
    "table_tree_draft_q_grown_0_3_0_2_traversal",
    "table_tree_draft_q_siblings_with_recursive_replaced",
)
LATER = tuple(name for name in CASES if name not in BRIEF)
NAMES = slow.mark_slow_unless(lambda name: name in BRIEF, CASES)


def forget():
    for cached in (runs.model, runs.pair, runs.program):
        cached.cache_clear()


@pytest.fixture(autouse=True, scope="module")
def memory_is_freed():
    yield
    forget()


@pytest.mark.parametrize("name", NAMES)
def test_the_texts_are_those_that_were_recorded(name):
    check(name, run(name, BRIEF if name in BRIEF else LATER))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["code_token", "t5_token", "llama_token", "gemma2_block", "speech_token"]
)
def test_the_texts_are_the_same_without_native_operations(name):
    forget()
    with native.products(native.XLA):
        got = run(name, (name,))
    forget()
    check(name, got)


def check(name, got):
    wanted = json.loads((FOLDER / f"{name}.json").read_text())
    for key in ("alpha", "scores"):
        assert np.allclose(got.pop(key, 0), wanted.pop(key, 0), rtol=0, atol=NEAR)
    assert got == wanted


def test_every_golden_has_a_case_and_the_changelog_names_its_number():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(CASES)
    changes = (FOLDER.parents[1] / "CHANGELOG.md").read_text()
    for number in range(2, provenance.GOLDENS + 1):
        assert f"Goldens {number}:" in changes


def test_every_name_of_a_draft_a_rule_a_policy_and_a_constraint_is_in_a_golden():
    for field, names in {
        "draft": {*drafts.DRAFTS, *small_drafts.HEADS, *zoo.HEADS},
        "rule": {*verifiers.EXACT, *verifiers.LOSSY},
        "policy": policies.POLICIES,
        "rules": runs.RULES,
    }.items():
        assert {*names} <= {getattr(x, field).partition(":")[0] for x in DECODED}


def test_every_option_of_a_tree_is_in_a_golden():
    options = inspect.signature(drafts.DRAFTS["tree"]).parameters
    text = " ".join(case.draft for case in DECODED if case.draft.startswith("tree:"))
    assert options.keys() - drafts.CONTEXT <= {*re.findall(r"(\w+)=", text)}
