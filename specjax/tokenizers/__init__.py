"""Text to token ids and back, by the files that accompany a model's weights.

SentencePiece models, alone or in a folder that says how they are read; `tokenizer.json`
of Hugging Face; `vocab.json` with its `merges.txt`; ByT5's, which has no file; the
tokenizer within a GGUF file. All but the first need the extra `hf`, the last also
`gguf`.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specjax.tokenizers import (
    byt5,
    chat,
    folder,
    gguf,
    gguf_file,
    huggingface,
    merges,
    pieces,
)
from specjax.tokenizers.folder import Special

# The files that a tokenizer is read from, in this order where a folder has several:
# only the first has what was added later, such as new tokens.
FILES = {
    "tokenizer.json": huggingface.read,
    "spiece.model": pieces.read,
    "tokenizer.model": pieces.read,
    "vocab.json": merges.read,
}
# Every file of a folder that is read here, as the patterns of a request to a hub.
READ = (*FILES, merges.MERGES, *folder.READ, f"{chat.FURTHER}/*.jinja")
BROKEN = "\ufffd"  # stands where a character lacks some of its tokens


class Tokenizer(NamedTuple):
    """The functions by which one model reads and writes text.

    Attributes:
      encode: text -> ids, with the special ones that the model wants around them: the
        start of a text that it goes on with, the end of an input that its encoder
        reads.
      decode: ids -> text, without special ids.
      piece: id -> its text on one line.
      converse: [{"role": ..., "content": ...}, ...] -> ids, up to the place where the
        model answers, by the folder's chat template. Keywords are variables of the
        template, such as tools or enable_thinking. Raises ValueError where there is no
        template.
      vocab: ids are in 0 .. vocab - 1.
      start: the id of a text that the model writes, None where nothing says.
      ends: ids that each end a text.
      file: what the tokenizer was read from.
      token: id -> its name in the file, None for an id without one.
      token_bytes: id -> the bytes that it writes within a text, None for special ids
        and for an id without a token.
      silent: the ids that `decode` leaves out.
    """

    encode: Callable[[str], list[int]]
    decode: Callable[[Iterable[int]], str]
    piece: Callable[[int], str]
    converse: Callable[..., list[int]]
    vocab: int
    start: int | None
    ends: tuple[int, ...]
    file: Path
    token: Callable[[int], str | None]
    token_bytes: Callable[[int], bytes | None]
    silent: frozenset[int] = frozenset()


def read(
    file: str | Path,
    start: int | None = None,
    ends: tuple[int, ...] = (),
    encodes: bool = False,
) -> Tokenizer:
    """Reads the tokenizer in a file or in a folder; returns the same object as long as
    these files do not change.

    Args:
      file: by its name one of `FILES`; any other name is a SentencePiece model if it
        ends in .model, a tokenizer.json if in .json; a GGUF file has its own.
      start: id that a text of the model starts with.
      ends: ids that each end it; an input of an encoder ends with the first.
      encodes: whether the model reads prompts by an encoder.

    Raises:
      ValueError: there is none, it is damaged, or a library is missing.
    """
    path = find_file(Path(file)) if Path(file).is_dir() else Path(file)
    if path is None or not path.is_file():
        raise ValueError(
            f"no tokenizer at {file}: name a SentencePiece model (.model), a"
            " tokenizer.json, or a folder with one of them"
        )
    states = ((place, place.stat()) for place in files(path))
    version = tuple((place, x.st_mtime_ns, x.st_size) for place, x in states)
    return _read(path, Special(start, ends, encodes), version)


@functools.lru_cache(maxsize=64)
def _read(path: Path, special: Special, version: tuple) -> Tokenizer:
    """Reads a tokenizer. version: that of its files; after a change of version it is
    read again."""
    del version
    within = gguf_file.is_gguf(path)
    if within:
        config = gguf.config(gguf_file.open_file(path))
    else:
        config = folder.read(path.parent)
    other = huggingface.read if path.suffix == ".json" else pieces.read
    reader = (FILES | {folder.CONFIG: byt5.read}).get(path.name, other)
    reader = gguf.read if within else reader
    coder = reader(path, special, config)

    def converse(messages: Sequence[Mapping[str, Any]], **variables: Any) -> list[int]:
        if not within:
            return coder.bare(chat.render(path.parent, messages, variables))
        text = chat.render(path.parent, messages, variables, stated=config)
        return coder.encode(gguf.without_around(text, config))

    return Tokenizer(
        encode=coder.encode,
        decode=coder.decode,
        piece=coder.piece,
        converse=converse,
        vocab=coder.vocab,
        start=special.start,
        ends=special.ends,
        file=path,
        token=coder.token,
        token_bytes=coder.token_bytes,
        silent=coder.silent,
    )


def compare(a: Tokenizer, b: Tokenizer) -> tuple[int, list[int]]:
    """Returns how many ids are a token in both, and the ids whose tokens differ."""
    if a.file == b.file:
        return min(a.vocab, b.vocab), []
    pairs = [(i, a.token(i), b.token(i)) for i in range(min(a.vocab, b.vocab))]
    both = [pair for pair in pairs if None not in pair]
    return len(both), [i for i, first, second in both if first != second]


def find_file(place: Path) -> Path | None:
    """Returns the file that a folder's tokenizer is read from; None if there is
    none."""
    for name in FILES:
        if (place / name).is_file():
            return place / name
    config = place / folder.CONFIG  # ByT5's folders have no other
    is_byt5 = config.is_file() and folder.read(place).kind == byt5.KIND
    return config if is_byt5 else None


def files(file: Path) -> list[Path]:
    """Returns all files that a tokenizer and its chat template are read from. file: the
    one that `find_file` returns."""
    if gguf_file.is_gguf(file):
        return [file]
    names = [folder.CONFIG, folder.MAP, folder.ADDED, folder.TEMPLATE, folder.MODEL]
    names += [merges.MERGES] if file.name == "vocab.json" else []
    places = [file.with_name(name) for name in names]
    places += sorted((file.parent / chat.FURTHER).glob("*.jinja"))
    return [file, *(place for place in places if place.is_file())]


def stream(tokenizer: Tokenizer, texts: Iterable[Iterable[int]]) -> Iterator[str]:
    """Yields the text that each of ever longer lists of ids adds to the text before it.

    A character of several tokens is held back until the last of them is there; a
    character that stays broken is yielded at the end. The parts joined are the last
    list's text.
    """
    shown, text = 0, ""
    for ids in texts:
        text = tokenizer.decode(ids)
        whole = text.rstrip(BROKEN)
        yield whole[shown:]
        shown = max(shown, len(whole))
    yield text[shown:]
