"""Acceptance by kind of word equals a count by hand, on tiny models."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest

from experiments import run
from experiments.kinds import measure, prose, python, segments, shares, tested_drafts
from experiments.kinds.segments import Place
from experiments.kinds.tested_drafts import Tokens
from experiments.report import tables
from specjax import zoo
from specjax.decode_config import change
from specjax.fused import reference
from specjax.measure import pairs
from specjax.measure.texts import Protocol
from tests.support.settings import make
from tests.support.tiny_pair import PROMPTS, SMALL, generated_places, law, logits, pair

LETTERS = "Ab ,1\nc."


def decode(ids):
    return "".join(LETTERS[i % len(LETTERS)] for i in ids)


SIZES = SMALL | {"tokens": 3000}


@functools.cache
def ran(temperature: float):
    protocol = make(Protocol, task="tiny", temperature=temperature, **SIZES)
    return tested_drafts.run(pair(), PROMPTS, protocol, reference())


def laws(text, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns p and q at each generated token, [M, V] in float64."""
    return tuple(law(logits(side, text), temperature) for side in pair())


def decode_greedy(agree: np.ndarray, gamma: int) -> tuple[list, list]:
    """Returns (block, kept) of a text at temperature 0; `agree` [M] says which drafts
    are right."""
    block, kept = [], []
    while len(block) < len(agree):
        right = agree[len(block) :][:gamma].tolist()
        tested = (right + [False]).index(False) + (False in right)
        block += range(1, tested + 1)
        kept += right[:tested]
        if all(right):  # what the call adds
            block, kept = [*block, 0], [*kept, False]
    return block[: len(agree)], kept[: len(agree)]


def test_at_temperature_0_every_draft_is_where_algorithm_1_tests_it():
    text, tokens = ran(0.0)
    p, q = laws(text, 0.0)
    agree = p.argmax(-1) == q.argmax(-1)
    np.testing.assert_array_equal(tokens.alpha, agree)
    np.testing.assert_array_equal(tokens.expected, agree)
    rows = [agree[tokens.sequence == row] for row in range(len(text.start))]
    wanted = zip(*(decode_greedy(row, SMALL["gamma"]) for row in rows), strict=True)
    blocks, kept = (np.concatenate(leaf) for leaf in wanted)
    np.testing.assert_array_equal(tokens.block, blocks)
    np.testing.assert_array_equal(tokens.kept, kept)
    assert {*blocks.tolist()} == {0, 1, 2} and {*kept.tolist()} == {False, True}
    place = np.concatenate([np.arange(n) for n in text.length - text.start])
    np.testing.assert_array_equal(tokens.place, place)


def test_what_is_expected_of_a_token_is_what_happens_to_such_tokens():
    text, tokens = ran(1.0)
    p, q = laws(text, 1.0)
    x = text.tokens[generated_places(text)]
    at = np.arange(len(x))
    np.testing.assert_allclose(tokens.alpha, np.minimum(p, q).sum(-1), atol=1e-5)
    expected = np.minimum(1, q[at, x] / p[at, x])
    np.testing.assert_allclose(tokens.expected, expected, atol=1e-4)
    # E_p min(1, q / p) = sum_x min(p, q): one mean over all tokens.
    seen = tokens.select_tested()
    assert len(seen.block) < len(tokens.block)
    low = seen.expected < 0.6
    for part in (~low & (seen.expected < 1), low):
        chance = seen.expected[part]
        error = np.sqrt(np.sum(chance * (1 - chance))) / len(chance)
        assert abs(np.mean(seen.kept[part] - chance)) < 4 * error
    # alpha, which is of all tokens that might stand there, is not this token's coin.
    assert np.mean(seen.alpha[low] - seen.kept[low]) > 4 * error
    assert seen.kept[seen.expected == 1].all()
    told = measure.agreement(seen)
    assert abs(told["z"]) < 4 and told["against"] == 0


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
    drawn = np.linspace(0, 1, 201)
    assert shares.interval(np.array(0.5), drawn, 2) == [0.5, 0.025, 0.975]
    with pytest.raises(ValueError, match=r"no place for \['d'\]"):
        shares.cells(["d"] * 5, ["a"], tokens)


def test_a_row_adds_up(monkeypatch):
    recorded = ran(1.0)
    monkeypatch.setattr(tested_drafts, "run", lambda *arguments: recorded)
    protocol = make(Protocol, task="tiny", temperature=1.0, **SIZES)
    reading = "english", SimpleNamespace(decode=decode)
    row = measure.measure(pair(), PROMPTS, protocol, reading=reading)
    text, every = recorded
    tokens = every.select_tested()
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
    told = list(measure.token_places(text, PROMPTS.ends, reading))
    assert len(told) == row["generated"]
    whole, start = text.tokens[0, : text.length[0]].tolist(), text.start[0]
    english = measure.LANGUAGES["english"]
    alone = segments.places(decode, whole, english, last=PROMPTS.ends)
    assert told[: len(alone) - start] == alone[start:]


def test_the_docs_say_what_the_records_say():
    text = (run.ROOT / "docs/papers/leviathan.md").read_text("utf-8")
    for record in tables.collect(run.ROOT / "results")["kinds"].values():
        for cell in record["measured"]["groups"]["kind"]:
            if cell["label"] in ("function word", "punctuation"):
                more, low, high = cell["more"]
                told = f"{cell['expected'][0]:.3f}, {more:+.3f} [{low:.3f}, {high:.3f}]"
                assert told in text


