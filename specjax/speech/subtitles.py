"""Transcripts as files: plain text, SubRip (.srt), WebVTT (.vtt) and JSON.

Each is a function from segments to the whole content of a file.
"""

import json
import math
from collections.abc import Callable, Iterable

from specjax.speech.segments import Segment


def plain(segments: Iterable[Segment]) -> str:
    """A line for each segment."""
    return "".join(f"{_line(segment)}\n" for segment in segments)


def srt(segments: Iterable[Segment]) -> str:
    """SubRip: numbered cues, times as 00:00:01,500. It knows no escapes, and an arrow
    as between two times is written "->" in a text."""
    cues = []
    for number, segment in enumerate(segments, start=1):
        text = _line(segment).replace("-->", "->")
        cues.append(f"{number}\n{_span(segment, ',')}\n{text}\n")
    return "\n".join(cues)


def vtt(segments: Iterable[Segment]) -> str:
    """WebVTT, https://www.w3.org/TR/webvtt1/: times as 00:00:01.500; &, < and > are
    escaped, which would begin a tag, or be an arrow."""
    cues = ["WEBVTT\n"]
    for segment in segments:
        text = _line(segment).replace("&", "&amp;")
        text = text.replace("<", "&lt;").replace(">", "&gt;")
        cues.append(f"{_span(segment, '.')}\n{text}\n")
    return "\n".join(cues)


def to_json(segments: Iterable[Segment], language: str | None = None) -> str:
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
    text = "".join(segment["text"] for segment in rows).strip()
    fields = {"text": text, "language": language, "segments": rows}
    return json.dumps(fields, ensure_ascii=False, indent=2) + "\n"


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


def _span(segment: Segment, point: str) -> str:
    end = max(segment.end, segment.start)
    return f"{clock(segment.start, point)} --> {clock(end, point)}"


def _line(segment: Segment) -> str:
    """Its text on one line: an empty one would end a cue."""
    return " ".join(segment.text.split())
