"""Segments end where timestamps pair; windows that went wrong are told by numbers."""

import math

import pytest

from specjax.speech import segments
from specjax.speech.segments import Piece, Thresholds
from specjax.speech.tokens import STEPS
from tests.support.small_speech import TOKENS

AT = TOKENS.first_time  # <|0.00|>


def times(pieces):
    return [(round(p.start, 2), round(p.end, 2)) for p in pieces]


def test_pairs_divide_and_what_is_behind_the_last_is_heard_again():
    ids = [AT, 3, AT + 5, AT + 5, 4, 6, AT + 9, AT + 9, 7]
    pieces, further = segments.split(TOKENS, ids, 2.0, 3000)
    assert times(pieces) == [(2.0, 2.1), (2.1, 2.18)]
    assert [piece.tokens for piece in pieces] == [ids[:3], ids[3:7]]
    assert further == 18  # frames: 0.18 s


def test_the_next_window_begins_where_the_last_segment_ended():
    ids = [AT, 3, AT + 5, AT + 5, 4, AT + 9, AT + 30, 7]  # and not where one begins
    assert segments.split(TOKENS, ids, 2.0, 3000)[1] == 18


def test_words_behind_the_times_do_not_divide():
    word = AT + STEPS + 1
    ids = [AT, 3, word, word + 1, 4, AT + STEPS]
    pieces, further = segments.split(TOKENS, ids, 0.0, 3000)
    assert pieces == [Piece(0.0, 30.0, ids)] and further == 3000


def test_a_pair_at_the_end_is_where_the_next_window_begins():
    ids = [AT, 3, AT + 5, AT + 5]
    pieces, further = segments.split(TOKENS, ids, 0.0, 3000)
    assert [piece.tokens for piece in pieces] == [ids[:3]] and further == 10


def test_a_single_timestamp_at_the_end_says_that_the_window_is_done():
    ids = [AT, 3, AT + 5, AT + 7, 4, AT + 9]
    pieces, further = segments.split(TOKENS, ids, 0.0, 1234)
    assert times(pieces) == [(0.0, 0.1), (0.14, 0.18)] and further == 1234


@pytest.mark.parametrize(
    ("ids", "end"),
    [([AT, 3, AT + 5], 60.1), ([AT, 3, 4], 65.0), ([3, 4], 65.0), ([AT + 3, 3], 60.06)],
)
def test_without_a_pair_a_window_is_one_segment(ids, end):
    pieces, further = segments.split(TOKENS, ids, 60.0, 500)
    assert pieces == [Piece(60.0, pytest.approx(end), ids)] and further == 500


def test_the_next_window_is_always_later():
    assert segments.split(TOKENS, [], 1.0, 300) == ([], 300)
    assert segments.split(TOKENS, [AT, AT, 3], 1.0, 300)[1] == 300
    assert segments.split(TOKENS, [3], 1.0, 0)[1] == 1


def test_compression_is_high_where_a_text_repeats_itself():
    plain = "He has grave doubts whether his work is really Greek after all."
    assert segments.compression(plain) < 1.2 < 2.4
    assert segments.compression("no no " * 40) > 10
    assert segments.compression("") == 0


DEFAULT = Thresholds()


@pytest.mark.parametrize(
    ("ratio", "logprob", "no_speech", "again", "silent"),
    [
        (1.5, -0.3, 0.1, False, False),
        (2.5, -0.3, 0.1, True, False),  # repeats itself
        (1.5, -1.1, 0.1, True, False),  # improbable
        (1.5, -1.1, 0.7, False, True),  # silence
        (2.5, -1.1, 0.7, False, True),
        (2.5, -0.3, 0.7, True, False),  # loops, but is probable: no silence
        (2.4, -1.0, 0.6, False, False),  # thresholds are still good
        (1.5, -1.0, 0.7, False, True),  # as in the reference decoder
    ],
)
def test_what_to_do_with_a_window(ratio, logprob, no_speech, again, silent):
    assert segments.again(ratio, logprob, no_speech, DEFAULT) is again
    assert segments.silent(logprob, no_speech, DEFAULT) is silent


def test_none_is_never():
    never = Thresholds(None, None, None)
    assert not segments.again(99.0, -99.0, 1.0, never)
    assert not segments.silent(-99.0, 1.0, never)
    assert segments.silent(-0.1, 0.7, DEFAULT._replace(logprob=None))
    assert segments.again(1.0, math.nan, 0.0, DEFAULT)


@pytest.mark.parametrize(
    "changed",
    [
        {"temperatures": ()},
        {"temperatures": (-0.1,)},
        {"temperatures": (0.4, 0.2)},
        {"logprob": math.nan},
    ],
)
def test_bad_thresholds_are_told(changed):
    segments.check(DEFAULT)
    with pytest.raises(ValueError, match=r"give|write"):
        segments.check(DEFAULT._replace(**changed))
