"""Rows of decoders measure what rows of the T5 family do, on their own prompts."""

import json
from unittest import mock

import numpy as np
import pytest

from experiments import catalogue, tasks
from experiments.papers.wagner import decoders, methods, rows, runs
from experiments.tasks import texts
from specjax import sides
from specjax.generate import Counts
from tests.support import decoder_files

SMALL = rows.WagnerSetting(
    "", gammas=(2,), repeats=2, new_tokens=6, batch=4, timed=2, rounds=1
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return decoder_files.write(tmp_path_factory.mktemp("wagner"))


@pytest.fixture(scope="module")
def model(folder):
    return sides.model(str(folder / "model"))


@pytest.fixture(scope="module")
def setting(folder):
    return SMALL._replace(task=str(folder / "xsum.jsonl"))


def test_a_sample_is_what_the_other_rows_would_choose():
    other = runs.sampled("docs", 0.1, 2, 3, 9)
    chosen = rows.WagnerSetting("docs", share=0.1, repeats=2, seed=3, new_tokens=9)
    sample = decoders.sample_of(tasks.read("docs"), chosen)
    assert sample.references == other.references and sample.count == other.count
    assert sample[2:] == other[2:]


def test_rouge_is_of_texts_as_the_target_spells_them(model, setting):
    sample = decoders.sample_of(texts.summaries(setting.task, model), setting)
    tokenizer = model.pretrained.tokenizer
    ids = np.array([*tokenizer.encode("They meet.")[1:], *sample.prompts.ends])
    run = runs.Run(Counts(*[np.ones(6)] * 4), [ids] * 6)
    assert decoders.rouge1(run, sample, tokenizer)["rouge1"] == 1
    assert decoders.rouge1(run, sample._replace(references=[]), tokenizer) == {}


def test_a_row_counts_what_its_texts_kept(model, setting, monkeypatch):
    """What is timed or scored is that of the other rows, and tested there."""
    for name in ("profiled", "distances", "profile", "walls", "steps"):
        alike = mock.create_autospec(getattr(rows, name), return_value={name: 1})
        monkeypatch.setattr(rows, name, alike)
    chosen = [methods.baseline(), methods.exact()]
    fewer = decoders.KINDS["text"]._replace(methods=lambda scales: chosen)
    monkeypatch.setitem(decoders.KINDS, "text", fewer)
    it = decoders.row(model, model, setting, texts.summaries, "text").run()
    json.dumps(it, allow_nan=False)
    assert it["acceptance_tested_exact"] == it["acceptance_tested_exact_g2"] == 1
    assert it["rouge1_exact"] == it["rouge1_baseline"] and it["texts"] == 6
    assert it["profiled"] == it["distances"] == it["profile"] == it["steps"] == 1


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({}, "speech", "choose one of text, scale, time"),
        ({"gammas": (0,)}, "text", "gammas must be in 1..20"),
        ({"rounds": 0}, "text", "at least 1"),
        ({"suffix": "Summary:"}, "text", "no suffix"),
        ({"task": "nowhere.jsonl"}, "text", "no file nowhere"),
    ],
)
def test_what_cannot_be_measured_is_refused(changes, kind, message, model, setting):
    with pytest.raises(ValueError, match=message):
        decoders.row(model, model, setting._replace(**changes), texts.summaries, kind)


def test_published_numbers_stand_where_they_are_measured():
    printed = {
        (line.row, line.quantity): line.published
        for name in ("wagner_text", "wagner_scale")
        for line in catalogue.named(name).lines
        if line.published is not None and line.folder == "wagner_paper"
    }
    assert printed["xsum_gemma_7b", "gb_s_exact_top50"] == 38.51
    assert printed["xsum_qwen_1_8b", "profile_reduction_sigmoid_1e4_top50"] == 76.8
    assert printed["scale_gemma_7b", "profile_reduction_sigmoid_1e1_top50"] == -124.6
    assert printed["scale_llama2_13b", "rouge1_baseline_top50"] == 0.2
    assert len(printed) == 12 + 5 + 4 * 9
