"""Whisper's own tokenizer files: one line for each token, with its bytes and its rank.

Special tokens are not in them; their ids follow from the number of ranks. Reading and
writing text with them needs the tokenizers library (extra `hf`)."""

import base64
import binascii
from pathlib import Path

from specjax.speech.languages import LANGUAGES
from specjax.tokenizers.folder import Coder, Special
from specjax.tokenizers.huggingface import LEVEL, make_coder, tokenizers
from specjax.tokenizers.merges import GPT2

AFTER = "translate transcribe startoflm startofprev nospeech notimestamps".split()
EMPTY = b"="  # the last token of the multilingual file, which stands for nothing
OTHERS = 2 + len(AFTER) + 1501  # special tokens besides languages


def read_ranks(file: Path) -> dict[bytes, int]:
    """Returns the rank of each token's bytes. Raises ValueError for a file of another
    kind."""
    tokens = {}
    try:
        for line in file.read_bytes().splitlines():
            if line:
                text, rank = line.split()
                coded = b"" if text == EMPTY else text
                tokens[base64.b64decode(coded, validate=True)] = int(rank)
    except (ValueError, binascii.Error):
        raise ValueError(
            f"{file} is not a tiktoken file, whose lines are a token in base64 and its"
            " rank: copy it again"
        ) from None
    if sorted(tokens.values()) != list(range(len(tokens))) or not tokens:
        raise ValueError(f"{file} lacks ranks: copy it again")
    return tokens


def special_ids(count: int, languages: int = 99) -> dict[str, int]:
    """Returns the ids of the special tokens that follow `count` other tokens, by name.

    Timestamps, which follow them, are left out. languages: 100 in large-v3."""
    spoken = LANGUAGES[:languages]
    listed = ["endoftext", "startoftranscript", *spoken, *AFTER]
    return {f"<|{name}|>": count + i for i, name in enumerate(listed)}


def read(file: Path) -> Coder:
    """Returns the tokenizer in such a file, which merges bytes in the order of
    ranks."""
    library, tokens = tokenizers(file), read_ranks(file)
    spelled = {token: "".join(CHARACTERS[i] for i in token) for token in tokens}
    vocab = {spelled[token]: rank for token, rank in tokens.items()}
    merges = []
    for token in sorted(tokens, key=tokens.__getitem__):
        parts = _parts(token, tokens)
        if len(parts) == 2:
            merges.append(tuple(spelled[part] for part in parts))
    backend = library.Tokenizer(library.models.BPE(vocab, merges))
    GPT2.apply(library, backend, spaced=False)
    return make_coder(backend, Special(None, (), False))


def _parts(token: bytes, tokens: dict[bytes, int]) -> list[bytes]:
    """Returns the two parts that a token is merged from, after all merges of lower
    ranks."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [
            (tokens.get(parts[i] + parts[i + 1], len(tokens)), i)
            for i in range(len(parts) - 1)
        ]
        rank, at = min(pairs)
        if rank >= tokens[token]:
            return []
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


# How GPT-2's vocabulary spells bytes: a printable character for each.
CHARACTERS = sorted(LEVEL, key=LEVEL.__getitem__)
