"""The words of a text with their times: tokens joined to words, with punctuation.

Words begin with a space, except in languages that are written without; there each
character is one, as in OpenAI's own transcription (https://github.com/openai/whisper,
`tokenizer.py`)."""

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
from specjax.speech.sequential import Align, AlignmentTask
from specjax.speech.tokens import STEP, Tokens, is_text, text_ids
from specjax.tokenizers import BROKEN

UNSPACED = "zh", "ja", "th", "lo", "my", "yue"
OPENING = {*"\"'“¿([{-"}
CLOSING = {*"\"'.。,，!！?？:：”)]}、"}  # noqa: RUF001
WIDTH = 64  # texts are as many tokens or a multiple: few programs

Read = Callable[[Iterable[int]], str]


def build(pair: Listeners, on_batch: Callable[[Spent], None]) -> Align:
    """Returns the function that finds the words of finished windows.

    It makes one call of the target for all windows of a batch. on_batch: is called with
    the seconds that it took. Raises ValueError for a target whose checkpoint does not
    name the heads that follow the sound."""
    config, tokens = pair.config, pair.tokens
    listen = alignment.program(config, alignment.heads(pair))
    text = np.asarray(is_text(tokens, np.arange(config.vocab)))

    def align(states: Any, windows: list[AlignmentTask]) -> list[list[Segment]]:
        if not windows:
            return []
        rows = {each.row: text_without_times(tokens, each) for each in windows}
        width = -(-max(map(len, rows.values())) // WIDTH) * WIDTH
        shape = len(states), min(width, config.positions)
        texts = np.full(shape, tokens.end, np.int32)
        for row, ids in rows.items():
            texts[row, : len(ids)] = ids
        rows_of_text = mesh.rows(texts)
        params = pair.target.params
        compiled = listen.lower(params, states, rows_of_text, text).compile()
        start = time.perf_counter()
        scores, likely = jax.device_get(compiled(params, states, rows_of_text, text))
        results = []
        for each in windows:
            count, first = len(rows[each.row]), len(each.head)
            places = max(1, len(each.frames) // STEP_FRAMES)
            attention = scores[each.row, :, :count, :places]
            times = each.start + STEP * alignment.token_starts(attention, first)
            sound = pauses.find_sound(each.frames)
            segments = add_words(
                each.segments,
                tokens,
                times=times,
                probabilities=likely[each.row, first - 1 : count - 2],
                read=pair.read,
                spaced=is_spaced(tokens, each.head),
            )
            results.append(
                [tidy_words(segment, sound, each.start) for segment in segments]
            )
        on_batch(Spent(0, 0, 0, 0, 0, time.perf_counter() - start))
        return results

    return align


def tidy_words(segment: Segment, sound: np.ndarray, start: float) -> Segment:
    """Returns a segment whose words lie within it, in order, and leave out its pauses.

    Args:
      segment: with the words that were aligned.
      sound: [S] bool, where its window is not quiet.
      start: seconds at which that window begins.
    """
    words = pauses.leave_out_pauses(segment.words or (), sound, start)
    return segment._replace(words=order_words(words, segment.start, segment.end))


def order_words(words: Iterable[Word], start: float, end: float) -> tuple[Word, ...]:
    """Returns words that lie between `start` and `end`, none before the end of the one
    before it.

    Every format then prints the same times."""
    kept, earliest = [], start
    for word in words:
        begin = min(max(word.start, earliest), max(end, earliest))
        last = min(max(word.end, begin), max(end, begin))
        kept.append(word._replace(start=begin, end=last))
        earliest = last
    return tuple(kept)


def text_without_times(tokens: Tokens, window: AlignmentTask) -> list[int]:
    """Returns the tokens of a window's text in the form that the model would write
    without timestamps."""
    texts = (text_ids(tokens, segment.tokens) for segment in window.segments)
    return [*window.head, *(i for text in texts for i in text), tokens.end]


def is_spaced(tokens: Tokens, head: Sequence[int]) -> bool:
    """Returns whether the text after a prompt is in a language with spaces between
    words."""
    unspaced = {tokens.languages[x] for x in UNSPACED if x in tokens.languages}
    return tokens.tasks["translate"] in head or unspaced.isdisjoint(head)


def add_words(
    segments: Iterable[Segment],
    tokens: Tokens,
    *,
    times: np.ndarray,
    probabilities: np.ndarray,
    read: Read,
    spaced: bool,
) -> list[Segment]:
    """Returns the segments of a window with their words.

    times: at which each of their N tokens begins and the last ends, [N + 1].
    probabilities: the probabilities of each, [N]."""
    at, done = 0, []
    for segment in segments:
        words = []
        for text, count in split_words(text_ids(tokens, segment.tokens), read, spaced):
            word = Word(
                text=text,
                start=float(times[at]),
                end=float(times[at + count]),
                probability=float(probabilities[at : at + count].mean()),
            )
            words.append(word)
            at += count
        done.append(segment._replace(words=tuple(join_punctuation(words))))
    return done


def split_words(ids: Sequence[int], read: Read, spaced: bool) -> list[tuple[str, int]]:
    """Returns the words and punctuation marks of a text, each with its number of
    tokens.

    spaced: whether words begin with a space; if not, each character, or token of
    several, is a word."""
    words: list[tuple[str, int]] = []
    for text, count in characters(ids, read):
        begins = text.startswith(" ") or {*text.strip()} <= {*string.punctuation}
        if spaced and words and not begins:
            before, more = words.pop()
            text, count = before + text, more + count
        words.append((text, count))
    return words


def characters(ids: Sequence[int], read: Read) -> list[tuple[str, int]]:
    """Returns the text and the number of tokens of the shortest runs of tokens that are
    whole characters.

    A text may be cut between two tokens if both parts, decoded separately, are what
    they are together. Bytes that never become a character are a piece of their own."""
    found, first = [], 0
    for last in range(1, len(ids) + 1):
        part = read(ids[first:last])
        if BROKEN not in part or part + read(ids[last:]) == read(ids[first:]):
            found.append((part, last - first))
            first = last
    return found


def join_punctuation(words: Sequence[Word]) -> list[Word]:
    """Returns words joined with their punctuation marks; each keeps its own times.

    Opening punctuation becomes part of the word after it, closing of the one before it.
    """
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
