"""Each verdict follows from the records and their errors, and from what a claim needs.

`everything()` is made so that every claim which can be tested holds; a test then spoils
one thing, and only what that thing decides may change.
"""

import jax
import numpy as np
import pytest

from experiments.records.table import rows_of
from experiments.report.claims import claims, quantities
from experiments.report.claims.claims import (
    CONTRADICTED,
    NOT_RUN,
    NOT_TESTABLE,
    OUT_OF_SCOPE,
    REPRODUCED,
    UNDECIDED,
    Case,
)
from specjax import checkpoints
from specjax.theory import closed_forms
from tests.support.claim_records import GAMMA, around, everything, of_words

UNTESTABLE = {"figure_1", "acceleration", "chen_models", "wagner_bandwidth"}
UNTESTABLE |= {"wagner_speech", "lesson_results"}
# They say other things than the theorems by which `everything` is made.
AGAINST_THEORY = {"lesson_limit", "lesson_length", "lesson_tokens"}
STATED = {key: it for claims in claims.stated().values() for key, it in claims.items()}
KEYS = [*STATED]


def judge(records):
    """The outcome of every claim by its key."""
    return {claim.key: claim.outcome for claim in claims.claims(records)}


def spoiled(folder, row, **changes):
    records = everything()
    records[folder][row]["measured"] |= changes
    return records


def test_all_that_can_be_tested_is_reproduced():
    outcomes = judge(everything())
    assert list(outcomes) == KEYS
    for key in KEYS:
        expected = NOT_TESTABLE if key in UNTESTABLE else REPRODUCED
        if key not in AGAINST_THEORY - {"lesson_length"}:
            assert outcomes[key].verdict == expected, (key, outcomes[key])


def test_without_records_nothing_is_claimed():
    for claim in claims.claims({}):
        expected = NOT_TESTABLE if claim.key in UNTESTABLE else NOT_RUN
        assert claim.outcome.verdict == expected and claim.outcome.short
        assert claim.paper and claim.name and claim.where
        assert claim.statement.endswith(".")


SLOWER = {"best_speedup": 0.9, "best_speedup_ci": [0.89, 0.91]}
SMALL, BIGRAM = ("table2", "small_t0_b1"), ("table2", "bigram_t1_b1")
CHEN = ("chen_data", "humaneval_code")
TEXT, SCALE = ("wagner_text", "docs_small"), ("wagner_scale", "docs_small")
SPOILED = {
    "closed_forms": ("table1", "alpha_0.8_gamma_5", {"speed": 3.696}),
    "capacity": ("table3", "ende_base_t1", {"alpha": 0.59}),
    "sharpness": ("table3", "gpt_small_t0", {"alpha": 0.59}),
    "argmax_speed": (*BIGRAM, {"best_speedup": 2.0}),
    "trivial_alpha": ("table3", "gpt_unigram_t1", {"alpha": 0.02}),
    "small_cost": (*SMALL, {"c": [None, *[0.01] * 4, 0.06]}),
    "serial_runs": ("table3", "gpt_unigram_t1", {"target_calls": 1001}),
    "equation_1": ("table2", "small_t1_b1", {"tokens_per_call": [2.04] * 6}),
    "predictor": ("table2", "small_t0_b8", {"predicted": [None, *[0.8] * 5]}),
    "some_gamma": (*SMALL, SLOWER),
    "minimum": (*SMALL, {"best_speedup": 1.5}),
    "trivial_speed": (*BIGRAM, SLOWER),
    "identical": ("table2", "small_t0_b8", {"same_greedy_texts": 29}),
    "memory": ("operations", "small_g3", {"bytes_factor": 1.5}),
    "chen_speed": (*CHEN, {"theoretical_speed": 3.0}),
    "chen_law": ("certificate", "token", {"exact": 1}),
    "chen_filters": ("conformance", "rules", {"tv_token_cut": 1e-3}),
    "chen_tokens": (*CHEN, {"tokens_per_call": 5.1}),
    "wagner_exact_time": (*TEXT, {"us_exact": 95.0}),
    "wagner_exact_output": (*TEXT, {"calls_exact": 51}),
    "wagner_sigmoid_time": (*TEXT, {"us_sigmoid_1e4": 80.0}),
    "wagner_sigmoid_loss": (*TEXT, {"rouge1_sigmoid_1e4": 0.2}),
    "wagner_same_share": (*TEXT, {"acceptance_exact": 0.3}),
    "wagner_memory": (*TEXT, {"peak_kib_exact": 91}),
    "wagner_scales": (*SCALE, {"step_reduction_sigmoid_1e3": 40.0}),
    "wagner_half_precision": (*SCALE, {"acceptance_sigmoid_1e5_half": 0.5}),
    "lesson_harmless": (*SMALL, SLOWER),
    "lesson_length": ("figure3", "c_0.01", {"best_gamma": [2, 9, 5, 10]}),
    "lesson_words": ("kinds", "docs_t1", of_words(0.6, 0.7, 0.4)),
    "lesson_law": ("conformance", "rules", {"tv_lesson": 1e-3}),
}


