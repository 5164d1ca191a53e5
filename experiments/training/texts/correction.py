"""Errors inserted into good text by seeded rules, which a model learns to correct.

The errors are in typing, case, word order, and agreement, in a tenth of the words. The
original text is the answer, nearly all of which is a copy of the input: the case of
Shallow Aggressive Decoding (Sun et al. 2021), in which the input is the draft
(Leviathan et al. 2023, section 5).
"""

from collections.abc import Callable

import numpy as np

PREFIX = "correct: "
RATE = 0.1  # of the words
NEAR = {  # on a keyboard, the keys beside each
    sign: row[max(0, i - 1) : i] + row[i + 1 : i + 2]
    for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm")
    for i, sign in enumerate(row)
}
AGREE = {
    "a": "an", "is": "are", "was": "were", "has": "have", "does": "do",
    "this": "these", "that": "those", "its": "their", "it": "they",
    "value": "values", "argument": "arguments", "returns": "return", "which": "who",
}  # fmt: skip
AGREE |= {other: word for word, other in AGREE.items()}
Rule = Callable[[np.random.Generator, list[str], int], None]


def add_errors(text: str, seed: int, rate: float = RATE) -> str:
    """Returns the text with errors in about `rate` of its words, or somewhat fewer.

    An error may undo another, and in a short text the few tries may all find nothing to
    change.
    """
    rng, words = np.random.default_rng(seed), text.split(" ")
    wanted = max(1, rng.binomial(len(words), rate))
    for _ in range(wanted * 4):  # a rule may have nothing to do at a word
        before = list(words)
        rule = RULES[rng.integers(len(RULES))]
        rule(rng, words, int(rng.integers(len(words))))
        wanted -= words != before
        if not wanted:
            break
    return " ".join(words)


def mistype(rng: np.random.Generator, words: list[str], at: int) -> None:
    """Swaps two letters, drops one, doubles one, or replaces one by that of a
    neighbouring key.
    """
    word = words[at]
    if len(word) < 4 or not word.isalpha():
        return
    i = int(rng.integers(1, len(word) - 1))
    near = NEAR.get(word[i], word[i])
    changed = (
        word[:i] + word[i + 1] + word[i] + word[i + 2 :],
        word[:i] + word[i + 1 :],
        word[:i] + word[i] + word[i:],
        word[:i] + near[int(rng.integers(len(near)))] + word[i + 1 :],
    )
    words[at] = changed[int(rng.integers(len(changed)))]


def miscase(rng: np.random.Generator, words: list[str], at: int) -> None:
    """Changes the case of a first letter, or capitalises a whole word."""
    word = words[at]
    if not word.isalpha() or len(word) < 2:
        return
    shout = rng.random() < 0.2
    words[at] = word.upper() if shout else word[0].swapcase() + word[1:]


def misplace(rng: np.random.Generator, words: list[str], at: int) -> None:
    """Moves a word after the one that follows it."""
    if at + 1 < len(words) and words[at].isalpha() and words[at + 1].isalpha():
        words[at : at + 2] = words[at + 1], words[at]


def disagree(rng: np.random.Generator, words: list[str], at: int) -> None:
    """Changes the number, singular or plural, of the first word from `at` on that has a
    number.
    """
    for place in range(at, len(words)):
        if words[place] in AGREE:
            words[place] = AGREE[words[place]]
            return


RULES: tuple[Rule, ...] = (mistype, mistype, miscase, misplace, disagree)
