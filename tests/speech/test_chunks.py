"""Windows cover a recording, and what they share is written once."""

import numpy as np
import pytest

from specjax.speech import chunked, logmel
from specjax.speech.chunked import Chunk
from specjax.speech.sequential import Decoded
from tests.support.small_speech import TOKENS


@pytest.mark.parametrize("count", [1, 29, 30, 31, 50, 51, 70, 71, 300])
@pytest.mark.parametrize("stride", [None, 0, 14])
def test_what_is_not_shared_is_the_recording(count, stride):
    cover = chunked.windows(count, 30, stride)
    own = [range(c.start + c.left, c.stop - c.right) for c in cover]
    assert [i for places in own for i in places] == list(range(count))
    assert all(c.stop - c.start == 30 for c in cover[:-1])
    assert cover[0].left == cover[-1].right == 0


def test_a_sixth_is_shared_on_either_side():
    assert chunked.windows(70, 30) == [
        Chunk(0, 30, 0, 5),
        Chunk(20, 50, 5, 5),
        Chunk(40, 70, 5, 0),
    ]


@pytest.mark.parametrize("sizes", [(0, 30, 5), (9, 30, 15), (9, 0, 0), (9, 30, -1)])
def test_windows_that_cover_nothing_are_told(sizes):
    with pytest.raises(ValueError, match="stride below half"):
        chunked.windows(*sizes)


def test_overlaps_are_written_once():
    assert chunked.join([[1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7]]) == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]
    # Each window is wrong at its edge: 9 for 4, and 8 for 3.
    assert chunked.join([[1, 2, 3, 5, 9], [8, 3, 5, 6, 7]]) == [1, 2, 3, 5, 6, 7]
    assert chunked.join([[1, 2], [3, 4]]) == [1, 2, 3, 4]
    # One equal token is no overlap.
    assert chunked.join([[1, 2], [2, 3]]) == [1, 2, 2, 3]
    # The longest of equally good overlaps; the best share of equal tokens before it.
    assert chunked.join([[1, 1, 1, 1], [1, 1, 1, 1]]) == [1, 1, 1, 1]
    assert chunked.join([[1, 2, 2], [1, 1, 2]]) == [1, 1, 2]
    assert chunked.join([[], [1, 2], [], [1, 2]]) == [1, 2, 1, 2]
    assert chunked.join([]) == []


def test_a_recording_of_tones_is_written_tone_by_tone():
    rng = np.random.default_rng(3)
    tones = rng.integers(1, 20, 75)
    second = np.arange(logmel.RATE) / logmel.RATE
    samples = np.concatenate([np.sin(2 * np.pi * 300 * k * second) for k in tones])
    # The band that each tone is loudest in, by the tone alone.
    alone = [logmel.features(np.sin(2 * np.pi * 300 * k * second))[50] for k in tones]
    expected = [int(frame.argmax()) for frame in alone]
    sizes = []

    def decode(features, prompts, temperatures):
        sizes.append(len(features))
        middles = features[:, 50::100]
        texts = [[int(x.argmax()) for x in row if x.max() > x.min()] for row in middles]
        for text in texts:
            text[-1] = 99  # its last word is always wrong
        return Decoded(texts, [0.0] * len(texts), [0.0] * len(texts))

    arguments = decode, TOKENS._replace(end=100), str
    *_, last = chunked.transcribe([samples], *arguments, batch=2)
    (heard,) = last.segments
    assert [*heard.tokens] == [*expected[:-1], 99] and sizes == [2, 2]
    with pytest.raises(ValueError, match="batch is 0"):
        chunked.transcribe([samples], *arguments, batch=0)
