"""The text of one tokenizer's ids becomes ids of another tokenizer."""

from pathlib import Path

import numpy as np
import pytest

from specjax.tokenizers import Tokenizer
from specjax.tokenizers.retokenize import Retokenizer


def coder(*pieces: bytes) -> Tokenizer:
    """Returns a tokenizer that takes the longest piece; its first id ends a text, and
    writes nothing."""
    known = {piece: i for i, piece in enumerate(pieces, 1)}

    def encode(text: str) -> list[int]:
        left, ids = text.encode(), []
        while left:
            piece = max(filter(left.startswith, known), key=len, default=b"")
            ids += [known[piece]] if piece else []
            left = left[len(piece) or 1 :]
        return ids

    names = [None, *pieces]
    read = dict(vocab=len(names), start=None, ends=(0,), file=Path())
    unused = dict.fromkeys(("decode", "piece", "converse", "token"))
    return Tokenizer(encode=encode, token_bytes=names.__getitem__, **read, **unused)


A, B, AB, E, C, LAST = range(1, 7)
READS = coder(b"a", b"b", b"ab", "é".encode(), b"c", b"d")
WRITES = coder(b"a", b"b", b"bc", b"\xc3", b"\xa9", b"x", b"d")


@pytest.mark.parametrize(
    ("behind", "said", "ids"),
    [
        ([C], [1, 2], [AB]),  # merged as the target does
        ([A], [3], [B, C]),  # which would merge with what is kept: by itself
        ([-1, B], [4, 5, 0, 1], [E, 0]),  # the end of one is that of the other
        ([B], [0], [0]),
        ([0, B], [1, 4], [A]),  # of a character it has but a part
        ([B], [1, 4, 0], [A]),
        ([B], [4], []),
        ([C], [1, -1], [A]),
        ([C], [1, 6], []),  # no id writes x
        ([C], [6, 0], []),
        ([C], [7], []),  # an id that the model does not have
    ],
)
def test_a_text_is_cut_behind_what_is_kept(behind, said, ids):
    assert Retokenizer(READS, WRITES, LAST).row(behind, said) == ids


def test_rows_are_filled_up_to_gamma():
    respelled = Retokenizer(READS, WRITES, LAST)
    tokens, num = respelled(np.array([[C], [C]]), np.array([[3, 3], [1, 2]]))
    assert tokens.tolist() == [[B, C], [AB, 0]] and num.tolist() == [2, 1]
