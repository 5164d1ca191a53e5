"""How the words of a small lexicon sound: phonemes, and the formants of each.

Vowels by Peterson & Barney (1952), means of men; consonants after Klatt (1980).
Phonemes go by their names in ARPAbet; a stop is closed, then a burst.
"""

import json
from pathlib import Path
from typing import NamedTuple


class Sound(NamedTuple):
    """A stretch of speech. seconds: at rate 1. formants: in Hz, of a man. voice, hiss:
    how loud the vocal folds and the turbulence are. centre, width: of its noise, Hz."""

    seconds: float
    formants: tuple[float, float, float]
    voice: float = 1.0
    hiss: float = 0.0
    centre: float = 2500.0
    width: float = 2500.0


READ = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
SOUNDS = {name: [Sound(*it) for it in parts] for name, parts in READ["sounds"].items()}
WORDS = {word: sounds.split() for word, sounds in READ["words"].items()}
DIGITS = list(WORDS)[:10]
