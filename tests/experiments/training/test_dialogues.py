"""Dialogues of the user's folder as text, and the beginnings that a model continues."""

import json
import lzma

import numpy as np
import pytest

from experiments.training import language, pipeline
from experiments.training.texts import dialogues
from specjax import zoo

LINE = {"id": "1", "article": "Ann: Hi!\r\nBob: Hello.\n", "summary": " They meet."}


def test_a_text_is_a_dialogue_then_its_summary(tmp_path):
    (tmp_path / "dialogsum.train.jsonl").write_text(json.dumps(LINE) + "\n")
    with lzma.open(tmp_path / "samsum.train.jsonl.xz", "wt") as file:
        file.write(json.dumps(LINE | {"summary": "Others."}) + "\n")
    read = dialogues.read(tmp_path, "train")
    text = "Ann: Hi!\nBob: Hello.\n\nSummary: "
    assert read.documents == [text + "They meet.", text + "Others."]


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"neither dialogsum\.train\.jsonl nor"):
        dialogues.read(tmp_path, "train")
    (tmp_path / "dialogsum.train.jsonl").write_text('{"article": "Ann: Hi!"}\n')
    (tmp_path / "samsum.train.jsonl").write_text("")
    with pytest.raises(ValueError, match="line 1: write a line a dialogue"):
        dialogues.read(tmp_path, "train")


def test_beginnings_end_before_their_document_does():
    documents = [[zoo.START, *[5] * i, zoo.END] for i in (2, 9, 300)]
    stream = language.stream(documents)
    plan = language.Continued(**pipeline.read("llama")["written"])
    ((rows, begun),) = language.cut(stream, plan, 1, 0.0, seed=0)
    inside = np.arange(plan.prompt) < begun[:, None]
    assert rows.shape == (plan.batch, plan.prompt)
    assert np.all(rows[:, 0] == zoo.START)
    assert not np.any(rows == zoo.END)
    assert np.array_equal(rows != 0, inside)
    assert len(set(begun.tolist())) > 5


def test_of_clipped_beginnings_every_other_one_is_sampled_from_the_start_token():
    stream = language.stream([[zoo.START, *range(3, 12), zoo.END]] * 3)
    plan = language.Continued(0, 0, 0, 0, prompt=5, new=2, batch=4, clipped=True)
    for temperature in (0.0, 1.0):
        for rows, begun in language.cut(stream, plan, 2, temperature, seed=0):
            assert rows.shape == (4, 5) and begun.dtype == np.int32
            np.testing.assert_array_equal((rows > 0).sum(1), begun)
            assert np.all(begun[::2] == 1) == (temperature > 0)
