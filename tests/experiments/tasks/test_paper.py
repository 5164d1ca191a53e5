"""The paper's tasks on the builders of TensorFlow Datasets, mocked: no data is read."""

import json
from importlib import import_module

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
# One example each, by the fields of the builders.
SENTENCES = {
    "lm1b": {"text": ["The house is small .", "Where do you live ?"]},
    "wmt_ende": {
        "en": ["That is good.", "Where do you live?", "The  ﬁne house\u2028is small."],
        "de": ["Das ist gut.", "Wo wohnst du?", "Das schöne Haus ist klein."],
    },
    "cnn_dailymail": {
        "article": ["A house fell. Nobody was hurt.", "It rained.\nThen it snowed."],
        "highlights": ["A house fell .\nNo injuries .", "It rained ."],
    },
}
SPLITS = {name: ("train", "validation", "test") for name in TASKS}
SPLITS["lm1b"] = ("train", "test")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """What a builder needs to know its splits: a small file of metadata each."""
    folder = tmp_path_factory.mktemp("tensorflow_datasets")
    for task, recipe in recipes.RECIPES.items():
        name, _, version = recipe.dataset.partition(":")
        name, _, config = name.partition("/")
        template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        split = {"shardLengths": ["3"], "numBytes": "9", "filepathTemplate": template}
        about = {"fileFormat": "tfrecord", "name": name, "version": version}
        about |= {"configName": config} if config else {}
        about["splits"] = [split | {"name": it} for it in SPLITS[task]]
        place = folder / name / config / version
        place.mkdir(parents=True)
        (place / "dataset_info.json").write_text(json.dumps(about))
    return folder


@pytest.fixture
def mocked(data):
    """The builders, reading the sentences in place of files."""

    def read(builder, *_, **__):
        by_name = {recipes.RECIPES[task].dataset: task for task in TASKS}
        name = builder.info.full_name.rpartition("/")
        return tf.data.Dataset.from_tensor_slices(
            SENTENCES[by_name[f"{name[0]}:{name[2]}"]]
        )

    with tfds.testing.mock_data(as_dataset_fn=read, data_dir=str(data)):
        yield str(data)


def tokenized(task) -> examples.Examples:
    """The same sentences as they would be read from local files."""
    recipe = recipes.RECIPES[task]
    fields = (SENTENCES[task][field] for field in recipe.fields)
    lines = [Line(texts, "") for texts in zip(*fields, strict=True)]
    tokenized_rows = recipes.tokenize(recipe, recipes.load(MODEL), lines)
    return recipes.collect(tokenized_rows, None, False)


def read(task: str, split: str, tokenizer: str, folder: str):
    return paper.rows(task, split, tokenizer=tokenizer, data_dir=folder)


@pytest.mark.parametrize("task", TASKS)
def test_seqio_and_local_files_give_the_same_tokens(task, mocked):
    rows = list(read(task, "test", str(MODEL), mocked))
    assert recipes.collect(rows, None, False) == tokenized(task)
    assert rows[1].where == f"{recipes.RECIPES[task].dataset} test, example 2"
    registered = seqio.TaskRegistry.get(task)
    assert tuple(sorted(registered.splits)) == tuple(sorted(SPLITS[task]))
    builder = registered.source.tfds_dataset.builder
    assert set(recipes.RECIPES[task].fields) <= set(builder.info.features)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(MODEL))
    for feature in registered.output_features.values():
        assert feature.dtype == tf.int32 and feature.add_eos
        assert feature.vocabulary.vocab_size == len(pieces) + 100


def test_a_sequence_length_keeps_the_end(mocked):
    lengths, expected = {"inputs": 6, "targets": 4}, tokenized("wmt_ende")
    paper.register(str(MODEL), mocked)
    task = seqio.TaskRegistry.get("wmt_ende")
    cut = task.get_dataset(split="test", shuffle=False, sequence_length=lengths)
    for i, example in enumerate(cut.as_numpy_iterator()):
        assert example["inputs"].tolist() == [*expected.inputs[i][:5], EOS]
        assert example["targets"].tolist() == [*expected.targets[i][:3], EOS]


def test_the_command_prepares_a_split(tmp_path, mocked):
    out = tmp_path / "a.npz"
    common = ["--task", "wmt_ende", "--split", "validation", "--data-dir", mocked]
    common += ["--tokenizer", str(MODEL), "--out", str(out)]
    prepare.main([*common, "--limit", "2"])
    written, about = examples.read(out, provenance.digest(MODEL))
    assert written == examples.Examples(*(rows[:2] for rows in tokenized("wmt_ende")))
    assert (about.eos, about.prefix) == (EOS, "translate English to German: ")
    assert about.source == ["tensorflow_datasets wmt14_translate/de-en:1.0.0"]
    with pytest.raises(SystemExit, match=r"validation, example 1: .* input tokens"):
        prepare.main([*common, "--length", "4"])


def test_what_is_not_there_is_said(mocked):
    with pytest.raises(ValueError, match=r"lm1b:1\.1\.0 has no split 'validation'"):
        read("lm1b", "validation", str(MODEL), mocked)
    with pytest.raises(ValueError, match="choose one of lm1b, wmt_ende"):
        read("wmt", "test", str(MODEL), mocked)
    with pytest.raises(ValueError, match=r"no tokenizer none\.model"):
        read("lm1b", "test", "none.model", mocked)


def test_absent_data_are_not_downloaded_but_named(tmp_path):
    message = rf"tfds build lm1b:1\.1\.0 --data_dir {tmp_path}"
    with tfds.testing.mock_data(data_dir=str(tmp_path)):
        with pytest.raises(ValueError, match=message):
            read("lm1b", "test", str(MODEL), str(tmp_path))
