"""Transcripts as files: plain text, SubRip (.srt), WebVTT (.vtt) and JSON.

Each is a function from segments to the whole content of a file.
"""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from specjax.speech.segments import Segment, Word


def plain(segments: Iterable[Segment]) -> str:
    """A line for each segment."""
    return "".join(f"{_line(segment)}\n" for segment in segments)


def srt(segments: Iterable[Segment]) -> str:
    """SubRip: numbered cues, of a segment each or, where words have times, of a word;
    times as 00:00:01,500. It knows no escapes, and an arrow as between two times is
    written "->" in a text."""
    spoken = [x for each in segments for x in (each.words or [each])]
    cues = []
    for number, each in enumerate(spoken, start=1):
        text = _line(each).replace("-->", "->")
        cues.append(f"{number}\n{_span(each, ',')}\n{text}\n")
    return "\n".join(cues)


def vtt(segments: Iterable[Segment]) -> str:
    """WebVTT, https://www.w3.org/TR/webvtt1/: times as 00:00:01.500, within a text
    where words have them; &, < and > are escaped, which would begin a tag, or be an
    arrow."""
    cues = ["WEBVTT\n"]
    for segment in segments:
        text = _timed(segment) if segment.words else _escaped(_line(segment))
        cues.append(f"{_span(segment, '.')}\n{text}\n")
    return "\n".join(cues)


def to_json(segments: Iterable[Segment], language: str | None = None) -> str:
    """`fields` as a file."""
    return f"{json.dumps(fields(segments, language), ensure_ascii=False, indent=2)}\n"


def fields(segments: Iterable[Segment], language: str | None = None) -> dict[str, Any]:
    """All that is known, with the names that Whisper's own command gives it; a number
    that is not finite is null."""
    rows = []
    for number, segment in enumerate(segments):
        numbers = {
            "start": round(segment.start, 3),
            "end": round(segment.end, 3),
            "temperature": segment.temperature,
            "avg_logprob": segment.logprob,
            "compression_ratio": segment.compression,
            "no_speech_prob": segment.no_speech,
        }
        finite = {
            name: float(value) if math.isfinite(value) else None
            for name, value in numbers.items()
        }
        ids = [int(token) for token in segment.tokens]
        rows.append({"id": number, "text": segment.text, "tokens": ids} | finite)
        if segment.words is not None:
            rows[-1]["words"] = [
                {
                    "word": word.text,
                    "start": round(word.start, 3),
                    "end": round(word.end, 3),
                    "probability": round(word.probability, 4),
                }
                for word in segment.words
            ]
    text = "".join(segment["text"] for segment in rows).strip()
    return {"text": text, "language": language, "segments": rows}


# What a file is written by, by the end of its name.
WRITERS: dict[str, Callable[[Iterable[Segment]], str]] = {
    "txt": plain,
    "srt": srt,
    "vtt": vtt,
    "json": to_json,
}


def clock(seconds: float, point: str) -> str:
    """hours:minutes:seconds and three digits. Raises ValueError for no time."""
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{seconds} s is no time in a recording")
    rest, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, rest = divmod(rest, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest:02}{point}{thousandths:03}"


def _span(spoken: Segment | Word, point: str) -> str:
    end = max(spoken.end, spoken.start)
    return f"{clock(spoken.start, point)} --> {clock(end, point)}"


def _line(spoken: Segment | Word) -> str:
    """Its text on one line: an empty one would end a cue."""
    return " ".join(spoken.text.split())


def _timed(segment: Segment) -> str:
    """Words, and before each the time at which it begins, later than those before."""
    told, text = segment.start, ""
    for word in segment.words:
        if told < word.start < segment.end:
            text, told = f"{text}<{clock(word.start, '.')}>", word.start
        text += _escaped(word.text)
    return " ".join(text.split())


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
