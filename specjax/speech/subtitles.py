"""Transcripts as files: plain text, SubRip (.srt), WebVTT (.vtt) and JSON.

Each format is a function from segments to the whole content of a file."""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from specjax.speech.segments import Segment, Word


def plain(segments: Iterable[Segment]) -> str:
    """Returns one line for each segment."""
    return "".join(f"{_line(segment)}\n" for segment in segments)


def srt(segments: Iterable[Segment]) -> str:
    """Returns SubRip: numbered cues with times such as 00:00:01,500.

    A cue is a segment or, where words have times, a word. SubRip has no escapes, so an
    arrow as between two times is written "->" in a text."""
    spoken = [x for each in segments for x in (each.words or [each])]
    cues = []
    for number, each in enumerate(spoken, start=1):
        text = _line(each).replace("-->", "->")
        cues.append(f"{number}\n{_span(each, ',')}\n{text}\n")
    return "\n".join(cues)


def vtt(segments: Iterable[Segment]) -> str:
    """Returns WebVTT, https://www.w3.org/TR/webvtt1/, with times such as 00:00:01.500.

    Where words have times, these stand within a text. &, < and > are escaped, because
    they would begin a tag or form an arrow."""
    cues = ["WEBVTT\n"]
    for segment in segments:
        text = _format_times(segment) if segment.words else _escape(_line(segment))
        cues.append(f"{_span(segment, '.')}\n{text}\n")
    return "\n".join(cues)


def to_json(segments: Iterable[Segment], language: str | None = None) -> str:
    """Returns `fields` as JSON, the content of a file."""
    return f"{json.dumps(fields(segments, language), ensure_ascii=False, indent=2)}\n"


def fields(segments: Iterable[Segment], language: str | None = None) -> dict[str, Any]:
    """Returns all fields, with the names that Whisper's own command gives them.

    A number that is not finite is null."""
    rows: list[dict[str, Any]] = []
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
    """Returns hours:minutes:seconds and three digits. Raises ValueError for a number
    that is not a time."""
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{seconds} s is not a time in a recording: give 0 or more")
    rest, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, rest = divmod(rest, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest:02}{point}{thousandths:03}"


def _span(spoken: Segment | Word, point: str) -> str:
    end = max(spoken.end, spoken.start)
    return f"{clock(spoken.start, point)} --> {clock(end, point)}"


def _line(spoken: Segment | Word) -> str:
    """Returns the text of a segment on one line, because an empty line would end a
    cue."""
    return " ".join(spoken.text.split())


def _format_times(segment: Segment) -> str:
    """Returns the words, each after its start time if that is later than the times
    before it."""
    latest, text = segment.start, ""
    for word in segment.words or ():
        if latest < word.start < segment.end:
            text, latest = f"{text}<{clock(word.start, '.')}>", word.start
        text += _escape(word.text)
    return " ".join(text.split())


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
