"""Trains the bundled T5 family again.

    python -m experiments.training.zoo_t5 --pairs FOLDER

A target and three drafts, small, base and large in the spirit of Leviathan et al.
(2023), 4.1, and a decoder alone; for the tasks of `texts.tasks`, whose sentences are
read from FOLDER. Stages, each resumable and skipped when done: the tokenizer; a small
target, on short texts; the same on all tasks; the target, grown from it; what it
writes; the drafts; the counts. Hours on a CPU.

Half of the texts are written at T = 0. Drafts that read the input learn to copy it
(`copying`), then by KL until that is flat, then by another loss, twice: for a while,
and for long. One that does not read it cannot agree much, and is left at that.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.training import copying, counts, loop, pairs, pipeline, tokenizer
from experiments.training.drafts import written
from experiments.training.drafts.written import Beginning, Lessons, Written
from experiments.training.pairs import PairRows
from experiments.training.pipeline import Data, Stage
from experiments.training.texts import documentation, tasks
from specjax import checkpoints, zoo
from specjax.checkpoints import Checkpoint
from specjax.types import Prompt


def main() -> None:
    """Runs every stage, then exports."""
    recipe = pipeline.read("t5")
    parser = pipeline.parser(__doc__, "runs/zoo_t5", recipe)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--export", type=Path, default=zoo.FOLDER)
    options = parser.parse_args()
    recipe = pipeline.chosen(options, recipe)
    train(options.pairs, options.runs, options.export, recipe)


def train(folder: Path, runs: Path, export: Path, recipe: dict) -> None:
    """Everything, into `export`; what it was made from goes into `runs`."""
    runs.mkdir(parents=True, exist_ok=True)
    large, path = pipeline.config(recipe, "large"), runs / "tokenizer.model"
    pieces = tokenizer.keep(path, lambda: subwords(folder, large.pieces))
    (export / "t5.model").write_bytes(path.read_bytes())
    sides = {
        side: tasks.load(runs / f"{side}.npz", pieces, folder)
        for side in ("train", "valid")
    }
    stages = pipeline.stages(recipe, "seed") + pipeline.stages(recipe, "target")
    params = pipeline.run(runs, stages, of_target(*sides.values(), recipe))
    path = export / "t5_target.safetensors"
    zoo.save(path, large, params, bits=8)
    target = checkpoints.load(path)
    lessons = read(runs / "drafts", target, *sides.values(), recipe)
    data, alphas = {"copying": copying.data, "lessons": written.data(lessons)}, {}
    drafts = pipeline.stages(recipe, "drafts")
    for name in [name for name in recipe["models"] if name.startswith("t5_")]:
        own = [it for it in drafts if it.folder.startswith(f"drafts/{name}")]
        first = copying.first(own[0]) if own[0].data == "copying" else None
        params = pipeline.run(runs, own, data, first)
        zoo.save(export / f"{name}.safetensors", own[0].config, params, bits=8)
        alphas[name] = written.accepted(own[0].config, params, lessons.held_out)
    targets = [it.tolist() for group in sides["train"].values() for _, it in group]
    table = counts.fit(targets, large.vocab)
    zoo.save_ngrams(export / "t5_bigram.safetensors", table)
    about = {
        side: json.loads((runs / f"{side}.json").read_text()) for side in sides
    } | {"sentences": "Tatoeba, CC BY 2.0 FR, tatoeba.org and manythings.org/anki"}
    path = export / "t5_recipes.json"
    pipeline.save(path, runs, recipe, text=about, held_out=alphas)


def subwords(folder: Path, count: int) -> bytes:
    """Pieces of both sides of all that the first weights read."""
    groups = tasks.sentences(folder), documentation.pairs("train")
    read = [side for group in groups for pair in group for side in pair]
    prefixes = [tasks.TRANSLATE, tasks.SUMMARIZE] * 2000  # enough to be few pieces
    return tokenizer.train_t5(read + prefixes, count)


def of_target(train: tasks.Texts, valid: tasks.Texts, recipe: dict) -> pipeline.Texts:
    """The short texts alone, for the first weights, and all tasks."""
    shares = {
        part: {name: task[part] for name, task in recipe["tasks"].items() if task[part]}
        for part in ("seed", "share")
    }

    def sampler(texts: tasks.Texts, shares: Mapping[str, float], stage: Stage):
        tokens, buckets = stage.recipe.batch * stage.recipe.length, []
        for name, share in shares.items():
            sizes = recipe["tasks"][name]["sizes"]
            buckets += pairs.buckets(texts[name], sizes, tokens, share)
        return pairs.sampler(buckets)

    def measured(shares: Mapping[str, float], stage: Stage, count: int):
        sample = sampler(valid, shares, stage)
        return [sample((1, i)) for i in range(count)]

    few, more = recipe["measured"]
    (first,) = pipeline.stages(recipe, "seed")
    fixed: dict[str, list[PairRows]] = {
        "held_out": measured(shares["seed"], first, few)
    }

    def of_seed(stage: Stage) -> Data:
        return Data(sampler(train, shares["seed"], stage), fixed, pairs.cross_entropy)

    def of_tasks(stage: Stage) -> Data:
        added = {
            name: measured({name: share}, stage, more)
            for name, share in shares["share"].items()
            if name not in shares["seed"]
        }
        sample = sampler(train, shares["share"], stage)
        return Data(sample, fixed | added, pairs.cross_entropy)

    return {"seed": of_seed, "tasks": of_tasks}


def read(
    runs: Path, target: Checkpoint, train: tasks.Texts, valid: tasks.Texts, recipe: dict
) -> Lessons:
    """What the target writes for inputs of every task, with its law, by task; held out,
    by task and temperature."""
    digest, every, held_out = loop.digest(target.params), {}, {}

    def wrote(side: str, name: str, listed: list[pairs.Pair], count: int) -> Written:
        size = part["inputs"], part["targets"]
        make = partial(write, target, listed, size, count, recipe["batch"])
        about = {"target": digest, "texts": count, "inputs": size[0]}
        about["targets"] = size[1]
        return written.keep(runs / f"{side}_{name}.npz", target, make, about)

    for name, task in recipe["tasks"].items():
        part = task["written"]
        texts = wrote("train", name, train[name], part["texts"])
        rows = max(8, recipe["row_tokens"] // (part["inputs"] + part["targets"]))
        every[name] = texts, part["share"], rows
        both = wrote("held_out", name, valid[name], 2 * recipe["held_out"])
        for temperature in (0, 1):  # they take turns
            turn = jax.tree.map(lambda leaf, t=temperature: leaf[t::2], both)
            held_out[f"{name}_t{temperature}"] = turn
    return Lessons(every, held_out, digest)


def write(
    target: Checkpoint,
    listed: list[pairs.Pair],
    size: tuple[int, int],
    count: int,
    batch: int,
) -> written.Texts:
    """The target's texts for some of the inputs, in turns at T = 0 and T = 1. size: the
    longest input and text."""
    fitting = [source for source, _ in listed if len(source) <= size[0]]
    count = min(count, len(fitting)) // batch * batch
    chosen = np.random.default_rng(0).choice(len(fitting), count, replace=False)

    def begun() -> Iterator[Beginning]:
        for at in range(0, count, batch):
            sources = [(fitting[i], []) for i in chosen[at : at + batch]]
            read = pairs.pad(sources, size[0], 1)
            start = jnp.zeros((batch, 1), jnp.int32), jnp.ones(batch, jnp.int32)
            inputs = jnp.asarray(read.inputs), jnp.asarray(read.length)
            prompt, kept = Prompt(*start, inputs), read.inputs.astype(np.uint16)
            half = np.arange(batch) % 2
            yield Beginning(jax.random.key(at), prompt, half, (kept, read.length))

    return written.write(target, begun(), size[1])


if __name__ == "__main__":
    main()
