"""Rows of the audit work and are refused where they should be; the laws of the
conformance table are computed by hand, and mutants are detected.

With p = (.4, .3, .2, .1) and q = (.55, .25, .15, .05), which share .85, an argmax draft
is kept with probability .4 / .55, and each other id gets a third of the rest.
"""

import json

import jax
import numpy as np
import pytest
import scipy.stats

from experiments import catalogue, tasks
from experiments.exactness import conformance, engines, faults, rules
from experiments.records.markup import number
from experiments.report import details
from specjax import decode_config
from specjax.cli import audit as command
from specjax.drafts import counts
from specjax.exactness import audit, audit_row, certify, enumeration
from specjax.types import Verifier
from tests.support import bare
from tests.support.audit_samples import PROMPTS, TASK, groups, pair, sample_texts

pytestmark = pytest.mark.slow

RULES = {rule.key: rule for rule in engines.RULES}


@pytest.fixture(scope="module")
def by_key():
    return {rule["key"]: rule for rule in conformance.measure()["rules"]}


def first_law(rule):
    """Returns the law of the first token, from the rule's own verdicts."""
    sizes = rule.fixture, conformance.GAMMA, conformance.DTYPE
    case = enumeration.make_case(rule.verifier, rule.claim, *sizes)
    with jax.enable_x64(True):
        law, _ = certify.text_law(case, 1)
    return [law[(i,)] for i in range(rule.fixture.vocab)]


@pytest.mark.parametrize("key", RULES)
def test_each_rule_is_of_the_class_that_is_expected(by_key, key):
    rule = by_key[key]
    assert rule["class"] == RULES[key].expected == rule["expected"]
    if rule["class"] == engines.DIFFERS:
        assert rule["tv"] > 0.02 and rule["tv_first"] > 0.01
    else:
        assert max(rule["tv"], rule["largest"]) < 1e-12 and rule["impossible"] == 0
    assert rule["tv_first"] <= rule["tv"] + 1e-12


KEPT, SHARED = 0.4 / 0.55, 0.4 * 0.55 + 0.3 * 0.25 + 0.2 * 0.15 + 0.1 * 0.05
ARGMAX = [KEPT, *[0.15 / 1.65] * 3]  # argmax drafts, tested with a soft q
LAWS = {"kerashub": (ARGMAX, 1e-6), "transformers_argmax": (ARGMAX, 1e-6)}
LAWS["tpu_warm"] = [0.5622, 0.4378, 0, 0, 0], 5e-5  # transforms in another order
LAWS["jaymody_own"] = [0.5, 0.5, 0, 0], 1e-7  # a tie
# Of the tokens of a call, and how far the first is from p.
NUMBERS = [
    ("kerashub", "tv_first", KEPT - 0.4, 1e-6),
    ("transformers_argmax", "tv_first", KEPT - 0.4, 1e-6),
    ("tpu_warm", "tv_first", 0.254, 5e-4),
    ("tpu_cool", "tv_first", 0.090, 5e-4),
    ("jaymody_argmax", "tv_first", 0.5, 1e-9),
    ("jaymody_argmax", "tv", 1 - 0.5**3, 1e-9),
    ("kerashub", "tokens", 1 + KEPT + KEPT**2, 1e-6),
    ("token", "tokens", 2.5725, 1e-6),
    ("token", "algorithm_1", 2.5725, 1e-6),
    # Without the added token: 1 after a rejection at once, 2 otherwise.
    ("lesson", "tokens", 1 + 0.85, 1e-6),
    ("match", "tokens", 1 + SHARED + SHARED**2, 1e-6),
    ("gumbel", "tokens", 1 + SHARED + SHARED**2, 1e-6),
]
for name in ("sigmoid_1e3", "sigmoid_1e4", "everything"):  # sum of max(0, p - q)
    NUMBERS += [(name, "tv_first", 0.15, 1e-4), (name, "tokens", 3, 2e-4)]


def test_laws_and_numbers_are_those_worked_out_by_hand(by_key):
    for key, (law, atol) in LAWS.items():
        np.testing.assert_allclose(first_law(RULES[key]), law, atol=atol)
    p = enumeration.references(RULES["tpu_warm"].fixture)[0](())
    np.testing.assert_allclose(p, [0.4192, 0.3265, 0.2543, 0, 0], atol=5e-5)
    for key, name, value, error in NUMBERS:
        assert by_key[key][name] == pytest.approx(value, abs=error), (key, name)


def test_rules_differ_as_they_should(by_key):
    tokens = {key: rule["tokens"] for key, rule in by_key.items()}
    impossible = {key: rule["impossible"] for key, rule in by_key.items()}
    # Cut before it is sharpened, the law keeps an id that its sampler does not.
    assert impossible["tpu_warm"] == 0 < impossible["tpu_cool"]
    # After a filter it rejects what the target has no logit for.
    assert tokens["sigmoid_1e4_cut"] < 2.9 and impossible["sigmoid_1e4_cut"] == 0
    assert impossible["everything_cut"] > 0.1


