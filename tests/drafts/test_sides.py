"""Targets and drafts of every family, as they take part in a measurement."""

from specjax import pretrained
from specjax.drafts import counts
from specjax.drafts.source import record_names


def test_a_record_says_how_weights_were_stored():
    target = pretrained.load("code_small")
    draft = counts.random()
    assert record_names(target, draft).keys() == {"target", "draft", "draft_regime"}
    stored = target._replace(stored="Q4_1 210, F32 61")
    named = record_names(stored, draft)
    assert named["stored"] == "Q4_1 210, F32 61"
