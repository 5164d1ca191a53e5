"""`tokenizer.json`, and GPT-2's two files, by the tokenizers library (extra `hf`)."""

import json
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from specjax.tokenizers.coder import Coder, Special

END_OF_TEXT = "<|endoftext|>"  # GPT-2's one special token
MERGES = "merges.txt"


def read(file: Path, special: Special) -> Coder:
    """Adds the special ids that the file's own post-processor adds, as transformers
    does, and never cuts or pads, which the file may ask for.

    Raises ValueError for a file of another kind, or without the library.
    """
    library = tokenizers(file)
    try:
        backend = library.Tokenizer.from_buffer(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} is no tokenizer.json: {error}") from None
    backend.no_truncation()
    backend.no_padding()
    return of_backend(backend, special)


def read_gpt2(file: Path, special: Special) -> Coder:
    """Byte-level pairs: `vocab.json`, and `merges.txt` beside it.

    Raises ValueError as `read`.
    """
    library, merges = tokenizers(file), file.with_name(MERGES)
    if not merges.is_file():
        raise ValueError(f"{merges} is missing: {file.name} means nothing without it")
    try:
        vocab, pairs = library.models.BPE.read_file(str(file), str(merges))
        backend = library.Tokenizer(library.models.BPE(vocab, pairs))
    except Exception as error:  # the library raises no class of its own
        raise ValueError(f"{file} and {MERGES} are no tokenizer: {error}") from None
    backend.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = library.decoders.ByteLevel()
    if END_OF_TEXT in vocab:
        backend.add_special_tokens([END_OF_TEXT])
    return of_backend(backend, special)


def tokenizers(file: Path) -> ModuleType:
    """The library, which is imported only where a file needs it."""
    try:
        import tokenizers
    except ImportError:
        raise ValueError(
            f"{file} needs the tokenizers library: pip install tokenizers, or name"
            " a SentencePiece model (.model)"
        ) from None
    return tokenizers


def of_backend(backend: Any, special: Special) -> Coder:
    count = max(backend.get_vocab().values(), default=-1) + 1

    def bare(text: str) -> list[int]:
        return backend.encode(text, add_special_tokens=False).ids

    def encode(text: str) -> list[int]:
        ids = backend.encode(text).ids
        ended = not special.encodes or not special.ends or ids[-1:] == [special.ends[0]]
        return ids if ended else [*ids, special.ends[0]]

    def decode(ids: Iterable[int]) -> str:
        silent = (special.start, *special.ends)
        return backend.decode([int(i) for i in ids if int(i) not in silent])

    def piece(token: int) -> str:
        name = backend.id_to_token(int(token))
        if name is None:
            return f"<{int(token)}>"
        # SentencePiece's mark for a space, which decoding one token alone would drop.
        marked = "\u2581" in name
        text = name if marked else backend.decode([token], skip_special_tokens=False)
        return text.replace("\u2581", " ").replace("\n", "\\n")

    return Coder(bare, encode, decode, piece, count, backend.id_to_token)


def special_ids(folder: Path) -> tuple[int | None, int | None]:
    """The ids of bos_token and eos_token as `tokenizer_config.json` names them, None
    for what it does not say."""
    fields = read_json(folder / "tokenizer_config.json")
    added = fields.get("added_tokens_decoder")
    ids = {}
    for key, token in (added if isinstance(added, dict) else {}).items():
        if key.isdecimal() and isinstance(token, dict):
            ids[token.get("content")] = int(key)
    return tuple(ids.get(content(fields, f"{name}_token")) for name in ("bos", "eos"))


def content(fields: dict[str, Any], name: str) -> str | None:
    """The text of a special token, which is a string or has it in a field."""
    token = fields.get(name)
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def read_json(file: Path) -> dict[str, Any]:
    """A file that holds one JSON object; nothing where there is no file.

    Raises ValueError for anything else in it.
    """
    if not file.is_file():
        return {}
    try:
        fields = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        raise ValueError(f"{file} is not JSON: download it again") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{file} holds no JSON object: download it again")
    return fields
