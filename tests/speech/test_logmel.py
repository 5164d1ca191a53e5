"""Features follow their formulas, computed at once or in parts."""

import numpy as np
import pytest

from specjax.speech import logmel

TIME = np.arange(logmel.WINDOW) / logmel.RATE


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(0).standard_normal(3 * logmel.RATE) * 0.1


@pytest.mark.parametrize("bands", [80, 128])
def test_filters_have_their_closed_form(bands):
    weights = logmel.filters(bands)
    assert weights.shape == (201, bands) and (weights >= 0).all()
    assert (weights.sum(0) > 0).all()
    # Below 1000 Hz the corners are evenly apart: height 2 / (2 width) at the peak.
    width = float(logmel.mel(8000.0)) / (bands + 1) * 200 / 3
    low = np.arange(201) * 40.0
    for band in (0, 3, 9):
        triangle = np.maximum(0, 1 - np.abs(low - (band + 1) * width) / width) / width
        np.testing.assert_allclose(weights[:, band], triangle, atol=1e-12)
    # Wide ones have an area of one, which 201 frequencies can see.
    np.testing.assert_allclose(weights[:, -5:].sum(0) * 40, 1, atol=0.03)


def test_a_sine_has_the_power_of_its_window():
    # A Hann window of 400 samples sums to 200: a sine of amplitude a has |X| = 100 a
    # at its frequency and half of that at both neighbours.
    heard = logmel.features(0.5 * np.sin(2 * np.pi * 2000.0 * TIME))
    weights = logmel.filters()[[49, 50, 51]]
    power = (np.array([25.0, 50.0, 25.0]) ** 2) @ weights
    expected = (np.log10(power.max()) + 4) / 4
    assert heard[1500].max() == pytest.approx(expected, abs=1e-5)


def test_silence_and_what_is_8_below_the_loudest_are_one_floor(noise):
    assert np.all(logmel.features(np.zeros(5)) == np.float32(-1.5))
    heard = logmel.features(noise)
    assert heard[400:].max() == heard.min() == pytest.approx(heard.max() - 2)


def test_a_recording_in_blocks_is_one_in_a_whole(noise):
    whole = logmel.recording_frames([noise], 128)
    assert whole.shape == (300, 128)
    for cuts in ([100, 130, 5000], [1, 2, 47_999]):
        parts = logmel.recording_frames(np.split(noise, cuts), 128)
        np.testing.assert_allclose(parts, whole, atol=1e-6)
    # The last frame aside, which silence follows in both, it is the window's.
    np.testing.assert_allclose(whole, logmel.features(noise, 128)[:300], atol=1e-6)
    later = logmel.recording_frames([np.roll(noise, 1)], 128)
    assert np.abs(whole - later).max() > 1e-3  # one sample later is seen
    window = logmel.cut(logmel.recording_frames([noise]), 250)  # ends in zeros
    assert window.shape == (3000, 80) and window[:50].any() and not window[50:].any()


def test_rows_and_shorter_windows_are_those_of_one(noise):
    both = logmel.features(np.stack([noise, 0.01 * noise[::-1]]))
    np.testing.assert_array_equal(both[0], logmel.features(noise))
    second = noise[: logmel.RATE]
    short = logmel.features(second, frames=200)
    np.testing.assert_array_equal(short, logmel.features(second)[:200])


@pytest.mark.parametrize(
    ("ask", "line"),
    [
        (lambda: logmel.features(np.zeros(logmel.WINDOW + 1)), "cut what is longer"),
        (lambda: logmel.features(np.zeros(16_000), frames=99), "cut what is longer"),
        (lambda: logmel.features(np.zeros(0)), "N from 1"),
        (lambda: logmel.features(np.zeros((1, 1, 5))), "shape"),
        (lambda: logmel.features(np.zeros(5, np.int16)), "int16: give floats"),
        (lambda: logmel.features(np.array([0.0, np.nan])), "not all finite"),
        (lambda: logmel.filters(0), "80, or 128"),
        (lambda: logmel.recording_frames([np.zeros(159)]), "10 ms"),
    ],
)
def test_what_is_no_window_is_told(ask, line):
    with pytest.raises(ValueError, match=line):
        ask()
