"""The rules of a grammar: the library llguidance reads it on the host.

A grammar has no end of states, and its parser lies on the host. The state of a text is
the tokens that it has written, and `apply` asks the host for the masks of all texts of
a call at once: one call of the host for each call of a model, drafts included. What
the host keeps speeds it up, and changes nothing. Axes: B rows, N places for tokens, V
vocabulary, W = V / 32 words of a mask.
"""

import bisect
import contextlib
import functools
import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.constraints.regular import MISSING
from specjax.constraints.tables import BITS, check_vocab, mask_logits
from specjax.runtime.console import shorten
from specjax.types import TokenAutomaton

FAILED = "grammar cannot be followed further"
KEPT = 2048  # beginnings of texts whose parsers are kept
NO_TOKEN = -1


class State(NamedTuple):
    """The tokens of each text, without those of its prompt.

    tokens: [..., N] int32, `NO_TOKEN` behind the last. number: the number of them,
    [...] int32.
    """

    tokens: Array
    number: Array


class Words(NamedTuple):
    """The vocabulary in the form that llguidance reads."""

    tokens: list[bytes]
    special_token_ids: list[int]
    eos_token_id: int
    bos_token_id: None = None

    def __call__(self, text: bytes | str) -> list[int]:
        """Returns no tokens, because no text is ever encoded here."""
        del text
        return []


def build(
    grammar: str, words: Sequence[bytes | None], ends: Sequence[int], room: int
) -> TokenAutomaton:
    """Returns the rules of a grammar.

    Args:
      grammar: in Lark's syntax, as llguidance reads it.
      words: the bytes of each id [V], None for one that is never written.
      ends: ids that each end a text.
      room: N, the most tokens after a prompt, those that are drafted included.

    Raises:
      ValueError: the library is missing, or cannot read the grammar.
    """
    host, vocab = open_host(grammar, words, ends), len(words)
    read = functools.partial(find_masks, host)

    def begin(tokens: Array, length: Array) -> State:
        del tokens
        rows = length.shape
        return State(
            jnp.full((*rows, room), NO_TOKEN, jnp.int32), jnp.zeros(rows, jnp.int32)
        )

    def advance(state: State, token: Array) -> State:
        here = jnp.arange(room) == state.number[..., None]
        tokens = jnp.where(here, token[..., None], state.tokens)
        return State(tokens, state.number + 1)

    def apply(state: State, logits: Array) -> Array:
        check_vocab(logits, vocab)
        shape = (*state.number.shape, len(host.ended))
        masks = jax.pure_callback(
            read,
            jax.ShapeDtypeStruct(shape, jnp.uint32),
            state.tokens,
            state.number,
            vmap_method="broadcast_all",
        )
        return mask_logits(masks, logits)

    return TokenAutomaton(begin, advance, apply)


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Raises ValueError, in one line, for a grammar that failed within a program."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        said = re.search(rf"ValueError: ({FAILED}.*)", str(error))
        if said is None:
            raise
        raise ValueError(said[1]) from None


def llguidance() -> ModuleType:
    """Returns the library. Raises ValueError where it is missing."""
    try:
        import llguidance
    except ImportError:
        raise ValueError(MISSING.format("grammar")) from None
    return llguidance


class Host(NamedTuple):
    """The parser and the vocabulary of a grammar, on the host; only `kept` changes.

    Attributes:
      start: the parser before a text, which is copied and never moved.
      words: the bytes of each id that is written, with the id, in their order.
      ids: the ids of each such bytes.
      ends: ids that each end a text.
      ended: the mask after a text, [W] uint32: its ends alone.
      kept: by the tokens of a text, as bytes: its parser, None after one that the
        grammar does not allow, and its mask.
      lock: held by whoever reads `kept`.
    """

    start: Any
    words: list[tuple[bytes, int]]
    ids: dict[bytes, list[int]]
    ends: frozenset[int]
    ended: np.ndarray
    kept: OrderedDict[bytes, tuple[Any, np.ndarray]]
    lock: threading.Lock


