"""Held-out recordings are files that rows of speech read."""

import pytest

from experiments.papers.wagner.speech import utterances
from specjax.speech import audio

pytest.importorskip("soundfile")
pytest.importorskip("soxr")

from experiments.training.voices import strings


def test_recordings_are_what_their_table_says(tmp_path):
    strings.main(["--out", str(tmp_path / "a"), "--count", "2"])
    spoken = utterances.read(tmp_path / "a", "test")
    assert len(spoken.files) == 2 and all(spoken.references)
    for file, seconds in zip(spoken.files, spoken.seconds, strict=True):
        assert len(audio.read(file).samples) == pytest.approx(16_000 * seconds, abs=16)
    with pytest.raises(ValueError, match="exists: name a new folder"):
        strings.write(tmp_path / "a", 2)
