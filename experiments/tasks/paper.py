"""The paper's tasks as seqio tasks, on the builders of TensorFlow Datasets.

`lm1b`, `wmt_ende` and `cnn_dailymail`, in the form of T5's own tasks. This is the only
module that imports seqio and TensorFlow; `examples` stores its output and reads it
without them.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from experiments.tasks import recipes
from experiments.tasks.recipes import T5_TOKENIZER, Recipe, Subwords, TaskRow

try:
    import seqio
    import tensorflow as tf
except ImportError as error:
    raise ImportError(
        f"the paper's data sets need seqio and TensorFlow ({error}): run"
        " pip install '.[data]' in a checkout, or prepare local files instead"
    ) from error

EXTRA_IDS = 100


def register(tokenizer: str = T5_TOKENIZER, data_dir: str | None = None) -> None:
    """Adds the tasks to seqio's registry; a later call replaces them."""
    if "://" not in tokenizer and not Path(tokenizer).is_file():
        raise ValueError(f"no tokenizer {tokenizer}: name a SentencePiece model file")
    vocabulary = seqio.SentencePieceVocabulary(tokenizer, extra_ids=EXTRA_IDS)
    feature = seqio.Feature(vocabulary, add_eos=True, dtype=tf.int32)
    for name, entry in recipes.RECIPES.items():
        if name in seqio.TaskRegistry.names():
            seqio.TaskRegistry.remove(name)
        names = ("targets",) if entry.prefix is None else ("inputs", "targets")
        seqio.TaskRegistry.add(
            name,
            source=seqio.TfdsDataSource(entry.dataset, tfds_data_dir=data_dir),
            preprocessors=[
                partial(to_text, recipe=entry),
                seqio.preprocessors.tokenize,
                seqio.CacheDatasetPlaceholder(),
                seqio.preprocessors.append_eos_after_trim,
            ],
            output_features=dict.fromkeys(names, feature),
            metric_fns=[],
        )


def to_text(dataset: tf.data.Dataset, recipe: Recipe) -> tf.data.Dataset:
    """Maps examples of the builder to `inputs`, with the prefix first, and `targets`:
    strings.
    """

    def text(example: dict) -> dict:
        if recipe.prefix is None:
            return {"targets": example[recipe.fields[0]]}
        source, target = (example[field] for field in recipe.fields)
        return {"inputs": tf.strings.join([recipe.prefix, source]), "targets": target}

    return dataset.map(text, num_parallel_calls=tf.data.AUTOTUNE)


def rows(
    task: str, split: str, *, tokenizer: str = T5_TOKENIZER, data_dir: str | None = None
) -> Iterator[TaskRow]:
    """Yields the examples of a split in their order, tokenized by seqio, including end
    ids.
    """
    name = recipes.recipe(task).dataset
    register(tokenizer, data_dir)
    registered = seqio.TaskRegistry.get(task)
    if not registered.source.splits:
        place = "" if data_dir is None else f" --data_dir {data_dir}"
        raise ValueError(f"no data of {name}: get it with tfds build {name}{place}")
    if split not in registered.splits:
        known = ", ".join(registered.splits)
        raise ValueError(f"{name} has no split {split!r}: choose one of {known}")
    dataset = registered.get_dataset(sequence_length=None, split=split, shuffle=False)
    return (
        TaskRow(
            example["inputs"].tolist() if "inputs" in example else [],
            example["targets"].tolist(),
            example.get("inputs_pretokenized", b"").decode(),
            example["targets_pretokenized"].decode(),
            f"{name} {split}, example {number}",
        )
        for number, example in enumerate(dataset.as_numpy_iterator(), start=1)
    )


def subwords(tokenizer: str) -> Subwords:
    """Returns a tokenizer, local or at a gs:// address, that works without seqio."""
    with tf.io.gfile.GFile(tokenizer, "rb") as file:
        return recipes.from_model(file.read(), tokenizer)