@pytest.mark.parametrize("key", SPOILED)
def test_one_wrong_number_contradicts(key):
    folder, row, changes = SPOILED[key]
    assert judge(spoiled(folder, row, **changes))[key].verdict == CONTRADICTED


def test_every_claim_with_two_outcomes_has_both():
    own = {"theorem", *AGAINST_THEORY}  # below, and the theory itself
    assert SPOILED.keys() | own | UNTESTABLE == set(KEYS)
    outcomes = judge(everything())
    assert outcomes["lesson_tokens"].verdict == CONTRADICTED
    records = everything()
    for it in (each["measured"] for each in records["table2"].values()):
        ours = [closed_forms.expected_tokens(it["alpha"], max(0, g - 1)) for g in GAMMA]
        it |= {"tokens_per_call": ours, "speedup": [1 / (1 - it["alpha"])] * 6}
        it["speedup_ci"] = [around(x) for x in it["speedup"]]
    outcomes = judge(records)
    assert outcomes["lesson_tokens"].verdict == REPRODUCED
    assert outcomes["lesson_limit"].verdict == REPRODUCED


def test_a_share_of_rows_decides_the_theorem():
    """The paper has 3 of 12 amiss, so 1 of our 4 may be, and 2 may not."""
    records = spoiled(*SMALL, best_exp=9.0)
    assert judge(records)["theorem"].verdict == REPRODUCED
    records["table2"]["bigram_t0_b1"]["measured"]["best_exp"] = 0.1
    assert judge(records)["theorem"].verdict == CONTRADICTED


NEAR_1 = {"best_speedup": 0.99, "best_speedup_ci": [0.93, 1.04]}
CLOSE = {
    "argmax_speed": NEAR_1 | {"best_speedup": 0.9866},
    "some_gamma": NEAR_1,
    "minimum": {"best_speedup": 1.6, "best_speedup_ci": [1.4, 1.8]},
    "lesson_harmless": NEAR_1,
}


@pytest.mark.parametrize("key", CLOSE)
def test_a_difference_within_its_error_is_no_verdict(key):
    records = spoiled(*SMALL, **CLOSE[key])
    other = {"best_speedup": 0.9927, "best_speedup_ci": [0.94, 1.05]}
    if key == "argmax_speed":
        records["table2"]["small_t1_b1"]["measured"] |= other
    outcome = judge(records)[key]
    assert outcome.verdict == UNDECIDED
    assert any(line.endswith("(within errors)") for line in outcome.evidence)


def test_the_error_of_alpha_counts():
    records = spoiled("table3", "ende_base_t1", alpha=0.602)
    assert judge(records)["capacity"].verdict == UNDECIDED
    assert judge(records)["sharpness"].verdict == REPRODUCED


