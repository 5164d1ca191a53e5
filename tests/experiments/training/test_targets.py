"""Stages of a target by tiny recipes; what is read for them, and what never is."""

import json
import platform
import re

import numpy as np
import pytest
from sentencepiece import SentencePieceProcessor

from experiments.training import language, pairs, pipeline
from experiments.training.drafts import losses
from experiments.training.texts import code, corpus, packages, tasks
from specjax import zoo

SIZES = {"family": "gpt", "vocab": 13, "mlp_dim": 16, "num_layers": 1}
MODELS = {"small": SIZES | {"dim": 8, "num_heads": 2}}
MODELS["large"] = SIZES | {"dim": 16, "mlp_dim": 32, "num_heads": 4}
SHORT = {"steps": 4, "decay": 0, "batch": 2, "length": 6, "rate": 1e-2, "warmup": 2}
SHORT |= {"evaluate_every": 2}
RECIPE = {
    "models": MODELS,
    "stages": {
        "target/small": {"model": "small", "data": "text", "recipe": SHORT},
        "target/grown": {
            "model": "large",  # wider; test_grow has deeper ones
            "data": "text",
            "recipe": SHORT | {"rate": 0.0, "decay": 1},
        },
    },
}


def curve(folder, name: str = "held_out") -> list[float]:
    lines = (folder / "curve.jsonl").read_text().splitlines()
    return [json.loads(line)[name] for line in lines]


def test_the_grown_stage_begins_where_the_small_one_ended(tmp_path):
    """At a rate of zero, the grown model's loss is the small one's last, for ever."""
    rng = np.random.default_rng(0)
    documents = [[1, *rng.integers(3, 13, rng.integers(3, 20)), 2] for _ in range(30)]
    stream = language.stream(documents)
    held_out = {"held_out": (stream, 3), "other": (stream, 1)}
    texts = {"text": language.data(stream, held_out)}
    pipeline.run(tmp_path, pipeline.stages(RECIPE, "target"), texts)
    small, grown = (curve(tmp_path / "target" / name) for name in ("small", "grown"))
    assert small[-1] < small[0]
    assert small != curve(tmp_path / "target/small", "other")  # a column for each text
    np.testing.assert_allclose(grown, small[-1], atol=1e-3)
    pipeline.save(tmp_path / "recipes.json", tmp_path, RECIPE, text="some")
    content = json.loads((tmp_path / "recipes.json").read_text())
    assert content["recipe"] == RECIPE and content["text"] == "some"
    assert content["curves"].keys() == RECIPE["stages"].keys()


def test_options_set_how_long_a_stage_is():
    parser = pipeline.parser("Trains.", "runs", RECIPE)
    options = parser.parse_args(["--small-steps", "9", "--small-decay=3"])
    small, grown = pipeline.stages(pipeline.chosen(options, RECIPE))
    assert (small.recipe.steps, small.recipe.decay) == (9, 3)
    assert grown == pipeline.stages(RECIPE)[1]


@pytest.mark.parametrize("name", ["code", "t5", "llama", "speech"])
def test_every_stage_of_a_recipe_can_be_run(name):
    recipe = pipeline.read(name)
    stages = pipeline.stages(recipe)
    for stage in stages:
        assert stage.recipe.decay <= stage.recipe.steps
        assert (stage.data == "lessons") == (stage.loss in losses.LOSSES)
    assert {stage["model"] for stage in recipe["stages"].values()} == {
        *recipe["models"]
    }


def test_windows_of_the_library_are_as_likely_as_wanted():
    library, others = language.stream([[1, 5, 2]] * 4), language.stream([[1, 6, 2]] * 3)
    both = code.mixed(library, others)
    seen = [both.tokens[start + 1] for start in both.starts]
    assert seen.count(5) == 4 * code.LIBRARY_TIMES and seen.count(6) == 3
    assert np.all(both.tokens[both.starts] == 1)


# Packages.


class Described(dict):
    def get_all(self, name):
        return self.get(name)


@pytest.mark.parametrize(
    "described",
    [
        {"License-Expression": "GPL-3.0-or-later"},
        {"License-Expression": "MPL-2.0 AND MIT"},
        {"Classifier": ["License :: OSI Approved :: BSD License", "License :: GPL"]},
        {"License": "Proprietary"},
        {},
    ],
)
def test_a_package_without_a_permissive_licence_is_refused(described):
    with pytest.raises(ValueError, match=r"box is licensed .* take it off the list"):
        packages.permissive("box", Described(described))


def test_a_permissive_licence_is_known_by_its_shortest_name():
    described = Described({"License": "BSD 3-Clause\n\nAll rights ..."})
    assert packages.permissive("box", described) == "BSD 3-Clause"
    described |= {"Classifier": ["License :: OSI Approved :: MIT License"]}
    assert packages.permissive("box", described) == "MIT License"


