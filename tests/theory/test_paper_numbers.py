"""Closed forms give every published number that they can give, from the published
tables."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from specjax.theory import closed_forms

ROOT = Path(__file__).parents[2]
PUBLISHED = json.loads((ROOT / "experiments/records/published_values.json").read_text())
PAPER = PUBLISHED["leviathan2023"]
CHEN = PUBLISHED["chen2023_as_told_by_jaymody2023"]
LENIENCE = PAPER["table5_lenience"]


def rows(table):
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def rounds_to(value, printed, decimals):
    return abs(value - printed) <= 0.5 * 10**-decimals + 1e-9


def best_factor(alpha, c):
    return closed_forms.walltime_factor(alpha, closed_forms.optimal_gamma(alpha, c), c)


TABLE1 = rows(PAPER["table1_operations_speed"])
TABLE2 = rows(PAPER["table2_walltime"])
TABLE3 = rows(PAPER["table3_alpha"])
TABLE4 = rows(PAPER["table4_expected_vs_measured"])


@pytest.mark.parametrize("row", TABLE1, ids=str)
def test_table_1(row):
    alpha, gamma = row["alpha"], row["gamma"]
    operations = closed_forms.operations_factor(alpha, gamma, 0)
    assert rounds_to(operations, row["operations"], 2)
    assert rounds_to(closed_forms.walltime_factor(alpha, gamma, 0), row["speed"], 2)


def reachable(row, factor=closed_forms.walltime_factor):
    """Returns whether some inputs that round to the printed ones give a result that
    rounds to EXP."""
    alpha, gamma, c = row["alpha"], row["gamma"], row["c"]
    low = factor(alpha - 0.005, gamma, c + 0.005)  # rises with alpha, falls with c
    high = factor(alpha + 0.005, gamma, c - 0.005)
    return low <= row["expected"] + 0.05 and high >= row["expected"] - 0.05


def test_table_4_is_reached_within_the_rounding_of_its_inputs_and_by_no_other():
    def rounds_to_printed(row):
        inputs = row["alpha"], row["gamma"], row["c"]
        return rounds_to(closed_forms.walltime_factor(*inputs), row["expected"], 1)

    def without_the_added_token(alpha, gamma, c):
        return closed_forms.expected_tokens(alpha, gamma - 1) / (gamma * c + 1)

    def with_one_draft_too_many(alpha, gamma, c):
        return closed_forms.expected_tokens(alpha, gamma) / ((gamma + 1) * c + 1)

    assert len(TABLE4) == 12 and all(map(reachable, TABLE4))
    assert sum(map(rounds_to_printed, TABLE4)) == 9
    for wrong in (without_the_added_token, with_one_draft_too_many):
        assert not all(reachable(row, wrong) for row in TABLE4)


def test_bigram_speedup_and_lenience_at_temperature_0():
    bigram, printed = PAPER["bigram_speedup"], LENIENCE["temperature_0"]
    factor = closed_forms.walltime_factor(bigram["alpha"], bigram["gamma"], 0)
    assert factor == pytest.approx(1.248) and rounds_to(factor, bigram["speedup"], 2)
    inputs = printed["alpha_t5_small"], printed["gamma"], printed["c"]
    factors = closed_forms.walltime_factor(*inputs)
    assert len(factors) == 4
    assert all(map(rounds_to, factors, printed["improvement"], [1] * 4))


def test_lenience_at_temperature_1():
    """Appendix A.5 prints 2.5, 3.1, 3.6, 5 for c = 0.015. They do not follow from that
    c and the alphas of Table 5, nor from any other c: they had other inputs."""
    alpha = np.array(LENIENCE["alpha"]["t5_small"])
    np.testing.assert_array_equal(
        closed_forms.optimal_gamma(alpha, 0.015), [7, 9, 10, 15]
    )
    ours = best_factor(alpha, 0.015)
    np.testing.assert_allclose(ours, [2.33, 2.94, 3.45, 4.79], atol=0.005)

    def fits(printed, c):
        low, high = best_factor(alpha - 0.005, c), best_factor(alpha + 0.005, c)
        return np.all((low <= printed + 0.05) & (high >= printed - 0.05))

    costs = np.linspace(1e-4, 0.03, 150)
    printed = np.array(LENIENCE["improvement_t5_small_c_0.015"])
    assert not any(fits(printed, c) for c in costs)
    assert any(fits(np.array([2.3, 2.9, 3.4, 4.8]), c) for c in costs)  # ours do


@pytest.mark.parametrize("row", rows(CHEN), ids=str)
def test_chen_theoretical_speedup(row):
    times = {"t_draft": CHEN["t_draft_ms"], "t_target": CHEN["t_target_ms"]}
    factor = closed_forms.chen_speedup(row["r"], CHEN["K"], **times)
    assert rounds_to(factor, row["theoretical_speedup"], 2)


def test_chen_rates_imply_these_alphas_and_gpt2_its_speedup():
    K, r = CHEN["K"], np.array([row["r"] for row in rows(CHEN)])
    alpha = closed_forms.implied_alpha(r * (K + 1), K)
    np.testing.assert_allclose(alpha, [0.888, 0.758], atol=5e-4)
    seconds = CHEN["gpt2_1558m_124m_greedy_seconds"]
    factor = seconds["autoregressive"] / seconds["speculative"]
    assert rounds_to(factor, CHEN["gpt2_1558m_124m_greedy_speedup"], 2)


def oracle_gain(alpha, c):
    return closed_forms.oracle_factor(alpha, c) / best_factor(alpha, c)


def test_oracle_gains_up_to_about_60_percent():
    # The supremum over all alpha and c is e / (e - 1), approached as alpha -> 1 with
    # c / (1 - alpha) -> 1 / (e - 2), where the best fixed gamma is 1 / (1 - alpha).
    ratio = np.linspace(0.5, 3, 251)
    gain = oracle_gain(1 - 1e-6, ratio * 1e-6)
    assert gain.max() == pytest.approx(1.582, abs=1e-3)
    assert gain.max() == pytest.approx(math.e / (math.e - 1), abs=1e-5)
    assert ratio[gain.argmax()] == pytest.approx(1 / (math.e - 2), abs=0.01)
    alpha, c = np.linspace(0.05, 0.99, 48)[:, None], np.linspace(0.005, 0.5, 50)
    assert oracle_gain(alpha, c).max() < math.e / (math.e - 1)


def test_figures_2_and_3():
    tokens = closed_forms.expected_tokens([0.2, 0.4, 0.6, 0.8, 0.9], 7)
    np.testing.assert_allclose(tokens, [1.250, 1.666, 2.458, 4.161, 5.695], atol=5e-4)
    alpha, c = np.array([0.5, 0.6, 0.7, 0.8, 0.9]), np.array([0.02, 0.05, 0.1])
    want = [[4, 6, 8, 11, 19], [3, 4, 6, 8, 13], [2, 3, 4, 6, 10]]
    np.testing.assert_array_equal(closed_forms.optimal_gamma(alpha, c[:, None]), want)


def test_the_tables_agree_with_each_other():
    def key_and_alpha(row, target):
        return (target, row["draft"], row["temperature"]), row["alpha"]

    table3 = dict(key_and_alpha(row, row["target"]) for row in TABLE3)
    assert len(table3) == 32 and len(TABLE1) == 6
    for two, four in zip(TABLE2, TABLE4, strict=True):
        shared = ["task", "draft", "temperature", "gamma", "alpha"]
        assert [two[k] for k in shared] == [four[k] for k in shared]
        assert two["speedup"] == four["measured"]
        key, alpha = key_and_alpha(two, "t5_xxl_" + two["task"])
        assert table3[key] == alpha
    for drafter, alphas in LENIENCE["alpha"].items():
        assert table3["t5_xxl_ende", drafter, 1] == alphas[0]
    strict = LENIENCE["temperature_0"]["alpha_t5_small"][0]
    assert table3["t5_xxl_ende", "t5_small", 0] == strict
