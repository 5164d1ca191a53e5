"""Tokenizers that run in the tokenizers library, such as `tokenizer.json` (extra
`hf`)."""

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from specjax.tokenizers.folder import Coder, Special, TokenizerConfig

BYTE = re.compile("<0x([0-9A-F]{2})>")  # SentencePiece's name for the piece of a byte
# The names of bytes in byte-level pairs: the Latin-1 character that a byte is, where it
# is visible, and for the others the characters from 256 on.
SEEN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
LEVEL = {chr(byte): byte for byte in SEEN}
LEVEL |= {chr(256 + i): x for i, x in enumerate(sorted({*range(256)} - {*SEEN}))}


def read(file: Path, special: Special, config: TokenizerConfig) -> Coder:
    """Reads a tokenizer that adds the special ids of the file's post-processor, as
    transformers does, and never cuts or pads, even where the file says so. Raises
    ValueError for a damaged file."""
    library = tokenizers(file)
    try:
        backend = library.Tokenizer.from_buffer(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} is not a tokenizer.json: {error}") from None
    backend.no_truncation()
    backend.no_padding()
    known = {x.content for x in backend.get_added_tokens_decoder().values()}
    more = added_tokens(library, config, config.older)
    backend.add_tokens([value for value in more if value.content not in known])
    return make_coder(backend, special)


def tokenizers(file: Path) -> ModuleType:
    """Returns the library, which is imported only where a file needs it. Raises
    ValueError where it is missing."""
    try:
        import tokenizers
    except ImportError:
        raise ValueError(
            f"{file} needs the tokenizers library: pip install 'specjax[hf]', or"
            " name a SentencePiece model (.model) in a folder of its own"
        ) from None
    return tokenizers


def added_tokens(
    library: ModuleType, config: TokenizerConfig, extra: Iterable[dict] = ()
) -> list[Any]:
    """Returns the added tokens of a folder in the order of their ids: those that have
    one, then special tokens without one. extra: more special tokens, for a folder that
    lists none."""
    more = [*config.named.values(), *(extra if config.extra is None else config.extra)]
    special = {value["content"] for value in config.named.values()}
    tokens: dict[str, Any] = {}
    for value in (*config.added.values(), *more):
        flags = dict(value)
        text = flags.pop("content")
        flags["special"] = flags["special"] or text in special
        tokens.setdefault(text, library.AddedToken(text, **flags))
    return list(tokens.values())


def extend(
    backend: Any,
    config: TokenizerConfig,
    *,
    library: ModuleType,
    file: Path,
    extra: Iterable[dict] = (),
) -> None:
    """Adds the tokens of a folder, and the start and the end that it requires. Raises
    ValueError for tokens that get another id than the folder says."""
    backend.add_tokens(added_tokens(library, config, extra))
    for number, value in config.added.items():
        got = backend.token_to_id(value["content"])
        if got != number:
            raise ValueError(
                f"{file.parent} says that {value['content']} is id {number}, and after"
                f" the tokens of {file.name} it is {got}: are both of one model?"
            )

    def added_token(name: str) -> list[tuple[str, int]]:
        value = config.named.get(f"{name}_token", {}).get("content")
        if value is None or not config.fields.get(f"add_{name}_token"):
            return []
        number = backend.token_to_id(value)
        return [] if number is None else [(value, number)]

    set_around(library, backend, first=added_token("bos"), last=added_token("eos"))


def set_around(
    library: ModuleType,
    backend: Any,
    *,
    first: list[tuple[str, int]],
    last: list[tuple[str, int]],
) -> None:
    """Sets the tokens around every text. first, last: (token, id) before and after
    it."""
    parts = [*(text for text, _ in first), "$A", *(text for text, _ in last)]
    backend.post_processor = library.processors.TemplateProcessing(
        single=parts, special_tokens=list({*first, *last})
    )


def make_coder(backend: Any, special: Special, broken: str = "replace") -> Coder:
    """Returns the functions of a backend. broken: how bytes that are not valid text are
    decoded, see `bytes.decode`."""
    count = max(backend.get_vocab().values(), default=-1) + 1
    listed = backend.get_added_tokens_decoder().items()
    silent: set[int | None] = {i for i, token in listed if token.special}
    silent |= {special.start, *special.ends}
    decoder = backend.decoder
    by_bytes = decoder is not None and b"ByteFallback" in decoder.__getstate__()

    def bare(text: str) -> list[int]:
        return backend.encode(text, add_special_tokens=False).ids

    def encode(text: str) -> list[int]:
        ids = backend.encode(text).ids
        ended = not special.encodes or not special.ends or ids[-1:] == [special.ends[0]]
        return ids if ended else [*ids, special.ends[0]]

    def decode(ids: Iterable[int]) -> str:
        kept = [i for i in map(int, ids) if i not in silent]
        if not by_bytes:
            return backend.decode(kept)
        names = map(backend.id_to_token, kept)
        return decoder.decode(mend(filter(None, names), broken))

    def piece(token: int) -> str:
        name = backend.id_to_token(int(token))
        if name is None:
            return f"<{int(token)}>"
        # SentencePiece's mark for a space, which decoding one token alone would drop.
        marked = "\u2581" in name
        text = name if marked else backend.decode([token], skip_special_tokens=False)
        return text.replace("\u2581", " ").replace("\n", "\\n")

    added = {i: token.content for i, token in listed}
    bytewise = decoder is not None and b"ByteLevel" in decoder.__getstate__()

    def token_bytes(token: int) -> bytes | None:
        name = backend.id_to_token(int(token))
        if name is None or token in silent:
            return None
        if bytewise and token not in added:
            return bytes(LEVEL[character] for character in name)
        return piece_bytes(name)

    return Coder(
        bare,
        encode,
        decode,
        piece,
        vocab=count,
        token=backend.id_to_token,
        token_bytes=token_bytes,
        silent=frozenset(i for i in silent if i is not None),
    )


def piece_bytes(name: str) -> bytes:
    """Returns the bytes that a piece of SentencePiece writes within a text."""
    byte = BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace("\u2581", " ").encode()


def mend(names: Iterable[str], broken: str) -> list[str]:
    """Returns tokens in which runs of invalid bytes are already decoded: the library
    would drop such a run from its first invalid byte on, together with whole characters
    in it."""
    mended: list[str] = []
    for bytewise, group in groupby(names, lambda name: bool(BYTE.fullmatch(name))):
        run = list(group)
        if bytewise:
            raw = b"".join(map(piece_bytes, run))
            text = raw.decode("utf-8", broken)
            run = run if text.encode() == raw else [text]
        mended += run
    return mended
