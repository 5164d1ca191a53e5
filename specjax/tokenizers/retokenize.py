"""The text of one tokenizer's ids, tokenized by another, for `drafters.strings`.

Axes: B rows, G ids that were drafted, N the last ids of the text before them.
"""

import codecs
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from specjax.tokenizers import Tokenizer


class Retokenizer(NamedTuple):
    """The function that tokenizes the text of a draft again, into ids of a target.

    reads, writes: the tokenizers of target and draft. vocab: ids of the target are
    below it.
    """

    reads: Tokenizer
    writes: Tokenizer
    vocab: int

    def __call__(self, behind: Any, said: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns the target's ids [B, G] for the draft's ids `said` [B, G], and their
        number [B]. behind [B, N]: the last ids of the text. Ids below 0 stand for
        nothing."""
        behind, said = np.asarray(behind).tolist(), np.asarray(said).tolist()
        tokens = np.zeros((len(said), len(said[0])), np.int32)
        num = np.zeros(len(said), np.int32)
        for row, (before, draft) in enumerate(zip(behind, said, strict=True)):
            ids = self.row(before, draft)[: tokens.shape[1]]
            tokens[row, : len(ids)], num[row] = ids, len(ids)
        return tokens, num

    def row(self, behind: Sequence[int], said: Sequence[int]) -> list[int]:
        """Returns the target's ids of one row: up to the first id without bytes, and up
        to the last whole character."""
        before = b"".join(self.reads.token_bytes(i) or b"" for i in behind if i >= 0)
        text, end = b"", []
        for i in said:
            piece = self.writes.token_bytes(i) if i >= 0 else None
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
        """Returns the last ids of a whole text, those that write `text`; none where an
        id begins before it."""
        ids: list[int] = []
        for i in reversed(self.reads.encode(whole) if text else []):
            piece = self.reads.token_bytes(i) if i < self.vocab else None
            if piece is None or not text.endswith(piece):
                return []
            ids, text = [i, *ids], text[: len(text) - len(piece)]
            if not text:
                return ids
        return []
