"""Windows cover a recording, segments end at timestamps, and subtitles are right to the
letter."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest

from specjax.speech import chunked, logmel, segments, subtitles
from specjax.speech.clips import Clip
from specjax.speech.segments import Segment, Thresholds, Word
from specjax.speech.sequential import Decoded, Options, Recording
from specjax.speech.tokens import STEPS
from tests.support.tiny_whisper import TOKENS


@pytest.mark.parametrize("count", [1, 29, 30, 31, 50, 51, 70, 71, 300])
def test_windows_cover_a_recording_and_share_a_sixth_on_either_side(count):
    cover = chunked.windows(count, 30)
    assert cover[0][0] == 0 and cover[-1][1] == count
    assert all(stop - start == 30 for start, stop in cover[:-1])
    shared = [stop - start for (_, stop), (start, _) in pairwise(cover)]
    assert shared == [10] * (len(cover) - 1)
    assert all(stop < count for _, stop in cover[:-1])


def test_overlaps_are_written_once():
    for parts, whole in (
        ([[1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7]], [1, 2, 3, 4, 5, 6, 7]),
        # Each window is wrong at its edge: 9 for 4, and 8 for 3.
        ([[1, 2, 3, 5, 9], [8, 3, 5, 6, 7]], [1, 2, 3, 5, 6, 7]),
        ([[1, 2], [2, 3]], [1, 2, 2, 3]),  # one equal token is not an overlap
        # The longest of equally good overlaps; the best share of equal tokens first.
        ([[1, 1, 1, 1], [1, 1, 1, 1]], [1, 1, 1, 1]),
        ([[1, 2, 2], [1, 1, 2]], [1, 1, 2]),
        ([[], [1, 2], [], [1, 2]], [1, 2, 1, 2]),
        ([], []),
    ):
        assert chunked.join(parts) == whole


def test_a_recording_of_tones_is_written_tone_by_tone():
    rng = np.random.default_rng(3)
    tones = rng.integers(1, 20, 75)
    second = np.arange(logmel.RATE) / logmel.RATE
    samples = np.concatenate([np.sin(2 * np.pi * 300 * k * second) for k in tones])
    # The band that each tone is loudest in, by the tone alone.
    alone = [logmel.features(np.sin(2 * np.pi * 300 * k * second))[50] for k in tones]
    expected = [int(frame.argmax()) for frame in alone]
    sizes, heads = [], []

    def decode(features, prompts, temperatures):
        sizes.append(len(features))
        heads.extend(prompts)
        middles = features[:, 50::100]
        texts = [[int(x.argmax()) for x in row if x.max() > x.min()] for row in middles]
        for text in texts:
            text[-1] = 99  # its last word is always wrong
        return Decoded(texts, [0.0] * len(texts), [0.0] * len(texts))

    arguments = decode, TOKENS._replace(end=100), str
    *_, last = chunked.transcribe([Recording(samples)], *arguments, batch=2)
    (heard,) = last.segments
    assert [*heard.tokens] == [*expected[:-1], 99] and sizes == [2, 2]
    parted = Recording(samples, "de", (Clip(10, 20), Clip(40, 75)))
    asked = Options(initial=(5, 6))
    told = [*chunked.transcribe([parted], *arguments, asked)]
    (first,), (second,) = (x.segments for x in told if x.segments)
    assert first[:2] == (10, 20) and [*first.tokens] == [*expected[10:19], 99]
    assert second[:2] == (40, 75) and [*second.tokens] == [*expected[40:74], 99]
    assert told[-1].seconds == told[-1].total == 75 > told[-2].seconds
    assert heads[-1] == [TOKENS.previous, 5, 6, 21, 23, 25, TOKENS.no_timestamps]


AT = TOKENS.first_time  # <|0.00|>
WORD = AT + STEPS + 1
PAIRED = [AT, 3, AT + 5, AT + 5, 4, 6, AT + 9, AT + 9, 7]


@pytest.mark.parametrize(
    ("ids", "pieces", "further"),  # pieces: begin, end and tokens; frames of 0.01 s
    [
        # Pairs divide, and what is behind the last is heard again.
        (PAIRED, [(2.0, 2.1, PAIRED[:3]), (2.1, 2.18, PAIRED[3:7])], 18),
        # The next window begins where the last segment ended, not where one begins.
        ([*PAIRED[:5], AT + 9, AT + 30, 7], [(2.0, 2.1), (2.1, 2.18)], 18),
        # A pair at the end is where the next window begins.
        ([AT, 3, AT + 5, AT + 5], [(2.0, 2.1)], 10),
        # A single timestamp at the end says that the window is done.
        ([AT, 3, AT + 5, AT + 7, 4, AT + 9], [(2.0, 2.1), (2.14, 2.18)], 500),
        # Words behind the times do not divide; without a pair there is one segment.
        ([AT, 3, WORD, WORD + 1, 4, AT + STEPS], [(2.0, 32.0)], 500),
        ([AT, 3, AT + 5], [(2.0, 2.1)], 500),
        ([3, 4], [(2.0, 7.0)], 500),
        ([AT + 3, 3], [(2.0, 2.06)], 500),
        # The next window is always later.
        ([], [], 500),
        ([AT, AT, 3], None, 500),
    ],
)
def test_a_window_is_divided_at_its_timestamps(ids, pieces, further):
    told, after = segments.split(TOKENS, ids, 2.0, 500)
    assert after == further
    for piece, (begin, end, *tokens) in zip(told, pieces or (), strict=bool(pieces)):
        assert (piece.start, piece.end) == (begin, pytest.approx(end))
        assert not tokens or [piece.tokens] == tokens


def test_compression_is_high_where_a_text_repeats_itself():
    plain = "He has grave doubts whether his work is really Greek after all."
    assert segments.compression(plain) < 1.2 < 2.4
    assert segments.compression("no no " * 40) > 10
    assert segments.compression("") == 0


DEFAULT = Thresholds()


def test_what_to_do_with_a_window():
    for ratio, logprob, no_speech, again, silent in (
        (1.5, -0.3, 0.1, False, False),
        (2.5, -0.3, 0.1, True, False),  # repeats itself
        (1.5, -1.1, 0.1, True, False),  # improbable
        (1.5, -1.1, 0.7, False, True),  # silence
        (2.5, -0.3, 0.7, True, False),  # loops, but is probable: no silence
        (2.4, -1.0, 0.6, False, False),  # thresholds are still good
        (1.5, -1.0, 0.7, False, True),  # as in the reference decoder
    ):
        assert segments.is_failed(ratio, logprob, no_speech, DEFAULT) is again
        assert segments.is_silent(logprob, no_speech, DEFAULT) is silent
    never = Thresholds(None, None, None)  # None is never
    assert not segments.is_failed(99.0, -99.0, 1.0, never)
    assert not segments.is_silent(-99.0, 1.0, never)
    assert segments.is_silent(-0.1, 0.7, DEFAULT._replace(logprob=None))
    assert segments.is_failed(1.0, math.nan, 0.0, DEFAULT)


def test_bad_thresholds_are_told():
    segments.check(DEFAULT)
    bad = [{"temperatures": each} for each in ((), (-0.1,), (0.4, 0.2))]
    for fields in [*bad, {"logprob": math.nan}]:
        with pytest.raises(ValueError, match=r"give|write|must be"):
            segments.check(DEFAULT._replace(**fields))


SEGMENTS = [
    Segment(0.0, 1.5, " He said: <b>Q&A</b> -->", (31, 3), 0.2, -0.25, 0.01, 1.1),
    Segment(59.9996, 3600.0, "  two\n\nlines, é  "),
    Segment(36_000.04, 36_000.02, " ends before it begins"),
]
TXT = """\
He said: <b>Q&A</b> -->
two lines, é
ends before it begins
"""
SRT = """\
1
00:00:00,000 --> 00:00:01,500
He said: <b>Q&A</b> ->

