"""Local files become tokens as T5's do, and prepared examples come back unchanged.

Nothing here needs TensorFlow.
"""

import gzip
import hashlib
import io
import json
import lzma
import sys
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
import sentencepiece

from experiments.records import fingerprint
from experiments.tasks import examples, files, prepare, recipes
from experiments.tasks.recipes import Line

ENGLISH = ["That is good.", "The house\u2028is small .", "Where do you live?"]
GERMAN = ["Das ist gut.", "Das Haus ist klein.", "Wo wohnst du?"]
EOS = 1
SUFFIXES = {"": open, ".gz": gzip.open, ".xz": lzma.open}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A SentencePiece model with the ids of T5's: padding 0, end 1, unknown 2."""
    return trained(tmp_path_factory.mktemp("tokenizer") / "t5.model", 60)


def trained(path, vocab, **ids):
    written = io.BytesIO()
    sentences = (
        ENGLISH + GERMAN + [recipe.prefix or "" for recipe in recipes.RECIPES.values()]
    )
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences * 3),
        model_writer=written,
        vocab_size=vocab,
        hard_vocab_limit=False,
        **{"pad_id": 0, "eos_id": EOS, "unk_id": 2, "bos_id": -1, **ids},
        minloglevel=2,
    )
    path.write_bytes(written.getvalue())
    return path


def save(path, rows, ends="\n"):
    """Lines in a file, packed as its suffix says."""
    with SUFFIXES.get(path.suffix, open)(path, "wb") as file:
        file.write("".join(row + ends for row in rows).encode())
    return path


def lines_of(kind, folder, suffix=""):
    """The sentences, read from files of one kind."""
    pairs = list(zip(ENGLISH, GERMAN, strict=True))
    if kind == "tsv":
        path = save(folder / f"pairs.tsv{suffix}", map("\t".join, pairs))
        return files.tsv(path)
    if kind == "jsonl":
        rows = [json.dumps({"id": 7, "de": de, "en": en}) for en, de in pairs]
        return files.jsonl(save(folder / f"pairs.jsonl{suffix}", rows), ("en", "de"))
    names = [folder / f"text.{language}{suffix}" for language in ("en", "de")]
    written = zip(names, (ENGLISH, GERMAN), strict=True)
    return files.parallel([save(path, rows) for path, rows in written])


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", ["tsv", "jsonl", "parallel"])
def test_every_format_gives_the_same_pairs(kind, suffix, tmp_path):
    found = list(lines_of(kind, tmp_path, suffix))
    assert [line.texts for line in found] == list(zip(ENGLISH, GERMAN, strict=True))
    assert all(f"line {i + 1}" in line.where for i, line in enumerate(found))


def test_a_last_line_may_lack_its_end(tmp_path):
    path = tmp_path / "text.en"
    path.write_text("\n".join(ENGLISH))
    assert [line.texts[0] for line in files.parallel([path])] == ENGLISH


# Every bad file, what reads it, and what is said besides its name.
BAD = {
    "empty line": ("a.en", b"one\n\ntwo\n", "lines", "line 2: empty"),
    "blank line": ("a.en", b"one\n \t\n", "lines", "line 2: empty"),
    "not UTF-8": ("a.en", b"one\n\xff\n", "lines", "line 2: not UTF-8"),
    "byte order mark": ("a.en", b"\xef\xbb\xbfone\n", "lines", "line 1: begins"),
    "carriage return": ("a.en", b"one\r\n", "lines", "line 1: ends with a carriage"),
    "not gzip": ("a.gz", b"one\n", "lines", "cannot read"),
    "not xz": ("a.xz", b"one\n", "lines", "cannot read"),
    "torn gzip": ("a.gz", gzip.compress(b"one\n" * 99)[:-9], "lines", "cannot read"),
    "torn xz": ("a.xz", lzma.compress(b"one\n" * 99)[:-9], "lines", "cannot read"),
    "one column": ("a.tsv", b"a\tb\nc\n", "tsv", "line 2: 1 columns, not 2"),
    "three columns": ("a.tsv", b"a\tb\tc\n", "tsv", "line 1: 3 columns, not 2"),
    "empty column": ("a.tsv", b"a\tb\na\t\n", "tsv", "line 2: empty"),
    "not JSON": ("a.jsonl", b'{"en": "a"}\n{"en":\n', "jsonl", "line 2: not JSON"),
    "not an object": ("a.jsonl", b'["a"]\n', "jsonl", "line 1: not a JSON object"),
    "no field": ("a.jsonl", b'{"de": "a"}\n', "jsonl", "no field 'en', only de"),
    "not a string": ("a.jsonl", b'{"en": 3}\n', "jsonl", "field 'en' is not a string"),
    "empty field": ("a.jsonl", b'{"en": " "}\n', "jsonl", "line 1, field 'en': empty"),
}
READERS = {
    "lines": files.lines,
    "tsv": files.tsv,
    "jsonl": lambda path: files.jsonl(path, ["en"]),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_by_name_and_line(case, tmp_path):
    name, content, reader, said = BAD[case]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said) as error:
        list(READERS[reader](path))
    assert str(path) in str(error.value)


