"""Training texts come from the right sources, keep what is held out apart, and have the
right form."""

import json
import lzma

import numpy as np
import pytest

from experiments import tasks
from experiments.training import counts, language, pipeline, zoo_llama
from experiments.training.texts import (
    code,
    corpus,
    correction,
    documentation,
    packages,
)
from specjax import probs, zoo
from specjax.drafts import counts as draft_counts
from specjax.inputs import make_prompt, make_sampling
from specjax.models import t5
from specjax.training import losses
from tests.support.prepared_texts import write


def test_every_stage_of_a_recipe_can_be_run():
    for recipe in map(pipeline.read, ("code", "t5", "llama", "speech")):
        for stage in pipeline.stages(recipe):
            assert stage.recipe.decay <= stage.recipe.steps
            assert (stage.data == "lessons") == (stage.loss in losses.LOSSES)
        named = {stage["model"] for stage in recipe["stages"].values()}
        assert named == recipe["models"].keys()


class Described(dict):
    def get_all(self, name):
        return self.get(name)


MIT = "License :: OSI Approved :: MIT License"


@pytest.mark.parametrize(
    ("described", "known"),
    [
        ({"License-Expression": "GPL-3.0-or-later"}, None),
        ({"License-Expression": "MPL-2.0 AND MIT"}, None),
        ({"Classifier": [MIT, "License :: GPL"]}, None),
        ({"License": "Proprietary"}, None),
        ({}, None),
        ({"License": "BSD 3-Clause\n\nAll rights ..."}, "BSD 3-Clause"),
        ({"License": "All rights ...", "Classifier": [MIT]}, "MIT License"),
    ],
)
def test_a_package_without_a_permissive_licence_is_refused(described, known):
    """A package that has one is known by its shortest name."""
    if known:
        assert packages.permissive_licence("box", Described(described)) == known
        return
    with pytest.raises(ValueError, match=r"box is licensed .* take it off the list"):
        packages.permissive_licence("box", Described(described))


def test_sides_of_packages_share_nothing_with_each_other_or_the_library(monkeypatch):
    """A text repeats what is held out if half of its long lines are in it."""
    line = "    a_rather_long_line = of_code(number, {})\n".format
    known = packages.long_lines([line(1) + line(2)])
    assert packages.repeats(line(1) + line(2) + line(3), known)
    assert not packages.repeats(line(1) + line(3), known)
    assert not packages.repeats("x = 1\n", known)
    monkeypatch.setattr(packages, "NAMES", ("optax", "packaging"))
    apart = corpus.stdlib("valid")
    valid, _ = packages.read("valid", apart)
    read, about = packages.read("train", apart + valid)
    assert not set(read) & set(apart + valid)
    assert [package.name for package in about] == ["optax", "packaging"]
    assert sum(package.documents for package in about) == len(read)


def test_functions_that_are_held_out_are_not_of_the_library(monkeypatch):
    sides, asked = ("train", "valid", "test"), {}
    library = {side: [side] for side in sides}
    monkeypatch.setattr(corpus, "stdlib", library.get)

    def read(side, apart):
        asked[side] = set(apart)
        return [f"package {side}"], []

    monkeypatch.setattr(packages, "read", read)
    texts, _ = code.documents()
    assert asked["valid"] == asked["test"] == set(sides)
    assert asked["train"] == asked["test"] | {"package valid", "package test"}
    assert texts["packages"] == ["package valid"]
    assert texts["others"] == ["package train"]


# Dialogues.

LINE = {"id": "1", "article": "Ann: Hi!\r\nBob: Hello.\n", "summary": " They meet."}


def test_a_text_is_a_dialogue_then_its_summary(tmp_path):
    (tmp_path / "dialogsum.train.jsonl").write_text(json.dumps(LINE) + "\n")
    with lzma.open(tmp_path / "samsum.train.jsonl.xz", "wt") as file:
        file.write(json.dumps(LINE | {"summary": "Others."}) + "\n")
    read = zoo_llama.texts(tmp_path, "train")
    text = "Ann: Hi!\nBob: Hello.\n\nSummary: "
    assert read == [text + "They meet.", text + "Others."]


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"neither dialogsum\.train\.jsonl nor"):
        zoo_llama.texts(tmp_path, "train")
    (tmp_path / "dialogsum.train.jsonl").write_text('{"article": "Ann: Hi!"}\n')
    (tmp_path / "samsum.train.jsonl").touch()
    with pytest.raises(ValueError, match="line 1: write a line a dialogue"):
        zoo_llama.texts(tmp_path, "train")


@pytest.mark.parametrize(("clipped", "temperature"), [(False, 0), (True, 0), (True, 1)])
def test_beginnings_end_before_their_document_does(clipped, temperature):
    """Of the clipped ones, every other one is sampled from the start token alone."""
    documents = [[zoo.START, *[5] * i, zoo.END] for i in (2, 9, 300)]
    plan = language.ContinuedTexts(**pipeline.read("llama")["written"])
    plan = plan._replace(clipped=clipped)
    stream = language.stream(documents)
    ((rows, begun),) = language.cut_documents(
        stream, plan, batches=1, temperature=temperature, seed=0
    )
    assert rows.shape == (plan.batch, plan.prompt)
    assert np.all(rows[:, 0] == zoo.START) and not np.any(rows == zoo.END)
    assert np.array_equal(rows != 0, np.arange(plan.prompt) < begun[:, None])
    assert len(set(begun.tolist())) > 5
    assert np.all(begun[::2] == 1) == (clipped and temperature > 0)


# Counts of n-grams.

TARGETS = [[5, 6, 7, t5.END], [5, 6, 8, t5.END], [5, 9, t5.END]]


def laws(player):
    """Returns the draft's law of the first token and that after a 5."""
    prompt = make_prompt([[t5.PAD, 5]])
    drafted = player.law(player.params, prompt, make_sampling(1, 1.0))
    return np.asarray(probs.dense(drafted))[0]


def test_a_command_writes_what_a_row_reads(tmp_path, monkeypatch):
    data, out = write(tmp_path / "train.npz", TARGETS), tmp_path / "a/bigram.st"
    flags = ["--data", data, "--vocab", "16", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["counts", *flags])
    counts.main()
    bigram, unigram = (draft_counts.ngram(order, str(out)) for order in (2, 1))
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


# Errors that are put into text.


def test_the_bundled_corrections_are_of_these_rules():
    lines = (tasks.DATA / "corrections.jsonl").read_text("utf-8").splitlines()
    for i, line in enumerate(map(json.loads, lines)):
        assert line["source"] == correction.add_errors(line["target"], 10_000 + i)


DOCUMENTED = """Gives back what was put in, in the same order. Nothing is lost.

Args:
  thing: What is to be kept until someone asks for it again, whoever that is.

    >>> x = box.get(3)  # this is no prose at all, but it ends as such.

It is safe to call this from several threads at once. See `put` for more.
"""


def test_passages_are_of_prose_of_one_file_and_of_the_wanted_length():
    assert documentation.sentences(DOCUMENTED) == [
        "Gives back what was put in, in the same order.",
        "Nothing is lost.",
        "It is safe to call this from several threads at once.",
        "See `put` for more.",
    ]
    files = [["aa bb.", "cc dd.", "ee ff."], ["gg hh.", "ii jj kk ll mm nn oo."]]
    words = documentation.passages(files, lambda s: len(s.split()), least=4, most=9)
    assert words == ["aa bb. cc dd.", "gg hh. ii jj kk ll mm nn oo."]
