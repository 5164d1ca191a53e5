"""Fine-tunes a T5.

    python -m experiments.training.finetune --init CHECKPOINT --task T --runs R

What Leviathan et al. (2023), 4.1, decode with: T5 v1.1 fine-tuned on WMT EnDe and on
CNN/DailyMail. T is such a data set, through seqio, or a file that
`experiments.tasks.prepare` wrote, without. R holds the run, which is resumable (see
`specjax.training.loop`), and at its end `model`, a folder that transformers and
`specjax.checkpoints` load. Weights, gradients and loss are float32, on one device or on
a mesh (--mesh).

Defaults are those of T5X (`configs/runs/finetune.gin`, `base_wmt_finetune.gin`):
Adafactor at a constant rate of 1e-3, 20,000 batches of 128, 256 tokens a side. Unlike
there, nothing is dropped out, the loss has no z term, gradients are clipped to a norm
of 1, and short texts are batched with others as short instead of being packed.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from experiments.tasks import examples, recipes
from experiments.tasks.examples import Examples
from experiments.training import pairs, pipeline
from experiments.training.pairs import Pair
from experiments.training.pipeline import Data, Stage
from specjax import checkpoints
from specjax.checkpoints import Pretrained, huggingface
from specjax.measure.provenance import digest
from specjax.models import t5
from specjax.runtime import console
from specjax.training import accumulation, loop

# Beside the weights of a folder, what its tokenizer is made from and how to decode.
WEIGHTS = (huggingface.CONFIG, huggingface.WHOLE, huggingface.INDEX)
KEPT = [name for name in huggingface.FETCHED if name not in WEIGHTS and "*" not in name]
NAMED = ("wmt_ende", "cnn_dailymail")
ALIASES = {"cnndm": "cnn_dailymail"}
KNOWN = ", ".join((*NAMED, *ALIASES))
SPLIT = "train"
PIECES = "spiece.model"  # the tokenizer in a folder of Hugging Face
HALVINGS = (3, 2, 1, 0)  # lengths of the batches: the longest, a half of it, ...
COMPARED = 64  # texts that tell one tokenizer from another
ADVICE = "prepare the task with the tokenizer of the checkpoint"


def finetune(chosen: argparse.Namespace) -> Path:
    """Trains, or continues a training, and writes the model; returns its folder."""
    check_flags(chosen)
    export = chosen.export or chosen.runs / "model"
    if export.exists():
        raise ValueError(f"{export} exists: name another folder with --export")
    checkpoint = start(chosen.init, chosen.dtype)
    data = load(chosen, checkpoint)
    data.about["init"] = loop.digest(checkpoint.params)
    named = {k: v for k, v in vars(chosen).items() if k in loop.Recipe._fields}
    length = chosen.inputs_length + chosen.targets_length
    fixed = {"length": length, "weight_decay": 0.0, "optimizer": "adafactor"}
    recipe = loop.Recipe(**named, **fixed)

    # On the host, so that a resumed run does not hold two sets on its device.
    params = jax.tree.map(np.asarray, checkpoint.params)
    checkpoint = checkpoint._replace(params=None)
    stage = Stage("", checkpoint.config, recipe, "pairs", devices=chosen.mesh)
    trained = pipeline.run(
        chosen.runs, [stage], {"pairs": lambda _: data}, first=params
    )
    save(export, checkpoint._replace(params=trained))
    return export


def check_flags(chosen: argparse.Namespace) -> None:
    flags = {"--" + name.replace("_", "-"): it for name, it in vars(chosen).items()}
    for name in ("--batch", "--inputs-length", "--targets-length"):
        if flags[name] < 8 or flags[name] % 8:
            raise ValueError(f"{name} must be a multiple of 8; got {flags[name]}")
    for name in ("steps", "held-out", "parts", "checkpoint-every", "evaluate-every"):
        if flags[f"--{name}"] < 1:
            raise ValueError(f"--{name} must be at least 1; got {flags[f'--{name}']}")
    if chosen.batch % chosen.parts:
        raise ValueError(
            f"--parts must divide --batch {chosen.batch}; got {chosen.parts}"
        )
    if not chosen.rate > 0:
        raise ValueError(f"--rate must be positive; got {chosen.rate}")
    if min(chosen.seed, chosen.warmup, chosen.decay) < 0:
        raise ValueError("--seed, --warmup and --decay must not be negative")
    if chosen.warmup + chosen.decay > chosen.steps:
        raise ValueError(
            f"--warmup {chosen.warmup} and --decay {chosen.decay} must fit into"
            f" --steps {chosen.steps}"
        )


def start(name: str, dtype: str) -> Pretrained:
    """Returns the T5 to begin with: float32 parameters, and computation in `dtype`."""
    checkpoint = checkpoints.load(name)
    if checkpoint.family != "t5":
        raise ValueError(
            f"{name} is not a T5 but of the family {checkpoint.family}: name a T5, such"
            " as google/t5-v1_1-small"
        )
    if checkpoint.start != t5.PAD:
        raise ValueError(
            f"{name} begins texts with id {checkpoint.start}; only a T5 that begins"
            f" them with {t5.PAD} can be trained"
        )
    return checkpoint._replace(config=checkpoint.config._replace(dtype=dtype))


class Source(NamedTuple):
    """Examples and their origin.

    Attributes:
        tokenizer: sha256 of its model file.
        eos: the id that ends inputs and targets.
    """

    examples: Examples
    task: str
    split: str
    tokenizer: str
    eos: int


def load(chosen: argparse.Namespace, checkpoint: Pretrained) -> Data:
    """Returns batches for a checkpoint; the files may have moved, but their contents
    may not have changed.
    """
    folder = source_folder(checkpoint)
    source = read_source(chosen, folder)
    coded = encode_pairs(source, chosen)
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
        pairs.sampler(
            pairs.group_by_size(
                part, sizes=sizes, tokens=chosen.batch * sum(lengths), share=1
            )
        )
        for part in (coded[chosen.held_out :], coded[: chosen.held_out])
    )
    count = max(1, chosen.held_out // chosen.batch)
    held_out = {"held_out": [measured((1, i)) for i in range(count)]}
    flags = "inputs_length", "targets_length", "held_out"
    about = {"task": source.task, "split": source.split, "pairs": pairs.digest(coded)}
    about |= {name: getattr(chosen, name) for name in flags}

    def loss(config: t5.Config) -> Callable:
        return accumulation.in_parts(
            pairs.cross_entropy(config), chosen.parts, lambda rows: rows.weight.sum()
        )

    return Data(batch, held_out, loss, about)


def source_folder(checkpoint: Pretrained) -> Path | None:
    """Returns the folder of Hugging Face that a checkpoint was read from, if there is
    one.
    """
    first = checkpoint.files[0]
    return first.parent if first.name == huggingface.CONFIG else None


def read_source(chosen: argparse.Namespace, folder: Path | None) -> Source:
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
    rows = paper.rows(name, SPLIT, tokenizer=tokenizer, data_dir=chosen.data_dir)
    data, subwords = recipes.collect(rows, None, False), paper.subwords(tokenizer)
    return Source(data, name, SPLIT, subwords.digest, subwords.eos)


def encode_pairs(source: Source, chosen: argparse.Namespace) -> list[Pair]:
    """Returns pairs of ids; the end id of either side is added where it is missing.

    With `--truncate` a side that is too long loses its last ids before the end id.
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


