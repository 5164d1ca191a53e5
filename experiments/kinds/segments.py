"""The place of each token in a text, and the segment of the text that it belongs to."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from specjax.tokenizers import BROKEN

BREAK, INDENT, SPACE = "line break", "indentation", "space"
END, SILENT = "end of text", "no text"


class Segment(NamedTuple):
    """The characters `begin` up to `end` of a text, of one `kind`.

    Attributes:
        word: whether they are a word, a name or a number, which have a length that
            matters.
    """

    begin: int
    end: int
    kind: str
    word: bool = True


class Place(NamedTuple):
    """The place of one token in a text.

    Attributes:
        characters: its characters, without spaces before and after.
        word: the characters of the word that it belongs to, 0 where there is none.
        first: whether it is the word's first token, None where there is no word.
    """

    kind: str
    characters: int
    word: int
    first: bool | None


Classify = Callable[[str], Iterable[Segment]]


def spans(decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> list:
    """Returns the begin and the end [N] of each token in the text of all tokens."""
    ends, begin = [], 0
    for count in range(1, len(ids) + 1):
        text = decode(ids[:count])
        whole = max(begin, len(text.rstrip(BROKEN)))
        partial = text.endswith(BROKEN)
        ends.append((begin, max(whole, begin + 1) if partial else whole))
        begin = whole
    return ends


def places(
    decode: Callable[[Sequence[int]], str],
    ids: Sequence[int],
    classify: Classify,
    *,
    last: Iterable[int] = (),
) -> list[Place]:
    """Returns the place of each token, by the segment that contains its first character
    that is not a space.
    """
    text, ending = decode(ids), frozenset(last)
    owner: list[Segment | None] = [None] * len(text)
    for segment in classify(text):
        owner[segment.begin : segment.end] = [segment] * (segment.end - segment.begin)
    found, begun = [], set()
    for token, (begin, end) in zip(ids, spans(decode, ids), strict=True):
        if token in ending:
            found.append(Place(END, 0, 0, None))
            continue
        at = next((i for i in range(begin, end) if not text[i].isspace()), begin)
        segment = owner[at] if begin < end and at < len(text) else None
        characters = len(text[begin:end].strip())
        if segment is None:
            found.append(Place(kind_of_space(text, begin, end), end - begin, 0, None))
        elif not segment.word:
            found.append(Place(segment.kind, characters, 0, None))
        else:
            whole, first = segment.end - segment.begin, segment not in begun
            found.append(Place(segment.kind, characters, whole, first))
        begun.add(segment)
    return found


def kind_of_space(text: str, begin: int, end: int) -> str:
    """Returns the kind of white space in a token that contains nothing else."""
    if begin >= len(text) or begin == end:
        return SILENT
    if "\n" in text[begin:end]:
        return BREAK
    before = text[text.rfind("\n", 0, begin) + 1 : begin]
    return INDENT if not before.strip() else SPACE
