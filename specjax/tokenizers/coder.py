"""What the readers of tokenizer files are given and give."""

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Special(NamedTuple):
    """The ids around a text: its start, None for none, and those that each end it. An
    input of an encoder ends with the first. encodes: whether the model reads what it is
    asked by an encoder."""

    start: int | None
    ends: tuple[int, ...]
    encodes: bool


class Coder(NamedTuple):
    """See `specjax.tokenizers.Tokenizer`. bare: text -> ids, nothing added, but special
    ones where the text names them."""

    bare: Callable[[str], list[int]]
    encode: Callable[[str], list[int]]
    decode: Callable[[Iterable[int]], str]
    piece: Callable[[int], str]
    vocab: int
    token: Callable[[int], str | None]