def test_drafts_drawn_from_the_q_that_is_tested_are_exact():
    """Inexact rules become exact with drafts drawn from the q that they test, and
    another rule becomes inexact with greedy drafts."""
    exact = {"kerashub": engines.FOUR, "transformers_unfiltered": engines.CUT}
    for key, plain in exact.items():
        rule = conformance.certify_rule(RULES[key]._replace(fixture=plain))
        assert rule["class"] == engines.EXACT
    argmax = engines.CUT._replace(drawn=engines.law(engines.CUT_Q, 0.0))
    rule = conformance.certify_rule(RULES["transformers"]._replace(fixture=argmax))
    assert rule["class"] == engines.DIFFERS and rule["tv"] > 0.1


def test_a_transcription_that_misreports_is_refused():
    inner = rules.build(rules.ratio)

    def verify(*arguments, keep_residual=False):
        verdict = inner.verify(*arguments, keep_residual)
        return verdict._replace(accept_prob=verdict.accept_prob / 2)

    wrong = RULES["kerashub"]._replace(verifier=Verifier(inner.noise, verify))
    with pytest.raises(ValueError, match="kerashub: the enumeration is void"):
        conformance.certify_rule(wrong)


def test_the_table_names_source_and_version_of_every_rule(by_key):
    table = catalogue.find_table("conformance")
    measured = {"rules": {"measured": {"rules": list(by_key.values())}}}
    (grid,) = details.detail_tables("conformance", {"conformance": measured})
    lines = grid.rows
    assert len(lines) == len(RULES) and all(map(all, lines))
    assert {line.quantity for line in table.lines[2:]} == {f"tv_{key}" for key in RULES}
    last = {key: details.impossible_frequency(rule) for key, rule in by_key.items()}
    assert last["token_cut"] == "never" and last["transformers"] == "at u = 0"
    assert last["tpu_cool"] == number(by_key["tpu_cool"]["impossible"])
    assert by_key["tpu_warm"]["at_zero"] and not by_key["kerashub"]["at_zero"]


# The audit.


def audit_pair(pair, protocol, fault=None):
    known = tasks.Task(PROMPTS, [], ())
    return audit_row.audit(*pair, protocol, lambda *_: known, fault)


def test_a_row_is_plain_numbers():
    row = audit_pair(pair(), TASK._replace(tokens=2000)).run()
    json.dumps(row, allow_nan=False)
    assert row["passed"] and row["max_z"] == max(map(abs, row["z"].values()))
    assert row["guarantee"] == "exact law" and row["fault"] == ""
    assert 0 < row["accepted"] < row["tested"]
    assert row["kernels"]["verify"] == "reference"
    fault = audit_pair(pair(), TASK, faults.reused_key).run()
    assert fault["fault"] == "reused key"
    assert not fault["passed"] and fault["guarantee"] == "none: broken on purpose"


def test_the_note_says_how_often_a_score_is_as_large():
    table = catalogue.find_table("audit")
    for share, z in ((0.05, "2.6"), (audit.LEVEL, "4.3")):
        assert f"{scipy.stats.norm.isf(share / 2 / len(audit.NAMES)):.1f}" == z
        assert f"{z} one time in {1 / share:,.0f}" in table.note


BAD = [
    ({"gamma": 0, "fault": faults.reused_key}, "gamma to at least 1"),
    ({"rule": "match", "fault": faults.reused_key}, "use token"),
    ({"draft": counts.random(4), "fault": faults.draft_temperature}, "name a model"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments_are_named(change, message):
    settings = {name: x for name, x in change.items() if name in decode_config.NAMES}
    draft, fault = change.get("draft", pair()[1]), change.get("fault")
    with pytest.raises(ValueError, match=message):
        audit_pair((pair()[0], draft), decode_config.change(TASK, **settings), fault)


def test_what_cannot_be_judged_is_named():
    with pytest.raises(ValueError, match="level and"):
        audit.judge(audit.total(groups(5, 40, seed=2, count=600)[0]), 0)
    with pytest.raises(ValueError, match="no tokens"):
        audit.limits(audit.Sums(0, 0, 0, *np.zeros((4, 5))))
    lost = bare.target("lost", pair()[0].model, pair()[0].params * np.nan)
    with pytest.raises(ValueError, match="probabilities of lost or draft"):
        audit.score((lost, pair()[1]), sample_texts(pair()[0], 2, new=5, seed=0), 1.0)


def test_the_command_says_what_cannot_be_seen(capsys):
    """Texts that were drawn at random are judged against argmax; what else it says is
    tested with the families."""
    text = sample_texts(pair()[0], 4, new=20, seed=0)
    steps = audit.score(pair(), text, 0.0)
    verdict = audit.judge(audit.total(steps))
    command.report(verdict, audit.evidence(steps)[0], audit.LEVEL)
    printed = capsys.readouterr().out
    for word in ("cannot vary", "alarm after", "free to differ", "FAILED at level"):
        assert word in printed