LONG = "    a_rather_long_line = of_code(number, {})\n"


def test_a_text_repeats_what_is_held_out_if_half_of_its_lines_do():
    known = packages.lines_of([LONG.format(1) + LONG.format(2)])
    assert packages.repeats(LONG.format(1) + LONG.format(2) + LONG.format(3), known)
    assert not packages.repeats(LONG.format(1) + LONG.format(3), known)
    assert not packages.repeats("x = 1\n", known)


def test_sides_of_packages_share_nothing_with_each_other_or_the_library(monkeypatch):
    monkeypatch.setattr(packages, "NAMES", ("optax", "packaging"))
    apart = corpus.stdlib("valid").documents
    valid = packages.read("valid", apart)
    read = packages.read("train", apart + valid.documents)
    assert not set(read.documents) & set(apart + valid.documents)
    assert [package.name for package in read.about] == ["optax", "packaging"]
    assert sum(package.documents for package in read.about) == len(read.documents)
    assert not any("import unittest" in text for text in read.documents)


# Pairs.

PIECES = SentencePieceProcessor(model_file=str(zoo.FOLDER / zoo.TOKENIZERS["t5"]))
SENTENCES = [(f"This is sentence {i}.", f"Dies ist Satz {i}.") for i in range(40)]


def test_joined_sentences_are_long_and_in_the_same_order_on_both_sides():
    subwords = zoo.tokenizer("t5")
    for source, target in tasks.joined(PIECES, SENTENCES):
        assert tasks.LEAST < len(target) <= tasks.LEAST + 20
        english, german = subwords.decode(source), subwords.decode(target)
        assert english.startswith("translate English to German: This is")
        numbers = re.findall(r"\d+", english)
        assert numbers == re.findall(r"\d+", german) and len(numbers) > 3
        assert source == subwords.encode(english)


def test_corrections_end_in_the_text_as_it_was():
    texts = ["This function returns the argument that it was given, as it is."] * 2
    corrections = tasks.corrections(PIECES, texts)
    assert len(corrections) == tasks.SPOILED * 2
    decode = zoo.tokenizer("t5").decode
    sources = {decode(source) for source, _ in corrections}
    assert len(sources) == len(corrections)
    assert all(source.startswith("correct: ") for source in sources)
    assert {decode(target) for _, target in corrections} == set(texts)


def test_what_was_read_is_written_beside_it_once(tmp_path, monkeypatch):
    texts = {name: [([3, 4], [5]), ([6], [7, 8, 1])] for name in tasks.NAMES}
    monkeypatch.setattr(tasks, "read", lambda side, pieces, folder: texts)
    monkeypatch.setattr(packages, "NAMES", ("optax",))
    tasks.load(tmp_path / "train.npz", PIECES, tmp_path)
    content = (tmp_path / "train.json").read_text()
    about = json.loads(content)
    (licensed,) = about["licences"]
    assert licensed.keys() == {"name", "version", "licence"}
    assert about["python"] == platform.python_version()
    count, digest = about["pairs"]["docs"]
    assert (count, digest) == (2, pairs.digest(texts["docs"]))
    # What is installed later changes nothing.
    monkeypatch.setattr(platform, "python_version", lambda: "4")
    back = tasks.load(tmp_path / "train.npz", PIECES, tmp_path)
    assert (tmp_path / "train.json").read_text() == content
    assert pairs.digest(back["docs"]) == digest
    assert pairs.digest(back["docs"][:1]) != digest


def test_functions_that_are_held_out_are_not_of_the_library(monkeypatch):
    library = {side: corpus.Corpus([side], side, 1) for side in ("train", "valid")}
    library["test"] = corpus.Corpus(["test"], "test", 1)
    monkeypatch.setattr(corpus, "stdlib", library.get)
    asked = {}

    def read(side, apart):
        asked[side] = set(apart)
        return packages.Packages([f"package {side}"], side, [])

    monkeypatch.setattr(packages, "read", read)
    texts, _ = code.documents()
    assert asked["valid"] == asked["test"] == {"train", "valid", "test"}
    assert asked["train"] == asked["test"] | {"package valid", "package test"}
    assert texts["packages"] == ["package valid"]
    assert texts["others"] == ["package train"]


def test_pairs_come_back_as_they_were_packed():
    texts = {name: [([3, 4], [5]), ([6], [7, 8, 1])] for name in tasks.NAMES}
    back = tasks.unpacked(tasks.packed(texts))
    for name, listed in texts.items():
        assert [(list(a), list(b)) for a, b in back[name]] == listed
