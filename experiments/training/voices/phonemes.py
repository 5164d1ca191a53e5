"""How the words of a small lexicon sound: phonemes, and the formants of each.

Vowels by Peterson & Barney (1952), means of men; consonants after Klatt (1980).
Phonemes go by their names in ARPAbet.
"""

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


def _vowel(*formants: float) -> Sound:
    return Sound(0.11, formants)


def _glide(*sounds: Sound) -> list[Sound]:
    return [sound._replace(seconds=0.08) for sound in sounds]


def _stop(centre: float, formants: tuple, voice: float) -> list[Sound]:
    """Closed, then a burst."""
    closed = Sound(0.045, formants, voice, 0.0)
    burst = Sound(0.03, formants, voice, 0.5 - voice, centre, 0.4 * centre + 400)
    return [closed, burst]


IY, IH, EH = _vowel(270, 2290, 3010), _vowel(390, 1990, 2550), _vowel(530, 1840, 2480)
AE, AA, AO = _vowel(660, 1720, 2410), _vowel(730, 1090, 2440), _vowel(570, 840, 2410)
UH, UW, AH = _vowel(440, 1020, 2240), _vowel(300, 870, 2240), _vowel(640, 1190, 2390)
LIPS, RIDGE, BACK = (300, 900, 2200), (300, 1750, 2600), (300, 2000, 2400)
SOUNDS: dict[str, list[Sound]] = {
    **{"IY": [IY], "IH": [IH], "EH": [EH], "AE": [AE], "AA": [AA], "AO": [AO]},
    **{"UH": [UH], "UW": [UW], "AH": [AH], "ER": [_vowel(490, 1350, 1690)]},
    **{"EY": _glide(EH, IY), "AY": _glide(AA, IY), "OW": _glide(AO, UW)},
    **{"AW": _glide(AA, UW)},
    "L": [Sound(0.07, (360, 1300, 2700), 0.6)],
    "R": [Sound(0.07, (350, 1060, 1380), 0.6)],
    "W": [Sound(0.07, (300, 610, 2200), 0.6)],
    "Y": [Sound(0.06, (260, 2070, 3020), 0.6)],
    "M": [Sound(0.07, (280, 900, 2200), 0.3)],
    "N": [Sound(0.07, (280, 1700, 2600), 0.3)],
    "NG": [Sound(0.07, (280, 2300, 2750), 0.3)],
    "F": [Sound(0.09, LIPS, 0.0, 0.15, 6500, 4000)],
    "TH": [Sound(0.08, RIDGE, 0.0, 0.12, 5500, 3500)],
    "S": [Sound(0.1, RIDGE, 0.0, 0.5, 6000, 1200)],
    "SH": [Sound(0.1, RIDGE, 0.0, 0.5, 3000, 900)],
    "HH": [Sound(0.06, (500, 1500, 2500), 0.0, 0.2, 1500, 1500)],
    "V": [Sound(0.06, LIPS, 0.25, 0.06, 6500, 4000)],
    "DH": [Sound(0.05, RIDGE, 0.3, 0.05, 5500, 3500)],
    "Z": [Sound(0.08, RIDGE, 0.2, 0.25, 6000, 1200)],
    **{"P": _stop(900, LIPS, 0.0), "B": _stop(900, LIPS, 0.15)},
    **{"T": _stop(4500, RIDGE, 0.0), "D": _stop(4500, RIDGE, 0.15)},
    **{"K": _stop(2100, BACK, 0.0), "G": _stop(2100, BACK, 0.15)},
}
SPELLED = """
zero Z IY R OW | one W AH N | two T UW | three TH R IY | four F AO R | five F AY V |
six S IH K S | seven S EH V AH N | eight EY T | nine N AY N |
call K AO L | send S EH N D | open OW P AH N | meet M IY T | turn T ER N |
room R UW M | code K OW D | gate G EY T | door D AO R | light L AY T |
number N AH M B ER | line L AY N | message M EH S IH SH |
red R EH D | blue B L UW | green G R IY N | left L EH F T | right R AY T |
the DH AH | is IH Z | my M AY | me M IY | to T UW | at AE T | and AE N D | on AO N |
please P L IY Z | now N AW | off AO F
"""
WORDS: dict[str, list[str]] = {
    word: sounds for word, *sounds in (entry.split() for entry in SPELLED.split("|"))
}
DIGITS = "zero one two three four five six seven eight nine".split()
