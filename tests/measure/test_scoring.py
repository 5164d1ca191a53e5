"""Measures texts: repeated tokens, further siblings, and lengths of drafts."""

import numpy as np
import pytest

from specjax.measure import lengths, pairs, scoring, siblings, texts
from specjax.measure.scoring import RUN, Scores
from specjax.measure.texts import Protocol, Text
from specjax.prompts import Prompts
from tests.support import bare, tiny, tiny_pair
from tests.support.drafted import build_whole_text_logits
from tests.support.settings import make

# What is repeated in a text, and alpha at the rest of it.


def test_a_loop_is_marked_from_its_second_turn_on():
    once = np.arange(5)
    marks = scoring.find_repeats(np.tile(once, 4))
    # The first run that was there before begins at the second turn.
    assert marks.tolist() == [i >= 5 + RUN - 1 for i in range(20)]


def test_a_shorter_run_is_a_phrase():
    ids = np.concatenate([np.arange(RUN - 1), [90], np.arange(RUN - 1), [91]])
    assert not scoring.find_repeats(ids).any()
    assert scoring.find_repeats(np.append(ids[:-1], 90))[-1]
    assert not scoring.find_repeats(ids[:3]).any()


def test_alpha_elsewhere_is_that_of_what_is_not_repeated():
    """One text copies its prompt and one does not, with padding after both."""
    tokens = np.stack([np.tile(np.arange(10), 3)[:26], np.arange(50, 76)])
    padded = np.pad(tokens, ((0, 0), (0, 4)))
    rows = Text(padded, np.array([10, 20]), np.array([26, 24]))
    inside = [i >= RUN - 1 for i in range(16)] + [False] * 4
    beta = np.where(inside, 0.9, 0.3)
    sequence = np.array([0] * 16 + [1] * 4)
    row = scoring.alpha_outside_repeats(rows, Scores(beta, beta, beta, sequence))
    assert row["repeated"] == pytest.approx(sum(inside) / 20)
    assert row["alpha_fresh"] == pytest.approx(0.3)
    assert scoring.alpha_outside_repeats(rows, None)["alpha_fresh"] is None


def test_a_text_that_only_repeats_has_no_alpha_elsewhere():
    tokens = np.tile(np.arange(4), 10)[None]
    rows = Text(tokens, np.array([20]), np.array([40]))
    beta = np.ones(20)
    row = scoring.alpha_outside_repeats(
        rows, Scores(beta, beta, beta, np.zeros(20, int))
    )
    assert row == {"repeated": 1.0, "alpha_fresh": None, "alpha_fresh_se": None}


# The acceptance of further siblings, against a rule that tries them one by one.


def test_further_siblings_are_what_recursive_rejection_gives_at_every_token():
    """For greedy texts children and laws are certain, and the first sibling gives alpha
    at T = 1."""
    target, draft = tiny_pair.pair()
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, tiny.TARGET.vocab, (6, 40)).astype(np.int32)
    length = np.full(6, 40)
    text = Text(tokens, np.full(6, 3), length, None)
    rate, error, *_ = siblings.measure(target, draft, text, 0.0, most=3)
    assert rate.shape == error.shape == (3,) and (error > 0).all()

    def logits(side):
        model = getattr(side, "pretrained", side).model
        return np.asarray(build_whole_text_logits(model)(side.params, tokens))[:, 2:39]

    best = logits(target).argmax(-1)
    ranked = np.argsort(-logits(draft), axis=-1, kind="stable")
    hits = [(ranked[..., i] == best).sum() for i in range(3)]
    left = best.size - np.cumsum([0, *hits[:2]])
    np.testing.assert_allclose(rate, np.array(hits) / left, atol=1e-6)

    found = siblings.measure(target, draft, text, 1.0, most=3)
    rate, error = found.rate, found.error
    p, q = (softmax(logits(side)) for side in (target, draft))
    beta = np.minimum(p, q).sum(-1).mean()
    assert abs(rate[0] - beta) < 5 * error[0]
    assert rate[0] > rate[1] > 0 and (found.floor <= rate).all()
    # Of one draw no rule keeps more than beta, of more none keeps all that it might.
    assert found.replaced[0] == pytest.approx(beta, abs=1e-5)
    assert found.distinct[0] == pytest.approx(beta, abs=2e-3)
    assert (found.kept < found.distinct[:3] + 5 * error).all()
    assert (found.distinct[1:] > found.replaced[1:]).all()


