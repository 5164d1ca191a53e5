"""What a host reads is measured of real processes, and is its share."""

import pytest

from experiments.gpu import reading


def test_a_format_that_is_none_is_refused():
    with pytest.raises(ValueError, match="no format 'zip': one of huggingface, t5x"):
        reading.build(reading.ReadingSetting("zip"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "read"), [("huggingface", 1), ("t5x", 2), ("orbax", 1)]
)
def test_a_host_of_two_reads_its_half(format, read):
    """Of an array in one chunk it reads all."""
    found = reading.measure(reading.ReadingSetting(format, 8))
    assert found["share"] == pytest.approx(0.5, abs=1e-3)
    assert found["read"] == pytest.approx(read, rel=0.05)
