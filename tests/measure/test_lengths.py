"""Counts of lengths, policies and the oracle, on a pair that decodes in a moment."""

import pytest

from specjax import sides
from specjax.measure import lengths
from specjax.measure.texts import Protocol
from specjax.prompts import Prompts
from tests.support import tiny

COSTS = lengths.Costs(c=0.1, slope=0.05)


def test_every_length_costs_what_its_counts_say():
    world = tiny.tables()
    target = sides.of_model("target", world.target, world.target_weights)
    draft = sides.of_model("draft", world.draft, world.draft_weights)
    pair, prompts = (target, draft), Prompts([[1], [1, 2], [3], [0]])
    sizes = dict(tokens=36, gamma=3, new_tokens=12, batch=4)
    protocol = Protocol("tiny", 1.0, **sizes)
    adapting, kept = ("renewal:c=0.1,slope=0.05",), {}
    how = pair, prompts, protocol, COSTS, (1, 2), adapting
    told = lengths.compare(*how, kept=kept)
    assert told["sequences"] == 3  # of 36 tokens, 12 each
    for gamma in (1, 2, 3):
        own = {k: told[f"gamma_{gamma}_{k}"] for k in ("tokens_per_call", "drafted")}
        assert own["drafted"] == pytest.approx(gamma / own["tokens_per_call"])
        cost = (1 + 0.15 * gamma) / own["tokens_per_call"]
        assert told[f"gamma_{gamma}_cost"] == pytest.approx(cost)
    assert told["oracle_tokens_per_call"] == told["gamma_3_tokens_per_call"]
    assert told["oracle_closed"] == 1 and told["oracle_regret"] == 0
    assert told[f"gamma_{told['best_gamma']}_closed"] == 0
    least, best = told["oracle_cost"], told[f"gamma_{told['best_gamma']}_cost"]
    closed = (best - told["renewal_cost"]) / (best - least)
    assert told["renewal_closed"] == pytest.approx(closed)
    assert 0 < told["renewal_drafted"] <= told["gamma_3_drafted"]
    dear = lengths.compare(*how[:3], lengths.Costs(0.3, 0.1), *how[4:], kept=kept)
    assert len(kept) == 4 and dear["gamma_2_cost"] > told["gamma_2_cost"]
