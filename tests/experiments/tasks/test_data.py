"""What the small models are asked to translate and to summarize is in order.

The lines of experiments/tasks/data: pairs of an English sentence and its German
translation, and of the body of a documentation string and its first line.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "experiments" / "tasks" / "data"
# Words so frequent that English left in a German sentence has one of them; "so", "in",
# "was", "war", "am" and "an" are German too.
ENGLISH = set("the of and to is are he she it with for that this you we my".split())


class Kind(NamedTuple):
    """What a file must hold; lengths in words, both ends included."""

    count: int
    source: tuple[int, int]
    target: tuple[int, int]
    ends: str


KINDS = {
    "sentences": Kind(320, (4, 16), (3, 18), ".?!"),
    "summaries": Kind(120, (30, 90), (4, 16), "."),
}


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def faults_of_a_text(text: object, bounds: tuple[int, int]) -> list[str]:
    if not isinstance(text, str):
        return ["not a string"]
    wrong = []
    if not bounds[0] <= len(text.split()) <= bounds[1]:
        wrong.append(f"{len(text.split())} words, not {bounds[0]} to {bounds[1]}")
    if any(line != line.rstrip() for line in text.split("\n")) or text != text.strip():
        wrong.append("spaces at an end")
    return wrong


def faults_of_a_pair(pair: object, kind: Kind) -> list[str]:
    if not isinstance(pair, dict) or list(pair) != ["source", "target"]:
        return ["not an object of source and target"]
    wrong = faults_of_a_text(pair["source"], kind.source)
    wrong += faults_of_a_text(pair["target"], kind.target)
    if wrong:
        return wrong
    if "\n" in pair["target"] or pair["target"][-1] not in kind.ends:
        wrong.append(f"the target is not one line that ends in one of {kind.ends}")
    elif kind is KINDS["sentences"]:
        if "\n" in pair["source"] or pair["source"][-1] != pair["target"][-1]:
            wrong.append("the two sentences end differently")
        if left := ENGLISH & set(words(pair["target"])):
            wrong.append(f"English in the translation: {', '.join(sorted(left))}")
    return wrong


def faults(text: str, kind: Kind) -> list[str]:
    """What is wrong with a file's text, with line numbers; empty if nothing is."""
    lines = text.removesuffix("\n").split("\n")
    all_wrong = [] if len(lines) == kind.count else [f"{len(lines)} lines"]
    seen: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(lines, 1):
        try:
            pair = json.loads(line)
        except ValueError:
            all_wrong.append(f"{number}: not JSON")
            continue
        wrong = faults_of_a_pair(pair, kind)
        all_wrong += [f"{number}: {fault}" for fault in wrong]
        if wrong:
            continue
        for key in (tuple(words(side)) for side in pair.values()):
            if seen.setdefault(key, number) != number:
                all_wrong.append(f"{number}: repeats line {seen[key]}")
    return all_wrong


@pytest.mark.parametrize("name", KINDS)
def test_every_line_is_in_order(name):
    text = (FOLDER / f"{name}.jsonl").read_text("utf-8")
    assert not faults(text, KINDS[name])


def line(source: object, target: object, **more: str) -> str:
    return json.dumps({"source": source, "target": target} | more, ensure_ascii=False)


COLD, BODY = ("It is cold here.", "Hier ist es kalt."), " ".join(["word"] * 30)
BROKEN = {
    "sentences": [
        ("{", "not JSON"),
        ("", "not JSON"),
        (line(*COLD, id="7"), "not an object"),
        (line(COLD[0], 3), "not a string"),
        (line("It is cold.", "Es ist kalt."), "3 words"),
        (line(" " + COLD[0], COLD[1]), "spaces"),
        (line(COLD[0], COLD[1] + " "), "spaces"),
        (line("It is cold here", "Hier ist es kalt"), "ends"),
        (line("Is it cold here?", COLD[1]), "differently"),
        (line(*["The house is cold."] * 2), "English"),
    ],
    "summaries": [
        (line("Too short.", "Return the first word."), "2 words"),
        (line(f"{BODY} \n{BODY}", "Return the first word."), "spaces"),
        (line(BODY, "Return\nthe first word."), "one line"),
        (line(BODY, "Return the first word?"), "ends"),
    ],
}


@pytest.mark.parametrize("name", KINDS)
def test_the_check_notices_a_broken_line(name):
    good = (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()
    for broken, message in BROKEN[name]:
        (fault,) = faults("\n".join([broken, *good[1:]]), KINDS[name])
        assert fault.startswith("1: ") and message in fault, broken


@pytest.mark.parametrize("name", KINDS)
def test_the_check_notices_a_repeated_and_a_missing_line(name):
    good = (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()
    repeated = faults("\n".join([*good[:-1], good[0]]), KINDS[name])
    # Once for the source and once for the target.
    assert repeated == [f"{len(good)}: repeats line 1"] * 2
    assert faults("\n".join(good[:-1]), KINDS[name]) == [f"{len(good) - 1} lines"]
