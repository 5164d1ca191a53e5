"""Targets and drafts of every family, as they take part in a measurement."""

from specjax.drafts import source as sides


def test_a_record_says_how_weights_were_stored():
    side = sides.model("code_small")
    draft = sides.random()
    assert sides.names(side, draft).keys() == {"target", "draft", "draft_regime"}
    stored = side.pretrained._replace(stored="Q4_1 210, F32 61")
    named = sides.names(side._replace(pretrained=stored), draft)
    assert named["stored"] == "Q4_1 210, F32 61"
