"""Transcripts are written to the letter of their formats."""

import json
import math

import pytest

from specjax.speech import subtitles
from specjax.speech.segments import Segment

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
JSON = """\
{
  "text": "He said: <b>Q&A</b> -->",
  "language": "en",
  "segments": [
    {
      "id": 0,
      "text": " He said: <b>Q&A</b> -->",
      "tokens": [
        31,
        3
      ],
      "start": 0.0,
      "end": 1.5,
      "temperature": 0.2,
      "avg_logprob": -0.25,
      "compression_ratio": 1.1,
      "no_speech_prob": 0.01
    }
  ]
}
"""


def test_every_format_is_as_it_should_be():
    assert subtitles.plain(SEGMENTS) == TXT
    assert subtitles.srt(SEGMENTS) == SRT
    assert subtitles.vtt(SEGMENTS) == VTT
    assert subtitles.to_json(SEGMENTS[:1], "en") == JSON


def test_nothing_is_a_whole_file_too():
    written = {name: write([]) for name, write in subtitles.WRITERS.items()}
    assert written["txt"] == written["srt"] == "" and written["vtt"] == "WEBVTT\n"
    assert json.loads(written["json"]) == {"text": "", "language": None, "segments": []}


def test_json_has_no_number_that_json_has_not():
    told = json.loads(subtitles.to_json([SEGMENTS[0]._replace(logprob=math.nan)]))
    assert told["segments"][0]["avg_logprob"] is None


@pytest.mark.parametrize("seconds", [-0.01, math.nan, math.inf])
def test_no_time_is_told(seconds):
    with pytest.raises(ValueError, match="no time"):
        subtitles.clock(seconds, ".")


def test_a_clock_carries():
    assert subtitles.clock(3599.9995, ",") == "01:00:00,000"
    assert subtitles.clock(360_000.001, ".") == "100:00:00.001"
