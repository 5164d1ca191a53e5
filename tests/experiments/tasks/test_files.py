"""Local files become tokens as T5's do, and prepared examples come back unchanged.

Nothing here needs TensorFlow.
"""

import gzip
import hashlib
import io
import json
import lzma
import sys
from itertools import pairwise

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
SUFFIXES = {"": open, ".gz": gzip.open, ".xz": lzma.open}


def save(path, rows, ends="\n"):
    """Lines in a file, packed as its suffix says."""
    with SUFFIXES.get(path.suffix, open)(path, "wb") as file:
        file.write("".join(row + ends for row in rows).encode())
    return path


def lines_of(kind, folder, suffix=""):
    """The sentences, read from files of one kind."""
    if kind == "tsv":
        return files.tsv(save(folder / f"pairs.tsv{suffix}", map("\t".join, PAIRS)))
    if kind == "jsonl":
        rows = [json.dumps({"id": 7, "de": de, "en": en}) for en, de in PAIRS]
        return files.jsonl(save(folder / f"pairs.jsonl{suffix}", rows), ("en", "de"))
    names = [folder / f"text.{language}{suffix}" for language in ("en", "de")]
    written = zip(names, (ENGLISH, GERMAN), strict=True)
    return files.parallel([save(path, rows) for path, rows in written])


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", ["tsv", "jsonl", "parallel"])
def test_every_format_gives_the_same_pairs(kind, suffix, tmp_path):
    lines = list(lines_of(kind, tmp_path, suffix))
    assert [line.texts for line in lines] == PAIRS
    assert all(f"line {i}" in line.where for i, line in enumerate(lines, 1))


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
    name, content, reader, message = BAD[case]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        list(READERS[reader](path))
    assert str(path) in str(error.value)


@pytest.mark.parametrize("short", [0, 1])
def test_misaligned_files_are_refused(short, tmp_path):
    paths = [save(tmp_path / f"a.{i}", ENGLISH[: 3 - (i == short)]) for i in (0, 1)]
    message = rf"a\.{short} ends after line 2, .*a\.{1 - short} has a line 3"
    with pytest.raises(ValueError, match=message):
        list(files.parallel(paths))


def rows(task, *lines):
    subwords = recipes.load(MODEL)
    return list(recipes.tokenize(recipes.RECIPES[task], subwords, lines))


@pytest.fixture(scope="module")
def processor():
    return sentencepiece.SentencePieceProcessor(model_file=str(MODEL))


def offences(row, recipe, processor) -> set[str]:
    """What is wrong with a tokenized example; nothing for T5's convention."""
    faults = set()
    for side, ids in (("inputs", row.inputs), ("targets", row.targets)):
        if ids and (ids[-1] != EOS or EOS in ids[:-1]):
            faults.add(f"{side} do not end with the end id")
    prefix = processor.encode(recipe.prefix.rstrip())
    if row.inputs[: len(prefix)] != prefix:
        faults.add("the prefix is missing")
    text = processor.decode(processor.encode(row.text))
    if processor.decode(row.inputs[:-1]) != text:
        faults.add("the ids are of another text")
    return faults


@pytest.mark.parametrize("task", ["wmt_ende", "cnn_dailymail"])
def test_inputs_have_the_prefix_and_everything_ends(task, processor):
    recipe = recipes.RECIPES[task]
    tokenized = rows(task, *(Line(pair, "") for pair in PAIRS))
    assert [row.text for row in tokenized] == [recipe.prefix + text for text in ENGLISH]
    assert [row.reference for row in tokenized] == GERMAN
    for row in tokenized:
        assert not offences(row, recipe, processor)
        assert row.targets == [*processor.encode(row.reference), EOS]


def test_the_check_notices_what_is_missing(processor):
    (row,) = rows("wmt_ende", Line(PAIRS[0], ""))
    bare = [*processor.encode(ENGLISH[0]), EOS]
    broken = {
        "the prefix is missing": row._replace(inputs=bare),
        "the ids are of another text": row._replace(text=ENGLISH[1]),
        "inputs do not end with the end id": row._replace(inputs=row.inputs[:-1]),
        "targets do not end with the end id": row._replace(targets=row.targets[:-1]),
    }
    for fault, twin in broken.items():
        assert fault in offences(twin, recipes.RECIPES["wmt_ende"], processor)


def test_a_language_model_has_targets_alone_and_a_prompt_none(processor):
    (row,) = rows("lm1b", Line((ENGLISH[0],), ""))
    assert (row.inputs, row.text) == ([], "")
    assert row.targets == [*processor.encode(ENGLISH[0]), EOS]
    with pytest.raises(ValueError, match="line 1: the task reads 1 texts"):
        rows("lm1b", Line(("a", "b"), "a.tsv, line 1"))
    (row,) = rows("wmt_ende", Line((ENGLISH[0],), ""))
    assert (row.targets, row.reference) == ([], "")
    assert row.inputs[-1] == EOS


