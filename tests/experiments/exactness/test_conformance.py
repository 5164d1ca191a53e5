"""The conformance table's laws are those worked out by hand, and mutants are told.

Numbers: with p = (.4, .3, .2, .1) and q = (.55, .25, .15, .05) an argmax draft that is
tested with q is kept with probability .4 / .55 = .727, and each of the other ids gets a
third of the rest; they share .85, so that Algorithm 1 gives (1 - .85^3) / .15 tokens.
"""

import jax
import numpy as np
import pytest

from experiments import catalogue
from experiments.exactness import conformance, engines, rules
from experiments.records.markup import number
from experiments.report import details
from specjax.exactness import certify, enumeration
from specjax.types import Verifier

pytestmark = pytest.mark.slow

RULES = {rule.key: rule for rule in engines.RULES}


@pytest.fixture(scope="module")
def by_key():
    return {rule["key"]: rule for rule in conformance.measure()["rules"]}


def first_law(rule):
    """Of the first token, by the rule's own verdicts."""
    sizes = rule.fixture, conformance.GAMMA, conformance.DTYPE
    case = enumeration.case_of(rule.build(), rule.claim, *sizes)
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


def test_argmax_drafts_tested_with_a_soft_q(by_key):
    for key in ("kerashub", "transformers_argmax"):
        law = first_law(RULES[key])
        np.testing.assert_allclose(law, [0.4 / 0.55, *[0.15 / 1.65] * 3], atol=1e-6)
        assert by_key[key]["tv_first"] == pytest.approx(0.4 / 0.55 - 0.4, abs=1e-6)
        kept = 0.4 / 0.55
        assert by_key[key]["tokens"] == pytest.approx(1 + kept + kept**2, abs=1e-6)
        assert by_key[key]["algorithm_1"] == pytest.approx(2.5725, abs=1e-6)


def test_transforms_in_another_order(by_key):
    warm = RULES["tpu_warm"]
    np.testing.assert_allclose(first_law(warm), [0.5622, 0.4378, 0, 0, 0], atol=5e-5)
    p = enumeration.references(warm.fixture)[0](())
    np.testing.assert_allclose(p, [0.4192, 0.3265, 0.2543, 0, 0], atol=5e-5)
    assert by_key["tpu_warm"]["tv_first"] == pytest.approx(0.254, abs=5e-4)
    assert by_key["tpu_cool"]["tv_first"] == pytest.approx(0.090, abs=5e-4)
    # Cut before it is sharpened, the law keeps an id that its sampler does not.
    assert by_key["tpu_warm"]["impossible"] == 0 < by_key["tpu_cool"]["impossible"]


def test_tokens_a_call(by_key):
    alpha, own = 0.85, by_key["token"]["tokens"]
    assert own == by_key["token"]["algorithm_1"] == pytest.approx(2.5725, abs=1e-6)
    # Without the added token: 1 after a rejection at once, 2 otherwise.
    assert by_key["lesson"]["tokens"] == pytest.approx(1 + alpha, abs=1e-6)
    assert by_key["block"]["tokens"] > own > by_key["rejection"]["tokens"]
    shared = 0.4 * 0.55 + 0.3 * 0.25 + 0.2 * 0.15 + 0.1 * 0.05
    for key in ("match", "gumbel"):
        assert by_key[key]["tokens"] == pytest.approx(1 + shared + shared**2, abs=1e-6)


def test_a_tie_is_split_by_a_small_divisor(by_key):
    assert by_key["jaymody_argmax"]["tv_first"] == pytest.approx(0.5, abs=1e-9)
    assert by_key["jaymody_argmax"]["tv"] == pytest.approx(1 - 0.5**3, abs=1e-9)
    np.testing.assert_allclose(first_law(RULES["jaymody_own"]), [0.5, 0.5, 0, 0])


def test_the_sigmoid_rule_is_next_to_keeping_everything(by_key):
    q_from_p = 0.15  # sum of max(0, p - q)
    for key in ("sigmoid_1e3", "sigmoid_1e4", "everything"):
        assert by_key[key]["tv_first"] == pytest.approx(q_from_p, abs=1e-4)
        assert by_key[key]["tokens"] == pytest.approx(3, abs=2e-4)
    assert by_key["sigmoid_1e3"]["tokens"] < by_key["sigmoid_1e4"]["tokens"]
    # Unlike the control, it draws the last token from a nearly uniform law.
    assert by_key["sigmoid_1e4"]["tv"] > by_key["everything"]["tv"] + 0.05
    # After a filter it rejects what the target has no logit for.
    assert by_key["sigmoid_1e4_cut"]["tokens"] < 2.9
    assert by_key["sigmoid_1e4_cut"]["impossible"] == 0
    assert by_key["everything_cut"]["impossible"] > 0.1


def test_an_id_of_no_probability_at_a_uniform_of_zero(by_key):
    assert by_key["transformers"]["at_zero"] and not by_key["token_cut"]["at_zero"]
    assert by_key["tpu_warm"]["at_zero"] and not by_key["kerashub"]["at_zero"]


def test_drafts_drawn_from_the_q_that_is_tested_are_exact():
    """The broken twin of what differs by its drafts alone, and the other way round."""
    for key, plain in (
        ("kerashub", engines.FOUR),
        ("transformers_unfiltered", engines.CUT),
    ):
        rule = conformance.certified(RULES[key]._replace(fixture=plain))
        assert rule["class"] == engines.EXACT
    drawn = engines.law(engines.CUT_Q, 0.0)
    argmax = engines.CUT._replace(drawn=drawn)
    rule = conformance.certified(RULES["transformers"]._replace(fixture=argmax))
    assert rule["class"] == engines.DIFFERS and rule["tv"] > 0.1


def test_a_transcription_that_misreports_is_refused():
    inner = rules.build(rules.ratio)

    def verify(*arguments, keep_residual=False):
        verdict = inner.verify(*arguments, keep_residual)
        return verdict._replace(accept_prob=verdict.accept_prob / 2)

    wrong = RULES["kerashub"]._replace(build=lambda: Verifier(inner.noise, verify))
    with pytest.raises(ValueError, match="kerashub: the enumeration is void"):
        conformance.certified(wrong)


def test_the_table_names_source_and_version_of_every_rule(by_key):
    table = catalogue.named("conformance")
    measured = {"rules": list(by_key.values())}
    ((_, head, lines),) = details.of(
        "conformance", {"conformance": {"rules": {"measured": measured}}}
    )
    assert len(lines) == len(RULES) == len(table.lines) - 2
    assert all(len(line) == len(head) and all(line) for line in lines)
    assert {line.quantity for line in table.lines[2:]} == {f"tv_{key}" for key in RULES}
    last = {key: details.forbidden(rule) for key, rule in by_key.items()}
    assert last["token_cut"] == "never" and last["transformers"] == "at u = 0"
    assert last["tpu_cool"] == number(by_key["tpu_cool"]["impossible"])
    assert "bug" not in f"{table.note}{[line.what for line in table.lines]}"
    assert details.conformance({}) == []
