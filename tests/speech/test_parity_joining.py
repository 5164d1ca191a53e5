"""Segments and joined windows as transformers has them, on random tokens."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import transformers.models.whisper.generation_whisper as written  # noqa: E402
import transformers.models.whisper.tokenization_whisper as read  # noqa: E402

from specjax.speech import chunked, segments  # noqa: E402
from tests.speech.test_rules import texts  # noqa: E402
from tests.support.small_speech import TOKENS  # noqa: E402


@pytest.mark.parametrize("seed", range(200))
def test_windows_are_joined_as_in_its_pipeline(seed):
    rng = np.random.default_rng(seed)
    whole = rng.integers(0, rng.integers(2, 40), 90)
    cuts = [whole[at : at + 40].copy() for at in (0, 25, 50)]
    for part in cuts:  # both ends of a window are heard badly
        wrong = rng.random(40) < np.where(np.abs(np.arange(40) - 20) > 14, 0.4, 0.05)
        part[wrong] = rng.integers(0, 40, wrong.sum())
    parts = [part[: rng.integers(1, 41)].tolist() for part in cuts]
    expected = read._find_longest_common_sequence(parts)
    expected = expected[0] if isinstance(expected, tuple) else expected
    assert chunked.join(parts) == [int(token) for token in expected]


def test_segments_are_those_of_its_long_form():
    retrieve = written.WhisperGenerationMixin._retrieve_segment
    rng = np.random.default_rng(5)
    counts = []
    for ids in filter(None, texts(rng)):
        ids = [TOKENS.first_time, *ids]
        if ids[-1] == ids[-2] or ids[:2] == [TOKENS.first_time] * 2:
            continue  # no rule lets these through
        frames = int(rng.integers(100, 3000))
        expected, further = retrieve(
            seek_sequence=torch.tensor(ids),
            seek_outputs=[None],
            time_offset=torch.tensor([7.0], dtype=torch.float64),
            timestamp_begin=TOKENS.first_time,
            seek_num_frames=torch.tensor([frames]),
            time_precision=0.02,
            time_precision_features=0.01,
            input_stride=2,
            prev_idx=0,
            idx=0,
            return_token_timestamps=False,
            decoder_input_ids=torch.zeros(1, 3),
        )
        pieces, further_on = segments.split(TOKENS, ids, 7.0, frames)
        # A segment that ends where its window begins would be heard for ever.
        assert further_on == (int(further) or frames)
        for piece, other in zip(pieces, expected, strict=True):
            assert piece.start == pytest.approx(float(other["start"]), abs=1e-6)
            # transformers rounds the end of a window down to a timestamp.
            most = 0.0201 if piece.end == 7 + frames * segments.FRAME else 1e-6
            assert abs(piece.end - float(other["end"])) < most
            # and keeps the timestamp behind the last pair.
            assert other["tokens"].tolist()[: len(piece.tokens)] == piece.tokens
        counts.append(len(pieces))
    assert len(counts) > 150 and max(counts) >= 3