def test_the_error_of_siblings_is_over_prompts_and_unknown_for_one():
    target, draft = tiny_pair.pair()
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, tiny.TARGET.vocab, (4, 20)).astype(np.int32)
    text = Text(tokens, np.full(4, 3), np.full(4, 20), None)
    one = Text(*(x if x is None else x[:1] for x in text))
    assert np.isnan(siblings.measure(target, draft, one, 0.0, most=2).error).all()
    # Each text three times: of greedy texts the copies tell nothing more.
    thrice = Text(*(x if x is None else np.tile(x, (3, 1)[: x.ndim]) for x in text))
    once = siblings.measure(target, draft, text, 0.0, most=2, prompts=4)
    again = siblings.measure(target, draft, thrice, 0.0, most=2, prompts=4)
    np.testing.assert_allclose(again.rate, once.rate, rtol=1e-5)
    np.testing.assert_allclose(again.error, once.error, rtol=1e-5)
    as_if = siblings.measure(target, draft, thrice, 0.0, most=2)
    assert (as_if.error < 0.7 * once.error).all()


def test_the_same_text_again_draws_other_siblings():
    """Texts are scored in chunks, and a key belongs to a text, not to its chunk."""
    target, draft = tiny_pair.pair()
    rng = np.random.default_rng(0)
    shape = scoring.CHUNK, 12
    tokens = rng.integers(0, tiny.TARGET.vocab, shape).astype(np.int32)
    once = Text(tokens, np.full(shape[0], 3), np.full(*shape), None)
    twice = Text(*(x if x is None else np.concatenate([x, x]) for x in once))
    both = [siblings.measure(target, draft, x, 1.0, most=3) for x in (once, twice)]
    rates = [found.rate for found in both]
    assert (np.abs(rates[0] - rates[1]) > 1e-4).all()
    # What is drawn by no key is the same for both.
    np.testing.assert_allclose(both[0].replaced, both[1].replaced, atol=1e-6)
    again = siblings.measure(target, draft, once, 1.0, most=3, seed=1)
    assert (np.abs(rates[0] - again.rate) > 1e-4).all()


def test_a_large_vocabulary_is_scored_in_fewer_rows(monkeypatch):
    target, draft = tiny_pair.pair()
    rng, shape = np.random.default_rng(0), (5, 12)
    tokens = rng.integers(0, tiny.TARGET.vocab, shape).astype(np.int32)
    text = Text(tokens, np.full(shape[0], 3), np.full(*shape), None)
    whole = scoring.score(target, draft, text, 1.0)
    for rows in 1, 2, 5:
        most = (rows + 0.5) * shape[1] * tiny.TARGET.vocab
        monkeypatch.setattr(scoring, "LARGEST", int(most))
        assert scoring.rows_at_once(*shape, tiny.TARGET.vocab) == rows
        for each, wanted in zip(
            scoring.score(target, draft, text, 1.0), whole, strict=True
        ):
            np.testing.assert_allclose(each, wanted, atol=1e-6)


def softmax(z: np.ndarray) -> np.ndarray:
    weights = np.exp(z - z.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


# Counts of lengths, policies and the oracle, on a pair that decodes in a moment.

COSTS = lengths.Costs(c=0.1, slope=0.05)


def test_every_length_costs_what_its_counts_say():
    world = tiny.tables()
    target = bare.target("target", world.target, world.target_weights)
    draft = bare.draft("draft", world.draft, world.draft_weights)
    pair, prompts = (target, draft), Prompts([[1], [1, 2], [3], [0]])
    sizes = dict(tokens=36, gamma=3, new_tokens=12, batch=4)
    protocol = make(Protocol, task="tiny", temperature=1.0, **sizes)
    adapting, kept = ("renewal:c=0.1,slope=0.05",), {}
    options = {"gammas": (1, 2), "policies": adapting, "kept": kept}
    told = lengths.compare(pair, prompts, protocol, costs=COSTS, **options)
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
    costs = lengths.Costs(0.3, 0.1)
    dear = lengths.compare(pair, prompts, protocol, costs=costs, **options)
    assert len(kept) == 4 and dear["gamma_2_cost"] > told["gamma_2_cost"]


def test_texts_of_one_prompt_are_one_unit_of_an_error():
    """Five texts continue two prompts: text i continues prompt i modulo 2."""
    sequence = np.repeat(np.arange(5), 2)
    scores = Scores(*[np.arange(10.0)] * 3, sequence)
    totals = [np.arange(1, 6) * 10**i for i in range(4)]
    joined, calls = pairs.by_prompt(scores, texts.Calls(*totals, []), 2)
    assert joined.sequence.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0]
    assert [x.tolist() for x in calls[:4]] == [[9 * 10**i, 6 * 10**i] for i in range(4)]
    assert pairs.by_prompt(None, calls, 7)[1].calls.tolist() == [9, 6]
    assert pairs.by_prompt(scores, calls, 1) == (scores, calls)


def test_texts_are_kept_by_what_they_continue():
    one = Prompts([[1, 2], [3]])
    other = Prompts([[1], [2, 3]])
    digests = {texts.digest_prompts(each) for each in (one, other, Prompts([[1, 2]]))}
    assert len(digests) == 3
    assert texts.digest_prompts(Prompts([[1, 2], [3]])) in digests
