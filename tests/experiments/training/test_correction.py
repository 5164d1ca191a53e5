"""The errors that are put into text, and the passages that they are put into."""

import json

import numpy as np

from experiments import tasks
from experiments.training.texts import correction, documentation

TEXT = (
    "This function returns an array of the same shape as its argument, unless a value"
    " is given for which no place was found; it then has one more axis. Errors are"
    " raised for shapes that do not agree, and these are named in the message."
)


def changed(rule, text: str, at: int, seed: int = 0) -> str:
    words = text.split(" ")
    rule(np.random.default_rng(seed), words, at)
    return " ".join(words)


def test_errors_depend_on_the_text_and_the_seed_alone():
    spoiled = [correction.spoil(TEXT, seed) for seed in range(20)]
    assert spoiled == [correction.spoil(TEXT, seed) for seed in range(20)]
    assert len(set(spoiled)) == 20 and TEXT not in spoiled


def test_a_tenth_of_the_words_is_in_error():
    """Counted as words that are not where they were: a misplaced one counts twice."""
    words = TEXT.split(" ")
    wrong = [
        sum(map(str.__ne__, correction.spoil(TEXT, seed).split(" "), words))
        for seed in range(300)
    ]
    assert 0.09 < np.mean(wrong) / len(words) < 0.14
    assert correction.spoil("one two three four five", 3, rate=0.0).count(" ") == 4


def test_the_bundled_corrections_are_of_these_rules():
    lines = (tasks.DATA / "corrections.jsonl").read_text("utf-8").splitlines()
    for i, line in enumerate(map(json.loads, lines)):
        assert line["source"] == correction.spoil(line["target"], 10_000 + i)


def test_typing_changes_letters_inside_of_a_word():
    for seed in range(8):
        word = changed(correction.mistype, "a function here", 1, seed).split(" ")[1]
        assert word != "function" and word[0] == "f"
        assert abs(len(word) - len("function")) <= 1
        assert changed(correction.mistype, "of `x.y` it", 1, seed) == "of `x.y` it"


def test_every_way_of_mistyping_occurs():
    typed = {changed(correction.mistype, "abcd", 0, seed) for seed in range(60)}
    assert {"acbd", "abd", "acd", "abbcd", "abccd", "avcd", "abvd"} <= typed


def test_case_order_and_agreement():
    assert changed(correction.miscase, "the end", 0) in ("The end", "THE end")
    assert changed(correction.miscase, "The end", 0, 1) in ("the end", "THE end")
    assert changed(correction.misplace, "in the end.", 0) == "the in end."
    assert changed(correction.misplace, "in the end.", 1) == "in the end."
    assert changed(correction.disagree, "so it is now", 2) == "so it are now"
    assert changed(correction.disagree, "so they are now", 0) == "so it are now"
    assert changed(correction.disagree, "no such word", 0) == "no such word"


DOCUMENTED = """Gives back what was put in, in the same order. Nothing is lost.

Args:
  thing: What is to be kept until someone asks for it again, whoever that is.

    >>> x = box.get(3)  # this is no prose at all, but it ends as such.

It is safe to call this from several threads at once. See `put` for more.
"""


def test_prose_is_told_from_sections_and_examples():
    assert documentation.sentences(DOCUMENTED) == [
        "Gives back what was put in, in the same order.",
        "Nothing is lost.",
        "It is safe to call this from several threads at once.",
        "See `put` for more.",
    ]


def test_passages_are_of_one_file_and_of_the_wanted_length():
    files = [["aa bb.", "cc dd.", "ee ff."], ["gg hh.", "ii jj kk ll mm nn oo."]]
    words = documentation.passages(files, lambda s: len(s.split()), 4, 8)
    assert words == ["aa bb. cc dd."]
    longer = documentation.passages(files, lambda s: len(s.split()), 4, 9)
    assert longer == ["aa bb. cc dd.", "gg hh. ii jj kk ll mm nn oo."]
