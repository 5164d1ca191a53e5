"""Rows of the user's dialogues: what is asked of a pair of Llama's kind."""

import json
import shutil

import pytest

from experiments import catalogue
from experiments.records import records
from experiments.tasks import dialogues
from specjax import checkpoints, configs, sides, zoo
from specjax.models import llama
from tests.support import tiny_llama

CONFIG = llama.Config(zoo.CODE_VOCAB, 8, 12, 1, 2, 1, 4)
DIALOGUES = sorted(
    {x.row for x in catalogue.named("table2").lines if x.folder == "table2_data"}
)
LINES = [
    {"article": "Ann: Hi!\nBob: Hello.\nAnn: Bye.", "summary": "They meet."},
    {"article": "Ann: " + "no " * 400, "summary": "Ann says no."},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny pair with a bundled tokenizer, and a file of dialogues."""
    folder = tmp_path_factory.mktemp("llama")
    ends = zoo.START, (zoo.END,)
    for seed, name in enumerate(("target", "draft")):
        params, model = tiny_llama.weights(CONFIG, seed), llama.build(CONFIG)
        whole = checkpoints.Pretrained(
            name, CONFIG, model, params, "float32", (), *ends
        )
        checkpoints.save(folder / name, whole)
        shutil.copy(zoo.FOLDER / "tokenizer.model", folder / name)
    lines = "".join(json.dumps(line) + "\n" for line in LINES)
    (folder / "dialogues.jsonl").write_text(lines)
    return folder


@pytest.fixture(scope="module")
def target(folder):
    return sides.model(str(folder / "target"))


def text_of(task, target) -> str:
    (ids,) = task.prompts.tokens
    assert ids[0] == zoo.START
    return target.pretrained.tokenizer.decode(ids)


def test_half_of_the_turns_or_all_and_a_question(folder, target):
    file = str(folder / "dialogues.jsonl")
    half, whole = (f(file, target) for f in (dialogues.beginnings, dialogues.summaries))
    assert text_of(half, target) == "Ann: Hi!\nBob: Hello.\n"
    assert text_of(whole, target) == LINES[0]["article"] + "\n\nSummary:"
    assert whole.references == ["They meet."]
    with pytest.raises(ValueError, match="no file nowhere"):
        dialogues.summaries("nowhere.jsonl", target)


@pytest.mark.parametrize("row", DIALOGUES)
@pytest.mark.parametrize("table", ["table2_data", "table3_data", "kinds_data"])
def test_every_row_builds_on_the_users_files(folder, table, row):
    names = {"LLAMA_TARGET_NAME": "target", "LLAMA_DRAFT_NAME": "draft"}
    names["TASK"] = "dialogues.jsonl"
    bindings = [f"{macro} = '{folder / name}'" for macro, name in names.items()]
    built = configs.build(records.row(table, row, bindings))
    inputs = {file.name for file in built.row.measurement.inputs}
    assert {"config.json", "dialogues.jsonl"} <= inputs
    with pytest.raises(configs.ConfigError, match="make zoo-llama"):
        nowhere = "LLAMA_TARGET_NAME = '/nowhere/target'"
        configs.build(records.row(table, row, [nowhere, *bindings[1:]]))
