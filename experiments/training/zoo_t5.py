"""Trains the bundled T5 family again.

    python -m experiments.training.zoo_t5 --pairs FOLDER

It trains a target and three drafts, small, base and large in the spirit of Leviathan et
al. (2023), 4.1, and a decoder alone, for the tasks of `texts.tasks`, whose sentences
are read from FOLDER. The stages, each resumable and skipped when done, are the
tokenizer; a small target, on short texts; the same on all tasks; the target, grown from
it; the texts that it writes; the drafts; the counts. It takes hours on a CPU.

Half of the texts are written at T = 0. Drafts that read the input learn to copy it
(`pairs.copying`), then by KL until that is flat, then by another loss, twice: for a
while, and for long. A draft that does not read the input cannot agree much, and is not
trained further.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.training import counts, pairs, pipeline, tokenizer
from experiments.training.drafts import lessons as learning
from experiments.training.drafts.lessons import Lessons
from experiments.training.pipeline import Data, Stage
from experiments.training.texts import documentation, tasks
from specjax import checkpoints, zoo
from specjax.checkpoints import Pretrained
from specjax.keys import root_key
from specjax.training import loop, written
from specjax.training.written import Written
from specjax.types import Prompt

SENTENCES = "Tatoeba, CC BY 2.0 FR, tatoeba.org and manythings.org/anki"


def main() -> None:
    flags = {"--pairs": pipeline.FOLDER_OF, **pipeline.EXPORT}
    options, recipe = pipeline.parse_flags(__doc__, "t5", "runs/zoo_t5", flags)
    train(options.pairs, options.runs, options.export, recipe)


def train(folder: Path, runs: Path, export: Path, recipe: dict) -> None:
    """Trains everything into `export`; intermediate results go into `runs`."""
    runs.mkdir(parents=True, exist_ok=True)
    large, path = pipeline.config(recipe, "large"), runs / "tokenizer.model"
    pieces = tokenizer.keep(path, lambda: subwords(folder, large.pieces))
    (export / "t5.model").write_bytes(path.read_bytes())
    names = "train", "valid"
    sides = [tasks.load(runs / f"{side}.npz", pieces, folder) for side in names]
    stages = pipeline.stages(recipe, "seed", "target")
    params = pipeline.run(runs, stages, target_texts(*sides, recipe))
    path = export / "t5_target.safetensors"
    zoo.save(path, large, params, bits=8)
    lessons = read(runs / "drafts", checkpoints.load(path), *sides, recipe)
    data, alphas = {"copying": pairs.copying, "lessons": learning.data(lessons)}, {}
    for name in (name for name in recipe["models"] if name.startswith("t5_")):
        own = pipeline.stages(recipe, f"drafts/{name}")
        first = pairs.copying_params(own[0]) if own[0].data == "copying" else None
        params = pipeline.run(runs, own, data, first=first)
        zoo.save(export / f"{name}.safetensors", own[0].config, params, bits=8)
        alphas[name] = written.acceptance(own[0].config, params, lessons.held_out)
    targets = [it.tolist() for group in sides[0].values() for _, it in group]
    table = counts.fit(targets, large.vocab)
    zoo.save_ngrams(export / "t5_bigram.safetensors", table)
    about = {side: json.loads((runs / f"{side}.json").read_text()) for side in names}
    about["sentences"] = SENTENCES
    path = export / "t5_recipes.json"
    pipeline.save(path, runs, recipe, text=about, held_out=alphas)


def subwords(folder: Path, count: int) -> bytes:
    groups = tasks.sentences(folder), documentation.pairs("train")
    read = [side for group in groups for pair in group for side in pair]
    prefixes = [tasks.TRANSLATE, tasks.SUMMARIZE] * 2000  # enough to be few pieces
    return tokenizer.train_t5(read + prefixes, count)


def target_texts(
    train: tasks.Texts, valid: tasks.Texts, recipe: dict
) -> pipeline.Texts:
    """Returns two sets of texts: the short ones, for the first weights, and all
    tasks."""
    shares = {
        part: {name: task[part] for name, task in recipe["tasks"].items() if task[part]}
        for part in ("seed", "share")
    }

    def sampler(texts: tasks.Texts, shares: Mapping[str, float], stage: Stage):
        tokens, buckets = stage.recipe.batch * stage.recipe.length, []
        for name, share in shares.items():
            sizes = recipe["tasks"][name]["sizes"]
            buckets += pairs.group_by_size(
                texts[name], sizes=sizes, tokens=tokens, share=share
            )
        return pairs.sampler(buckets)

    def sample_shares(shares: Mapping[str, float], stage: Stage, count: int):
        sample = sampler(valid, shares, stage)
        return [sample((1, i)) for i in range(count)]

    few, more = recipe["measured"]
    (first,) = pipeline.stages(recipe, "seed")
    fixed = {"held_out": sample_shares(shares["seed"], first, few)}

    def data(part: str, stage: Stage) -> Data:
        added = {
            name: sample_shares({name: share}, stage, more)
            for name, share in shares[part].items()
            if name not in shares["seed"]
        }
        sample = sampler(train, shares[part], stage)
        whole = "".join(pairs.digest(train[name]) for name in sorted(shares[part]))
        about = {loop.TEXT: hashlib.sha256(whole.encode()).hexdigest()}
        return Data(sample, fixed | added, pairs.cross_entropy, about)

    return {"seed": partial(data, "seed"), "tasks": partial(data, "share")}


def read(
    runs: Path, target: Pretrained, train: tasks.Texts, valid: tasks.Texts, recipe: dict
) -> Lessons:
    """Returns the texts that the target writes for inputs of every task, with its law,
    by task; those held out by task and temperature.
    """
    digest, every, held_out = loop.digest(target.params), {}, {}
    batch = recipe["batch"]
    start, length = jnp.zeros((batch, 1), jnp.int32), jnp.ones(batch, jnp.int32)

    def texts_in_turns(side: str, listed: list[pairs.Pair], wanted: int) -> Written:
        """Returns texts at T = 0 and T = 1 in turns, for those of the inputs that are
        short enough.
        """
        fitting = [source for source, _ in listed if len(source) <= longest]
        count = min(wanted, len(fitting)) // batch * batch
        chosen = np.random.default_rng(0).choice(len(fitting), count, replace=False)

        def begin(index: np.ndarray) -> tuple:
            read = pairs.pad([(fitting[i], []) for i in chosen[index]], longest, 1)
            inputs = jnp.asarray(read.inputs), jnp.asarray(read.length)
            kept = read.inputs.astype(np.uint16), read.length
            return root_key(index[0]), Prompt(start, length, inputs), kept

        turns, size = np.arange(batch) % 2, (count, batch, new)
        make = partial(written.write, target, begin, size=size, temperature=turns)
        about = {"target": digest, "texts": wanted, "inputs": longest, "targets": new}
        return written.keep(
            runs / f"{side}_{name}.npz", target, texts=make, about=about
        )

    for name, task in recipe["tasks"].items():
        part = task["written"]
        longest, new = part["inputs"], part["targets"]
        texts, rows = texts_in_turns("train", train[name], part["texts"]), longest + new
        every[name] = texts, part["share"], max(8, recipe["row_tokens"] // rows)
        both = texts_in_turns("held_out", valid[name], 2 * recipe["held_out"])
        for temperature in (0, 1):
            turn = jax.tree.map(lambda leaf, t=temperature: leaf[t::2], both)
            held_out[f"{name}_t{temperature}"] = turn
    return Lessons(every, held_out, digest)


if __name__ == "__main__":
    pipeline.command(main)
