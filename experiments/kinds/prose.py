"""Kinds of words in English and German prose: function words, names, numbers, and
others.

A name is a word that is capitalised inside a sentence. In German all nouns are
capitalised, so that the kind there is nouns and names. A sentence begins with the text,
after a full stop, an exclamation mark, a question mark or a colon, and after an empty
line. Its first word is a function word or another word, because its capital says
nothing. A speaker, which is a capitalised word and a colon at the start of a line, is a
name, and so is #Person1#. Function words are closed classes, listed in small letters:
articles, pronouns, prepositions, auxiliaries, particles. English forms with 's, 're,
n't and the like are classified by the part before; forms whose rest is not a word are
listed. "none" is not listed, because None is a name in documentation.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from experiments.kinds.segments import Segment

FUNCTION, NAME, NOUN = "function word", "name", "noun or name"
NUMBER, PUNCTUATION, OTHER = "number", "punctuation", "other word"
# A speaker's mark; digits with what stands between them; a word; any other sign.
PIECES = re.compile(r"#\w+#|\d+(?:[.,:]\d+)*(?!\w)|[^\W_]+(?:['\u2019\-][^\W_]+)*|\S")
CLITIC = re.compile(r"(n't|'(?:s|re|ve|ll|d|m))$")
OPENS = ".!?:…"


READ = json.loads(Path(__file__).with_name("function_words.json").read_text("utf-8"))
ENGLISH, GERMAN = (
    frozenset(word for several in READ[language].values() for word in several)
    for language in ("english", "german")
)


def english(text: str) -> Iterator[Segment]:
    return segments(text, ENGLISH, NAME)


def german(text: str) -> Iterator[Segment]:
    return segments(text, GERMAN, NOUN)


def segments(text: str, function: frozenset[str], capital: str) -> Iterator[Segment]:
    """Yields the segments of a text.

    Args:
        function: the function words, in small letters.
        capital: the kind of words that are capitalised inside a sentence.
    """
    opening, before = True, 0
    for match in PIECES.finditer(text):
        (begin, end), piece = match.span(), match.group()
        opening = opening or text.count("\n", before, begin) > 1
        before = end
        if not (piece[0].isalnum() or len(piece) > 1):
            yield Segment(begin, end, PUNCTUATION, word=False)
            opening = opening or piece in OPENS
            continue
        # Who speaks stands alone between a line's begin and a colon.
        starts = begin == 0 or text[begin - 1] == "\n"
        speaks = piece[0].isupper() and text[end : end + 1] == ":" and starts
        plain = piece.casefold().replace("\u2019", "'")
        if piece[0] == "#" or speaks:
            kind = capital
        elif piece[0].isdigit():
            kind = NUMBER
        elif plain in function or CLITIC.sub("", plain) in function:
            kind = FUNCTION
        else:
            kind = capital if piece[0].isupper() and not opening else OTHER
        yield Segment(begin, end, kind)
        opening = False