def test_numbers_fall_into_bins():
    labels, order = measure.bin_labels([0, 7, 8, None, 300], (0, 1, 8, 64))
    assert order == ["0", "1 to 7", "8 to 63", "64 on"]
    assert labels == ["0", "1 to 7", "8 to 63", None, "64 on"]


WARM = make(Protocol, task="tiny", temperature=1.0, **SMALL)
REFUSED = [
    ("latin", WARM, "no language 'latin': choose one of english, german"),
    ("english", change(WARM, rule="block"), "set the rule to token"),
    ("english", change(WARM, gamma=0), "gamma to at least 1; got token and 0"),
    ("english", WARM, "target has no tokenizer beside its weights"),
]


@pytest.mark.parametrize(("language", "protocol", "message"), REFUSED)
def test_what_cannot_be_told_is_refused(language, protocol, message):
    with pytest.raises(ValueError, match=message):
        measure.build(
            *pair(),
            protocol=protocol,
            language=language,
            read=lambda *_: pairs.Task(PROMPTS, ()),
        )


SHORT = {prose.FUNCTION: "f", prose.NAME: "N", prose.NOUN: "N", prose.NUMBER: "1"}
SHORT |= {prose.OTHER: "w", prose.PUNCTUATION: ".", python.KEYWORD: "k"}
SHORT |= {python.IDENTIFIER: "i", python.OPERATOR: "o", python.BRACKET: "b"}


def classify_pieces(classify, text: str) -> str:
    """Returns a letter for every piece; the pieces do not overlap and leave out only
    spaces."""
    pieces = list(classify(text))
    covered = {i for it in pieces for i in range(it.begin, it.end)}
    assert len(covered) == sum(it.end - it.begin for it in pieces)
    others = (char for i, char in enumerate(text) if i not in covered)
    assert all(char.isspace() or char == "\0" for char in others)
    return "".join(SHORT[it.kind] for it in pieces)


CASES = [
    (prose.english, "The cat of Anna isn't big. It can't see.", "fwfNfw.ffw."),
    (prose.english, "Houses cost 3.5 to 1,000, says Bob-Lee.", "ww1f1.wN."),
    (prose.english, "He said: Go! See `None`", "fw.w.w.N."),
    (prose.english, "Amanda: Hi Jerry\n#Person1#: I go", "N.wNN.fw"),
    (prose.english, "a list\nIn Python", "fwfN"),
    (prose.english, "a list\n\nPython is", "fwwf"),
    (prose.english, "the 2nd Anna\u2019s", "f1N"),
    # Nouns are capitalised.
    (prose.german, "Häuser sind teuer, und wir geben für 2 Brücken.", "wfw.ffwf1N."),
    (prose.german, "Er sieht Sie am Montag.", "fwffN."),
    (python.python, "def f(x, y=1.5):\n    return x ** y", "kibibio1bbkioi"),
    (python.python, "if x is not None:\n  pass  # the Cat of 2", "kikkkbk.fNf1"),
    (python.python, 'x = f"The {name} of"', "io.f.w.f."),
    # The end of a text, of a line and of a block come where they may not.
    (python.python, 'def f():\n    """The name of\n    a', "kibbb.fwff"),
    (python.python, "x = 'the\ny = 2", "io.fio1"),
    (python.python, "    if x:\n        y\n   z = 1\nw", "kibiio1i"),
    (python.python, "a ? b )\nx = (1,", "ioibiob1b"),
    (python.python, "x\x00= 1\r\ny \x0c= 2", "io1io1"),
    (python.python, "", ""),
]


@pytest.mark.parametrize(("classify", "text", "expected"), CASES)
def test_words_are_told(classify, text, expected):
    assert classify_pieces(classify, text) == expected


def test_a_token_is_what_its_first_character_belongs_to():
    tokenizer = zoo.tokenizer()
    text = 'def f(x):\n    """Read \u65e5"""\n    return a_b'
    ids = [*tokenizer.encode(text), zoo.END, zoo.PAD]
    places = segments.places(tokenizer.decode, ids, python.python, last=(zoo.END,))
    silent, ended = Place("no text", 0, 0, None), Place("end of text", 0, 0, None)
    assert (places[0], places[-2], places[-1]) == (silent, ended, silent)
    byname = dict(zip(map(tokenizer.piece, ids), places, strict=True))
    assert byname["def"] == Place("keyword", 3, 3, True)
    assert byname[" a"] == Place("identifier", 1, 3, True)
    assert byname["_"] == Place("identifier", 1, 3, False)
    assert byname["\\n"] == Place("line break", 1, 0, None)
    assert byname["    "] == Place("indentation", 4, 0, None)
    assert byname["):"] == Place("bracket or separator", 2, 0, None)
    # Three bytes of one character, each a token.
    three = [it for it in places if it.kind == prose.OTHER and it.word == 1]
    assert [it.first for it in three] == [True, False, False]


def test_spaces_between_words_are_no_indentation():
    letters = "ab \n"
    ids = [0, 2, 1, 3, 2, 2, 0]  # "a b\n  a"

    def decode(ids):
        return "".join(letters[i] for i in ids)

    kinds = [it.kind for it in segments.places(decode, ids, prose.english)]
    assert kinds[1] == "space" and kinds[3:6] == ["line break", *["indentation"] * 2]
