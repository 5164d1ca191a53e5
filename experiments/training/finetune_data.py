"""What a T5 is fine-tuned on: a task's examples as pairs of ids, checked and batched.

Each function that takes `chosen` reads the flags of `experiments.training.finetune`.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

from experiments.tasks import examples, recipes
from experiments.tasks.examples import Examples
from experiments.training import pairs
from experiments.training.pairs import Pair
from experiments.training.pipeline import Data
from specjax.checkpoints import Pretrained, huggingface
from specjax.measure.provenance import digest

NAMED = ("wmt_ende", "cnn_dailymail")
ALIASES = {"cnndm": "cnn_dailymail"}
KNOWN = ", ".join((*NAMED, *ALIASES))
SPLIT = "train"
PIECES = "spiece.model"  # the tokenizer in a folder of Hugging Face
HALVINGS = (3, 2, 1, 0)  # lengths of the batches: the longest, a half of it, ...
COMPARED = 64  # texts that tell one tokenizer from another
ADVICE = "prepare the task with the tokenizer of the checkpoint"


class Source(NamedTuple):
    """Examples and where they come from. tokenizer: sha256 of its model file. eos: the
    id that ends inputs and targets."""

    examples: Examples
    task: str
    split: str
    tokenizer: str
    eos: int


def load(chosen: argparse.Namespace, checkpoint: Pretrained) -> Data:
    """Batches for a checkpoint; files may move, their contents may not change."""
    folder = folder_of(checkpoint)
    source = read(chosen, folder)
    coded = encoded(source, chosen)
    check_ids(checkpoint, source, coded)
    if folder is not None and (folder / PIECES).is_file():
        check_tokenizer(folder / PIECES, source)
    if chosen.held_out >= len(coded):
        raise ValueError(
            f"--held-out {chosen.held_out} leaves nothing of {len(coded)} pairs to"
            " train on"
        )
    # A batch of halved lengths has twice the rows: as many tokens.
    lengths = chosen.inputs_length, chosen.targets_length
    sizes = [tuple(length >> halved for length in lengths) for halved in HALVINGS]
    batch, measured = (
        pairs.sampler(pairs.buckets(part, sizes, chosen.batch * sum(lengths), share=1))
        for part in (coded[chosen.held_out :], coded[: chosen.held_out])
    )
    count = max(1, chosen.held_out // chosen.batch)
    held_out = {"held_out": [measured((1, i)) for i in range(count)]}
    flags = "inputs_length", "targets_length", "held_out"
    about = {"task": source.task, "split": source.split, "pairs": pairs.digest(coded)}
    about |= {name: getattr(chosen, name) for name in flags}
    return Data(batch, held_out, pairs.cross_entropy, about)


def folder_of(checkpoint: Pretrained) -> Path | None:
    """The folder of Hugging Face that a checkpoint was read from, if it was."""
    first = checkpoint.files[0]
    return first.parent if first.name == huggingface.CONFIG else None


def read(chosen: argparse.Namespace, folder: Path | None) -> Source:
    if chosen.task.endswith(".npz"):
        if chosen.tokenizer or chosen.data_dir:
            raise ValueError(
                "--tokenizer and --data-dir are for a data set, not for a prepared file"
            )
        data, about = examples.read(Path(chosen.task))
        return Source(data, about.task, about.split, about.tokenizer, about.eos)
    name = ALIASES.get(chosen.task, chosen.task)
    if name not in NAMED:
        raise ValueError(
            f"no task {chosen.task!r}: choose one of {KNOWN}, or a .npz file of"
            " python -m experiments.tasks.prepare"
        )
    from experiments.tasks import paper  # seqio and TensorFlow, which files do without

    tokenizer = chosen.tokenizer or recipes.T5_TOKENIZER
    if chosen.tokenizer is None and folder is not None and (folder / PIECES).is_file():
        tokenizer = str(folder / PIECES)
    rows = paper.rows(name, SPLIT, tokenizer, chosen.data_dir)
    data, subwords = recipes.collect(rows, None, False), paper.subwords(tokenizer)
    return Source(data, name, SPLIT, subwords.digest, subwords.eos)


def encoded(source: Source, chosen: argparse.Namespace) -> list[Pair]:
    """Pairs of ids, each side ended by the end id, which is added where it is missing.

    Raises ValueError for a pair with an empty side, and for one that is longer than
    `--inputs-length` or `--targets-length` unless `--truncate`: then the last ids
    before the end go, and how many texts were cut is printed.
    """
    sides, end = [], [source.eos]
    for name in ("inputs", "targets"):
        rows, limit = getattr(source.examples, name), getattr(chosen, f"{name}_length")
        texts = [ids if ids[-1:] == end else [*ids, *end] for ids in rows]
        empty = [i for i, ids in enumerate(texts, start=1) if len(ids) < 2]
        longer = [i for i, ids in enumerate(texts, start=1) if len(ids) > limit]
        if empty:
            raise ValueError(
                f"{chosen.task}: {len(empty)} of {len(texts)} {name} are empty, the"
                f" first in example {empty[0]}: prepare pairs that have both sides"
            )
        if longer and not chosen.truncate:
            raise ValueError(
                f"{chosen.task}: {len(longer)} of {len(texts)} {name} are longer than"
                f" {limit} tokens, the first in example {longer[0]}: raise"
                f" --{name}-length, or cut them with --truncate"
            )
        if longer:
            print(f"cut {len(longer)} of {len(texts)} {name} to {limit} tokens")
        sides.append([[*ids[:-1][: limit - 1], *end] for ids in texts])
    return list(zip(*sides, strict=True))


def check_ids(checkpoint: Pretrained, source: Source, coded: list[Pair]) -> None:
    if (source.eos,) != checkpoint.ends:
        raise ValueError(
            f"texts of {source.task} end with id {source.eos}, those of"
            f" {checkpoint.name} with {', '.join(map(str, checkpoint.ends))}: {ADVICE}"
        )
    limit = checkpoint.config.pieces or checkpoint.config.vocab
    every = {i for pair in coded for ids in pair for i in ids}
    least, most = min(every), max(every)
    if least < 0 or most >= limit:
        raise ValueError(
            f"{source.task} has ids {least} to {most}, {checkpoint.name} 0 to"
            f" {limit - 1}: {ADVICE}"
        )


def check_tokenizer(model: Path, source: Source) -> None:
    """Raises ValueError for ids that the checkpoint's tokenizer does not make."""
    if source.tokenizer == digest(model):
        return
    encode = recipes.load(model).encode
    texts = source.examples.texts[:COMPARED], source.examples.inputs[:COMPARED]
    same = [  # inputs may have been cut
        encode(text)[: len(ids) - 1] == ids[:-1]
        for text, ids in zip(*texts, strict=True)
    ]
    if 2 * sum(same) <= len(same):
        raise ValueError(
            f"the ids of {source.task} are not what {model} makes of its texts:"
            f" {ADVICE}"
        )