@pytest.mark.parametrize("short", [0, 1])
def test_misaligned_files_are_refused(short, tmp_path):
    paths = [save(tmp_path / f"a.{i}", ENGLISH[: 3 - (i == short)]) for i in (0, 1)]
    said = rf"a\.{short} ends after line 2, .*a\.{1 - short} has a line 3"
    with pytest.raises(ValueError, match=said):
        list(files.parallel(paths))


def rows(task, model, lines):
    subwords = recipes.load(model)
    return list(recipes.tokenize(recipes.RECIPES[task], subwords, lines))


def offences(row, recipe, processor) -> set[str]:
    """What is wrong with a tokenized example; nothing for T5's convention."""
    found = set()
    for side, ids in (("inputs", row.inputs), ("targets", row.targets)):
        if ids and (ids[-1] != EOS or EOS in ids[:-1]):
            found.add(f"{side} do not end with the end id")
    prefix = processor.encode(recipe.prefix.rstrip())
    if row.inputs[: len(prefix)] != prefix:
        found.add("the prefix is missing")
    if processor.decode(row.inputs[:-1]) != normal(row.text, processor):
        found.add("the ids are of another text")
    return found


def normal(text, processor):
    return processor.decode(processor.encode(text))


@pytest.mark.parametrize("task", ["wmt_ende", "cnn_dailymail"])
def test_inputs_have_the_prefix_and_everything_ends(task, model):
    recipe, processor = recipes.RECIPES[task], pieces(model)
    lines = [Line(pair, "") for pair in zip(ENGLISH, GERMAN, strict=True)]
    found = rows(task, model, lines)
    assert [row.text for row in found] == [recipe.prefix + text for text in ENGLISH]
    assert [row.reference for row in found] == GERMAN
    for row in found:
        assert not offences(row, recipe, processor)
        assert row.targets == [*processor.encode(row.reference), EOS]


def pieces(model):
    return sentencepiece.SentencePieceProcessor(model_file=str(model))


def test_the_check_notices_what_is_missing(model):
    recipe, processor = recipes.RECIPES["wmt_ende"], pieces(model)
    (row,) = rows("wmt_ende", model, [Line((ENGLISH[0], GERMAN[0]), "")])
    bare = [*processor.encode(ENGLISH[0]), EOS]
    broken = {
        "the prefix is missing": row._replace(inputs=bare),
        "inputs do not end with the end id": row._replace(inputs=row.inputs[:-1]),
        "targets do not end with the end id": row._replace(targets=row.targets[:-1]),
    }
    for said, twin in broken.items():
        assert said in offences(twin, recipe, processor)


def test_a_language_model_has_targets_alone(model):
    (row,) = rows("lm1b", model, [Line((ENGLISH[0],), "")])
    assert (row.inputs, row.text) == ([], "")
    assert row.targets == [*pieces(model).encode(ENGLISH[0]), EOS]
    with pytest.raises(ValueError, match="line 1: the task reads 1 texts"):
        rows("lm1b", model, [Line(("a", "b"), "a.tsv, line 1")])


def test_a_prompt_alone_has_no_target(model):
    (row,) = rows("wmt_ende", model, [Line((ENGLISH[0],), "")])
    assert (row.targets, row.reference) == ([], "")
    assert row.inputs[-1] == EOS


