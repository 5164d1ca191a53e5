"""What a row after Chen et al. (2023) measures, and what its table shows of it."""

import json

import pytest

from experiments import catalogue
from experiments.papers.chen import rows
from experiments.papers.chen.setting import ChenSetting
from experiments.report import details
from experiments.tasks import texts
from specjax import sides
from specjax.theory import closed_forms
from tests.support import decoder_files

SMALL = ChenSetting("", "rouge", 2, 0.8, 0.9, 2, 4, 4, 2, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return decoder_files.write(tmp_path_factory.mktemp("chen"))


@pytest.fixture(scope="module")
def model(folder):
    return sides.model(str(folder / "model"))


def test_a_target_drafts_for_itself(folder, model):
    """Everything is kept: r = 1, and 3 tokens a call."""
    setting = SMALL._replace(task=str(folder / "xsum.jsonl"))
    it = rows.row(model, model, setting, texts.summaries).run()
    json.dumps(it, allow_nan=False)
    assert it["r"] == it["accepted_of_drafted"] == 1 and it["tokens_per_call"] == 3
    assert it["texts"] == 6 and it["prompts"] == 3
    times = it["t_draft_ms"], it["t_target_ms"]
    assert it["theoretical_speed"] == closed_forms.chen_speedup(1, 2, *times)
    low, high = it["speed_interval"]
    assert low <= it["speed"] <= high
    ratio = it["token_ms_alone"] / it["token_ms_speculative"]
    assert it["speed"] == pytest.approx(ratio)
    lines = [x for x in catalogue.named("chen").lines if x.row == "xsum_gpt2"]
    assert {line.quantity for line in lines} <= it.keys()
    ((_, head, (shown,)),) = details.chen({"chen_data": {"a": {"measured": it}}})
    assert len(head) == len(shown)


def test_texts_are_what_follows_the_prompt(folder, model):
    """References that the target wrote are worth 1."""
    setting = SMALL._replace(task=str(folder / "xsum.jsonl"), samples=1)
    task = texts.summaries(setting.task, model)
    pair = rows.paired(model, model, task, setting)
    ids = [list(model.pretrained.tokenizer.encode("They meet."))[1:]] * 3
    assert rows.strings(pair, task, ids)[0].strip() == "They meet."
    assert rows.by_rouge(rows.strings(pair, task, ids), task, setting)["rouge2"] == 1


def test_a_prompt_that_is_too_long_loses_the_end_of_its_article(model):
    encode, decode = model.pretrained.tokenizer[:2]
    article = "Ann: " + " ".join(map(str, range(300)))
    ids = texts.fitted(article, model.pretrained.tokenizer, 64)
    assert 56 <= len(ids) <= 64
    assert decode(ids).startswith("Ann: 0 1 2") and decode(ids).endswith("Summary:")
    assert texts.fitted("Hi.", model.pretrained.tokenizer, 64) == encode(
        "Hi." + texts.SUMMARY
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": "bleu"}, "choose one of pass1, rouge"),
        ({"K": 0}, "at least 1"),
        ({"top_p": 0.0}, r"top_p in \(0, 1\]"),
        ({"task": "nowhere.jsonl"}, "no file nowhere"),
    ],
)
def test_what_cannot_be_measured_is_refused(changes, message, folder, model):
    setting = SMALL._replace(task=str(folder / "xsum.jsonl"))._replace(**changes)
    with pytest.raises(ValueError, match=message):
        rows.row(model, model, setting, texts.summaries)


def test_the_papers_own_numbers_agree_with_the_formula():
    every = catalogue.named("chen").lines
    lines = {(x.row, x.quantity): x.published for x in every}
    for row in ("humaneval_chinchilla", "xsum_chinchilla"):
        keys = "r", "t_draft_ms", "t_target_ms", "theoretical_speed"
        r, draft, target, theory = (lines[row, key] for key in keys)
        assert round(closed_forms.chen_speedup(r, 4, draft, target), 2) == theory
    assert lines["turing_gpt2", "best_speedup"] == 2.23
    assert not any(x.published for x in every if x.folder == "chen_data")
