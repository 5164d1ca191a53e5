"""`tokenizer.json`, and what else the tokenizers library reads (extra `hf`)."""

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from specjax.tokenizers.folder import Coder, Special, TokenizerConfig

BYTE = re.compile("<0x([0-9A-F]{2})>")  # how SentencePiece names the piece of a byte
# How byte-level pairs name a byte: as the Latin-1 character that it is, where that is
# seen, the others as the characters from 256 on.
SEEN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
LEVEL = {chr(byte): byte for byte in SEEN}
LEVEL |= {chr(256 + i): x for i, x in enumerate(sorted({*range(256)} - {*SEEN}))}


def read(file: Path, special: Special, config: TokenizerConfig) -> Coder:
    """Adds the special ids that the file's own post-processor adds, as transformers
    does, and never cuts or pads, which the file may ask for."""
    library = tokenizers(file)
    try:
        backend = library.Tokenizer.from_buffer(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} is no tokenizer.json: {error}") from None
    backend.no_truncation()
    backend.no_padding()
    known = {x.content for x in backend.get_added_tokens_decoder().values()}
    more = added(library, config, config.older)
    backend.add_tokens([value for value in more if value.content not in known])
    return of_backend(backend, special)


def tokenizers(file: Path) -> ModuleType:
    """The library, which is imported only where a file needs it."""
    try:
        import tokenizers
    except ImportError:
        raise ValueError(
            f"{file} needs the tokenizers library: pip install 'specjax[hf]', or"
            " name a SentencePiece model (.model) in a folder of its own"
        ) from None
    return tokenizers


def added(
    library: ModuleType, config: TokenizerConfig, extra: Iterable[dict] = ()
) -> list[Any]:
    """The added tokens of a folder in the order of their ids: those with one, then
    special ones without. extra: further special tokens where the folder lists none."""
    more = [*config.named.values(), *(extra if config.extra is None else config.extra)]
    special = {value["content"] for value in config.named.values()}
    tokens = {}
    for value in (*config.added.values(), *more):
        flags = dict(value)
        text = flags.pop("content")
        flags["special"] = flags["special"] or text in special
        tokens.setdefault(text, library.AddedToken(text, **flags))
    return list(tokens.values())


def extend(
    library: ModuleType,
    file: Path,
    backend: Any,
    config: TokenizerConfig,
    extra: Iterable[dict] = (),
) -> None:
    """Adds the tokens of a folder, and the start and the end that it asks for."""
    backend.add_tokens(added(library, config, extra))
    for number, value in config.added.items():
        got = backend.token_to_id(value["content"])
        if got != number:
            raise ValueError(
                f"{file.parent} says that {value['content']} is id {number}, and after"
                f" the tokens of {file.name} it is {got}: are both of one model?"
            )
    around = []
    for name in ("bos", "eos"):
        value = config.named.get(f"{name}_token", {}).get("content")
        number = None if value is None else backend.token_to_id(value)
        asked = config.fields.get(f"add_{name}_token") and number is not None
        around.append([(value, number)] if asked else [])
    set_around(library, backend, *around)


def set_around(
    library: ModuleType, backend: Any, first: list[tuple], last: list[tuple]
) -> None:
    """first, last: (token, id) before and after every text."""
    parts = [*(text for text, _ in first), "$A", *(text for text, _ in last)]
    backend.post_processor = library.processors.TemplateProcessing(
        single=parts, special_tokens=list({*first, *last})
    )


def of_backend(backend: Any, special: Special, broken: str = "replace") -> Coder:
    """broken: what becomes of bytes that are no text, as `bytes.decode` names it."""
    count = max(backend.get_vocab().values(), default=-1) + 1
    listed = backend.get_added_tokens_decoder().items()
    silent = {i for i, token in listed if token.special}
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

    def spelled(token: int) -> bytes | None:
        name = backend.id_to_token(int(token))
        if name is None or token in silent:
            return None
        if bytewise and token not in added:
            return bytes(LEVEL[character] for character in name)
        return raw(name)

    names = backend.id_to_token, spelled
    hidden = frozenset(i for i in silent if i is not None)
    return Coder(bare, encode, decode, piece, count, *names, hidden)


def raw(name: str) -> bytes:
    """What a piece of SentencePiece's writes within a text."""
    byte = BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace("\u2581", " ").encode()


def mend(names: Iterable[str], broken: str) -> list[str]:
    """Tokens, where runs of bytes that are no text are decoded: the library would give
    up such a run from its first byte on, with the whole characters in it."""
    mended = []
    for bytewise, run in groupby(names, lambda name: bool(BYTE.fullmatch(name))):
        run = list(run)
        if bytewise:
            raw = bytes(int(BYTE.fullmatch(name)[1], 16) for name in run)
            text = raw.decode("utf-8", broken)
            run = run if text.encode() == raw else [text]
        mended += run
    return mended