def test_drafts_on_the_same_texts_are_compared_text_by_text():
    """0.602 ± 0.001 against 0.600 ± 0.001 is no difference, but for the same texts."""
    records = spoiled("table3", "ende_base_t1", alpha=0.602)
    texts = np.tile([4.0, 8.0], 10)  # of ten tokens: some are easy, and for both drafts
    luck = 0.01 * np.tile([1, 1, -1, -1], 5)
    for draft, beta in (("small", texts), ("base", texts + 0.02 + luck)):
        it = records["table3"][f"ende_{draft}_t1"]["measured"]
        it["alpha_by_text"] = {"beta": beta.tolist(), "tokens": [10] * 20}
    outcome = judge(records)["capacity"]
    assert outcome.verdict == REPRODUCED
    told = [line for line in outcome.evidence if "text by text 0.0020 ± " in line]
    assert len(told) == 1 and told[0].startswith("ende, T = 1: base above small")
    it["protocol"] = {"gamma": 3, "seed": 1}  # other texts
    assert judge(records)["capacity"].verdict == UNDECIDED
    it["protocol"] = {"gamma": 5}  # the same
    assert judge(records)["capacity"].verdict == REPRODUCED


@pytest.mark.parametrize("key", ["theorem", "some_gamma", "minimum"])
def test_where_scoring_costs_more_theorem_38_says_nothing(key):
    """The numbers that show it are told, and what fails does not contradict."""
    slow = {"v": [1.0, *[1.5] * 5], "v_ci": [around(1.0), *[around(1.5)] * 5]}
    slow |= {"best_speedup": 0.8, "best_speedup_ci": [0.79, 0.81]}
    outcome = judge(all_of_table2(slow))[key]
    assert outcome.verdict == OUT_OF_SCOPE
    assert any("precondition: v = 1.5 [1.485, 1.515]" in x for x in outcome.evidence)


def all_of_table2(changes):
    records = everything()
    for each in records["table2"].values():
        each["measured"] |= changes
    return records


@pytest.mark.parametrize("key", ["some_gamma", "minimum", "trivial_speed"])
def test_a_speed_in_spite_of_what_scoring_costs_counts(key):
    """But not as evidence for what Theorem 3.8 says that the speed is."""
    scoring = {"v": [1.0, *[1.5] * 5], "v_ci": [around(1.0), *[around(1.5)] * 5]}
    outcomes = judge(all_of_table2(scoring))
    assert outcomes[key].verdict == REPRODUCED
    assert any(", although v = 1.5 [1.485, 1.515]" in x for x in outcomes[key].evidence)
    assert outcomes["theorem"].verdict == OUT_OF_SCOPE


def test_chens_own_rows_judge_what_chen_claims():
    """What a call on K + 1 tokens costs is no excuse; a K that loses hurts."""
    slow = {"speed": 0.9, "speed_interval": around(0.9), "t_score_ms": 3.0}
    outcomes = judge(spoiled(*CHEN, **slow))
    for key in ("chen_speed", "lesson_harmless"):
        assert outcomes[key].verdict == CONTRADICTED, key
    line, *others = outcomes["chen_speed"].evidence
    assert (
        "v = 3, with which 1.143)" in line and line.endswith("(fails)") and others
    )  # of table2, told
    records = everything()
    del records["chen_data"]
    assert judge(records)["chen_speed"].verdict == NOT_RUN


def test_a_small_cost_of_a_large_draft_counts():
    large = {"target": "t5_target", "draft": "t5_small"}
    outcome = judge(all_of_table2(large))["small_cost"]
    assert outcome.verdict == REPRODUCED and "although" in outcome.evidence[0]


def test_other_preconditions_are_told_with_their_numbers():
    costly = spoiled(*BIGRAM, c=[None, *[0.02] * 5], **SLOWER)
    del costly["table2"]["bigram_t0_b1"]
    large = {"target": "t5_target", "draft": "t5_small", "c": [None, *[0.2] * 5]}
    for key, records, why in (
        ("trivial_speed", costly, "c = 0.0200, not below"),
        ("small_cost", all_of_table2(large), "1/41 of its target"),
        ("wagner_sigmoid_loss", spoiled(*TEXT, rouge1_always=0.3), "every draft loses"),
    ):
        outcome = judge(records)[key]
        assert outcome.verdict == OUT_OF_SCOPE and why in outcome.evidence[0]


