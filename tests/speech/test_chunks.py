"""Windows cover a recording, and what they share is written once."""

import pytest

from specjax.speech import chunks
from specjax.speech.chunks import Chunk


@pytest.mark.parametrize("count", [1, 29, 30, 31, 50, 51, 70, 71, 300])
@pytest.mark.parametrize("stride", [None, 0, 14])
def test_what_is_not_shared_is_the_recording(count, stride):
    cover = chunks.windows(count, 30, stride)
    own = [range(c.start + c.left, c.stop - c.right) for c in cover]
    assert [i for places in own for i in places] == list(range(count))
    assert all(c.stop - c.start == 30 for c in cover[:-1])
    assert cover[0].left == cover[-1].right == 0


def test_a_sixth_is_shared_on_either_side():
    assert chunks.windows(70, 30) == [
        Chunk(0, 30, 0, 5),
        Chunk(20, 50, 5, 5),
        Chunk(40, 70, 5, 0),
    ]


@pytest.mark.parametrize("sizes", [(0, 30, 5), (9, 30, 15), (9, 0, 0), (9, 30, -1)])
def test_windows_that_cover_nothing_are_told(sizes):
    with pytest.raises(ValueError, match="stride below half"):
        chunks.windows(*sizes)


def test_overlaps_are_written_once():
    assert chunks.join([[1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7]]) == [1, 2, 3, 4, 5, 6, 7]
    # Each window is wrong at its edge: 9 for 4, and 8 for 3.
    assert chunks.join([[1, 2, 3, 5, 9], [8, 3, 5, 6, 7]]) == [1, 2, 3, 5, 6, 7]
    assert chunks.join([[1, 2], [3, 4]]) == [1, 2, 3, 4]
    # One equal token is no overlap.
    assert chunks.join([[1, 2], [2, 3]]) == [1, 2, 2, 3]
    assert chunks.join([[], [1, 2], [], [1, 2]]) == [1, 2, 1, 2]
    assert chunks.join([]) == []
