"""Tokens become words, and punctuation becomes part of them."""

import json
import re

import numpy as np
import pytest

from specjax.speech import pauses, subtitles, words
from specjax.speech.segments import Segment, Word
from tests.support.tiny_whisper import TOKENS

PIECES = [" ask", " not", "hing", ",", ' "', "你", b"\xe5", b"\xa5\xbd"]
PIECES += [".", "don", "'t", b"\xe5", b"\xa5"]
ASK, NOT, HING, COMMA, QUOTE, YOU, GOOD, REST, STOP, DON, T, HALF, MORE = range(13)


def read(ids) -> str:
    parts = (PIECES[i] for i in ids)
    whole = b"".join(x if isinstance(x, bytes) else x.encode() for x in parts)
    return whole.decode(errors="replace")


@pytest.mark.parametrize(
    ("ids", "spaced", "expected"),
    [
        ([ASK, NOT, HING, COMMA], True, [(" ask", 1), (" nothing", 2), (",", 1)]),
        ([DON, T, QUOTE, ASK], True, [("don't", 2), (' "', 1), (" ask", 1)]),
        # A character of several tokens is one.
        ([YOU, GOOD, REST, STOP], False, [("你", 1), ("好", 2), (".", 1)]),
        ([ASK, GOOD, REST], True, [(" ask好", 3)]),
        # One that stays broken, in its middle and at its end.
        ([GOOD, ASK], True, [("\ufffd", 1), (" ask", 1)]),
        ([ASK, YOU, GOOD], False, [(" ask", 1), ("你", 1), ("\ufffd", 1)]),
        # Two bytes that are one broken character together, and three apart.
        ([HALF, MORE, ASK, NOT], True, [("\ufffd", 2), (" ask", 1), (" not", 1)]),
        ([REST, GOOD, ASK], True, [("\ufffd" * 3, 2), (" ask", 1)]),
        ([], True, []),
    ],
)
def test_words_begin_with_a_space_where_there_are_any(ids, spaced, expected):
    assert words.split_words(ids, read, spaced) == expected


def test_marks_go_to_their_words_which_keep_their_times():
    def time_words(*texts):
        return [Word(text, i, i + 1, 0.5) for i, text in enumerate(texts)]

    told = words.join_punctuation(
        time_words(' "', " -", " Ask", ",", '"', " why", "?", " -")
    )
    assert [word.text for word in told] == [' " - Ask,"', " why?", " -"]
    assert [word[1:3] for word in told] == [(2, 3), (5, 6), (7, 8)]


def test_each_segment_has_its_own_tokens():
    at = TOKENS.first_time
    segments = [
        Segment(1, 2, " ask nothing,", (at, ASK, NOT, HING, COMMA, at + 9)),
        Segment(2, 3, " not", (at + 9, NOT, at + 20)),
    ]
    times = np.array([1.0, 1.25, 1.5, 1.75, 2, 2.5])
    said = np.array([0.5, 0.25, 0.75, 1, 0.125])
    first, second = words.add_words(
        segments, TOKENS, times=times, probabilities=said, read=read, spaced=True
    )
    assert first.words == (
        Word(" ask", 1, 1.25, 0.5),
        Word(" nothing,", 1.25, 1.75, 0.5),
    )
    assert second.words == (Word(" not", 2, 2.5, 0.125),)


def test_no_word_lasts_over_a_pause():
    """Sound comes in states of 0.02 s: those of the word before, a pause, and two of
    the word itself."""
    sound = np.zeros(60, bool)
    sound[[0, 1, *range(25, 30), *range(35, 40), 55]] = True
    one, late, short, none = (
        Word(" a", 5.0 + 0.02 * begin, 5.0 + 0.02 * end, 1)
        for begin, end in ((0, 40), (30, 60), (41, 50), (21, 33))
    )
    told = pauses.leave_out_pauses((one, late, short, none), sound, 5.0)
    near = pytest.approx
    assert (
        [word[1:3] for word in told]
        == [
            (near(5.5), near(5.8)),  # a closure of five states is not a pause
            (near(5.6), near(5.8)),
            short[1:3],  # no sound at all: as it was
            none[1:3],  # what is short at its edges stays
        ]
    )


def test_what_is_quiet_is_so_beside_the_loudest_of_its_window():
    decibel = np.full(200, -60.0)
    decibel[100:150] = -10
    decibel[150:160] = -36
    frames = (np.repeat(decibel[:, None] / 10, 4, 1) + 4 - np.log10(4)) / 4
    sound = pauses.find_sound(frames)
    assert sound.shape == (100,) and np.flatnonzero(sound).tolist() == [*range(50, 75)]
    assert pauses.find_sound(frames[150:160]).all()  # nothing is louder
    assert pauses.find_sound(frames[:1]).shape == (0,)


def test_the_noise_of_a_recording_is_no_sound():
    """The noise is 24 dB below speech, as in recordings of books; noise as loud as
    speech is a sound."""

    def frames(decibel: np.ndarray) -> np.ndarray:
        return (np.repeat(decibel[:, None] / 10, 4, 1) + 4 - np.log10(4)) / 4

    level = np.full(200, -44.0)
    level[100:150] = -20
    sound = pauses.find_sound(frames(level))
    assert np.flatnonzero(sound).tolist() == [*range(50, 75)]
    level[:100], level[150:] = -29, -29
    assert pauses.find_sound(frames(level)).all()


def test_words_lie_within_their_segment_in_order():
    spoken = [Word(f" {i}", *times, 1) for i, times in enumerate(OVERLAPPING)]
    segment = Segment(5.0, 8.0, " 0 1 2 3 4", words=tuple(spoken))
    told = words.tidy_words(segment, np.ones(1500, bool), 0.0).words
    assert [word[1:3] for word in told] == [
        *((5.0, 5.0), (5.0, 6.0), (6.0, 7.0), (7.0, 8.0), (8.0, 8.0))
    ]
    begins = [f"00:00:0{word.start:.3f}" for word in told]
    worded = [segment._replace(words=told)]
    cues = subtitles.srt(worded).replace(",", ".").split("\n\n")
    assert [cue.split("\n")[1][:12] for cue in cues] == begins
    vtt = subtitles.vtt(worded)
    (cue,) = [line for line in vtt.splitlines() if "-->" in line]
    inner = re.findall(r"<([\d:.]+)>", vtt)
    assert cue[:12] == begins[0] and {*inner} <= {*begins}
    (row,) = json.loads(subtitles.to_json(worded))["segments"]
    assert [f"00:00:0{word['start']:.3f}" for word in row["words"]] == begins


OVERLAPPING = (3.5, 4.0), (4.8, 6.0), (5.98, 7.0), (7.0, 8.4), (8.4, 9.0)


def test_what_is_written_has_spaces_by_its_language_and_task():
    tokens = TOKENS._replace(languages={"en": 22, "zh": 23})
    heads = {(21, 22, 25): True, (21, 23, 25): False, (21, 23, 24): True, (21,): True}
    for head, spaced in heads.items():
        assert words.is_spaced(tokens, head) is spaced
