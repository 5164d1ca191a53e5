"""What one tokenizer's ids write, cut into ids of another, for `drafters.strings`.

Axes: B rows, G ids that were said, N the last ids of the text before them.
"""

import codecs
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from specjax.tokenizers import Tokenizer


class Respelled(NamedTuple):
    """How what the draft says is put into the ids of a target. reads, writes: the
    tokenizers of target and draft. vocab: ids of the target are below it."""

    reads: Tokenizer
    writes: Tokenizer
    vocab: int

    def __call__(self, behind: Any, said: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ids [B, G] of what the draft said, [B, G], and how many [B]. behind
        [B, N]: the last ids of the text. Of both, those below 0 are none."""
        behind, said = np.asarray(behind).tolist(), np.asarray(said).tolist()
        tokens = np.zeros((len(said), len(said[0])), np.int32)
        num = np.zeros(len(said), np.int32)
        for row, both in enumerate(zip(behind, said, strict=True)):
            ids = self.row(*both)[: tokens.shape[1]]
            tokens[row, : len(ids)], num[row] = ids, len(ids)
        return tokens, num

    def row(self, behind: Sequence[int], said: Sequence[int]) -> list[int]:
        """Of one row: up to what the draft has no bytes for, and to its last whole
        character."""
        before = b"".join(self.reads.spelled(i) or b"" for i in behind if i >= 0)
        text, end = b"", []
        for i in said:
            piece = self.writes.spelled(i) if i >= 0 else None
            if piece is None:
                end = list(self.reads.ends[:1]) if i in self.writes.ends else []
                break
            text += piece
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        whole, broken = decoder.decode(before + text), len(decoder.getstate()[0])
        if broken:
            text, end = text[:-broken], []
        ids = self.cut(whole, text) or self.cut(text.decode("utf-8", "replace"), text)
        return ids + end if ids or not text else []

    def cut(self, whole: str, text: bytes) -> list[int]:
        """The last ids of a whole text, which write `text`; none where an id begins
        before it."""
        ids = []
        for i in reversed(self.reads.encode(whole) if text else []):
            piece = self.reads.spelled(i) if i < self.vocab else None
            if piece is None or not text.endswith(piece):
                return []
            ids, text = [i, *ids], text[: len(text) - len(piece)]
            if not text:
                return ids
        return []
