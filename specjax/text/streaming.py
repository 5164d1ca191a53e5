"""The pieces of texts, step by step: in whole characters, up to where a text stops.

Axes: B texts, G = gamma, L buffer.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import generate, tokenizers
from specjax.generate import Programs
from specjax.tokenizers import Tokenizer
from specjax.types import Params, Prompt, Request, State

END, STOP, LENGTH = "end", "stop", "length"  # why a text ended
MARKS = range(0xD800, 0xE000)  # characters that no text of bytes has


class Piece(NamedTuple):
    """The next part of a text.

    index: the index of its prompt. text: whole characters, maybe none yet. ended: None
    while it goes on; "end" by a token that ends texts, "stop" by a string to stop at,
    which is left out, or "length". tokens: ids that were committed, up to the one that
    completes such a string. logprobs: log p of each by the target's logits at
    temperature 1 and its rules; () where nobody asked. drafted, accepted: tokens of the
    draft that were decided on, and of these kept. sample: which of its prompt's texts
    it is of.
    """

    index: int  # type: ignore[assignment]  # in place of tuple.index
    text: str
    ended: str | None
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    drafted: int
    accepted: int
    sample: int = 0


class Stops(NamedTuple):
    """The strings and ids at which texts stop.

    strings: as they were asked for, and again with marks in place of special tokens.
    marks: by the id of each special token that is in one of the strings, a character
    that no text has.
    """

    strings: tuple[str, ...]
    marks: dict[int, str]


def find_stops(tokenizer: Tokenizer, asked: Sequence[str]) -> Stops:
    """Finds special tokens in strings to stop at: a text does not have their names, so
    that they are matched by their ids."""
    names = {i: tokenizer.token(i) for i in tokenizer.silent if asked}
    within = {i: x for i, x in names.items() if x and any(x in each for each in asked)}
    longest = sorted(within, key=lambda i: -len(within[i]))
    marks = {i: chr(MARKS[number]) for number, i in enumerate(longest)}
    strings = list(asked)
    for string in asked:
        for i, mark in marks.items():
            string = string.replace(within[i], mark)
        strings.append(string)
    return Stops(tuple(dict.fromkeys(strings)), marks)


def pieces(
    programs: Programs,
    params: Params,
    prompt: Prompt,
    request: Request,
    *,
    tokenizer: Tokenizer,
    stop: Sequence[str] = (),
) -> Iterator[Piece]:
    """Yields a piece of every unfinished text after each step, until all have ended.

    Where a text stops depends on what it says alone, so that what is written before has
    the target's law. Raises FloatingPointError, naming row and step, for logits that
    are not finite (`specjax.finite`).
    """
    start, limit = np.asarray(request.start), np.array(request.limit)
    ends = np.asarray(request.eos).reshape(len(start), -1)
    num_yielded = np.zeros(len(start), int)  # characters
    until = find_stops(tokenizer, stop)
    going = np.ones(len(start), bool)

    def next_batch(state: State | None) -> tuple[State, Request] | None:
        assert state is not None
        # The row of a text that stopped is at its limit.
        now = request._replace(limit=jnp.asarray(limit))
        return (state, now) if going.any() else None

    initial = programs.prefill(params, prompt)
    steps = generate.run_steps(programs.step, params, initial, next_batch=next_batch)
    for state, info in steps:
        tokens, length, did = jax.device_get((state.tokens, state.length, info))
        generate.check_finite(tokens, start, length)
        for row in np.flatnonzero(going):
            ids = tokens[row, : length[row]]
            first = length[row] - did.emitted[row]
            whole = decode_with_marks(tokenizer, ids, start[row], until)
            if any(each in whole for each in until.strings):
                ids = cut_ids(tokenizer, ids, start[row], first, until)
                whole = decode_with_marks(tokenizer, ids, start[row], until)
            ended = LENGTH if length[row] >= limit[row] else None
            ended = END if ids[-1] in ends[row] else ended
            whole, ended = cut_text(whole, ended, until.strings)
            whole = whole.translate(dict.fromkeys(map(ord, until.marks.values())))
            sure = did.logprob
            sure = () if sure is None else tuple(sure[row, : len(ids) - first].tolist())
            yield Piece(
                index=int(row),
                text=whole[num_yielded[row] :],
                ended=ended,
                tokens=tuple(ids[first:].tolist()),
                logprobs=sure,
                drafted=int(did.tested[row]),
                accepted=int(did.accepted[row]),
            )
            num_yielded[row] = max(num_yielded[row], len(whole))
            if ended is not None:
                going[row], limit[row] = False, length[row]


def cut_ids(
    tokenizer: Tokenizer, ids: np.ndarray, start: int, first: int, until: Stops
) -> np.ndarray:
    """Returns the ids up to the first one after which the text contains a string to
    stop at.

    The cut does not depend on where calls of the target ended, and so not on how much
    of a draft was accepted.
    """
    for end in range(first + 1, len(ids)):
        text = decode_with_marks(tokenizer, ids[:end], start, until)
        if any(each in text for each in until.strings):
            return ids[:end]
    return ids


def cut_text(
    text: str, ended: str | None, stop: Sequence[str]
) -> tuple[str, str | None]:
    """Returns a text up to the first string to stop at, if it has one, and why it
    ended.

    While it goes on, a last part that may still become another character, or such a
    string, is left out.
    """
    found = [at for each in stop if (at := text.find(each)) >= 0]
    if found:
        at = min(found)
        ends = ended == END and len(text) == at + 1 and ord(text[at]) in MARKS
        return text[:at], END if ends else STOP  # a token that ends texts anyway
    if ended is not None:
        return text, ended
    text = text.rstrip(tokenizers.BROKEN)
    sizes = (n for each in stop for n in range(1, len(each)) if text.endswith(each[:n]))
    return text[: len(text) - max(sizes, default=0)], None


def decode_with_marks(
    tokenizer: Tokenizer, ids: np.ndarray, start: int, until: Stops
) -> str:
    """Returns the text after the first `start` tokens, in which marks stand for special
    tokens."""
    parts, first = [], start
    for at in range(start, len(ids)) if until.marks else ():
        if (mark := until.marks.get(int(ids[at]))) is not None:
            parts += [continuation(tokenizer, ids, first, at), mark]
            first = at + 1
    return "".join([*parts, continuation(tokenizer, ids, first, len(ids))])


def continuation(
    tokenizer: Tokenizer, tokens: np.ndarray, start: int, length: int
) -> str:
    """Returns the text of tokens `start` to `length`, as it reads after the tokens
    before it.

    Decoded alone, a token may lack the space before it.
    """
    before, whole = tokenizer.decode(tokens[:start]), tokenizer.decode(tokens[:length])
    if not whole.startswith(before):  # it ended within a character
        before = before.rstrip(tokenizers.BROKEN)
    if whole.startswith(before):
        return whole[len(before) :]
    return tokenizer.decode(tokens[start:length])