def open_host(grammar: str, words: Sequence[bytes | None], ends: Sequence[int]) -> Host:
    """Returns the host's parser of a grammar and its vocabulary. Its arguments and
    errors are those of `build`."""
    library = llguidance()
    special = [i for i, word in enumerate(words) if word is None]
    # The byte 255 begins no text: the library's mark for special tokens.
    pieces = [b"\xff<%d>" % i if word is None else word for i, word in enumerate(words)]
    tokenizer = library.LLTokenizer(
        library.TokenizerWrapper(Words(pieces, special, ends[0])),
        n_vocab=len(words),
        eos_token=list(ends),
        slices=[],
    )
    text = library.LLMatcher.grammar_from_lark(grammar)
    wrong, said = library.LLMatcher.validate_grammar_with_warnings(text, tokenizer)
    if wrong:
        line = shorten(" ".join(said[0].splitlines()[0].split()))
        raise ValueError(f"grammar cannot be read: {line}")
    inside = sorted((word, i) for i, word in enumerate(words) if word is not None)
    ids: dict[bytes, list[int]] = {}
    for word, i in inside:
        ids.setdefault(word, []).append(i)
    host = Host(
        start=library.LLMatcher(tokenizer, text, log_level=0),
        words=inside,
        ids=ids,
        ends=frozenset(ends),
        ended=pack(list(ends), len(words)),
        kept=OrderedDict(),
        lock=threading.Lock(),
    )
    read_mask(host, host.start)
    return host


def pack(ids: Sequence[int], vocab: int) -> np.ndarray:
    """Returns the mask [W] uint32 that allows these ids."""
    allowed = np.zeros(-(-vocab // BITS) * BITS, bool)
    allowed[ids] = True
    return np.packbits(allowed, bitorder="little").view("<u4").astype(np.uint32)


def find_masks(host: Host, tokens: Any, number: Any) -> np.ndarray:
    """Returns the ids that may follow texts, [..., W] uint32.

    After tokens that the grammar does not allow, only the ends of a text may follow.

    Args:
      host: the parser of the grammar.
      tokens, number: see `State`.
    """
    number = np.asarray(number)
    texts = np.asarray(tokens).reshape(number.size, -1)
    with host.lock:
        rows = [
            read_text(host, text[:count])
            for text, count in zip(texts, number.ravel(), strict=True)
        ]
    return np.array(rows).reshape(*number.shape, -1)


def read_text(host: Host, tokens: np.ndarray) -> np.ndarray:
    """Returns the mask [W] after a text, parsed from the longest beginning of it that
    was parsed before."""
    count = len(tokens)
    while count and tokens[:count].tobytes() not in host.kept:
        count -= 1
    if count:
        parser, mask = host.kept[tokens[:count].tobytes()]
    else:
        parser, mask = host.start, read_mask(host, host.start)
    for place in range(count, len(tokens)):
        token = int(tokens[place])
        allowed = token >= 0 and mask[token // BITS] >> np.uint32(token % BITS) & 1
        if parser is None or token in host.ends or not allowed:
            parser, mask = None, host.ended
        else:
            parser = parser.deep_copy()
            parser.consume_token(token)
            mask = read_mask(host, parser)
        host.kept[tokens[: place + 1].tobytes()] = parser, mask
    while len(host.kept) > KEPT:
        host.kept.popitem(last=False)
    return mask


def read_mask(host: Host, parser: Any) -> np.ndarray:
    """Returns the mask [W] of a parser. Raises ValueError if the parser gave up, or if
    no token can continue its text."""
    size = len(host.ended)
    if forced := parser.compute_ff_bytes():
        mask = pack(forced_ids(host, parser, forced), size * BITS)
    else:
        bits = np.frombuffer(parser.compute_bitmask(), np.uint8)[: size * 4]
        padded = np.zeros(size * 4, np.uint8)
        padded[: bits.size] = bits
        mask = padded.view("<u4").astype(np.uint32)
    if parser.is_error() or not mask.any():
        why = parser.get_error() or "no token goes on with the text"
        raise ValueError(f"{FAILED}: {shorten(why)}")
    return mask


def forced_ids(host: Host, parser: Any, forced: bytes) -> list[int]:
    """Returns the ids that may follow where the next bytes can only be `forced`. The
    library's own mask has only one of them, the one that a tokenizer would choose."""
    first = bisect.bisect_left(host.words, (forced, 0))
    longer = []
    for word, i in itertools.islice(host.words, first, None):
        if not word.startswith(forced):
            break
        if parser.validate_tokens([i]):
            longer.append(i)
    shorter = (forced[:size] for size in range(1, len(forced)))
    return longer + [i for word in shorter for i in host.ids.get(word, ())]
