"""What a T5 is fine-tuned on: batched by length, refused where it does not fit."""

import sys
import types

import numpy as np
import pytest

import experiments.tasks
from experiments.tasks import recipes
from experiments.training import finetune, pairs
from specjax import checkpoints, zoo
from specjax.models import t5
from tests.support import tiny_t5
from tests.support.prepared_texts import END, copies, write

pytestmark = pytest.mark.slow

CONFIG = t5.Config(32, 16, 32, 1, 1, num_heads=2, head_width=8)
SIZES = "--batch 8 --inputs-length 16 --targets-length 16 --held-out 16".split()


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("init") / "tiny"
    checkpoints.save(folder, (CONFIG, tiny_t5.weights(CONFIG, 0)))
    return checkpoints.load(folder)


def chosen(task: str, *more: str):
    return finetune.parse(["--init", "x", "--task", task, "--runs", "x", *SIZES, *more])


def test_batches_of_shorter_texts_have_more_rows(untrained, tmp_path):
    """As many tokens each, so that parts of a batch are whole."""
    texts = [text for length in (1, 3, 7, 15) for text in copies(20, length)]
    texts = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))]
    data = finetune.load(chosen(write(tmp_path / "a.npz", texts)), untrained)
    batches = [data.batch((0, step)) for step in range(60)]
    shapes = {rows.inputs.shape for rows in batches}
    assert shapes == {(64, 2), (32, 4), (16, 8), (8, 16)}
    for rows, again in zip(batches[3], data.batch((0, 3)), strict=True):
        np.testing.assert_array_equal(rows, again)  # by the seed alone
    held_out = set(map(tuple, texts[:16]))
    (measured,) = data.held_out.values()
    assert len(measured) == 2
    assert all(texts_of(rows) <= held_out for rows in measured)
    long = {ids for ids in held_out if len(ids) == 16}
    assert long and not any(texts_of(rows) & long for rows in batches)


def texts_of(rows: pairs.PairRows) -> set[tuple]:
    return {tuple(ids[:n]) for ids, n in zip(rows.inputs, rows.length, strict=True)}


def test_longer_texts_are_refused_or_cut_before_their_end(untrained, tmp_path, capsys):
    texts = copies(20)
    texts[3], texts[7] = copies(2, 16)
    task = write(tmp_path / "long.npz", texts, [ids[:8] for ids in texts])
    message = r"2 of 20 inputs are longer than 16 tokens.* example 4: .*--inputs-length"
    with pytest.raises(ValueError, match=message):
        finetune.load(chosen(task), untrained)
    flags = chosen(task, "--truncate")
    finetune.load(flags, untrained)
    assert capsys.readouterr().out == "cut 2 of 20 inputs to 16 tokens\n"
    source = finetune.read(flags, None)
    pair = finetune.encoded(source, flags)[3]
    assert pair[0] == [*texts[3][:15], END]
    assert pair[1] == [*texts[3][:8], END]  # targets that lacked the end have it


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(targets=[[5, END]] * 19 + [[]]), "1 of 20 targets are empty.*example 20"),
        (dict(inputs=[[END]] * 20), "20 of 20 inputs are empty"),
        (dict(inputs=[[5, 32, END]] * 20), r"ids 1 to 32, tiny 0 to 31: prepare"),
        (dict(inputs=[[5, -3, END]] * 20), r"ids -3 to 5"),
        (dict(eos=9), "end with id 9, those of tiny with 1"),
        (dict(inputs=copies(16)), "--held-out 16 leaves nothing of 16 pairs"),
    ],
)
def test_pairs_that_cannot_be_trained_on_are_refused(
    untrained, tmp_path, change, message
):
    task = write(tmp_path / "bad.npz", **dict(inputs=[[5, 9, END]] * 20) | change)
    with pytest.raises(ValueError, match=message):
        finetune.load(chosen(task), untrained)


def test_padding_of_the_vocabulary_is_no_text(tmp_path):
    """29 pieces of 32: id 28 is text, id 29 is not, and the readout keeps its rows."""
    params = tiny_t5.weights(tiny_t5.TARGET, 0)
    zoo.save(tmp_path / "padded.safetensors", tiny_t5.TARGET, params)
    padded = checkpoints.load(tmp_path / "padded.safetensors")
    task = write(tmp_path / "last.npz", [[28, END]] * 20)
    finetune.load(chosen(task), padded)
    task = write(tmp_path / "beyond.npz", [[29, END]] * 20)
    with pytest.raises(ValueError, match="ids 1 to 29, padded 0 to 28"):
        finetune.load(chosen(task), padded)


def test_ids_of_another_tokenizer_are_refused(tmp_path):
    own, other = zoo.FOLDER / "t5.model", zoo.FOLDER / "tokenizer.model"
    subwords = recipes.load(own)
    texts = ["The house is small.", "Where do you live?", "That is good."]
    ids = [[*subwords.encode(text), END] for text in texts]
    ids[0] = [*ids[0][:1], END]  # as --truncate of the preparation leaves it
    for digest in ("of the same pieces in another file", subwords.digest):
        task = write(tmp_path / "own.npz", ids, texts=texts, tokenizer=digest)
        source = finetune.read(chosen(task), None)
        finetune.check_tokenizer(own, source)
    with pytest.raises(ValueError, match=r"are not what .*tokenizer\.model makes"):
        finetune.check_tokenizer(other, source)


@pytest.fixture
def paper(monkeypatch):
    """The module of seqio's tasks, with pairs of its own; and what it was asked for."""
    asked = []

    def rows(*arguments):
        asked.append(arguments)
        for ids in copies(20):
            yield recipes.TaskRow(ids, ids, "", "", "somewhere")

    fake = types.ModuleType("experiments.tasks.paper")
    fake.rows = rows
    fake.subwords = lambda name: recipes.Subwords(None, END, "of " + name)
    monkeypatch.setitem(sys.modules, "experiments.tasks.paper", fake)
    monkeypatch.setattr(experiments.tasks, "paper", fake, raising=False)
    return asked


@pytest.mark.parametrize(
    ("name", "whole"), [("wmt_ende", "wmt_ende"), ("cnndm", "cnn_dailymail")]
)
def test_a_data_set_is_read_through_seqio(paper, tmp_path, name, whole):
    flags = chosen(name, "--data-dir", "there")
    source = finetune.read(flags, tmp_path)
    assert (source.task, source.split, source.eos) == (whole, "train", END)
    assert finetune.encoded(source, flags) == [(ids, ids) for ids in copies(20)]
    own = tmp_path / "spiece.model"
    own.write_text("the checkpoint's own")
    finetune.read(chosen(name), tmp_path)
    finetune.read(chosen(name, "--tokenizer", "mine"), tmp_path)
    assert paper == [
        (whole, "train", recipes.T5_TOKENIZER, "there"),
        (whole, "train", str(own), None),
        (whole, "train", "mine", None),
    ]
