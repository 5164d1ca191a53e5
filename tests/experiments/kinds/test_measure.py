"""What was looked at, and every sum over it, against a count by hand on tiny models.

Axes: N texts, M tokens.
"""

import functools
from types import SimpleNamespace

import numpy as np
import pytest

from experiments import run
from experiments.kinds import measure, segments, shares, tested_drafts
from experiments.kinds.tested_drafts import Call, Tokens
from experiments.report import details, tables
from specjax.measure import pairs
from specjax.measure.texts import Protocol
from specjax.sides import random, reference
from tests.support.tiny_pair import PROMPTS, SMALL, generated, law, logits, pair

LETTERS = "Ab ,1\nc."


def decode(ids):
    return "".join(LETTERS[i % len(LETTERS)] for i in ids)


@functools.cache
def ran(temperature: float, tokens: int = SMALL["tokens"]):
    protocol = Protocol("tiny", temperature, **SMALL | {"tokens": tokens})
    return tested_drafts.run(pair(), PROMPTS, protocol, reference())


def laws(text, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """p and q at each generated token, [M, V] in float64."""
    return tuple(law(logits(side, text), temperature) for side in pair())


def by_hand(agree: np.ndarray, gamma: int) -> tuple[list, list]:
    """(block, kept) of a text at temperature 0, of which the drafts `agree` [M] are
    right, as Algorithm 1 goes through it."""
    block, kept = [], []
    while len(block) < len(agree):
        for i in range(1, gamma + 1):
            if len(block) < len(agree):
                block.append(i)
                kept.append(bool(agree[len(kept)]))
                if not kept[-1]:
                    break
        else:
            if len(block) < len(agree):  # what the call adds
                block.append(0)
                kept.append(False)
    return block, kept


def test_at_temperature_0_every_draft_is_where_algorithm_1_tests_it():
    text, tokens = ran(0.0)
    p, q = laws(text, 0.0)
    agree = p.argmax(-1) == q.argmax(-1)
    np.testing.assert_array_equal(tokens.alpha, agree)
    np.testing.assert_array_equal(tokens.expected, agree)
    blocks, kept = [], []
    for row in range(len(text.start)):
        block, keeps = by_hand(agree[tokens.sequence == row], SMALL["gamma"])
        blocks += block
        kept += keeps
    np.testing.assert_array_equal(tokens.block, blocks)
    np.testing.assert_array_equal(tokens.kept, kept)
    assert set(blocks) == {0, 1, 2} and set(kept) == {False, True}
    place = np.concatenate([np.arange(n) for n in text.length - text.start])
    np.testing.assert_array_equal(tokens.place, place)


def test_what_is_expected_of_a_token_is_what_happens_to_such_tokens():
    text, tokens = ran(1.0, 3000)
    p, q = laws(text, 1.0)
    x = text.tokens[generated(text)]
    at = np.arange(len(x))
    np.testing.assert_allclose(tokens.alpha, np.minimum(p, q).sum(-1), atol=1e-5)
    expected = np.minimum(1, q[at, x] / p[at, x])
    np.testing.assert_allclose(tokens.expected, expected, atol=1e-4)
    # E_p min(1, q / p) = sum_x min(p, q): one mean over all tokens.
    seen = tokens.looked_at()
    assert len(seen.block) < len(tokens.block)
    low = seen.expected < 0.6
    for part in (low, ~low & (seen.expected < 1)):
        mean, error = spread(seen.kept[part], seen.expected[part])
        assert abs(mean) < 4 * error
    _, error = spread(seen.kept[low], seen.expected[low])
    # alpha, which is of all tokens that might stand there, is not this token's coin.
    assert np.mean(seen.alpha[low] - seen.kept[low]) > 4 * error
    assert seen.kept[seen.expected == 1].all()
    told = measure.agreement(seen)
    assert abs(told["z"]) < 4 and told["against"] == 0


def spread(kept: np.ndarray, chance: np.ndarray) -> tuple[float, float]:
    """The mean of kept - chance, and its standard error."""
    count = len(kept)
    return np.mean(kept - chance), np.sqrt(np.sum(chance * (1 - chance))) / count


def test_a_call_beyond_the_end_of_a_text_counts_for_nothing():
    three = np.array([3, 3]), np.array([2, 2]), np.array([1, 2])
    later = np.array([5, 6]), np.array([2, 1]), np.array([2, 0])
    first, second = tested_drafts.tested(
        [Call(*three), Call(*later)], np.array([3, 3]), np.array([3, 2])
    )
    assert [it.tolist() for it in first] == [[1, 2, 1], [True, False, True]]
    assert [it.tolist() for it in second] == [[1, 2], [True, True]]


def test_means_and_intervals_by_hand():
    alpha = np.array([0.2, 0.4, 0.9, 0.5, 0.7])
    kept = np.array([0, 1, 1, 0, 1], bool)
    sequence = np.array([0, 0, 0, 1, 1])
    tokens = Tokens(np.ones(5), kept, alpha, alpha / 2, sequence, np.arange(5))
    labels = ["a", "a", "b", "a", None]
    a, b = shares.cells(labels, ["c", "b", "a"], tokens)[::-1]
    assert (a["label"], a["count"], a["texts"], a["share"]) == ("a", 3, 2, 0.75)
    # Of two texts half of the samples have one text twice: its mean is the end.
    np.testing.assert_allclose(a["alpha"], [1.1 / 3, 0.3, 0.5])
    np.testing.assert_allclose(a["kept"], [1 / 3, 0, 0.5])
    np.testing.assert_allclose(a["more"][0], 1.1 / 6 - 0.45)
    assert (b["label"], b["count"], b["texts"]) == ("b", 1, 1)
    assert b["alpha"] == [0.9, None, None]
    with pytest.raises(ValueError, match=r"no place for \['d'\]"):
        shares.cells(["d"] * 5, ["a"], tokens)


def test_an_interval_holds_95_per_cent_of_the_samples():
    drawn = np.linspace(0, 1, 201)
    assert shares.interval(np.array(0.5), drawn, 2) == [0.5, 0.025, 0.975]


def test_a_row_adds_up():
    protocol = Protocol("tiny", 1.0, **SMALL)
    reading = "english", SimpleNamespace(decode=decode)
    row = measure.measure(pair(), PROMPTS, protocol, reading)
    text, every = ran(1.0)
    tokens = every.looked_at()
    assert row["tokens"] == len(tokens.block) < row["generated"] == len(every.block)
    assert row["alpha"] == pytest.approx(tokens.alpha.mean())
    assert row["alpha_everywhere"] == pytest.approx(every.alpha.mean())
    assert row["kept"] == pytest.approx(tokens.kept.mean())
    kinds, blocks = row["groups"]["kind"], row["groups"]["block"]
    for cells in (kinds, blocks, row["groups"]["place"]):
        assert sum(it["count"] for it in cells) == row["tokens"]
        total = sum(it["share"] * it["alpha"][0] for it in cells)
        assert total == pytest.approx(row["alpha"])
    for at, cell in enumerate(blocks, start=1):
        assert cell["count"] == np.sum(tokens.block == at)
    # A text is read with its prompt, and none of the prompt is told.
    told = list(measure.of_texts(text, PROMPTS.ends, reading))
    assert len(told) == row["generated"]
    whole, start = text.tokens[0, : text.length[0]].tolist(), text.start[0]
    english = measure.LANGUAGES["english"]
    alone = segments.places(decode, whole, english, PROMPTS.ends)
    assert told[: len(alone) - start] == alone[start:]
    # The table shows each of its cells.
    _, *wide = details.kinds({"kinds": {"code_t1": {"measured": row}}})
    for (_, head, lines), name in zip(wide, details.KINDS, strict=True):
        assert len(lines) == len(row["groups"][name])
        assert all(len(line) == len(head) for line in lines)


def test_a_kind_is_accepted_more_where_its_interval_says_so():
    both = {"share": 0.5, "count": 9, "texts": 2, "kept": [0.5, 0.4, 0.6]}
    both |= {"alpha": both["kept"], "expected": both["kept"]}
    more = [0.2, 0.1, 0.3], [-0.2, -0.3, -0.1], [0.1, -0.1, 0.3], [0.1, None, None]
    labels = "function word", "punctuation", "keyword", "operator"
    cells = [
        both | {"label": label, "more": it}
        for label, it in zip(labels, more, strict=True)
    ]
    cells.append(both | {"label": "name", "more": more[0]})
    groups = dict.fromkeys(details.KINDS, cells)
    records = {"kinds": {"docs_t0": {"measured": {"groups": groups}}}}
    (_, head, lines), *_ = details.kinds(records)
    assert [line[1] for line in lines] == list(labels)  # a name is not said to be
    verdicts = ["yes", "no, less", "not seen", "too few texts"]
    assert [line[head.index("verdict")] for line in lines] == verdicts
    assert lines[0][2:3] == ["+0.200 [+0.100, +0.300]"] and lines[3][2] == "+0.100"
    assert details.kinds({}) == []
    own = {"target": "a", "draft": "b", "groups": groups}
    own["protocol"] = {"task": "my.jsonl", "temperature": 0.8}
    records["mine"] = {"row": {"measured": own}, "other": {"measured": {}}}
    (_, _, lines), *_ = details.kinds(records)
    assert [line[0] for line in lines[4:]] == ["a with b, my.jsonl, T = 0.8"] * 4


def test_the_docs_say_what_the_records_say():
    """docs/papers/leviathan.md: what is accepted more, and where."""
    rows = tables.collect(run.ROOT / "results")["kinds"]
    accepted_more = {
        "function word": ("joined_t0", "joined_t1", "docs_t1", "code_t1"),
        "punctuation": ("joined_t0", "joined_t1", "docs_t0", "docs_t1", "correct_t0")
        + ("correct_t1",),
    }
    for label, more in accepted_more.items():
        for name, record in rows.items():
            cells = record["measured"]["groups"]["kind"]
            (cell,) = (it for it in cells if it["label"] == label)
            assert (details.more_or_less(cell) == "yes") == (name in more)


def test_numbers_fall_into_bins():
    labels, order = measure.binned([0, 7, 8, None, 300], (0, 1, 8, 64))
    assert order == ["0", "1 to 7", "8 to 63", "64 on"]
    assert labels == ["0", "1 to 7", "8 to 63", None, "64 on"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"language": "latin"}, "no language 'latin': choose one of english, german"),
        ({"rule": "block"}, "set the rule to token"),
        ({"gamma": 0}, "gamma to at least 1; got token and 0"),
        ({"draft": random(3)}, "has a vocabulary of"),
        ({}, "target has no tokenizer: name a model that has one"),
    ],
)
def test_what_cannot_be_told_is_refused(change, message):
    sides = dict(zip(("target", "draft"), pair(), strict=True))
    settings = {"language": "english", **sides} | change
    fields = {name: settings.pop(name) for name in ("rule", "gamma") if name in change}
    protocol = Protocol("tiny", 1.0, **SMALL | fields)
    task = pairs.Task(PROMPTS, ())
    with pytest.raises(ValueError, match=message):
        measure.build(**settings, protocol=protocol, read=lambda *_: task)
