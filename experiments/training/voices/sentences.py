"""The sentences that the voices speak, spelled in letters, in Whisper's conventions.

A text begins with `<|startoftranscript|>`, then has the times of its beginning and its
end around it, or `<|notimestamps|>` before it. Timestamps are multiples of 0.02 s.
"""

import json
from collections.abc import Sequence

import numpy as np

from experiments.training.voices.synthesis import DIGITS

SECONDS = 4.0  # of a window
LETTERS = " abcdefghijklmnopqrstuvwxyz"
NAMES = ("endoftext", "startoftranscript", "translate", "transcribe", "startoflm")
NAMES += ("startofprev", "nospeech", "notimestamps")
TIMES = [f"{0.02 * i:.2f}" for i in range(round(SECONDS / 0.02) + 1)]
PIECES = [*LETTERS, *(f"<|{name}|>" for name in (*NAMES, *TIMES))]
IDS = {piece: i for i, piece in enumerate(PIECES)}
END, START, MUTE = (IDS[f"<|{n}|>"] for n in (NAMES[0], NAMES[1], NAMES[-1]))
FIRST_TIME = IDS["<|0.00|>"]
FORMS = (  # D is a digit, C a colour, S a side
    "call D D D D",
    "the code is D D D",
    "my number is D D D D D",
    "meet me at gate D",
    "open the C door now",
    "turn S at room D D",
    "turn on the C light please",
    "turn off light D and light D",
    "send the message to line D D",
    "please call me on D D D",
    "D D D D D D",
)
OPEN = {"D": DIGITS, "C": ["red", "blue", "green"], "S": ["left", "right"]}


def sentence(rng: np.random.Generator) -> list[str]:
    words = FORMS[rng.integers(len(FORMS))].split()
    return [str(rng.choice(OPEN[word])) if word in OPEN else word for word in words]


def letters(words: Sequence[str]) -> list[int]:
    """Returns the letters of words, with a space before each word, as Whisper writes
    them.
    """
    return [IDS[letter] for word in words for letter in f" {word}"]


def row_text(words: Sequence[str], times: tuple[float, float] | None) -> list[int]:
    """Returns the whole row, from start to end, with or without the times of the
    speech.
    """
    if times is None:
        return [START, MUTE, *letters(words), END]
    first, last = (FIRST_TIME + round(time / 0.02) for time in times)
    return [START, first, *letters(words), last, END]


def tokenizer() -> str:
    """Returns the tokenizer.json of these letters: every character is a token."""
    special = {"special": True, "single_word": False, "normalized": False}
    special |= {"lstrip": False, "rstrip": False}
    added = [{"id": IDS[p], "content": p, **special} for p in PIECES[END:]]
    model = {"type": "BPE", "vocab": {p: i for i, p in enumerate(LETTERS)}}
    model |= {"merges": [], "unk_token": None, "fuse_unk": False}
    content = {"version": "1.0", "added_tokens": added, "model": model}
    content["decoder"] = {"type": "Fuse"}
    return json.dumps(content, indent=1) + "\n"
