"""The messages of XLA, counted by their text without numbers."""

import re

HEAD = re.compile(r"^[IWEF]\d{4} [\d:.]+\s+\d+ (?P<file>[\w./]+:\d+)\] (?P<said>.*)$")
TAKEN = re.compile(r"\bin (\d+(?:\.\d+)?) ?(μs|us|ms)")
NUMBER = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?")
MOST, WIDTH = 20, 160


def count_messages(text: str) -> list[dict]:
    """Returns the MOST frequent messages, each with `said`, `count`, and `us`, the
    microseconds that it reports, or None.
    """
    found: dict[str, dict] = {}
    for line in text.splitlines():
        if match := HEAD.match(line):
            said = f"{match['file']} {NUMBER.sub('#', match['said'])[:WIDTH]}"
            it = found.setdefault(said, {"said": said, "count": 0, "us": None})
            it["count"] += 1
            if taken := TAKEN.search(match["said"]):
                us = float(taken[1]) * (1e3 if taken[2] == "ms" else 1)
                it["us"] = round((it["us"] or 0) + us, 1)
    return sorted(found.values(), key=lambda it: -it["count"])[:MOST]
