"""Features as transformers computes them, of noise, tones, silence and little sound."""

import numpy as np
import pytest

transformers = pytest.importorskip("transformers")

from specjax.speech import logmel  # noqa: E402

MOST = 2e-5
RNG = np.random.default_rng(1)


def spoken(seconds: float) -> np.ndarray:
    """Something like a voice: a gliding pitch with overtones, in syllables."""
    time = np.arange(int(seconds * logmel.RATE)) / logmel.RATE
    phase = 2 * np.pi * (120 * time + 8 * np.sin(1.3 * time))
    voice = sum(np.sin(k * phase) / k for k in range(1, 30))
    loudness = np.maximum(0, np.sin(2 * np.pi * 3 * time)) ** 2
    return 0.2 * voice * loudness + 1e-3 * RNG.standard_normal(len(time))


SOUNDS = {
    "noise": 0.3 * RNG.standard_normal(10 * logmel.RATE).clip(-3, 3),
    "quiet noise": 1e-3 * RNG.standard_normal(30 * logmel.RATE),
    "voice": spoken(20),
    "long voice": spoken(45)[: logmel.WINDOW],
    "short": spoken(0.1),
    "a sample": np.array([0.5]),
    "silence": np.zeros(3 * logmel.RATE),
}


@pytest.mark.parametrize("bands", [80, 128])
@pytest.mark.parametrize("name", SOUNDS)
def test_features_are_those_of_transformers(name, bands):
    extractor = transformers.WhisperFeatureExtractor(feature_size=bands)
    sound = SOUNDS[name].astype(np.float32)
    batch = extractor(sound, sampling_rate=logmel.RATE, return_tensors="np")
    expected = batch["input_features"][0].T
    assert np.abs(logmel.features(sound, bands) - expected).max() <= MOST


@pytest.mark.parametrize("bands", [80, 128])
def test_filters_are_those_of_transformers(bands):
    expected = transformers.WhisperFeatureExtractor(feature_size=bands).mel_filters
    assert np.abs(logmel.filters(bands) - expected).max() <= 1e-12


def test_a_whole_recording_is_that_of_transformers():
    sound = spoken(45).astype(np.float32)
    extractor = transformers.WhisperFeatureExtractor()
    kept = dict(truncation=False, padding="longest", return_tensors="np")
    expected = extractor(sound, sampling_rate=logmel.RATE, **kept)["input_features"]
    heard = logmel.whole([sound[:77_777], sound[77_777:]])
    # Whisper puts silence behind a recording, transformers its mirror image.
    assert np.abs(heard - expected[0].T)[:-2].max() <= MOST
