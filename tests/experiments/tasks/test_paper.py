"""The paper's tasks, read from a small folder of TensorFlow Datasets on disk."""

import json
from importlib import import_module
from pathlib import Path

import pytest
import sentencepiece

from experiments.tasks import examples, prepare, recipes
from experiments.tasks.recipes import Line
from specjax import zoo
from specjax.measure import provenance

seqio = pytest.importorskip("seqio")
tfds = pytest.importorskip("tensorflow_datasets")
tf = pytest.importorskip("tensorflow")
paper = import_module("experiments.tasks.paper")

TASKS = tuple(recipes.RECIPES)
MODEL = zoo.FOLDER / "t5.model"  # with the ids of T5's
EOS = 1
DATA = Path(examples.__file__).parent / "data"
SPLITS = {name: ("train", "validation", "test") for name in TASKS}
SPLITS["lm1b"] = ("train", "test")
TEXT = tfds.features.Text()
FEATURES = {
    "lm1b": tfds.features.FeaturesDict({"text": TEXT}),
    "wmt_ende": tfds.features.Translation(languages=("de", "en")),
    "cnn_dailymail": tfds.features.FeaturesDict(
        dict.fromkeys(("article", "highlights", "id", "publisher"), TEXT)
    ),
}
EACH = 3  # examples of a split; no two splits have the same
# Of English and German: spaces, a ligature and a line separator, as WMT has them.
UNUSUAL = "The  ﬁne house\u2028is small.", "Das schöne Haus ist klein."


def sample(task: str, split: str) -> dict[str, list[str]]:
    """Returns the sentences of a split, by the fields of the builder."""
    file = "summaries" if task == "cnn_dailymail" else "sentences"
    at = EACH * SPLITS[task].index(split)
    lines = (DATA / f"{file}.jsonl").read_text("utf-8").splitlines()
    # Of splits of "----" with equal scores, TensorFlow's SentencePiece takes others.
    lines = [line for line in lines if "--" not in line][at : at + EACH]
    texts = [tuple(json.loads(line).values()) for line in lines]
    texts += [UNUSUAL] if task == "wmt_ende" else []
    names = recipes.RECIPES[task].fields
    columns = {name: [text[i] for text in texts] for i, name in enumerate(names)}
    if task == "cnn_dailymail":  # which our tasks do not read
        columns |= dict.fromkeys(("id", "publisher"), [""] * len(texts))
    return columns


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of the three data sets, as TensorFlow Datasets stores them."""
    folder = tmp_path_factory.mktemp("tensorflow_datasets")
    for task, recipe in recipes.RECIPES.items():
        name, _, version = recipe.dataset.partition(":")
        name, _, config = name.partition("/")
        splits = {
            split: tf.data.Dataset.from_tensor_slices(sample(task, split))
            for split in SPLITS[task]
        }
        tfds.dataset_builders.store_as_tfds_dataset(
            name=name,
            version=version,
            config=config or None,
            data_dir=str(folder),
            features=FEATURES[task],
            split_datasets=splits,
            disable_shuffling=True,
        )
    return str(folder)


def tokenize_split(task: str, split: str = "test") -> examples.Examples:
    """Returns the same sentences as local files would give them."""
    recipe = recipes.RECIPES[task]
    columns = sample(task, split)
    fields = (columns[name] for name in recipe.fields)
    lines = [Line(texts, "") for texts in zip(*fields, strict=True)]
    tokenized_rows = recipes.tokenize(recipe, recipes.load(MODEL), lines)
    return recipes.collect(tokenized_rows, None, False)


def read(task: str, split: str, tokenizer: str, folder: str):
    return paper.rows(task, split, tokenizer=tokenizer, data_dir=folder)


@pytest.mark.parametrize("task", TASKS)
def test_seqio_and_local_files_give_the_same_tokens(task, data):
    for split in SPLITS[task]:
        rows = list(read(task, split, str(MODEL), data))
        assert recipes.collect(rows, None, False) == tokenize_split(task, split)
    assert rows[1].where == f"{recipes.RECIPES[task].dataset} test, example 2"
    registered = seqio.TaskRegistry.get(task)
    assert tuple(sorted(registered.splits)) == tuple(sorted(SPLITS[task]))
    builder = registered.source.tfds_dataset.builder
    assert set(recipes.RECIPES[task].fields) <= set(builder.info.features)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(MODEL))
    for feature in registered.output_features.values():
        assert feature.dtype == tf.int32 and feature.add_eos
        assert feature.vocabulary.vocab_size == len(pieces) + 100


def test_a_sequence_length_keeps_the_end(data):
    lengths, expected = {"inputs": 6, "targets": 4}, tokenize_split("wmt_ende")
    paper.register(str(MODEL), data)
    task = seqio.TaskRegistry.get("wmt_ende")
    cut = task.get_dataset(split="test", shuffle=False, sequence_length=lengths)
    for i, example in enumerate(cut.as_numpy_iterator()):
        assert example["inputs"].tolist() == [*expected.inputs[i][:5], EOS]
        assert example["targets"].tolist() == [*expected.targets[i][:3], EOS]


def test_the_command_prepares_a_split(tmp_path, data):
    out = tmp_path / "a.npz"
    common = ["--task", "wmt_ende", "--split", "validation", "--data-dir", data]
    common += ["--tokenizer", str(MODEL), "--out", str(out)]
    prepare.main([*common, "--limit", "2"])
    written, about = examples.read(out, provenance.digest(MODEL))
    expected = tokenize_split("wmt_ende", "validation")
    assert written == examples.Examples(*(rows[:2] for rows in expected))
    assert (about.eos, about.prefix) == (EOS, "translate English to German: ")
    assert about.source == ["tensorflow_datasets wmt14_translate/de-en:1.0.0"]
    with pytest.raises(SystemExit, match=r"validation, example 1: .* input tokens"):
        prepare.main([*common, "--length", "4"])


def test_what_is_not_there_is_said(data):
    with pytest.raises(ValueError, match=r"lm1b:1\.1\.0 has no split 'validation'"):
        read("lm1b", "validation", str(MODEL), data)
    with pytest.raises(ValueError, match="choose one of lm1b, wmt_ende"):
        read("wmt", "test", str(MODEL), data)
    with pytest.raises(ValueError, match=r"no tokenizer none\.model"):
        read("lm1b", "test", "none.model", data)


def test_absent_data_are_not_downloaded_but_named(tmp_path):
    message = rf"tfds build lm1b:1\.1\.0 --data_dir {tmp_path}"
    # Mocked, because the builder would otherwise look for them on the network.
    with tfds.testing.mock_data(data_dir=str(tmp_path)):
        with pytest.raises(ValueError, match=message):
            read("lm1b", "test", str(MODEL), str(tmp_path))
