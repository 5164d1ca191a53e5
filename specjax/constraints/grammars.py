"""Grammars, which the host reads by llguidance.

A grammar has no end of states, and its parser lies on the host. The state of a text is
the tokens that it has written, and `apply` asks the host for the masks of all texts of
a call at once: one call of the host for each call of a model, drafts included. What
the host keeps speeds it up, and changes nothing. Axes: B rows, N places for tokens, V
vocabulary, W = V / 32 words of a mask.
"""

import bisect
import contextlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
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
    """The tokens of a text, those after its prompt.

    tokens: [..., N] int32, `NO_TOKEN` behind the last. number: of them, [...] int32.
    """

    tokens: Array
    number: Array


class Words(NamedTuple):
    """The vocabulary, as llguidance asks for it."""

    tokens: list[bytes]
    special_token_ids: list[int]
    eos_token_id: int
    bos_token_id: None = None

    def __call__(self, text: bytes | str) -> list[int]:
        """Returns no tokens: no text is ever encoded here."""
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
    find_masks, vocab = make_reader(grammar, words, ends), len(words)
    width = -(-vocab // BITS)

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
        shape = jax.ShapeDtypeStruct((*state.number.shape, width), jnp.uint32)
        masks = jax.pure_callback(
            find_masks, shape, state.tokens, state.number, vmap_method="broadcast_all"
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


def make_reader(
    grammar: str, words: Sequence[bytes | None], ends: Sequence[int]
) -> Callable[[Any, Any], np.ndarray]:
    """Returns the function of the host: tokens [..., N] and counts [...] -> the ids
    that may follow, [..., W] uint32.

    After tokens that the grammar does not allow, only the ends of a text may follow.
    """
    library, vocab = llguidance(), len(words)
    special = [i for i, word in enumerate(words) if word is None]
    # The byte 255 begins no text: the library's mark for special tokens.
    pieces = [b"\xff<%d>" % i if word is None else word for i, word in enumerate(words)]
    own = Words(pieces, special, ends[0])
    tokenizer = library.LLTokenizer(
        library.TokenizerWrapper(own), n_vocab=vocab, eos_token=list(ends), slices=[]
    )
    text = library.LLMatcher.grammar_from_lark(grammar)
    if wrong := library.LLMatcher.validate_grammar(text, tokenizer):
        line = shorten(" ".join(wrong.splitlines()[0].split()))
        raise ValueError(f"grammar cannot be read: {line}")
    root, width = library.LLMatcher(tokenizer, text, log_level=0), -(-vocab // BITS)
    inside = sorted((word, i) for i, word in enumerate(words) if word is not None)
    longest = max((len(word) for word, _ in inside), default=0)
    ids: dict[bytes, list[int]] = {}
    for word, i in inside:
        ids.setdefault(word, []).append(i)
    ended = np.zeros(width * BITS, bool)
    ended[list(ends)] = True
    ended_words = np.packbits(ended, bitorder="little").view("<u4").astype(np.uint32)
    kept: OrderedDict[bytes, tuple[Any, np.ndarray]] = OrderedDict()
    lock = threading.Lock()

    def read(parser: Any) -> np.ndarray:
        if forced := parser.compute_ff_bytes():
            allowed = np.zeros(width * BITS, bool)
            allowed[of_forced(parser, forced)] = True
            mask = np.packbits(allowed, bitorder="little")
        else:
            mask = np.zeros(width * BITS // 8, np.uint8)
            bits = np.frombuffer(parser.compute_bitmask(), np.uint8)[: mask.size]
            mask[: bits.size] = bits
        if parser.is_error() or not mask.any():
            why = parser.get_error() or "no token goes on with the text"
            raise ValueError(f"{FAILED}: {shorten(why)}")
        return mask.view("<u4").astype(np.uint32)

    def of_forced(parser: Any, forced: bytes) -> list[int]:
        """Returns the ids that may follow where the next bytes can only be these. The
        library's mask has one of them alone, the one that a tokenizer would take."""
        at = bisect.bisect_left(inside, (forced, 0))
        end = bisect.bisect_left(inside, (forced + b"\xff" * longest, 0))
        longer = [i for _, i in inside[at:end] if parser.validate_tokens([i])]
        whole = (forced[:size] for size in range(1, len(forced)))
        return longer + [i for word in whole for i in ids.get(word, ())]

    def follow(tokens: np.ndarray) -> tuple[Any, np.ndarray]:
        count = len(tokens)
        while count and tokens[:count].tobytes() not in kept:
            count -= 1
        parser, mask = kept[tokens[:count].tobytes()] if count else first
        for place in range(count, len(tokens)):
            parser, mask = step(parser, mask, int(tokens[place]))
            kept[tokens[: place + 1].tobytes()] = parser, mask
        while len(kept) > KEPT:
            kept.popitem(last=False)
        return parser, mask

    def step(parser: Any, mask: np.ndarray, token: int) -> tuple[Any, np.ndarray]:
        word, bit = divmod(token, BITS)
        if parser is None or token in ends or not mask[word] >> np.uint32(bit) & 1:
            return None, ended_words
        after = parser.deep_copy()
        after.consume_token(token)
        return after, read(after)

    first = root, read(root)

    def find_masks(tokens: Any, counts: Any) -> np.ndarray:
        counts = np.asarray(counts)
        texts = np.asarray(tokens).reshape(counts.size, -1)
        with lock:
            rows = [
                follow(text[:count])[1]
                for text, count in zip(texts, counts.ravel(), strict=True)
            ]
        return np.array(rows).reshape(*counts.shape, -1)

    return find_masks
