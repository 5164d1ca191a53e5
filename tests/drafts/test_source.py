"""The source of a draft keeps its recipes, and its names in records."""

from specjax import pretrained
from specjax.drafts import counts
from specjax.drafts.source import recipe, record_names


def test_recipes_of_one_function_and_options_are_equal():
    first, second = recipe(dict, a=1, b=2), recipe(dict, a=1, b=3)
    assert first == recipe(dict, a=1, b=2) and hash(first) != hash(second)
    assert second.change(b=2) == first != second
    assert first(c=3) == {"a": 1, "b": 2, "c": 3}


def test_a_record_says_how_weights_were_stored():
    target = pretrained.load("code_small")
    draft = counts.random()
    assert record_names(target, draft).keys() == {"target", "draft", "draft_regime"}
    stored = target._replace(stored="Q4_1 210, F32 61")
    named = record_names(stored, draft)
    assert named["stored"] == "Q4_1 210, F32 61"
