"""BLEU and ROUGE are computed from the texts that a model writes alone, in order."""

import numpy as np
import pytest

from experiments import run, tasks
from experiments.papers.leviathan import quality
from experiments.tasks import examples
from specjax import zoo
from specjax.drafts import counts
from specjax.measure import jsonl
from specjax.models import t5
from specjax.prompts import Prompts
from tests.support import bare, tiny_t5
from tests.support.prepared_texts import ABOUT

pytestmark = pytest.mark.slow

VOCAB = 6016
CONFIG = tiny_t5.TARGET._replace(vocab=VOCAB, pieces=6000)
SENTENCES = ["Good morning.", "I see a cat in the house.", "No.", "We eat.", "Yes."]


@pytest.fixture(scope="module")
def target():
    return bare.target("tiny", t5.build(CONFIG), tiny_t5.weights(CONFIG, 0))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A task of five sentences, whose references are themselves."""
    path = tmp_path_factory.mktemp("task") / "task.npz"
    ids = [zoo.tokenizer("t5").encode(text) for text in SENTENCES]
    examples.write(path, examples.Examples(ids, ids, SENTENCES, SENTENCES), ABOUT)
    return str(path)


def take_prompts(prompts, places):
    several = ([rows[i] for i in places] for rows in (prompts.tokens, prompts.inputs))
    return Prompts(*several, prompts.ends)


def test_every_prompt_gets_its_own_argmax_text_whatever_the_batch(target, prepared):
    prompts = tasks.read(prepared).prompts
    longest = 1  # in every pair, so that one program is compiled
    pairs = [take_prompts(prompts, [i, longest]) for i in range(len(SENTENCES))]
    alone = [quality.write(target, pair, new_tokens=6, batch=2)[0] for pair in pairs]
    assert quality.write(target, prompts, new_tokens=6, batch=2) == alone
    assert len(set(map(tuple, alone))) > 1
    ids = np.array([prompts.inputs[longest]])
    inputs = t5.Inputs(ids, np.array([ids.shape[1]]))
    logits = tiny_t5.quick_jit(
        lambda text: t5.logits(CONFIG, target.params, inputs, text)
    )
    text = np.full((1, 7), t5.PAD)
    for at in range(6):  # what comes later is not seen
        text[0, at + 1] = np.argmax(logits(text)[0, at])
    text = text[0, 1:].tolist()  # no start, and no end
    assert alone[longest] == (text[: text.index(t5.END)] if t5.END in text else text)


def test_metrics_by_hand():
    perfect = quality.bleu(SENTENCES, SENTENCES)
    assert perfect["bleu"] == pytest.approx(100) == perfect["chrf"]
    assert "tok:13a" in perfect["signature"]
    # Precision 1, recall 1/2 of words; of 3 pairs of words 1 is there.
    wanted = {"rouge1": 200 / 3, "rouge2": 50, "rougeL": 200 / 3}
    assert quality.rouge(["the cat"], ["the cat sat down"]) == pytest.approx(wanted)


@pytest.mark.parametrize("metric", quality.METRICS)
def test_a_row_scores_the_models_texts(metric, target, prepared):
    row = quality.build(target, prepared, metric=metric, new_tokens=6, batch=2).run()
    ids = quality.write(target, tasks.read(prepared).prompts, new_tokens=6, batch=2)
    texts = [zoo.tokenizer("t5").decode(text) for text in ids]
    assert (row["texts"], row["tokens"]) == (5, sum(map(len, ids)))
    assert [e["text"] for e in row["examples"]] == texts
    score = getattr(quality, metric)(texts, SENTENCES)
    assert {key: row[key] for key in score} == score


REFUSED = [
    ({"metric": "meteor"}, "no metric 'meteor': use bleu or rouge"),
    ({"task": "code"}, "code has no references"),
    ({"target": counts.random(VOCAB)}, "random only drafts: name a model"),
    ({"task": "nowhere"}, "no task 'nowhere'"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_what_cannot_be_scored_is_refused(change, message, target, prepared):
    arguments = {"target": target, "task": prepared, "metric": "bleu"} | change
    with pytest.raises(ValueError, match=message):
        quality.build(**arguments)


def test_the_bundled_target_translates():
    """The numbers in results/ were measured with it; it translates far better than
    chance."""
    rows = jsonl.read(run.ROOT / "results" / "quality.jsonl")
    bleu = {x["row"]: x["measured"].get("bleu") for x in rows}
    assert bleu["ende_t5_target"] > max(25, bleu["ende_t5_small"])
