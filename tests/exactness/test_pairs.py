"""Whole texts test rules with drafts, and detect the same with faults.

One of every way to draw; `gin_configs/pairs` has all pairs.
"""

import re
from pathlib import Path

import pytest

from experiments.exactness import pairs
from specjax import drafts, policies, verifiers
from specjax.exactness import sampled_texts, small_drafts
from specjax.types import Params

ROOT = Path(__file__).parents[2]
CALLS = 2  # of texts of a pair: another law is found from a total variation of .03 on
WITH = "tree:q,accept=0.6/0.4/0.3,siblings=with"
DRAWN = [
    ("q", 3, ("token", "block", "rejection")),
    ("hierarchy:q,bigram,gammas=2", 4, ("token",)),
    ("hand_made:0/0/1/2/4", 5, ("match", "recursive")),
    (WITH, 6, ("recursive_replaced",)),
    ("tree:q,grown=0.3/0.2", 4, ("traversal",)),
]
LATER = [
    ("q", 3, ("gumbel",)),
    ("hand_made:0/0/1/2/4", 5, ("traversal",)),
    (WITH, 6, ("kseq", "greedy_block")),
    ("tree:q,grown=0.3/0.2", 4, ("recursive",)),
    ("tree:q,copied=2", 5, ("recursive_replaced",)),
    ("trigram", 3, ("block",)),
    ("copying_else:q,least=3", 3, ("token",)),
    ("hierarchy:q,q_some,bigram,gammas=3/2", 4, ("block",)),
    ("tree:q,best=2", 4, ("recursive",)),
]
DRAWN += [pytest.param(*each, marks=pytest.mark.slow) for each in LATER]
FILES = sorted((ROOT / "gin_configs" / "pairs").glob("*.gin"))
TEXT = "".join(file.read_text("utf-8") for file in FILES)
IN_ROWS = {name.partition(":")[0] for name in re.findall(r"'DRAFT': '(.+?)'", TEXT)}
# A name that no row has yet is tested here with its default options.
DRAWN += [(name, 3, ("token",)) for name in drafts.DRAFTS if name not in IN_ROWS]


@pytest.mark.parametrize(("draft", "gamma", "rules"), DRAWN, ids=str)
def test_texts_follow_the_target_and_those_of_a_fault_do_not(draft, gamma, rules):
    source = small_drafts.load(draft, sampled_texts.target())
    found = pairs.test_rules(
        source, gamma=gamma, policy=None, chosen=rules, calls=CALLS, seed=0
    )
    assert [pair["rule"] for pair in found] == [*rules]
    for pair in found:
        assert pair["p_value"] > 1e-3 and pair["visible"] < 0.031  # the seed is fixed
        assert pair["tv"] < 2 * pair["chance"]
        for fault in pair["faults"]:
            assert fault["p_value"] < 1e-12, fault["says"]
        reads = pair["rule"] not in ("gumbel", "match") and source.regime != "certain"
        inside = 2 if isinstance(source.params, Params) else 0
        assert len(pair["faults"]) == (4 + inside if reads else 2)


def test_rules_for_trees_verify_chains_by_the_programs_of_others():
    chosen, alike = pairs.chain_rules()
    assert {*chosen, *alike} == {*verifiers.names()}
    rule, other = (verifiers.find(name) for name in ("token", "block"))
    assert pairs.program(rule) != pairs.program(other)


def test_every_name_is_in_a_row():
    assert IN_ROWS >= {*small_drafts.BUILDERS}
    named = re.findall(r"'POLICY': '(\w+)", TEXT)
    assert {*named, "none"} == {*policies.POLICIES}
