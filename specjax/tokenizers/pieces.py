"""SentencePiece models: T5's `spiece.model`, and those of the bundled models."""

import re
from collections.abc import Iterable
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from specjax.tokenizers.coder import Coder, Special


def read(file: Path, special: Special) -> Coder:
    """An encoder's input ends with the end id; other texts begin with the start id.

    Raises ValueError for a file of another kind.
    """
    try:
        model = SentencePieceProcessor(model_file=str(file))
    except (RuntimeError, OSError):
        raise ValueError(
            f"{file} is no SentencePiece model: name another file, or download it again"
        ) from None
    head = [special.start] if not special.encodes and special.start is not None else []
    tail = list(special.ends[:1]) if special.encodes else []
    count = model.vocab_size()
    silent = {i for i in range(count) if model.is_control(i)}
    named = {model.id_to_piece(i): i for i in silent}
    silent |= {special.start, *special.ends}
    split = re.compile(f"({'|'.join(map(re.escape, named))})") if named else None

    def bare(text: str) -> list[int]:
        """The model itself would spell the names of control tokens out."""
        if split is None:
            return model.encode(text)
        each = (
            [named[part]] if part in named else model.encode(part)
            for part in split.split(text)
        )
        return [i for ids in each for i in ids]

    def encode(text: str) -> list[int]:
        return [*head, *model.encode(text), *tail]

    def decode(ids: Iterable[int]) -> str:
        # A model may have more ids than its tokenizer, to fill a multiple of 128.
        known = [int(i) for i in ids if 0 <= int(i) < count]
        return model.decode([i for i in known if i not in silent])

    def piece(token: int) -> str:
        if not 0 <= int(token) < count:
            return f"<{int(token)}>"
        text = model.id_to_piece(int(token))
        return text.replace("\u2581", " ").replace("\n", "\\n")

    def token(token: int) -> str | None:
        return model.id_to_piece(int(token)) if 0 <= int(token) < count else None

    return Coder(bare, encode, decode, piece, count, token)
