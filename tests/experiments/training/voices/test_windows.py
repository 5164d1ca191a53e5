"""Windows of recordings that have transcripts, and sentences that are read aloud."""

import numpy as np
import pytest

from experiments.training.voices import read_aloud, windows
from specjax.speech import logmel

sound = pytest.importorskip("soundfile")
pytest.importorskip("soxr")


def test_neighbours_of_one_speaker_share_a_window(tmp_path):
    table = "file\tspeaker\tseconds\ttranscript\tsplit\n"
    for i, (speaker, split) in enumerate(("at", "at", "bt", "ct", "ct", "cx")):
        sound.write(tmp_path / f"{i}.wav", np.full(16000, 0.1), logmel.RATE)
        table += f"{i}.wav\t{speaker}\t1\tw{i}\t{'train' if split == 't' else 'no'}\n"
    (tmp_path / "transcripts.tsv").write_text(table)
    for most, said in (
        (33000, ["w0 w1", "w2", "w3 w4"]),
        (16000, ["w0", "w1", "w2", "w3", "w4"]),
    ):
        made = [*windows.transcribed(tmp_path, most)]
        assert [it.said for it in made] == said
        assert [len(it.read()) for it in made] == [16000 * len(x.split()) for x in said]
    with pytest.raises(ValueError, match=r"no transcripts\.tsv: name it by --record"):
        [*windows.transcribed(tmp_path / "none", 16000)]


def test_texts_have_room_for_what_they_say():
    sentences = [f"{i} " + "x" * 100 for i in range(9)]
    texts = read_aloud.texts(sentences, 2)
    assert texts == [" ".join(sentences[:3]), " ".join(sentences[3:6])]
    assert max(map(len, texts)) <= read_aloud.LETTERS
