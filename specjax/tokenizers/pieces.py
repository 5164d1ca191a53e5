"""SentencePiece models: T5's `spiece.model`, and those of the bundled models."""

from collections.abc import Iterable
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from specjax.tokenizers import converted, huggingface
from specjax.tokenizers.folder import Coder, Special, TokenizerConfig


def read(file: Path, special: Special, config: TokenizerConfig) -> Coder:
    """Reads a tokenizer, by the class that the folder names, if it names one. Raises
    ValueError for a damaged file."""
    try:
        model = SentencePieceProcessor(model_file=str(file))
    except (RuntimeError, OSError):
        raise ValueError(
            f"{file} is not a SentencePiece model: name another file, or download it"
            " again"
        ) from None
    if config.described or config.kind == "T5Tokenizer":
        return converted.read(file, special, config)
    head = [special.start] if not special.encodes and special.start is not None else []
    tail = list(special.ends[:1]) if special.encodes else []
    count = model.vocab_size()
    silent: set[int | None] = {i for i in range(count) if model.is_control(i)}
    silent |= {special.start, *special.ends}

    def encode(text: str) -> list[int]:
        return [*head, *model.encode(text), *tail]

    def decode(ids: Iterable[int]) -> str:
        # A model may have more ids than its tokenizer, to fill a multiple of 128.
        known = [int(i) for i in ids if 0 <= int(i) < count]
        return model.decode([i for i in known if i not in silent])

    def name(token: int) -> str | None:
        return model.id_to_piece(int(token)) if 0 <= int(token) < count else None

    def piece(token: int) -> str:
        text = name(token) or f"<{int(token)}>"
        return text.replace("\u2581", " ").replace("\n", "\\n")

    def token_bytes(token: int) -> bytes | None:
        text = name(token)
        if text is None or token in silent or model.is_unknown(int(token)):
            return None
        return huggingface.piece_bytes(text)

    return Coder(
        model.encode,
        encode,
        decode,
        piece,
        vocab=count,
        token=name,
        token_bytes=token_bytes,
        silent=frozenset(i for i in silent if i is not None),
    )
