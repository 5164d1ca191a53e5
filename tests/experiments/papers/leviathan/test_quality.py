"""BLEU and ROUGE are those of the texts that a model writes by itself, in order."""

import numpy as np
import pytest

from experiments import run, tasks
from experiments.papers.leviathan import quality
from experiments.tasks import examples
from specjax import sides, zoo
from specjax.measure import jsonl
from specjax.models import t5
from specjax.prompts import Prompts
from tests.support import tiny_t5

pytestmark = pytest.mark.slow

VOCAB = 6016
CONFIG = tiny_t5.TARGET._replace(vocab=VOCAB, pieces=6000)
SENTENCES = [
    "Good morning.",
    "I see a cat in the house.",
    "No.",
    "We eat.",
    "Yes, he is.",
]


@pytest.fixture(scope="module")
def target():
    model = t5.build(CONFIG)
    return sides.of_model("tiny", model, tiny_t5.weights(CONFIG, 0))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A task of five sentences, whose references are themselves."""
    path = tmp_path_factory.mktemp("task") / "task.npz"
    ids = [zoo.tokenizer("t5").encode(text) for text in SENTENCES]
    about = examples.About("own", "test", "", t5.END, "", None, False, None, [])
    examples.write(path, examples.Examples(ids, ids, SENTENCES, SENTENCES), about)
    return str(path)


def chosen(prompts, places):
    several = ([rows[i] for i in places] for rows in (prompts.tokens, prompts.inputs))
    return Prompts(*several, prompts.ends)


def written(target, prompts, batch):
    return quality.write(target, prompts, 6, batch)


def test_every_prompt_gets_its_own_text_whatever_the_batch(target, prepared):
    prompts = tasks.read(prepared).prompts
    longest = 1  # in every pair, so that one program is compiled
    pairs = [chosen(prompts, [i, longest]) for i in range(len(SENTENCES))]
    alone = [written(target, pair, 2)[0] for pair in pairs]
    assert written(target, prompts, 2) == alone
    assert len(set(map(tuple, alone))) > 1
    turned = chosen(prompts, [1, 0, 2, 3, 4])
    assert written(target, prompts, 2) != written(target, turned, 2)


def test_texts_are_argmax_and_have_no_end_and_no_start(target, prepared):
    prompts = tasks.read(prepared).prompts
    ids = np.array([prompts.inputs[1]])
    inputs = t5.Inputs(ids, np.array([ids.shape[1]]))
    logits = tiny_t5.quick_jit(
        lambda text: t5.logits(CONFIG, target.params, inputs, text)
    )
    text = np.full((1, 7), t5.PAD)
    for at in range(6):  # what comes later is not seen
        text[0, at + 1] = np.argmax(logits(text)[0, at])
    text = text[0].tolist()
    text = text[: text.index(t5.END)] if t5.END in text else text
    expected = [i for i in text[1:] if i != t5.END]
    assert written(target, chosen(prompts, [1]), 2) == [expected]


def test_metrics_by_hand():
    perfect = quality.bleu(SENTENCES, SENTENCES)
    assert perfect["bleu"] == pytest.approx(100) == perfect["chrf"]
    assert "tok:13a" in perfect["signature"]
    assert quality.bleu(SENTENCES[::-1], SENTENCES)["bleu"] < 50
    # Precision 1, recall 1/2 of words; of 3 pairs of words 1 is there.
    scores = quality.rouge(["the cat"], ["the cat sat down"])
    assert scores["rouge1"] == pytest.approx(100 * 2 / 3)
    assert scores["rouge2"] == pytest.approx(100 * 0.5)
    assert scores["rougeL"] == pytest.approx(100 * 2 / 3)
    assert quality.rouge(["cat the"], ["the cat sat down"])["rougeL"] < 50


@pytest.mark.parametrize("metric", quality.METRICS)
def test_a_row_scores_the_models_texts(metric, target, prepared):
    measurement = quality.build(target, prepared, metric, new_tokens=6, batch=2)
    row = measurement.run()
    assert (row["target"], row["texts"]) == ("tiny", 5)
    ids = written(target, tasks.read(prepared).prompts, 2)
    texts = [zoo.tokenizer("t5").decode(text) for text in ids]
    assert row["tokens"] == sum(map(len, ids))
    assert [e["text"] for e in row["examples"]] == texts
    score = getattr(quality, metric)(texts, SENTENCES)
    assert {key: row[key] for key in score} == score
    assert tasks.T5_TOKENIZER in measurement.inputs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "meteor"}, "no metric 'meteor': use bleu or rouge"),
        ({"task": "code"}, "code has no references"),
        ({"target": sides.random(VOCAB)}, "random only drafts: name a model"),
        ({"task": "nowhere"}, "no task 'nowhere'"),
    ],
)
def test_what_cannot_be_scored_is_refused(change, message, target, prepared):
    arguments = {"target": target, "task": prepared, "metric": "bleu"} | change
    with pytest.raises(ValueError, match=message):
        quality.build(**arguments)


def test_the_bundled_target_translates():
    """What results/ holds was measured with it, and is far from chance."""
    records = jsonl.read(run.ROOT / "results" / "quality.jsonl")
    rows = {record["row"]: record["measured"] for record in records}
    assert rows["ende_t5_target"]["bleu"] > 25
    assert rows["ende_t5_target"]["bleu"] > rows["ende_t5_small"]["bleu"]