def check_ids(
    checkpoint: Pretrained, source: Source, encoded_pairs: list[Pair]
) -> None:
    if (source.eos,) != checkpoint.ends:
        raise ValueError(
            f"texts of {source.task} end with id {source.eos}, those of"
            f" {checkpoint.name} with {', '.join(map(str, checkpoint.ends))}: {ADVICE}"
        )
    limit = checkpoint.config.pieces or checkpoint.config.vocab
    every = {i for pair in encoded_pairs for ids in pair for i in ids}
    least, most = min(every), max(every)
    if least < 0 or most >= limit:
        raise ValueError(
            f"{source.task} has ids {least} to {most}, {checkpoint.name} 0 to"
            f" {limit - 1}: {ADVICE}"
        )


def check_tokenizer(model: Path, source: Source) -> None:
    """Raises ValueError for ids that the checkpoint's tokenizer does not produce."""
    if source.tokenizer == digest(model):
        return
    encode = recipes.load(model).encode
    same = [  # inputs may have been cut
        encode(text)[: len(ids) - 1] == ids[:-1]
        for text, ids in zip(
            source.examples.texts[:COMPARED],
            source.examples.inputs[:COMPARED],
            strict=True,
        )
    ]
    if 2 * sum(same) <= len(same):
        raise ValueError(
            f"the ids of {source.task} are not what {model} makes of its texts:"
            f" {ADVICE}"
        )


def save(folder: Path, checkpoint: Pretrained) -> None:
    """Writes the folder, with the tokenizer of the initial checkpoint if it has one;
    the folder is complete or absent.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tokenized")
    checkpoints.save(temporary, checkpoint)
    origin = source_folder(checkpoint)
    try:
        for path in [] if origin is None else [origin / name for name in KEPT]:
            if path.is_file():
                shutil.copyfile(path, temporary / path.name)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary)
        raise


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.training.finetune",
        description="Fine-tunes a T5 on a task; goes on where it was interrupted.",
    )
    add = parser.add_argument

    def add_number(name: str, default: int, help: str) -> None:
        add(name, type=int, default=default, metavar="N", help=f"{help}; {default}")

    add("--init", required=True, metavar="CHECKPOINT", help="a path, or a hub's id")
    add("--task", required=True, help=f"{KNOWN}, or a prepared .npz file")
    add("--runs", required=True, type=Path, metavar="FOLDER", help="of this run")
    add("--export", type=Path, metavar="FOLDER", help="of the model; RUNS/model")
    add("--tokenizer", metavar="FILE", help="a SentencePiece model, for a data set")
    add("--data-dir", metavar="DIR", help="of TensorFlow Datasets")
    add("--truncate", action="store_true", help="cut longer texts to the lengths")
    dtypes = ("float32", "bfloat16")
    add("--dtype", default="float32", choices=dtypes, help="of activations; float32")
    add("--rate", type=float, default=1e-3, metavar="R", help="of learning; 0.001")
    add_number("--steps", 20_000, "batches")
    add_number(
        "--batch", 128, "pairs of full length, or as many tokens of shorter ones"
    )
    add_number("--inputs-length", 256, "tokens, end id included")
    add_number("--targets-length", 256, "tokens, end id included")
    add_number("--held-out", 1000, "the first N pairs are measured on, not trained on")
    add_number("--parts", 1, "of a batch, one after another, to save memory")
    add_number("--warmup", 0, "steps in which the rate rises from 0")
    add_number("--decay", 0, "last steps, in which it falls to 0")
    pipeline.add_mesh(parser)
    add_number("--seed", 0, "of the batches")
    add_number("--checkpoint-every", 1000, "steps")
    add_number("--evaluate-every", 250, "steps")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    chosen = parse(arguments)
    try:
        with console.handle_stops(
            lambda: f"what is in {chosen.runs} can be gone on with"
        ):
            folder = finetune(chosen)
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")
    print(f"{folder}: {chosen.init} after {chosen.steps} steps on {chosen.task}")


if __name__ == "__main__":
    console.command(main)