def test_a_long_input_is_refused_or_cut_before_its_end(model):
    lines = [Line((text,), f"a.en, line {i}") for i, text in enumerate(ENGLISH)]
    found = rows("wmt_ende", model, lines)
    length = max(len(row.inputs) for row in found)
    assert recipes.collect(found, length, False).inputs == [r.inputs for r in found]
    with pytest.raises(ValueError, match=rf"line \d: {length} input tokens"):
        recipes.collect(found, length - 1, False)
    cut = recipes.collect(found, 5, True)
    assert cut.inputs == [[*row.inputs[:4], EOS] for row in found]
    assert cut.texts == [row.text for row in found]


def test_no_examples_are_refused():
    with pytest.raises(ValueError, match="no examples"):
        recipes.collect([], None, False)


def test_a_tokenizer_must_be_one_and_have_an_end(tmp_path, model):
    assert recipes.load(model).eos == EOS
    bad = tmp_path / "bad.model"
    with pytest.raises(ValueError, match=r"no tokenizer .*bad\.model"):
        recipes.load(bad)
    bad.write_text("not a model")
    with pytest.raises(ValueError, match="no SentencePiece model"):
        recipes.load(bad)
    with pytest.raises(ValueError, match="has no end id"):
        recipes.load(trained(tmp_path / "endless.model", 60, eos_id=-1))


FOUND = examples.Examples(
    [[5, 6, 1], [70_000, 1]], [[1], []], ["a: ä\n", "a: b"], ["\u2028", ""]
)
ABOUT = examples.About("wmt_ende", "test", "f" * 64, 1, "a: ", 9, True, 2, ["a 1"])


def test_prepared_examples_come_back(tmp_path):
    path = tmp_path / "a.npz"
    examples.write(path, FOUND, ABOUT)
    assert examples.read(path) == (FOUND, ABOUT)
    assert examples.read(path, "f" * 64) == (FOUND, ABOUT)
    assert [it.name for it in tmp_path.iterdir()] == ["a.npz"]


def test_the_same_examples_are_the_same_bytes(tmp_path):
    digests = []
    for name in ("a.npz", "b.npz"):
        examples.write(tmp_path / name, FOUND, ABOUT)
        digests.append(fingerprint.digest(tmp_path / name))
    assert digests[0] == digests[1]
    examples.write(tmp_path / "b.npz", FOUND, ABOUT._replace(split="train"))
    assert digests[0] != fingerprint.digest(tmp_path / "b.npz")


def test_another_tokenizer_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    examples.write(path, FOUND, ABOUT)
    said = "another tokenizer: with the model file of sha256 f{12}, not e{12}"
    with pytest.raises(ValueError, match=said):
        examples.read(path, "e" * 64)


def test_lists_of_unequal_length_are_not_written(tmp_path):
    path = tmp_path / "a.npz"
    with pytest.raises(ValueError, match="'targets': 1"):
        examples.write(path, FOUND._replace(targets=[[1]]), ABOUT)
    assert not path.exists()


def test_a_failed_write_leaves_the_older_file(tmp_path):
    path = tmp_path / "a.npz"
    examples.write(path, FOUND, ABOUT)
    with pytest.raises(OverflowError):
        examples.write(path, FOUND._replace(inputs=[[1], [2**40]]), ABOUT)
    assert examples.read(path) == (FOUND, ABOUT)


def damaged(path, **changes):
    """A prepared file with some of its arrays replaced, or taken away."""
    with np.load(path) as found:
        arrays = {**found, **changes}
    kept = {name: it for name, it in arrays.items() if it is not None}
    np.savez(path, **kept)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inputs": np.array([5, 6], np.int32)}, "inputs has 2 items"),
        ({"targets_lengths": None}, "targets_lengths"),
        ({"about": np.frombuffer(b'{"format": 2}', np.uint8)}, "a format other"),
        ({"about": np.frombuffer(b'{"format": 1}', np.uint8)}, "missing"),
    ],
)
def test_a_damaged_file_is_refused(change, said, tmp_path):
    path = tmp_path / "a.npz"
    examples.write(path, FOUND, ABOUT)
    damaged(path)
    assert examples.read(path) == (FOUND, ABOUT)
    damaged(path, **change)
    with pytest.raises(ValueError, match=f"holds no prepared examples.*{said}"):
        examples.read(path)


