"""Every token is told by the word that it belongs to, in sentences and in code."""

import pytest

from experiments.kinds import prose, python, segments
from experiments.kinds.segments import Place
from specjax import zoo

SHORT = {
    prose.FUNCTION: "f",
    prose.NAME: "N",
    prose.NOUN: "N",
    prose.NUMBER: "1",
    prose.OTHER: "w",
    prose.PUNCTUATION: ".",
    python.KEYWORD: "k",
    python.IDENTIFIER: "i",
    python.OPERATOR: "o",
    python.BRACKET: "b",
}


def told(classify, text: str) -> str:
    """A letter for every piece; they do not overlap and leave out nothing but space."""
    pieces = list(classify(text))
    covered = {i for it in pieces for i in range(it.begin, it.end)}
    assert len(covered) == sum(it.end - it.begin for it in pieces)
    assert all(
        i in covered or text[i].isspace() or text[i] == "\0" for i in range(len(text))
    )
    return "".join(SHORT[it.kind] for it in pieces)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat of Anna isn't big. It can't see.", "fwfNfw.ffw."),
        ("Houses cost 3.5 to 1,000, says Bob-Lee.", "ww1f1.wN."),
        ("He said: Go! See `None`", "fw.w.w.N."),
        ("Amanda: Hi Jerry\n#Person1#: I go", "N.wNN.fw"),
        ("a list\nIn Python", "fwfN"),
        ("a list\n\nPython is", "fwwf"),
        ("the 2nd Anna\u2019s", "f1N"),
    ],
)
def test_english(text, expected):
    assert told(prose.english, text) == expected


def test_german_nouns_are_capitalised_and_pronouns_are_function_words():
    text = "Häuser sind teuer, und wir geben ihnen Geld für 2 Brücken."
    assert told(prose.german, text) == "wfw.ffwfNf1N."
    assert told(prose.german, "Er sieht Sie am Montag.") == "fwffN."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(x, y=1.5):\n    return x ** y", "kibibio1bbkioi"),
        ("if x is not None:\n  pass  # the Cat of 2", "kikkkbk.fNf1"),
        ('x = f"The {name} of"', "io.f.w.f."),
        # The end of a text, of a line and of a block come where they may not.
        ('def f():\n    """The name of\n    a', "kibbb.fwff"),
        ("x = 'the\ny = 2", "io.fio1"),
        ("    if x:\n        y\n   z = 1\nw", "kibiio1i"),
        ("a ? b )\nx = (1,", "ioibiob1b"),
        ("x\x00= 1\r\ny \x0c= 2", "io1io1"),
        ("", ""),
    ],
)
def test_python(text, expected):
    assert told(python.python, text) == expected


def test_a_token_is_what_its_first_character_belongs_to():
    tokenizer = zoo.tokenizer()
    text = 'def f(x):\n    """Read \u65e5"""\n    return a_b'
    ids = [*tokenizer.encode(text), zoo.END, zoo.PAD]
    places = segments.places(tokenizer.decode, ids, python.python, (zoo.END,))
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
    places = segments.places(
        lambda ids: "".join(letters[i] for i in ids), ids, prose.english
    )
    kinds = [it.kind for it in places]
    assert kinds[1] == "space" and kinds[3:6] == ["line break", *["indentation"] * 2]