def test_a_long_input_is_refused_or_cut_before_its_end():
    lines = [Line((text,), f"a.en, line {i}") for i, text in enumerate(ENGLISH)]
    tokenized = rows("wmt_ende", *lines)
    inputs = [row.inputs for row in tokenized]
    length = max(map(len, inputs))
    assert recipes.collect(tokenized, length, False).inputs == inputs
    with pytest.raises(ValueError, match=rf"line \d: {length} input tokens"):
        recipes.collect(tokenized, length - 1, False)
    cut = recipes.collect(tokenized, 5, True)
    assert cut.inputs == [[*ids[:4], EOS] for ids in inputs]
    assert cut.texts == [row.text for row in tokenized]
    with pytest.raises(ValueError, match="no examples"):
        recipes.collect([], None, False)


def test_a_tokenizer_must_be_one_and_have_an_end(tmp_path):
    assert recipes.load(MODEL).eos == EOS
    bad = tmp_path / "bad.model"
    with pytest.raises(ValueError, match=r"no tokenizer .*bad\.model"):
        recipes.load(bad)
    bad.write_text("not a model")
    with pytest.raises(ValueError, match="no SentencePiece model"):
        recipes.load(bad)
    endless = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ENGLISH * 3),
        model_writer=endless,
        vocab_size=30,
        hard_vocab_limit=False,
        eos_id=-1,
        minloglevel=2,
    )
    with pytest.raises(ValueError, match="has no end id"):
        recipes.of_model(endless.getvalue(), "endless")


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
    assert [it.name for it in prepared.parent.iterdir()] == ["a.npz"]
    message = "another tokenizer: with the model file of sha256 f{12}, not e{12}"
    with pytest.raises(ValueError, match=message):
        examples.read(prepared, "e" * 64)


def test_the_same_examples_are_the_same_bytes(prepared):
    digest = provenance.digest(prepared)
    examples.write(prepared, EXAMPLES, ABOUT)
    assert digest == provenance.digest(prepared)
    examples.write(prepared, EXAMPLES, ABOUT._replace(split="train"))
    assert digest != provenance.digest(prepared)


def test_a_failed_write_leaves_the_older_file(prepared):
    with pytest.raises(ValueError, match="'targets': 1"):
        examples.write(prepared, EXAMPLES._replace(targets=[[1]]), ABOUT)
    with pytest.raises(OverflowError):
        examples.write(prepared, EXAMPLES._replace(inputs=[[1], [2**40]]), ABOUT)
    assert examples.read(prepared) == (EXAMPLES, ABOUT)


def damaged(path, **changes):
    """A prepared file with some of its arrays replaced, or taken away."""
    with np.load(path) as whole:
        arrays = {**whole, **changes}
    np.savez(path, **{name: it for name, it in arrays.items() if it is not None})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": np.array([5, 6], np.int32)}, "inputs has 2 items"),
        ({"targets_lengths": None}, "targets_lengths"),
        ({"about": np.frombuffer(b'{"format": 2}', np.uint8)}, "a format other"),
        ({"about": np.frombuffer(b'{"format": 1}', np.uint8)}, "missing"),
    ],
)
def test_a_damaged_file_is_refused(change, message, prepared):
    damaged(prepared)
    assert examples.read(prepared) == (EXAMPLES, ABOUT)
    damaged(prepared, **change)
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


def test_the_command_prepares_local_files(tmp_path, capsys):
    out, english = tmp_path / "new" / "a.npz", save(tmp_path / "a.en.xz", ENGLISH)
    german = save(tmp_path / "a.de.xz", GERMAN)
    local = ["--task", "wmt_ende", "--parallel", english, german]
    prepare.main(flags(out, *local, "--limit", 2))
    written, about = examples.read(out, provenance.digest(MODEL))
    tokenized = rows("wmt_ende", *(Line(pair, "") for pair in PAIRS[:2]))
    assert written == recipes.collect(tokenized, None, False)
    assert (about.task, about.split, about.eos) == ("wmt_ende", "test", EOS)
    digest = hashlib.sha256(german.read_bytes()).hexdigest()
    assert about.source[1] == f"a.de.xz sha256 {digest}"
    assert "2 examples of wmt_ende test" in capsys.readouterr().out


def test_every_format_prepares_the_same_examples(tmp_path):
    pairs = list(pairwise(ENGLISH))
    objects = [json.dumps({"article": a, "sum": b}) for a, b in pairs]
    json_lines = save(tmp_path / "a.jsonl", objects)
    table = save(tmp_path / "a.tsv", map("\t".join, pairs))
    cut = ["--task", "cnn_dailymail", "--length", 5, "--truncate"]
    prepare.main(flags(tmp_path / "a.npz", *cut, "--tsv", table))
    fields = ["--fields", "article", "sum"]
    prepare.main(flags(tmp_path / "b.npz", *cut, "--jsonl", json_lines, *fields))
    first, second = (examples.read(tmp_path / name)[0] for name in ("a.npz", "b.npz"))
    assert first == second
    assert [len(ids) for ids in first.inputs] == [5, 5]


@pytest.mark.parametrize(
    ("more", "message"),
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
