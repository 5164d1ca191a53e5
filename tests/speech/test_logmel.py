"""Features are what their formulas say, whole or in parts."""

import numpy as np
import pytest

from specjax.speech import logmel

TIME = np.arange(logmel.WINDOW) / logmel.RATE


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(0).standard_normal(3 * logmel.RATE) * 0.1


def test_the_scale_has_slaneys_fixed_points():
    # 200/3 Hz a mel up to 1000 Hz; 27 mel later 6.4 times as high.
    assert logmel.mel(200.0) == pytest.approx(3.0)
    assert logmel.mel(1000.0) == pytest.approx(15.0)
    assert logmel.mel(6400.0) == pytest.approx(42.0)
    frequencies = np.array([0.0, 31.0, 999.0, 1000.0, 1001.0, 7999.0])
    np.testing.assert_allclose(logmel.hertz(logmel.mel(frequencies)), frequencies)


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


@pytest.mark.parametrize("frequency", [200.0, 1000.0, 3000.0, 6500.0])
@pytest.mark.parametrize("bands", [80, 128])
def test_a_sine_is_loudest_in_the_band_of_its_frequency(frequency, bands):
    heard = logmel.features(np.sin(2 * np.pi * frequency * TIME), bands)
    peaks = logmel.hertz(np.linspace(0, logmel.mel(8000.0), bands + 2)[1:-1])
    nearest = np.abs(logmel.mel(peaks) - logmel.mel(frequency)).argmin()
    assert abs(int(heard[100].argmax()) - nearest) <= 1
    assert heard.shape == (3000, bands) and heard.dtype == np.float32


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


def test_rows_do_not_hear_each_other(noise):
    both = logmel.features(np.stack([noise, 0.01 * noise[::-1]]))
    np.testing.assert_array_equal(both[0], logmel.features(noise))
    np.testing.assert_array_equal(both[1], logmel.features(0.01 * noise[::-1]))


def test_a_recording_in_blocks_is_one_in_a_whole(noise):
    whole = logmel.whole([noise], 128)
    assert whole.shape == (300, 128)
    for cuts in ([100, 130, 5000], [1, 2, 47_999], [16_000, 32_000]):
        parts = logmel.whole(np.split(noise, cuts), 128)
        np.testing.assert_allclose(parts, whole, atol=1e-6)
    # The last frame aside, which silence follows in both, it is the window's.
    np.testing.assert_allclose(whole, logmel.features(noise, 128)[:300], atol=1e-6)
    later = logmel.whole([np.roll(noise, 1)], 128)
    assert np.abs(whole - later).max() > 1e-3  # one sample later is seen


def test_a_window_of_a_recording_ends_in_zeros(noise):
    whole = logmel.whole([noise])
    window = logmel.cut(whole, 250)
    assert window.shape == (3000, 80)
    np.testing.assert_array_equal(window[:50], whole[250:])
    assert not window[50:].any()


@pytest.mark.parametrize(
    ("samples", "line"),
    [
        (np.zeros(logmel.WINDOW + 1), "cut what is longer"),
        (np.zeros(0), "N from 1"),
        (np.zeros((1, 1, 5)), "shape"),
        (np.zeros(5, np.int16), "int16: give floats"),
        (np.array([0.0, np.nan]), "not all finite"),
    ],
)
def test_what_is_no_window_is_told(samples, line):
    with pytest.raises(ValueError, match=line):
        logmel.features(samples)


def test_other_bands_and_no_frame_are_told():
    with pytest.raises(ValueError, match="80, or 128"):
        logmel.filters(0)
    with pytest.raises(ValueError, match="10 ms"):
        logmel.whole([np.zeros(159)])


def test_a_shorter_window_begins_as_the_long_one():
    samples = np.random.default_rng(3).normal(size=16_000) * 0.1
    short, whole = logmel.features(samples, frames=200), logmel.features(samples)
    assert short.shape == (200, 80)
    np.testing.assert_array_equal(short, whole[:200])
    with pytest.raises(ValueError, match="cut what is longer"):
        logmel.features(samples, frames=99)