def test_acceptances_that_are_not_independent_do_not_contradict_equation_1():
    tokens = [1.0, 1.2, 1.3, 1.4, 1.4, 1.4]
    changes = {"tokens_per_call": tokens, "predicted_tokens_per_call": tokens}
    outcome = judge(spoiled(*SMALL, **changes))["equation_1"]
    assert outcome.verdict == REPRODUCED
    assert any("not independent, or texts end: 1.4 by" in x for x in outcome.evidence)


@pytest.mark.parametrize("key", ["small_cost", "some_gamma", "minimum", "theorem"])
def test_other_batches_are_told_but_do_not_decide(key):
    bad = {"c": [None, *[0.3] * 5], "best_speedup": 0.5, "best_exp": 9.0}
    records = spoiled("table2", "small_t0_b8", **bad, best_speedup_ci=[0.4, 0.6])
    outcome = judge(records)[key]
    assert outcome.verdict == REPRODUCED
    assert any("batch 8" in line for line in outcome.evidence)
    for row in [row for row in records["table2"] if row.endswith("b1")]:
        del records["table2"][row]
    assert judge(records)[key].verdict == NOT_RUN


def test_the_more_comparisons_the_more_errors_decide_one():
    """2.3 errors are enough alone, and not among twenty."""
    doubtful = Case("", -2.3, 1.0)
    assert claims.judge([doubtful], "").verdict == CONTRADICTED
    several = [doubtful, *[Case("", 9.0, 1.0)] * 19]
    assert claims.judge(several, "").verdict == UNDECIDED
    assert quantities.critical(1) == pytest.approx(1.96, abs=1e-3)
    assert quantities.error_of([0.0, 3.92]) == pytest.approx(1, abs=1e-3)


def test_a_minority_can_contradict_and_not_bear_out():
    lacking = [Case("", 1.0, lacks="v = 2")] * 3
    assert claims.judge([Case("", 1.0), *lacking], "").verdict == OUT_OF_SCOPE
    assert claims.judge([Case("", -1.0), *lacking], "").verdict == CONTRADICTED
    assert claims.judge([Case("", 1.0), *lacking[:1]], "").verdict == REPRODUCED


@pytest.mark.parametrize("key", ["closed_forms", "capacity", "sharpness"])
def test_an_incomplete_folder_decides_nothing(key):
    records = everything()
    records[SPOILED[key][0]].popitem()
    assert judge(records)[key].verdict == NOT_RUN


def test_a_run_without_drafts_breaks_nothing():
    """gamma = 0 alone: no c, and a best gamma of 0."""
    keys = ("tokens_per_call", "exp", "speedup", "steps", "steps_se")
    changes = {key: [1.0] for key in (*keys, "predicted_tokens_per_call", "v")}
    changes |= {"predicted": [None]}
    changes |= {"gamma": [0], "best_gamma": 0, "c": [None], "best_c": None}
    changes |= {"c_ci": [None], "v_ci": [around(1.0)], "speedup_ci": [around(1.0)]}
    outcomes = judge(all_of_table2(changes))
    assert {outcomes[key].verdict for key in ("small_cost", "some_gamma")} == {NOT_RUN}


def test_the_thresholds_are_the_papers():
    """9 of 12 rows of Table 4 within 20 %; the least c and alpha that are printed."""
    papers = rows_of("table4_expected_vs_measured")
    (tested,) = STATED["theorem"]["compare"]
    gaps = [abs(row["expected"] / row["measured"] - 1) for row in papers]
    share = sum(gap <= tested["near"] for gap in gaps) / len(papers)
    assert STATED["theorem"]["share"] == share == 9 / 12
    costs = [row["c"] for row in papers]
    assert min(costs) == quantities.NEGLIGIBLE_C
    alphas = [row["alpha"] for row in rows_of("table3_alpha")]
    (tested,) = STATED["trivial_alpha"]["compare"]
    assert min(alphas) == tested["above"]


def test_sizes_are_those_of_the_bundled_models():
    for name, millions in quantities.MILLIONS.items():
        leaves = jax.tree.leaves(checkpoints.load(name).params)
        counted = sum(leaf.size for leaf in leaves)
        assert millions == pytest.approx(counted / 1e6, rel=0.05)
