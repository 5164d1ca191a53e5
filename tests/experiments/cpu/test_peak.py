"""Products over the processor's peak: numbers computed by hand, and a small layer."""

import pytest

from experiments.cpu import peak
from experiments.cpu.peak import PeakSetting
from specjax.native import library


def test_rates_are_operations_over_seconds_and_over_the_peak_of_the_dtype():
    layer = (1000, 500), (500, 1000)
    seconds = {
        (dtype, rows, i): rows * 0.001 * (i + 1)
        for dtype in peak.BYTES
        for rows in peak.ROWS
        for i in range(2)
    }
    got = peak.rates(layer, seconds, 10.0, 20.0)
    rate = 2 * 1_000_000 / 0.003 / 1e9  # of any number of rows
    assert got["float32_1"] == pytest.approx(rate / 10)
    assert got["bfloat16_9"] == pytest.approx(rate / 10)
    assert got["int8_dynamic_4"] == pytest.approx(rate / 20)
    assert got["int8_gflops"] == pytest.approx(rate)
    assert got["float32_gb"] == pytest.approx(4 * got["int8_gb"])
    assert got["int8_gb"] == pytest.approx(1_000_000 / 0.003 / 1e9)


def test_a_small_layer_is_timed_and_nothing_is_faster_than_the_peak():
    if library.compiler() is None:
        pytest.skip("no C++ compiler")
    got = peak.row_of_a_layer(setting=PeakSetting(((256, 512),), 20)).run()
    shares = [got[f"{dtype}_{m}"] for dtype in peak.BYTES for m in peak.ROWS]
    assert all(0 < share < 1.5 for share in shares)
    assert got["peak_gflops"] < got["peak_levels_gops"]


def test_what_measures_nothing_or_cannot_be_compiled_is_told(monkeypatch):
    with pytest.raises(ValueError, match=r"^rounds must be at least 1, and matrices"):
        peak.row_of_a_layer(setting=PeakSetting(()))
    row = peak.row_of_a_layer(setting=PeakSetting(((256, 512),)))
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(RuntimeError, match=r"^peak\.cc: "):
        row.run()
    monkeypatch.setattr(library, "compiler", lambda: None)
    with pytest.raises(RuntimeError, match=r"^no C"):
        row.run()
