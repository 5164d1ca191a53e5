"""n-grams are fitted to a task's targets and read by the rows that name them."""

import numpy as np
import pytest

from experiments.training import counts
from specjax import probs, sides
from specjax.inputs import make_prompt, make_sampling
from specjax.models import t5
from tests.support.prepared_texts import write

TARGETS = [[5, 6, 7, t5.END], [5, 6, 8, t5.END], [5, 9, t5.END]]


def laws(player):
    """The laws of the first token and of that after a 5, as the draft has them."""
    prompt = make_prompt([[t5.PAD, 5]])
    drafted = player.law(player.params, prompt, make_sampling(1, 1.0))
    return np.asarray(probs.dense(drafted))[0]


def test_a_command_writes_what_a_row_reads(tmp_path, monkeypatch):
    data, out = write(tmp_path / "train.npz", TARGETS), tmp_path / "a/bigram.st"
    flags = ["--data", data, "--vocab", "16", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["counts", *flags])
    counts.main()
    bigram, unigram = sides.ngram(2, str(out)), sides.ngram(1, str(out))
    assert (bigram.vocab, bigram.name, unigram.name) == (16, "bigram", "unigram")
    first, after = laws(bigram)
    assert first.argmax() == 5 and first[5] > 0.7  # texts begin with the start token
    assert after.argmax() == 6 and after[6] / after[9] == pytest.approx(2, rel=0.2)
    _, alone = laws(unigram)
    assert alone[5] == pytest.approx(alone[t5.END], rel=1e-2)
    assert abs(after - alone).max() > 0.2  # a unigram law in its place would be seen


@pytest.mark.parametrize(
    ("targets", "vocab", "message"),
    [
        ([[], []], 16, "has no targets: prepare a split with them"),
        (TARGETS, 9, "a target holds id 9: give the model's --vocab"),
    ],
)
def test_what_cannot_be_counted_is_refused(targets, vocab, message):
    with pytest.raises(ValueError, match=message):
        counts.fit(targets, vocab)
