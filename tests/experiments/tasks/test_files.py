"""Local files become tokens as T5's do, and prepared examples are read back
unchanged."""

import gzip
import hashlib
import json
import lzma
import sys

import numpy as np
import pytest
import sentencepiece

from experiments.tasks import examples, files, prepare, recipes
from experiments.tasks.recipes import Line
from specjax import zoo
from specjax.measure import provenance

ENGLISH = ["That is good.", "The house\u2028is small .", "Where do you live?"]
GERMAN = ["Das ist gut.", "Das Haus ist klein.", "Wo wohnst du?"]
PAIRS = list(zip(ENGLISH, GERMAN, strict=True))
MODEL = zoo.FOLDER / "t5.model"  # with the ids of T5's: padding 0, end 1, unknown 2
EOS = 1
ENCODE = sentencepiece.SentencePieceProcessor(model_file=str(MODEL)).encode
SUFFIXES = {".gz": gzip.open, ".xz": lzma.open}


def save(path, rows):
    """Writes lines to a file, packed as its suffix says."""
    with SUFFIXES.get(path.suffix, open)(path, "wb") as file:
        file.write("\n".join(rows).encode())
    return path


READERS = {"tsv": files.tsv, "jsonl": lambda path: files.jsonl(path, ["en"])}
# Every bad file, and what is said besides its name.
BAD = [
    ("a.en", b"one\n\ntwo\n", "line 2: empty"),
    ("a.en", b"one\n\xff\n", "line 2: not UTF-8"),
    ("a.en", b"\xef\xbb\xbfone\n", "line 1: begins"),
    ("a.en", b"one\r\n", "line 1: ends with a carriage"),
    ("a.gz", b"one\n", "cannot read"),
    ("a.xz", lzma.compress(b"one\n" * 99)[:-9], "cannot read"),
    ("a.tsv", b"a\tb\nc\n", "line 2: 1 columns, not 2"),
    ("a.tsv", b"a\tb\na\t\n", "line 2: empty"),
    ("a.jsonl", b'{"en": "a"}\n{"en":\n', "line 2: not JSON"),
    ("a.jsonl", b'["a"]\n', "line 1: not a JSON object"),
    ("a.jsonl", b'{"de": "a"}\n', "no field 'en', only de"),
    ("a.jsonl", b'{"en": 3}\n', "field 'en' is not a string"),
    ("a.jsonl", b'{"en": " "}\n', "line 1, field 'en': empty"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD, ids=range(len(BAD)))
def test_a_bad_file_is_refused_by_name_and_line(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        list(READERS.get(path.suffix[1:], files.lines)(path))
    assert str(path) in str(error.value)


def test_misaligned_files_are_refused(tmp_path):
    paths = [save(tmp_path / f"a.{i}", ENGLISH[:i]) for i in (2, 3)]
    for pair in (paths, paths[::-1]):
        with pytest.raises(ValueError, match=r"a\.2 ends after line 2, .*a\.3 has a"):
            list(files.read_parallel(pair))


def rows(task, *lines):
    subwords = recipes.load(MODEL)
    return list(recipes.tokenize(recipes.RECIPES[task], subwords, lines))


@pytest.mark.parametrize("task", ["wmt_ende", "cnn_dailymail"])
def test_inputs_have_the_prefix_and_everything_ends(task):
    tokenized = rows(task, *(Line(pair, "") for pair in PAIRS))
    for row, (english, german) in zip(tokenized, PAIRS, strict=True):
        assert row.text == recipes.RECIPES[task].prefix + english
        assert row.reference == german
        assert row.inputs == [*ENCODE(row.text), EOS]
        assert row.targets == [*ENCODE(row.reference), EOS]


def test_a_language_model_has_targets_alone_and_a_prompt_none():
    (row,) = rows("lm1b", Line((ENGLISH[0],), ""))
    assert (row.inputs, row.text) == ([], "")
    assert row.targets == [*ENCODE(ENGLISH[0]), EOS]
    with pytest.raises(ValueError, match="line 1: the task reads 1 texts"):
        rows("lm1b", Line(("a", "b"), "a.tsv, line 1"))
    (row,) = rows("wmt_ende", Line((ENGLISH[0],), ""))
    assert (row.targets, row.reference, row.inputs[-1]) == ([], "", EOS)


def test_there_are_examples_and_a_tokenizer_that_has_an_end(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="no examples"):
        recipes.collect([], None, False)
    bad = tmp_path / "bad.model"
    bad.write_text("not a model")
    with pytest.raises(ValueError, match="is not a SentencePiece model"):
        recipes.load(bad)
    processor = sentencepiece.SentencePieceProcessor
    monkeypatch.setattr(processor, "eos_id", lambda self: -1)
    with pytest.raises(ValueError, match="has no end id"):
        recipes.load(MODEL)


EXAMPLES = examples.Examples(
    [[5, 6, 1], [70_000, 1]], [[1], []], ["a: ä\n", "a: b"], ["\u2028", ""]
)
ABOUT = examples.About("wmt_ende", "test", "f" * 64, 1, "a: ", 9, True, 2, ["a 1"])


@pytest.fixture
def prepared(tmp_path):
    path = tmp_path / "a.npz"
    examples.write(path, EXAMPLES, ABOUT)
    return path


def test_prepared_examples_come_back(prepared):
    assert examples.read(prepared) == (EXAMPLES, ABOUT)
    assert examples.read(prepared, "f" * 64) == (EXAMPLES, ABOUT)
    message = "another tokenizer: with the model file of sha256 f{12}, not e{12}"
    with pytest.raises(ValueError, match=message):
        examples.read(prepared, "e" * 64)
    digest = provenance.digest(prepared)
    examples.write(prepared, EXAMPLES, ABOUT)
    assert digest == provenance.digest(prepared)
    # A write that fails leaves the older file.
    with pytest.raises(ValueError, match="'targets': 1"):
        examples.write(prepared, EXAMPLES._replace(targets=[[1]]), ABOUT)
    with pytest.raises(OverflowError):
        examples.write(prepared, EXAMPLES._replace(inputs=[[1], [2**40]]), ABOUT)
    assert digest == provenance.digest(prepared)
    assert [it.name for it in prepared.parent.iterdir()] == ["a.npz"]


DAMAGED = [
    ({"inputs": np.array([5, 6], np.int32)}, "inputs has 2 items"),
    ({"targets_lengths": None}, "targets_lengths"),
    ({"about": np.frombuffer(b'{"format": 2}', np.uint8)}, "a format other"),
    ({"about": np.frombuffer(b'{"format": 1}', np.uint8)}, "missing"),
]


@pytest.mark.parametrize(("change", "message"), DAMAGED)
def test_a_damaged_file_is_refused(change, message, prepared):
    with np.load(prepared) as whole:
        arrays = {**whole, **change}
    np.savez(prepared, **{name: it for name, it in arrays.items() if it is not None})
    with pytest.raises(ValueError, match=f"holds no prepared examples.*{message}"):
        examples.read(prepared)


def test_an_absent_or_torn_file_is_refused(prepared):
    prepared.write_bytes(prepared.read_bytes()[:-30])
    with pytest.raises(ValueError, match="holds no prepared examples"):
        examples.read(prepared)
    prepared.unlink()
    with pytest.raises(ValueError, match=r"no file .*experiments\.tasks\.prepare"):
        examples.read(prepared)


def flags(out, *more):
    fixed = ["--split", "test", "--tokenizer", str(MODEL), "--out", str(out)]
    return [*fixed, *map(str, more)]


def test_the_command_prepares_the_same_examples_of_every_format(tmp_path, capsys):
    english, german = (
        save(tmp_path / name, text)
        for name, text in (("a.en.xz", ENGLISH), ("a.de.gz", GERMAN))
    )
    objects = [json.dumps({"article": a, "sum": b}) for a, b in PAIRS]
    json_lines = save(tmp_path / "a.jsonl", objects), "--fields", "article", "sum"
    table = save(tmp_path / "a.tsv", map("\t".join, PAIRS))
    local = ["--parallel", english, german], ["--jsonl", *json_lines], ["--tsv", table]
    cut = ["--task", "cnn_dailymail", "--length", 5, "--truncate", "--limit", 2]
    made = []
    for i, named in enumerate(local):
        out = tmp_path / "new" / f"{i}.npz"
        prepare.main(flags(out, *cut, *named))
        made.append(examples.read(out, provenance.digest(MODEL)))
    (first, about), *others = made
    assert [it for it, _ in others] == [first, first]
    whole = rows("cnn_dailymail", *(Line(pair, "") for pair in PAIRS[:2]))
    assert first.inputs == [[*row.inputs[:4], EOS] for row in whole]  # with their end
    assert first.texts == [f"summarize: {text}" for text in ENGLISH[:2]]
    assert first.references == GERMAN[:2]
    assert (about.task, about.split, about.eos) == ("cnn_dailymail", "test", EOS)
    digest = hashlib.sha256(german.read_bytes()).hexdigest()
    assert about.source[1] == f"a.de.gz sha256 {digest}"
    assert "2 examples of cnn_dailymail test" in capsys.readouterr().out


REFUSED = [
    (["--limit", 0], "--limit must be at least 1"),
    (["--length", 1], "--length 1: at least 2"),
    (["--length", 4], r"a\.en, line 1: \d+ input tokens"),
    (["--truncate"], "--truncate needs the --length"),
    (["--fields", "en"], "--fields are those of"),
    (["--data-dir", "."], "--data-dir is of TensorFlow Datasets"),
    (["--task", "lm1b", "--length", 9], "of a task that has inputs"),
    (["--tokenizer", "gs://none"], "no tokenizer gs:/none"),
    (["--parallel", "none.en"], r"no file none\.en"),
]


@pytest.mark.parametrize(("more", "message"), REFUSED)
def test_the_command_refuses_in_one_line(more, message, tmp_path):
    out, english = tmp_path / "a.npz", save(tmp_path / "a.en", ENGLISH)
    local = ["--task", "wmt_ende", "--parallel", english]
    with pytest.raises(SystemExit, match=f"^error: .*{message}"):
        prepare.main(flags(out, *local, *more))
    assert not out.exists()


def test_without_seqio_the_data_sets_name_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "seqio", None)
    monkeypatch.delitem(sys.modules, "experiments.tasks.paper", raising=False)
    monkeypatch.delattr("experiments.tasks.paper", raising=False)
    with pytest.raises(SystemExit, match=r"pip install '\.\[data\]'"):
        prepare.main(flags(tmp_path / "a.npz", "--task", "wmt_ende"))
