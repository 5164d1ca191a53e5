"""Words of a text with their times: tokens joined, and punctuation to its word.

Words begin with a space, but in languages that are written without; there each
character is one, as in OpenAI's own transcription (https://github.com/openai/whisper,
`tokenizer.py`).
"""

import string
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from specjax.runtime import mesh
from specjax.speech import alignment, pauses
from specjax.speech.decoding import Spent
from specjax.speech.pair import Listeners
from specjax.speech.segments import STEP_FRAMES, Segment, Word
from specjax.speech.sequential import Align, Spoken
from specjax.speech.tokens import STEP, Tokens, is_text, text_ids
from specjax.tokenizers import BROKEN

UNSPACED = "zh", "ja", "th", "lo", "my", "yue"
OPENING = {*"\"'“¿([{-"}
CLOSING = {*"\"'.。,，!！?？:：”)]}、"}  # noqa: RUF001
WIDTH = 64  # texts are as many tokens or a multiple: few programs

Read = Callable[[Iterable[int]], str]


def build(pair: Listeners, on_batch: Callable[[Spent], None]) -> Align:
    """What finds the words of windows that are done, by one call of the target for all
    of a batch. on_batch: is called with the seconds that it took. Raises ValueError for
    a target that does not say which heads follow the sound."""
    config, tokens = pair.target.config, pair.tokens
    listen = alignment.program(config, alignment.heads(pair))
    text = np.asarray(is_text(tokens, np.arange(config.vocab)))

    def align(states: Any, windows: list[Spoken]) -> list[list[Segment]]:
        if not windows:
            return []
        rows = {each.row: whole(tokens, each) for each in windows}
        width = -(-max(map(len, rows.values())) // WIDTH) * WIDTH
        shape = len(states), min(width, config.positions)
        texts = np.full(shape, tokens.end, np.int32)
        for row, ids in rows.items():
            texts[row, : len(ids)] = ids
        heard = pair.target.params, states, mesh.rows(texts), text
        compiled = listen.lower(*heard).compile()
        began = time.perf_counter()
        scores, likely = jax.device_get(compiled(*heard))
        timed = []
        for each in windows:
            count, first = len(rows[each.row]), len(each.head)
            places = max(1, len(each.frames) // STEP_FRAMES)
            heard_at = scores[each.row, :, :count, :places]
            times = each.start + STEP * alignment.begins(heard_at, first)
            said = likely[each.row, first - 1 : count - 2]
            divided = pair.read, is_spaced(tokens, each.head)
            sound = pauses.sounding(each.frames)
            segments = worded(each.segments, tokens, times, said, *divided)
            timed.append(
                [shortened(segment, sound, each.start) for segment in segments]
            )
        on_batch(Spent(0, 0, 0, 0, 0, time.perf_counter() - began))
        return timed

    return align


def shortened(segment: Segment, sound: np.ndarray, start: float) -> Segment:
    """A segment whose words leave its pauses out and lie within it, in order.

    Args:
      segment: with the words that were aligned.
      sound: [S] bool, where its window is not quiet.
      start: seconds at which that window begins.
    """
    words = pauses.left_out(segment.words, sound, start)
    return segment._replace(words=in_order(words, segment.start, segment.end))


def in_order(words: Iterable[Word], start: float, end: float) -> tuple[Word, ...]:
    """Words none of which begins before `start` or the end of the one before it, or
    ends behind `end`: every format then prints the same times."""
    kept, earliest = [], start
    for word in words:
        begin = min(max(word.start, earliest), max(end, earliest))
        last = min(max(word.end, begin), max(end, begin))
        kept.append(word._replace(start=begin, end=last))
        earliest = last
    return tuple(kept)


def whole(tokens: Tokens, window: Spoken) -> list[int]:
    """The text of a window as it would be written without times."""
    texts = (text_ids(tokens, segment.tokens) for segment in window.segments)
    return [*window.head, *(i for text in texts for i in text), tokens.end]


def is_spaced(tokens: Tokens, head: Sequence[int]) -> bool:
    """Whether what is written behind a head has spaces between words."""
    unspaced = {tokens.languages[x] for x in UNSPACED if x in tokens.languages}
    return tokens.tasks["translate"] in head or unspaced.isdisjoint(head)


def worded(
    segments: Iterable[Segment],
    tokens: Tokens,
    times: np.ndarray,
    said: np.ndarray,
    read: Read,
    spaced: bool,
) -> list[Segment]:
    """Segments of a window with their words. times: at which each of their N tokens
    begins and the last ends, [N + 1]. said: the probability of each, [N]."""
    at, done = 0, []
    for segment in segments:
        words = []
        for text, count in divided(text_ids(tokens, segment.tokens), read, spaced):
            sure = float(said[at : at + count].mean())
            words.append(Word(text, float(times[at]), float(times[at + count]), sure))
            at += count
        done.append(segment._replace(words=tuple(joined(words))))
    return done


def divided(ids: Sequence[int], read: Read, spaced: bool) -> list[tuple[str, int]]:
    """Words and punctuation marks of a text, and of how many tokens each is. spaced:
    whether words begin with a space; if not each character, or token of several, is
    one."""
    words: list[tuple[str, int]] = []
    for text, count in characters(ids, read):
        begins = text.startswith(" ") or {*text.strip()} <= {*string.punctuation}
        if spaced and words and not begins:
            before, more = words.pop()
            text, count = before + text, more + count
        words.append((text, count))
    return words


def characters(ids: Sequence[int], read: Read) -> list[tuple[str, int]]:
    """The fewest tokens at a time that are whole characters.

    A text may be cut between two tokens if both parts, read apart, are what they are
    together. Bytes that never become a character are a piece of their own.
    """
    found, first = [], 0
    for last in range(1, len(ids) + 1):
        part = read(ids[first:last])
        if BROKEN not in part or part + read(ids[last:]) == read(ids[first:]):
            found.append((part, last - first))
            first = last
    return found


def joined(words: Sequence[Word]) -> list[Word]:
    """Opening punctuation becomes part of the word behind it, closing of the one before
    it. A word keeps its own times."""
    kept: list[Word] = []
    for word in reversed(words):
        mark = word.text.strip()
        opens = word.text.startswith(" ") and mark and {*mark} <= OPENING
        if kept and opens:
            kept[-1] = kept[-1]._replace(text=word.text + kept[-1].text)
        else:
            kept.append(word)
    whole: list[Word] = []
    for word in reversed(kept):
        if whole and word.text and {*word.text} <= CLOSING:
            whole[-1] = whole[-1]._replace(text=whole[-1].text + word.text)
        else:
            whole.append(word)
    return whole
