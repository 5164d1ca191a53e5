"""`specjax.generate_beams`: texts of names, with the manners of `generate_text`."""

import json

import jax
import numpy as np
import pytest

import specjax
from specjax import beam
from specjax.beam.defaults import recommended
from specjax.checkpoints import Pretrained
from specjax.drafts.models import reduced_vocab_source
from specjax.models import gpt, llama, t5
from specjax.models.penalties import build as penalties
from specjax.models.reduced_vocab import Reduction
from tests.support import text_folders
from tests.support.model_cases import weights

NEW = 8
PROMPTS = ["def add(", "class Stack:\n    ", "x ="]
CODE = gpt.Config(8192, 16, 32, 1, 2)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two models of the bundled code tokenizer, the draft near its target: of 8,192
    ids that are nearly as likely, beams are only found by one that is."""
    target, other = text_folders.code_pair(tmp_path_factory.mktemp("code"), CODE)
    params = jax.tree.map(lambda a, b: a + 0.02 * (b - a), target.params, other.params)
    return target, other._replace(params=params)


@pytest.fixture(scope="module")
def made(pair):
    options = dict(width=3, gamma=2, best=3, new_tokens=[NEW, NEW - 3, NEW])
    return [
        specjax.generate_beams(pair[0], draft, PROMPTS, **options)
        for draft in (None, pair[1])
    ]


def test_a_draft_changes_nothing_but_the_calls(made):
    alone, drafted = made
    assert alone.calls == alone.steps == drafted.steps > drafted.calls
    assert (alone.texts, alone.ids, alone.ended) == drafted[0:1] + drafted[2:4]
    np.testing.assert_allclose(alone.scores, drafted.scores, rtol=1e-4)


def test_the_texts_of_each_prompt_are_in_the_order_of_their_scores(made):
    for texts, scores, ids in zip(*made[0][:3], strict=True):
        assert len(texts) == len(scores) == len({tuple(x) for x in ids}) == 3
        assert scores == sorted(scores, reverse=True)
    assert all(len(x) <= NEW - 3 for x in made[0].ids[1])
    assert max(len(x) for x in made[0].ids[0]) == NEW


def test_one_beam_is_the_greedy_text(pair):
    greedy = specjax.generate_text(pair[0], None, PROMPTS, 0, new_tokens=NEW)
    for draft in (None, pair[1]):
        out = specjax.generate_beams(pair[0], draft, PROMPTS, width=1, new_tokens=NEW)
        assert out.texts == [[text] for text in greedy.texts]
        assert out.ended == [[why] for why in greedy.ended]


def test_a_score_is_the_mean_log_p_of_its_tokens(pair, made):
    """Of the text as the target reads it whole."""
    target = pair[0]
    ids, score = made[1].ids[0][1], made[1].scores[0][1]
    head = target.tokenizer.encode(PROMPTS[0])
    tokens = np.int32([head + ids])
    model, start = target.model, np.zeros(1, np.int32)
    features, _ = model.apply(target.params, tokens, start, None)
    logs = jax.nn.log_softmax(model.readout(target.params, features))[0]
    each = logs[np.arange(len(head) - 1, len(tokens[0]) - 1), ids]
    np.testing.assert_allclose(score, np.mean(each), rtol=1e-4)


def test_rules_change_what_is_searched(pair):
    rules = penalties(repetition=1.5)
    options = dict(width=2, gamma=2, new_tokens=NEW, rules=rules)
    alone, drafted = (
        specjax.generate_beams(pair[0], draft, PROMPTS, **options)
        for draft in (None, pair[1])
    )
    free = specjax.generate_beams(pair[0], None, PROMPTS, width=2, new_tokens=NEW)
    assert alone.ids == drafted.ids != free.ids


def test_a_bigram_drafts_for_a_bundled_t5():
    texts = ["translate English to German: The house is old."]
    options = dict(width=2, new_tokens=NEW)
    alone = specjax.generate_beams("t5_small", None, texts, **options)
    drafted = specjax.generate_beams("t5_small", "bigram", texts, **options)
    assert alone.ids == drafted.ids and drafted.calls <= alone.calls == alone.steps


WRONG = [
    (
        dict(width=0),
        "^width must be a whole number, at least 1 and at most 1000; got",
    ),
    (dict(best=5), "^best must be a whole number, at least 1 and at most 4; got 5$"),
    (dict(draft_width=2), "^draft_width must be a whole number, at least 4"),
    (dict(gamma=-1), "^gamma must be a whole number, at least 0"),
    (dict(early_stopping="yes"), '^early_stopping must be True, False or "never"'),
    (dict(length_penalty=10**400), "^length_penalty must be a finite number"),
    (dict(length_penalty=1e9), "^length_penalty = 1000000000.0 divides scores of 64"),
    (dict(new_tokens=0), "^new_tokens must be a whole number, at least 1"),
    (dict(new_tokens=[3]), "^new_tokens has 1 values for 3 prompts: give one value"),
    (dict(task="x"), "^task names what the model recommends, and nothing follows it"),
    (dict(task="x", width=None), "recommends nothing for the task 'x': the tasks of"),
    (dict(rules=3), "^rules must be a specjax.types.TokenAutomaton"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_what_cannot_be_searched_is_refused_in_one_line(pair, options, message):
    with pytest.raises(ValueError, match=message) as refused:
        specjax.generate_beams(*pair, PROMPTS, **options)
    assert "\n" not in str(refused.value)


def test_a_draft_that_is_no_model_is_refused(pair):
    with pytest.raises(ValueError, match="drafts no beams: name a model with the"):
        specjax.generate_beams(pair[0], "copying", PROMPTS)
    specjax.generate_beams(pair[0], "copying", PROMPTS[:1], gamma=0, new_tokens=1)


def test_a_reduced_draft_follows_rules_too(pair):
    own = llama.Config(29, 16, 24, 2, 4, 2, 6)
    small = own._replace(vocab=20, num_layers=1, tied=True)
    target = Pretrained("t", own, llama.build(own), weights(own, 1))
    reduction = Reduction(small, weights(small, 2), np.arange(20))
    draft = reduced_vocab_source("r", reduction, target)
    options = dict(width=2, gamma=2, new_tokens=4, rules=penalties(1.2))
    target = target._replace(tokenizer_file=pair[0].tokenizer_file)
    plain, drafted = (
        specjax.generate_beams(target, each, [[1, 2, 3]], **options)
        for each in (None, draft)
    )
    assert plain.ids == drafted.ids


def test_a_target_without_a_tokenizer_is_refused_before_any_compute(pair, monkeypatch):
    monkeypatch.setattr(beam, "program", None)
    bare = pair[0]._replace(tokenizer_file=None)
    with pytest.raises(ValueError, match="m0 has no tokenizer beside its weights"):
        specjax.generate_beams(bare, None, [[17]], new_tokens=4)


def test_damaged_weights_are_an_error_that_names_the_row(pair):
    target = pair[0]
    bad = target._replace(params=jax.tree.map(lambda x: x * np.nan, target.params))
    with pytest.raises(FloatingPointError, match=r"^row 0, the step that .* target's"):
        specjax.generate_beams(bad, None, PROMPTS, new_tokens=NEW)


def test_what_a_t5_recommends_for_a_task_is_followed(tmp_path):
    folder = text_folders.t5_folder(tmp_path / "t5")
    model = specjax.load(folder)
    plain = dict(width=1, length_penalty=1.0, early_stopping=False)
    assert recommended(model) == plain
    file = folder / "config.json"
    fields = json.loads(file.read_text())
    own = {"early_stopping": True, "num_beams": 4, "length_penalty": 2.0}
    fields["task_specific_params"] = {"summarization": own, "other": {"num_beams": 0}}
    file.write_text(json.dumps(fields))
    wanted = dict(width=4, length_penalty=2.0, early_stopping=True)
    assert recommended(model, "summarization") == wanted
    with pytest.raises(ValueError, match=r"config.json: width must be a whole number"):
        recommended(model, "other")
    with pytest.raises(ValueError, match=r"'x': the tasks of its config.json are su"):
        recommended(model, "x")
    (folder / "generation_config.json").write_text('{"num_beams": 3}')
    assert recommended(model) == plain | {"width": 3}
    options = dict(new_tokens=4, gamma=0)
    own = {name: None for name in plain}
    followed = beam.generate_beams(
        model, None, ["a house"], **own, task="summarization", best=4, **options
    )
    given = beam.generate_beams(model, None, ["a house"], **wanted, best=4, **options)
    assert followed.ids == given.ids and len(given.ids[0]) == 4
    assert isinstance(model.config, t5.Config)
