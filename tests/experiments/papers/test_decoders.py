"""Rows of a user's decoders are measured: dialogues, Chen et al. (2023), Wagner et al.
(2024)."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from experiments import catalogue
from experiments.papers.chen import rows as chen
from experiments.papers.chen.setting import ChenSetting
from experiments.papers.wagner import decoders, methods, rows, runs
from experiments.records import records
from experiments.tasks import chats, dialogues, texts
from specjax import checkpoints, configs, pretrained, zoo
from specjax.configs import RowFile
from specjax.decode_config import change
from specjax.generate import Counts
from specjax.models import llama
from specjax.theory import closed_forms
from tests.support import tiny_llama
from tests.support.settings import make

CONFIG = llama.Config(zoo.CODE_VOCAB, 8, 12, 1, 2, 1, 4)
PROBLEM = {"prompt": "def add(a, b):\n", "entry_point": "add"}
PROBLEM["test"] = "def check(f):\n    assert f(1, 2) == 3\n"
ARTICLE = {"article": "Ann: Hi!\nBob: Hello.", "summary": "They meet."}
TURNS = "Ann: Hi!\nBob: Hello.\nAnn: Bye."
LONG = {"article": "Ann: " + "no " * 400, "summary": "Ann says no."}
LINES = {name: [ARTICLE] * 3 for name in ("xsum", "cnndm", "dialogsum")}
LINES |= {"humaneval": [PROBLEM] * 3, "gsm8k": [{"prompt": "1 + 1?"}] * 3}
LINES["spec_bench"] = [
    {"id": name, "category": name, "prompt": "1 + 1?"}
    for name in ("coding", "math_reasoning")
]
LINES["dialogues"] = [ARTICLE | {"article": TURNS}, LONG]
TEMPLATE = "{% for it in messages %}{{ it.role }}: {{ it.content }}\n{% endfor %}bot:"
TABLES = ("chen_data", "chen_paper", "wagner_data", "wagner_paper", "today_paper")
TABLES += ("table2_data", "table3_data", "kinds_data", "table3_paper", "real_pair")
CHAT = "TARGET_NAME = 'smollm2'"  # in files of rows by a chat model
MODEL = re.compile(r"^(\S+/sides\.model\.name) = ", re.M)
CHEN = make(
    ChenSetting,
    task="",
    metric="rouge",
    gamma=2,
    temperature=0.8,
    top_p=0.9,
    samples=2,
    new_tokens=4,
    batch=4,
    timed=2,
    rounds=1,
)
WAGNER = make(
    rows.WagnerSetting,
    task="",
    temperature=1.0,
    gammas=(2,),
    repeats=2,
    new_tokens=6,
    batch=4,
    timed=2,
    rounds=1,
)


def decoder_rows(table: str) -> list[RowFile]:
    """Returns the rows of a table of decoders that read a user's files."""
    every = records.rows(table).values()
    every = [x for x in every if x.path.stem != "exits"]  # of a bundled target
    return [x for x in every if table != "table3_paper" or x.row.startswith("lamda")]