2
00:01:00,000 --> 01:00:00,000
two lines, é

3
10:00:00,040 --> 10:00:00,040
ends before it begins
"""
VTT = """\
WEBVTT

00:00:00.000 --> 00:00:01.500
He said: &lt;b&gt;Q&amp;A&lt;/b&gt; --&gt;

00:01:00.000 --> 01:00:00.000
two lines, é

10:00:00.040 --> 10:00:00.040
ends before it begins
"""
ONE = {"id": 0, "text": " He said: <b>Q&A</b> -->", "tokens": [31, 3]}
ONE |= {"start": 0.0, "end": 1.5, "temperature": 0.2, "avg_logprob": -0.25}
ONE |= {"compression_ratio": 1.1, "no_speech_prob": 0.01}


def test_every_format_is_as_it_should_be():
    assert subtitles.plain(SEGMENTS) == TXT
    assert subtitles.srt(SEGMENTS) == SRT
    assert subtitles.vtt(SEGMENTS) == VTT
    whole = {"text": ONE["text"].strip(), "language": "en", "segments": [ONE]}
    assert json.loads(subtitles.to_json(SEGMENTS[:1], "en")) == whole


def test_words_have_their_times_in_every_format():
    said = Word(" He", 0.0, 0.24, 0.5), Word(" <b>!", 0.24, 0.5, 0.25)
    late = Word(" said", 0.5, 1.5, 1)
    words = *said, late._replace(start=0.2), late._replace(start=1.5)
    segment = SEGMENTS[0]._replace(words=words)
    cues = subtitles.srt([segment]).split("\n\n")
    assert cues[1] == "2\n00:00:00,240 --> 00:00:00,500\n<b>!" and len(cues) == 4
    line = "He<00:00:00.240> &lt;b&gt;! said said"  # times rise within a cue
    assert subtitles.vtt([segment]).splitlines()[3] == line
    told = json.loads(subtitles.to_json([segment]))["segments"][0]
    one = {"word": " He", "start": 0.0, "end": 0.24, "probability": 0.5}
    assert told["words"][0] == one and "words" not in ONE


def test_nothing_is_a_whole_file_too():
    written = {name: write([]) for name, write in subtitles.WRITERS.items()}
    assert written["txt"] == written["srt"] == "" and written["vtt"] == "WEBVTT\n"
    assert json.loads(written["json"]) == {"text": "", "language": None, "segments": []}
    told = json.loads(subtitles.to_json([SEGMENTS[0]._replace(logprob=math.nan)]))
    assert told["segments"][0]["avg_logprob"] is None


def test_a_clock_carries_and_no_time_is_told():
    assert subtitles.clock(3599.9995, ",") == "01:00:00,000"
    assert subtitles.clock(360_000.001, ".") == "100:00:00.001"
    for seconds in -0.01, math.nan, math.inf:
        with pytest.raises(ValueError, match="not a time"):
            subtitles.clock(seconds, ".")
