"""Text to token ids and back, by the files that lie beside a model's weights.

SentencePiece models, `tokenizer.json` of Hugging Face, and GPT-2's `vocab.json` with
its `merges.txt`; the last two need the extra `hf`.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from specjax.tokenizers import chat, huggingface, pieces
from specjax.tokenizers.coder import Special

# The files that a tokenizer is read from, in this order where a folder has several:
# what the first of them adds to the others, such as new tokens, is in it alone.
FILES = {
    "tokenizer.json": huggingface.read,
    "spiece.model": pieces.read,
    "tokenizer.model": pieces.read,
    "vocab.json": huggingface.read_gpt2,
}
BROKEN = "\ufffd"  # stands where a character lacks some of its tokens


class Tokenizer(NamedTuple):
    """How one model reads and writes text.

    encode: text -> ids, with the special ones that the model wants around them: the
    start of a text that it goes on with, the end of an input that its encoder reads.
    decode: ids -> text, special ids left out. piece: id -> its own text on one line.
    converse: [{"role": ..., "content": ...}, ...] -> ids, up to the place where the
    model answers, by the folder's chat template; raises ValueError where it has none.
    vocab: ids are in 0 .. vocab - 1. start: of a text that the model writes, None where
    nothing says. ends: ids that each end it. file: what it was read from. token: id ->
    how the file calls it, None for no token.
    """

    encode: Callable[[str], list[int]]
    decode: Callable[[Iterable[int]], str]
    piece: Callable[[int], str]
    converse: Callable[[Sequence[dict[str, str]]], list[int]]
    vocab: int
    start: int | None
    ends: tuple[int, ...]
    file: Path
    token: Callable[[int], str | None]


@functools.cache
def read(
    file: str | Path,
    start: int | None = None,
    ends: tuple[int, ...] = (),
    encodes: bool = False,
) -> Tokenizer:
    """The tokenizer in a file, or in a folder.

    Args:
      file: by its name one of `FILES`; any other name is a SentencePiece model if it
        ends in .model, and a tokenizer.json if it ends in .json.
      start: id that a text of the model starts with.
      ends: ids that each end it; an input of an encoder ends with the first.
      encodes: whether the model reads prompts by an encoder.

    Raises:
      ValueError: there is none, it is damaged, or a library is missing.
    """
    path = beside(Path(file)) if Path(file).is_dir() else Path(file)
    if path is None or not path.is_file():
        raise ValueError(
            f"no tokenizer at {file}: name a SentencePiece model (.model), a"
            " tokenizer.json, or a folder with one of them"
        )
    special = Special(start, ends, encodes)
    other = huggingface.read if path.suffix == ".json" else pieces.read
    coder = FILES.get(path.name, other)(path, special)

    def converse(messages: Sequence[dict[str, str]]) -> list[int]:
        return coder.bare(chat.render(path.parent, messages))

    plain = coder.encode, coder.decode, coder.piece
    return Tokenizer(*plain, converse, coder.vocab, start, ends, path, coder.token)


def same(a: Tokenizer, b: Tokenizer) -> bool:
    """Whether every id is the same token to both."""
    if a.vocab != b.vocab:
        return False
    return a.file == b.file or all(a.token(i) == b.token(i) for i in range(a.vocab))


def compared(a: Tokenizer, b: Tokenizer) -> tuple[int, list[int]]:
    """How many ids are a token to both, and those that are not the same one."""
    if a.file == b.file:
        return min(a.vocab, b.vocab), []
    pairs = [(i, a.token(i), b.token(i)) for i in range(min(a.vocab, b.vocab))]
    both = [pair for pair in pairs if None not in pair]
    return len(both), [i for i, first, second in both if first != second]


def beside(folder: Path) -> Path | None:
    """The file that a folder's tokenizer is read from; None if there is none."""
    return next((folder / name for name in FILES if (folder / name).is_file()), None)


def stream(tokenizer: Tokenizer, texts: Iterable[Iterable[int]]) -> Iterator[str]:
    """What each of ever longer lists of ids adds to the text before it.

    A character of several tokens is held back until the last of them is there; what
    stays broken is yielded at the end. The parts joined are the last list's text.
    """
    told, text = 0, ""
    for ids in texts:
        text = tokenizer.decode(ids)
        whole = text.rstrip(BROKEN)
        yield whole[told:]
        told = max(told, len(whole))
    yield text[told:]
