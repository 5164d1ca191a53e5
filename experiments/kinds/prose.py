"""Kinds of words in English and German prose: function words, names, numbers, others.

A name is a word that is capitalised inside a sentence. In German all nouns are, so
that there the kind is of nouns and names. A sentence begins with the text, after a full
stop, an exclamation mark, a question mark or a colon, and after an empty line; its
first word is a function word or one of the others, since its capital says nothing. Who
speaks, a capitalised word and a colon where a line begins, is a name, and so is
#Person1#.
"""

import re
from collections.abc import Iterator

from experiments.kinds.function_words import ENGLISH, GERMAN
from experiments.kinds.segments import Segment

FUNCTION, NAME, NOUN = "function word", "name", "noun or name"
NUMBER, PUNCTUATION, OTHER = "number", "punctuation", "other word"
# A speaker's mark; digits with what stands between them; a word; any other sign.
PIECES = re.compile(r"#\w+#|\d+(?:[.,:]\d+)*(?!\w)|[^\W_]+(?:['\u2019\-][^\W_]+)*|\S")
CLITIC = re.compile(r"(n't|'(?:s|re|ve|ll|d|m))$")
OPENS = ".!?:…"


def english(text: str) -> Iterator[Segment]:
    """The segments of an English text; white space is in none."""
    return segments(text, ENGLISH, NAME)


def german(text: str) -> Iterator[Segment]:
    """The segments of a German text; white space is in none."""
    return segments(text, GERMAN, NOUN)


def segments(text: str, function: frozenset[str], capital: str) -> Iterator[Segment]:
    """function: words of that kind, in small letters. capital: the kind of words that
    are capitalised inside a sentence."""
    opening, before = True, 0
    for match in PIECES.finditer(text):
        begin, end = match.span()
        piece = match.group()
        opening = opening or text.count("\n", before, begin) > 1
        before = end
        if not (piece[0].isalnum() or len(piece) > 1):
            yield Segment(begin, end, PUNCTUATION, word=False)
            opening = opening or piece in OPENS
            continue
        named = speaks(text, begin, end)
        yield Segment(begin, end, kind(piece, function, capital, opening, named))
        opening = False


def kind(
    piece: str, function: frozenset[str], capital: str, opening: bool, named: bool
) -> str:
    """named: whether its place alone makes it a name."""
    if piece[0] == "#" or named:
        return capital
    if piece[0].isdigit():
        return NUMBER
    plain = piece.casefold().replace("\u2019", "'")
    if plain in function or CLITIC.sub("", plain) in function:
        return FUNCTION
    return capital if piece[0].isupper() and not opening else OTHER


def speaks(text: str, begin: int, end: int) -> bool:
    """Whether a capitalised word stands alone between a line's begin and a colon."""
    return (
        text[begin].isupper()
        and text[end : end + 1] == ":"
        and (begin == 0 or text[begin - 1] == "\n")
    )
