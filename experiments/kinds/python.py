"""Kinds of tokens in Python code, by `tokenize`; strings and comments are classified as
prose.

A text that a model wrote ends anywhere and may not be Python. Where `tokenize` fails,
an open string extends to the end of its line, or to the end of the text if it has three
quotes; an unknown sign counts as an operator; and reading continues behind it.
"""

import io
import keyword
import re
import token
import tokenize
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from experiments.kinds import prose
from experiments.kinds.segments import Segment

KEYWORD, IDENTIFIER = "keyword", "identifier"
OPERATOR, BRACKET = "operator", "bracket or separator"
BRACKETS = frozenset("()[]{},:.;")
TEXT = "text"  # strings and comments, until their words are told apart
KINDS = {"NAME": IDENTIFIER, "NUMBER": prose.NUMBER, "OP": OPERATOR}
KINDS |= {"STRING": TEXT, "COMMENT": TEXT}
OPEN = re.compile(r"[a-zA-Z]{0,2}('''|\"\"\"|'|\")")
PIECE = re.compile(r"\w+|\S")
# What tokenize reads as an end of a line, or refuses, and an editor shows as a space.
BLANKS = str.maketrans(dict.fromkeys("\r\f\v\0", " "))


class Read(NamedTuple):
    """A token of Python: its characters in a text, and its kind by `tokenize`."""

    begin: int
    end: int
    kind: str


def python(text: str) -> Iterator[Segment]:
    """Yields the segments of a Python text; white space between tokens belongs to
    none."""
    for begin, end, kind in read(text.translate(BLANKS)):
        if kind != TEXT:
            yield Segment(begin, end, kind, kind not in (OPERATOR, BRACKET))
            continue
        # The prose in a string or a comment, quotes and what stands before them apart.
        if quote := OPEN.match(text, begin):
            yield Segment(begin, quote.end(), prose.PUNCTUATION, word=False)
            begin = quote.end()
        for inner in prose.english(text[begin:end]):
            yield inner._replace(begin=inner.begin + begin, end=inner.end + begin)


def read(text: str) -> Iterator[Read]:
    """Yields every token; where `tokenize` fails, it starts again after that place."""
    at = 0
    while at < len(text):
        try:
            yield from tokenize_from(text, at)
            return
        except TokenizeStopped as stop:
            at = max(stop.at, at + 1)
            if stop.piece is not None:
                yield stop.piece


class TokenizeStopped(Exception):
    """The place at which `tokenize` must start again, and the token before it, if there
    is one.
    """

    def __init__(self, at: int, piece: Read | None):
        self.at, self.piece = at, piece


def tokenize_from(text: str, at: int) -> Iterator[Read]:
    """Yields the tokens that `tokenize` reads from `at` on. Raises Stopped where it
    fails.
    """
    rest, done = text[at:], at
    starts = [0, *accumulate(len(line) + 1 for line in rest.split("\n"))]
    opened, depth = 0, 0  # a string with expressions in it is one token
    try:
        for it in tokenize.generate_tokens(io.StringIO(rest).readline):
            begin, end = (
                min(at + starts[row - 1] + column, len(text))
                for row, column in (it.start, it.end)
            )
            name = token.tok_name[it.type]
            if name == "ERRORTOKEN" and it.string.strip():
                break
            done = max(done, end)
            if name.endswith("STRING_START"):
                opened, depth = (opened if depth else begin), depth + 1
            elif name.endswith("STRING_END"):
                depth -= 1
                if not depth:
                    yield Read(opened, end, TEXT)
            elif not depth and name in KINDS:
                yield Read(begin, end, classify_token(name, it.string))
        else:
            return
    except IndentationError:
        # A line whose indentation fits no other: it is read as if it were the first.
        if (piece := PIECE.search(text, done)) is None:
            raise TokenizeStopped(len(text), None) from None
        start = text.rfind("\n", 0, piece.start()) + 1
        raise TokenizeStopped(start if start > at else piece.start(), None) from None
    except (tokenize.TokenError, SyntaxError):
        pass
    # The piece at which reading stopped, and where it ends.
    if (piece := PIECE.search(text, opened if depth else done)) is None:
        raise TokenizeStopped(len(text), None)
    begin, end = piece.span()
    if quote := OPEN.match(text, begin):
        closed = -1 if len(quote[1]) == 3 else text.find("\n", begin)
        end = len(text) if closed < 0 else closed
        raise TokenizeStopped(end, Read(begin, end, TEXT))
    name = "NAME" if piece[0].isidentifier() else "OP"
    raise TokenizeStopped(end, Read(begin, end, classify_token(name, piece[0])))


def classify_token(name: str, string: str) -> str:
    if name == "NAME" and keyword.iskeyword(string):
        return KEYWORD
    return BRACKET if string in BRACKETS else KINDS[name]
