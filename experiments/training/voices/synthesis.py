"""A formant synthesizer: a source and a filter, for speech in nobody's voice.

Pulses of the vocal folds and noise pass through resonances (Fant 1960; Klatt 1980,
https://doi.org/10.1121/1.383940), which are applied to the spectrum of each frame.
`phonemes.json` has the sounds of the words of a small lexicon: phonemes by their names
in ARPAbet, and the formants of each; vowels by Peterson & Barney (1952), means of men;
consonants after Klatt (1980); a stop is closed, then a burst. Axes: N samples, T frames
of 5 ms, F frequencies.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

RATE, HOP, FFT = 16_000, 80, 320
UPPER = 3500.0, 4500.0  # the formants that no phoneme moves, Hz
WIDTHS = 70.0, 100.0, 140.0, 200.0, 250.0  # of the resonances, Hz
BLENDED, FADED = 9, 3  # frames over which formants and loudness change


class Sound(NamedTuple):
    """A stretch of speech with constant properties.

    Attributes:
        seconds: at rate 1.
        formants: in Hz, of a man.
        voice, hiss: the loudness of the vocal folds and of the turbulence.
        centre, width: of its noise, Hz.
    """

    seconds: float
    formants: tuple[float, float, float]
    voice: float = 1.0
    hiss: float = 0.0
    centre: float = 2500.0
    width: float = 2500.0


READ = json.loads(Path(__file__).with_name("phonemes.json").read_text("utf-8"))
SOUNDS = {name: [Sound(*it) for it in parts] for name, parts in READ["sounds"].items()}
WORDS = {word: sounds.split() for word, sounds in READ["words"].items()}
DIGITS = list(WORDS)[:10]
QUIET = Sound(0.05, (500.0, 1500.0, 2500.0), 0.0)


class Speaker(NamedTuple):
    """The properties of a voice.

    Attributes:
        pitch: in Hz.
        tract: formants relative to a man's.
        slow: lengths relative to the table's.
        breath: noise in vowels.
        noise: the noise of the room, relative to the speech's power.
    """

    pitch: float = 120.0
    tract: float = 1.0
    slow: float = 0.8
    breath: float = 0.01
    noise: float = 1e-3


class Speech(NamedTuple):
    """Synthesized speech.

    Attributes:
        samples: [N] float32, 16,000 a second.
        spans: when each word begins and ends.
    """

    samples: np.ndarray
    spans: list[tuple[float, float]]


def speaker(rng: np.random.Generator) -> Speaker:
    """Returns a random voice: from a child's to a man's, calm or hasty, in a quiet or
    noisy room.
    """
    tract = rng.uniform(0.9, 1.25)
    pitch = 110 * tract**2.5 * np.exp(rng.normal(0, 0.12))
    slow, breath = rng.uniform(0.6, 0.95), rng.uniform(0.0, 0.03)
    return Speaker(pitch, tract, slow, breath, 10 ** rng.uniform(-5, -2.5))


def say(words: Sequence[str], voice: Speaker, rng: np.random.Generator) -> Speech:
    sounds, spans = [QUIET._replace(seconds=rng.uniform(0.03, 0.2))], []
    for word in words:
        if word not in WORDS:
            raise ValueError(f"cannot say {word!r}: spell it in voices/phonemes.json")
        first = len(sounds)
        for name in WORDS[word]:
            stretch = voice.slow * np.exp(rng.normal(0, 0.12))
            parts = SOUNDS[name]
            sounds += [part._replace(seconds=part.seconds * stretch) for part in parts]
        spans.append((first, len(sounds)))
        pause = rng.uniform(0.1, 0.25) if rng.random() < 0.1 else rng.uniform(0, 0.07)
        sounds.append(QUIET._replace(seconds=pause))
    lengths = [max(1, round(sound.seconds * RATE / HOP)) for sound in sounds]
    numbers = [[*s.formants, s.voice, s.hiss, s.centre, s.width] for s in sounds]
    track = np.repeat(np.array(numbers), lengths, axis=0)
    track[:, :3] = _smooth(track[:, :3], BLENDED)
    track[:, 3:] = _smooth(track[:, 3:], FADED)
    samples = _filter(track, voice, rng)
    level = np.sqrt(np.mean(samples**2))
    samples += rng.normal(size=len(samples)) * level * np.sqrt(voice.noise)
    ends = np.concatenate([[0], np.cumsum(lengths)]) * HOP / RATE
    times = [(float(ends[first]), float(ends[last])) for first, last in spans]
    return Speech(np.float32(samples * (0.08 / level)), times)


def _smooth(track: np.ndarray, frames: int) -> np.ndarray:
    """Returns moving averages along the first axis, with constant ends."""
    side = frames // 2
    padded = np.pad(track, ((side, side), (0, 0)), mode="edge")
    sums = np.cumsum(np.pad(padded, ((1, 0), (0, 0))), axis=0)
    return (sums[frames:] - sums[:-frames]) / frames


def _filter(track: np.ndarray, voice: Speaker, rng: np.random.Generator):
    """Returns the source after the filter of the vocal tract: [T, 7] -> [T * HOP]."""
    count = len(track)
    frequency = np.fft.rfftfreq(FFT, 1 / RATE)[None]  # [1, F]
    # Pulses, one a period; the pitch falls towards the end and wavers.
    time = np.linspace(0, 1, count * HOP)
    waver = 1 + 0.05 * np.sin(2 * np.pi * (rng.uniform(2, 5) * time + rng.random()))
    phase = np.cumsum(voice.pitch * (1.1 - 0.2 * time) * waver / RATE)
    pulses = np.diff(np.floor(phase), prepend=0.0) * np.sqrt(RATE / voice.pitch)
    noise, tract = rng.normal(size=count * HOP), 1.0
    for i, width in enumerate(WIDTHS):  # the gain of each resonance: [T, F]
        peak = track[:, i, None] * voice.tract if i < 3 else UPPER[i - 3]
        away = peak**2 - frequency**2
        tract = tract * peak**2 / np.sqrt(away**2 + (width * frequency) ** 2)
    loud, hiss, centre, width = (track[:, i, None] for i in range(3, 7))
    tract = tract / (1 + frequency / 300)  # 6 dB an octave, of folds and lips together
    around = np.exp(-0.5 * ((frequency - centre) / width) ** 2)
    voiced = _spectra(pulses, count) * tract * loud
    turbulent = _spectra(noise, count) * (around * hiss + tract * loud * voice.breath)
    frames = np.fft.irfft(voiced + 0.25 * turbulent, FFT) * np.hanning(FFT + 1)[:-1]
    sound = np.zeros(count * HOP + FFT)
    for part in range(FFT // HOP):  # overlap and add
        piece = frames[:, part * HOP : (part + 1) * HOP].reshape(-1)
        sound[part * HOP : part * HOP + len(piece)] += piece
    return sound[FFT // 2 : FFT // 2 + count * HOP]


def _spectra(source: np.ndarray, count: int) -> np.ndarray:
    """Returns the spectra of frames centred on multiples of HOP: [N] -> [T, F]."""
    padded = np.pad(source, FFT // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, FFT)[::HOP][:count]
    return np.fft.rfft(frames * np.hanning(FFT + 1)[:-1])
