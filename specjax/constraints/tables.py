"""Automata over bytes, turned into automata over tokens: tables on the device.

A token moves a state as its bytes do. Tokens that move all states alike are one class,
and states that allow the same ids share one mask, so that the tables are small: the
states of a text are one number each, and neither a step nor a mask needs the host.
Axes: S states, the last of which is that of a text that has ended; C classes of tokens,
M masks, V vocabulary, W = V / 32 words of a mask.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.constraints.regular import NO_STATE, ByteAutomaton, find_live
from specjax.types import TokenAutomaton

MOST_ENTRIES = 2**24  # of a table, which is a part of the compiled program
BITS = 32
NEVER = -jnp.inf


class TokenTable(NamedTuple):
    """An automaton over tokens; state 0 is the first.

    Attributes:
      step: the state after a token of each class, [S, C] int32. A token that is not
        allowed leads to the last state, in which only the ends of a text are allowed.
      classes: the class of each id, [V] int32.
      mask: the mask of each state, [S] int32.
      masks: the allowed ids, one bit each, the lowest first, [M, W] uint32.
    """

    step: np.ndarray | Array
    classes: np.ndarray | Array
    mask: np.ndarray | Array
    masks: np.ndarray | Array


def lift(
    automaton: ByteAutomaton,
    words: Sequence[bytes | None],
    ends: Sequence[int],
    *,
    what: str = "regex",
) -> TokenTable:
    """Returns the automaton over tokens for texts that end with one of `ends`.

    An id is allowed where a text of the language can still be completed by tokens.

    Args:
      automaton: the language, over bytes.
      words: the bytes of each id [V], None for one that is never written.
      ends: ids that each end a text.
      what: the name of what is lifted, for messages.

    Raises:
      ValueError: the table is too large, or tokens write no text of the language.
    """
    columns, classes = classify(automaton, words)
    states, number = len(automaton.step), len(columns)
    if (states + 1) * (number + 1) > MOST_ENTRIES:
        raise ValueError(
            f"{what} is too large: {states:,} states for {number:,} classes of tokens"
            f" are more than {MOST_ENTRIES:,} entries; bound its repetitions by less,"
            " take + or * for them, or write it as a grammar, which the host reads"
        )
    ended = states
    step = np.full((states + 1, number + 1), NO_STATE, np.int32)
    step[:-1, :-1] = np.array(columns).T
    step[:-1, -1] = np.where(automaton.accepts, ended, NO_STATE)
    step[ended, -1] = ended
    classes[list(ends)] = number
    lives = find_live(step, np.arange(states + 1) == ended)
    if not lives[0]:
        raise ValueError(
            f"no tokens of the model write a text of this {what}: allow characters that"
            " its tokenizer has"
        )
    allowed = (step != NO_STATE) & lives[step]
    rows, mask = np.unique(allowed, axis=0, return_inverse=True)
    width = -(-len(words) // BITS) * BITS
    bits = np.zeros((len(rows), width), bool)
    bits[:, : len(words)] = rows[:, classes]
    packed = np.packbits(bits, axis=1, bitorder="little")
    return TokenTable(
        step=np.where(allowed, step, ended).astype(np.int32),
        classes=classes,
        mask=mask.reshape(-1).astype(np.int32),
        masks=packed.view("<u4").astype(np.uint32),
    )


def classify(
    automaton: ByteAutomaton, words: Sequence[bytes | None]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns the classes of tokens that the automaton treats alike, and the class of
    each id [V].

    A class is the state after its tokens [S], for each state before them. Tokens are
    read in the order of their bytes, so that a common beginning is read once.
    """
    states = len(automaton.step)
    dead = np.full(states, NO_STATE, np.int32)
    # A row for NO_STATE, which is the last of an array by its index -1.
    step = np.vstack([automaton.step, np.full((1, 256), NO_STATE, np.int32)])
    columns, known = [dead], {dead.tobytes(): 0}
    classes = np.zeros(len(words), np.int32)
    path = [np.arange(states, dtype=np.int32)]  # after each beginning of the last word
    last = b""
    for word, token in sorted((word, i) for i, word in enumerate(words) if word):
        shared = 0
        while shared < min(len(last), len(word)) and last[shared] == word[shared]:
            shared += 1
        del path[shared + 1 :]
        for byte in word[len(path) - 1 :]:
            if (path[-1] == NO_STATE).all():
                break
            path.append(step[path[-1], byte])
        last = word[: len(path) - 1]
        whole = path[-1] if len(path) > len(word) else dead
        key = whole.tobytes()
        if key not in known:
            known[key] = len(columns)
            columns.append(whole)
        classes[token] = known[key]
    return columns, classes


def build(table: TokenTable) -> TokenAutomaton:
    """Returns the rules of a table: a text begins in state 0, whatever its prompt."""
    step, classes, mask, masks = table
    vocab = len(classes)

    def begin(tokens: Array, length: Array) -> Array:
        del tokens
        return jnp.zeros(length.shape, jnp.int32)

    def advance(state: Array, token: Array) -> Array:
        return jnp.asarray(step)[state, jnp.asarray(classes)[token]]

    def apply(state: Array, logits: Array) -> Array:
        check_vocab(logits, vocab)
        words = jnp.asarray(masks)[jnp.asarray(mask)[state]]
        return mask_logits(words, logits)

    return TokenAutomaton(begin, advance, apply)


def mask_logits(words: Array, logits: Array) -> Array:
    """Returns logits [..., V] with -inf where the bit of an id in words [..., W] is
    0."""
    bits = (words[..., None] >> jnp.arange(BITS, dtype=jnp.uint32)) & jnp.uint32(1)
    allowed = bits.reshape(*words.shape[:-1], -1)[..., : logits.shape[-1]]
    return jnp.where(allowed == 1, logits, NEVER)


def check_vocab(logits: Array, vocab: int) -> None:
    """Raises ValueError for logits of another vocabulary."""
    if logits.shape[-1] != vocab:
        raise ValueError(
            f"the logits have {logits.shape[-1]} ids, and the rules were built for"
            f" {vocab}: build them for this model"
        )