def test_an_absent_or_torn_file_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    with pytest.raises(ValueError, match=r"no file .*experiments\.tasks\.prepare"):
        examples.read(path)
    examples.write(path, FOUND, ABOUT)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match="holds no prepared examples"):
        examples.read(path)


def flags(model, out, *more):
    fixed = ["--split", "test", "--tokenizer", str(model), "--out", str(out)]
    return [*fixed, *map(str, more)]


def test_the_command_prepares_local_files(model, tmp_path, capsys):
    out, english = tmp_path / "made" / "a.npz", save(tmp_path / "a.en.xz", ENGLISH)
    german = save(tmp_path / "a.de.xz", GERMAN)
    local = ["--task", "wmt_ende", "--parallel", english, german]
    prepare.main(flags(model, out, *local, "--limit", 2))
    found, about = examples.read(out, fingerprint.digest(model))
    lines = [Line(pair, "") for pair in zip(ENGLISH[:2], GERMAN[:2], strict=True)]
    assert found == recipes.collect(rows("wmt_ende", model, lines), None, False)
    assert (about.task, about.split, about.eos) == ("wmt_ende", "test", EOS)
    digest = hashlib.sha256(german.read_bytes()).hexdigest()
    assert about.source[1] == f"a.de.xz sha256 {digest}"
    assert "2 examples of wmt_ende test" in capsys.readouterr().out


def test_every_format_prepares_the_same_examples(model, tmp_path):
    rows = [json.dumps({"article": a, "sum": b}) for a, b in pairwise(ENGLISH)]
    json_lines = save(tmp_path / "a.jsonl", rows)
    table = save(tmp_path / "a.tsv", map("\t".join, pairwise(ENGLISH)))
    sources = [("--tsv", table), ("--jsonl", json_lines, "--fields", "article", "sum")]
    cut = ["--task", "cnn_dailymail", "--length", 5, "--truncate"]
    found = []
    for source in sources:
        prepare.main(flags(model, tmp_path / "a.npz", *cut, *source))
        found.append(examples.read(tmp_path / "a.npz")[0])
    assert found[0] == found[1]
    assert [len(ids) for ids in found[0].inputs] == [5, 5]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--limit", 0], "--limit must be at least 1"),
        (["--length", 1], "--length 1: at least 2"),
        (["--length", 4], r"a\.en, line 1: \d+ input tokens"),
        (["--truncate"], "--truncate needs the --length"),
        (["--fields", "en"], "--fields are those of"),
        (["--data-dir", "."], "--data-dir is of TensorFlow Datasets"),
        (["--task", "lm1b", "--length", 9], "of a task that has inputs"),
        (["--tokenizer", "gs://none"], "no tokenizer gs:/none"),
        (["--parallel", "none.en"], r"no file none\.en"),
    ],
)
def test_the_command_refuses_in_one_line(more, said, model, tmp_path):
    out, english = tmp_path / "a.npz", save(tmp_path / "a.en", ENGLISH)
    local = ["--task", "wmt_ende", "--parallel", english]
    with pytest.raises(SystemExit, match=f"^error: .*{said}"):
        prepare.main(flags(model, out, *local, *more))
    assert not out.exists()


def test_without_seqio_the_data_sets_name_what_to_install(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "seqio", None)
    monkeypatch.delitem(sys.modules, "experiments.tasks.paper", raising=False)
    monkeypatch.delattr("experiments.tasks.paper", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'specjax\[data\]'"):
        import_module("experiments.tasks.paper")
    with pytest.raises(SystemExit, match=r"pip install 'specjax\[data\]'"):
        prepare.main(flags(model, tmp_path / "a.npz", "--task", "wmt_ende"))


def test_rows_do_not_depend_on_what_prepares_data():
    """A change in how data are prepared leaves every other row as it was."""

    def files(module):
        return {place.module.split(".")[-1] for place in fingerprint.reached([module])}

    prepared = {"recipes", "files", "paper", "prepare"}
    assert not files("experiments.leviathan.lenience") & prepared
    assert "examples" in files("experiments.leviathan.lenience")
    assert {"recipes", "files", "prepare"} <= files("experiments.tasks.prepare")