def build_on_files(folder: Path, row: RowFile) -> RowFile:
    """Returns a row that reads these files in place of its own; another draft replaces
    one that was made for its target alone."""
    text = row.path.read_text()
    named = re.findall(r"include '(gin_configs/.+)'", text)
    texts = [(row.path.parents[2] / name).read_text() for name in named]
    keys = {key for text in texts for key in MODEL.findall(text)}
    lines = ["from __gin__ import dynamic_registration"]
    lines += ["from specjax.measure import sides"]
    chats = "tasks/chats" in text or row.table == "real_pair"
    if CHAT in text:
        lines += [f"TARGET_NAME = '{folder / 'chat'}'"]
        lines += ["DRAFT = 'random'"] if "checkpoints/cached" not in text else []
    else:
        place = folder / ("chat" if chats else "model")
        lines += [f"{key} = '{place}'" for key in sorted(keys)]
    texts.append(text)
    data = re.findall(r"^(\w+) = 'runs/data/(\w+\.jsonl)'", "\n".join(texts), re.M)
    lines += [f"{macro} = '{folder / name}'" for macro, name in data]
    lines.append("DTYPE = 'float32'")
    path = folder / f"{row.table}_{row.path.stem}.gin"
    path.write_text("\n".join(lines))
    return row._replace(over=(str(path),))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder "model" of Hugging Face with a tokenizer, "chat", which has a template
    too, and a file of each task."""
    folder = tmp_path_factory.mktemp("decoders")
    params, model = tiny_llama.weights(CONFIG, 0), llama.build(CONFIG)
    ends = zoo.START, (zoo.END,)
    whole = checkpoints.Pretrained("tiny", CONFIG, model, params, "float32", (), *ends)
    checkpoints.save(folder / "model", whole)
    shutil.copy(zoo.FOLDER / "tokenizer.model", folder / "model")
    shutil.copytree(folder / "model", folder / "chat")
    (folder / "chat/chat_template.jinja").write_text(TEMPLATE)
    for name, lines in LINES.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return pretrained.load(str(folder / "model"))


@pytest.fixture(scope="module")
def meeting(model):
    return np.array([*model.tokenizer.encode("They meet.")[1:], zoo.END])


def test_half_of_the_turns_or_all_and_a_question(folder, model):
    file = str(folder / "dialogues.jsonl")
    half, whole = (f(file, model) for f in (dialogues.beginnings, dialogues.summaries))
    wanted = "Ann: Hi!\nBob: Hello.\n", f"{TURNS}\n\nSummary:"
    for task, text in zip((half, whole), wanted, strict=True):
        (ids,) = task.prompts.tokens  # the other is too long
        assert ids[0] == zoo.START and model.tokenizer.decode(ids) == text
    assert whole.references == ["They meet."]


@pytest.mark.parametrize("table", TABLES)
def test_every_row_builds_on_the_users_files(table, folder):
    pytest.importorskip("jinja2")
    for row in decoder_rows(table):
        built = configs.build(build_on_files(folder, row))
        paper = table.endswith("_paper")
        assert built.row.scale == ("paper" if paper else "laptop")
        names = {file.name for file in built.row.measurement.inputs}
        assert "model.safetensors" in names
        assert row.row == "turing_gpt2" or any(x.endswith(".jsonl") for x in names)


def test_what_is_asked_stands_in_the_models_own_template(folder):
    pytest.importorskip("jinja2")
    model = pretrained.load(str(folder / "chat"))
    file, decode = str(folder / "humaneval.jsonl"), model.tokenizer[1]
    task = chats.asked(
        file,
        model,
        ask="Write {entry_point}.",
        begun="```\n{prompt}",
        reference="test",
        count=2,
    )
    begun = "user: Write add.\nbot:```\ndef add(a, b):\n"
    assert [decode(ids) for ids in task.prompts.tokens] == [begun] * 2
    assert task.references == [PROBLEM["test"]] * 2 and task.lines == (0, 1)
    assert not chats.asked(file, model, ask="{prompt}").references
    with pytest.raises(ValueError, match="no prompt of 3 tokens or fewer"):
        chats.asked(file, model, ask="{prompt}", longest=3)
    with pytest.raises(ValueError, match="no field 'article'"):
        chats.asked(file, model, ask="{article}")


class Joining(NamedTuple):
    """A tokenizer of ids for parts that a pattern finds."""

    pattern: str

    def encode(self, text):
        return re.findall(self.pattern, text)


@pytest.mark.parametrize(
    ("pattern", "end"),
    [(r"\s*\w+|\W", ":"), (r"\w+|[^\w\s]\n*|\s", ":\n"), (r".", "b")],
    ids=["to what follows", "to what stands before", "no white space"],
)
def test_a_beginning_ends_in_the_tokens_of_a_text_that_goes_on(pattern, end):
    text = "a:\n" if end != "b" else "a b"
    assert chats.encode_beginning(Joining(pattern), text)[-1] == end


def test_a_prompt_that_is_too_long_loses_the_end_of_its_article(model):
    encode, decode = model.tokenizer[:2]
    article = "Ann: " + " ".join(map(str, range(300)))
    ids = texts.fit_length(article, model.tokenizer, 64)
    assert 56 <= len(ids) <= 64
    assert decode(ids).startswith("Ann: 0 1 2") and decode(ids).endswith("Summary:")
    short = texts.fit_length("Hi.", model.tokenizer, 64)
    assert short == encode("Hi." + texts.SUMMARY)


@pytest.mark.slow
def test_a_target_that_drafts_for_itself_after_chen(folder, model, meeting):
    """Everything is kept: r is 1, with 3 tokens per call."""
    setting = CHEN._replace(task=str(folder / "xsum.jsonl"))
    it = chen.row(model, model, setting=setting, read=texts.summaries).run()
    json.dumps(it, allow_nan=False)
    assert it["r"] == it["accepted_of_drafted"] == 1 and it["tokens_per_call"] == 3
    assert it["texts"] == 6 and it["prompts"] == 3
    speed = closed_forms.chen_speedup(
        1, 2, t_draft=it["t_draft_ms"], t_target=it["t_target_ms"]
    )
    assert it["theoretical_speed"] == speed
    low, high = it["speed_interval"]
    assert low <= it["speed"] <= high
    ratio = it["token_ms_alone"] / it["token_ms_speculative"]
    assert it["speed"] == pytest.approx(ratio)
    lines = [x for x in catalogue.find_table("chen").lines if x.row == "xsum_gpt2"]
    assert {line.quantity for line in lines} <= it.keys()
    # Texts are what follows the prompt: references that the target wrote are worth 1.
    task = texts.summaries(setting.task, model)
    written = chen.strings(SimpleNamespace(target=model), task, [meeting] * 6)
    assert written[0].strip() == "They meet."
    assert chen.score_by_rouge(written, task, setting)["rouge2"] == 1


def test_a_row_after_wagner_counts_what_its_texts_kept(
    folder, model, meeting, monkeypatch
):
    """A draft that is the target is kept entirely; the other measured numbers are those
    of other tests."""

    def measure(pair, setting, methods, sample):
        return rows.count_by_schedule(pair, setting, *methods, sample)

    setting = WAGNER._replace(task=str(folder / "xsum.jsonl"))
    kind = measure, lambda scales: [methods.exact_method()]
    monkeypatch.setitem(decoders.KINDS, "text", kind)
    it = decoders.row(
        model, model, setting=setting, read=texts.summaries, kind="text"
    ).run()
    assert it["acceptance_tested_exact"] == 1 and it["texts"] == 6
    # ROUGE is of texts as the target spells them.
    source, decode = texts.summaries(setting.task, model), model.tokenizer[1]
    run = runs.Run(Counts(*[np.ones(6)] * 4), [meeting] * 6)
    perfect = runs.rouge1(run, rows.make_sample(setting, source, decode))
    assert perfect["rouge1"] == 1 > it["rouge1_exact"] >= 0


OF_CHEN = [
    ({"metric": "bleu"}, "choose one of pass1, rouge"),
    ({"gamma": 0}, "at least 1"),
    ({"top_p": 0.0}, r"top_p must be in \(0, 1\]"),
    ({"task": "nowhere.jsonl"}, "no file nowhere"),
]
OF_WAGNER = [
    ({"suffix": "Summary:"}, "text", "no suffix"),
    ({}, "speech", "choose one of text, scale, time, calls"),
]


def test_what_cannot_be_measured_is_refused(folder, model):
    file = str(folder / "xsum.jsonl")
    for changed, message in OF_CHEN:
        setting = change(CHEN, **{"task": file, **changed})
        with pytest.raises(ValueError, match=message):
            chen.row(model, model, setting=setting, read=texts.summaries)
    for changed, kind, message in OF_WAGNER:
        setting = WAGNER._replace(**{"task": file, **changed})
        with pytest.raises(ValueError, match=message):
            decoders.row(model, model, setting=setting, read=texts.summaries, kind=kind)
