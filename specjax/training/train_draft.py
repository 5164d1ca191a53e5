"""Trains a draft for a target: its texts, its states, the draft, and its folder.

Everything is kept in the folder of the run: the target's states in shards, the state of
training, the curve. A run that was stopped goes on with the same call, and a folder is
refused for another target, other texts or other settings.
Axes: N texts, L tokens, V vocabulary, K ids of a head.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import checkpoints, pretrained, prompts, zoo
from specjax.checkpoints import Pretrained, huggingface
from specjax.drafters import eagle3, medusa
from specjax.drafts import blockwise_files, eagle3_files, medusa_files
from specjax.keys import root_key
from specjax.models import families, gpt
from specjax.prompts.questions import Chosen
from specjax.training import (
    accumulation,
    draft_kinds,
    events,
    loop,
    target_states,
    written,
)
from specjax.training.draft_kinds import Learner, Sizes
from specjax.training.heads import Objective
from specjax.training.loop import Recipe
from specjax.training.target_states import Arrays, Lesson, Reads, Shards
from specjax.types import Prompt

WIDTH = 16  # prompts are padded to a multiple of it
FILE = "draft.safetensors"  # of a model that transformers has no class for
SHARE = 4  # an EAGLE-3 head proposes one in this many of the target's ids
FREQUENT = 64  # texts at a time, whose ids are counted


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """The settings of a training: the draft, its texts, and the optimization.

    Attributes:
      kind: one of `draft_kinds.RATES`.
      out: the folder of the draft; it must not exist.
      runs: the folder of the run.
      sizes: the sizes of the draft.
      objective: its loss.
      recipe: the recipe of the loop; `length` is the longest text that is read.
      data: a file of texts that the target reads, None for texts that it writes.
      generate: a file of prompts that it continues, None for `data`.
      texts: how many it writes; where there are fewer prompts, they are used again.
      new: how many tokens it adds to each at most.
      greedy_every: one in this many of the texts that it writes is greedy, the others
        are sampled at temperature 1; 0 for none.
      longest: prompts of more tokens are left out.
      held_out: the number of texts to measure on, whose prompts are not trained on.
      part: texts that are written or read together, and make a shard.
      parts: the number of parts of a batch, which are computed one after another.
      devices: a mesh, as `runtime.mesh.parse` reads it; "" is one device.
      events: a folder for events of TensorBoard; None for none.
    """

    kind: str
    out: Path
    runs: Path
    sizes: Sizes
    objective: Objective
    recipe: Recipe
    data: Path | None = None
    generate: Path | None = None
    texts: int = 512
    new: int = 96
    greedy_every: int = 2
    longest: int = 64
    held_out: int = 32
    part: int = 64
    parts: int = 1
    devices: str = ""
    events: Path | None = None


class Material(NamedTuple):
    """The texts of a training run, as functions that return them.

    Attributes:
      parts: for each shard for training, a function that returns its arrays.
      held_out: the same of those that are measured on.
      about: JSON, all that they depend on besides the target.
    """

    parts: Sequence[Callable[[], Arrays]]
    held_out: Sequence[Callable[[], Arrays]]
    about: dict[str, Any]


def train(target: Pretrained, setting: Setting) -> dict[str, Any]:
    """Trains a draft and writes its folder; returns the last measurement.

    Raises:
      ValueError: before any work for what cannot be trained, and as `loop.train`.
    """
    if setting.out.exists():
        raise ValueError(f"{setting.out} exists: name a new folder with --out")
    if setting.recipe.batch % setting.parts:
        raise ValueError(
            f"--parts must divide --batch {setting.recipe.batch}; got {setting.parts}"
        )
    reads = draft_kinds.reads(setting.kind, target, setting.sizes)
    if target.encodes:
        raise ValueError(
            f"{target.name} reads inputs by an encoder, and drafts are trained for"
            " decoders alone: name a GPT or a model of Llama's kind"
        )
    make_learner(target, setting, None)  # raises an error for its sizes
    curve = setting.runs / "training" / "curve.jsonl"
    report = None
    if setting.events is not None:
        report = events.reporter(setting.events, curve)
    model = pretrained.with_taps(target, reads.taps)
    material = read_texts(model, setting, reads)
    digests = {"target": loop.digest(target.params)}
    folder = setting.runs / "states"
    shards, held_out = (
        target_states.keep(
            folder / name,
            parts,
            reads=reads,
            about={**digests, **material.about},
            label=name,
        )
        for name, parts in (
            ("texts", material.parts),
            ("held_out", material.held_out),
        )
    )
    ids = frequent_ids(shards, target.vocab, setting)
    learner = make_learner(target, setting, ids)
    task = make_task(target, setting, learner, (shards, held_out))
    about = digests | material.about
    task = task._replace(sizes=to_json(identity(setting, learner) | about))
    params = loop.train(
        curve.parent, task, setting.recipe, devices=setting.devices, report=report
    )
    save(setting, target, learner, params)
    return json.loads(curve.read_text().splitlines()[-1])


def read_texts(target: Pretrained, setting: Setting, reads: Reads) -> Material:
    """Returns the texts of a run. Raises ValueError for a file with too few texts."""
    if setting.data is not None:
        return read_data(target, setting, reads)
    assert setting.generate is not None  # as the command requires
    chosen = Chosen(longest=setting.longest)
    read = prompts.read(setting.generate, target, chosen=chosen)
    begins = shuffled(unique(read.tokens), setting.recipe.seed)
    apart, rest = split(begins, setting)
    width = -(-max(map(len, begins)) // WIDTH) * WIDTH
    write = target_states.writer(target, reads, setting.new)

    def part(
        some: list[list[int]], temperature: np.ndarray, number: int, seed: int
    ) -> Arrays:
        key = jax.random.fold_in(root_key(seed), number)
        tokens = np.zeros((len(some), width), np.int32)
        for row, ids in enumerate(some):
            tokens[row, : len(ids)] = ids
        lengths = np.array([len(ids) for ids in some], np.int32)
        prompt = Prompt(jnp.asarray(tokens), jnp.asarray(lengths))
        return write(key, prompt, temperature)

    seed, size = 2 * setting.recipe.seed, setting.part
    both = []
    for number, (some, count) in enumerate(
        ((rest, setting.texts), (apart, setting.held_out))
    ):
        rows = min(size, count)
        full = -(-count // rows) * rows
        whole = [some[i % len(some)] for i in range(full)]
        temperature = temperatures(full, len(some), setting.greedy_every)
        cut = [slice(at, at + rows) for at in range(0, full, rows)]
        both.append(
            [
                partial(part, whole[each], temperature[each], i, seed + number)
                for i, each in enumerate(cut)
            ]
        )
    about = {
        "texts": digest_ids(begins),
        "new": setting.new,
        "greedy_every": setting.greedy_every,
        "width": width,
        "together": size,
        "seed": setting.recipe.seed,
        "held_out": [len(apart), setting.held_out],
    }
    return Material(both[0], both[1], about)


def temperatures(count: int, prompts: int, greedy_every: int) -> np.ndarray:
    """Returns the temperatures of texts: every `greedy_every`-th has 0, the others have
    1. Where the prompts are used again, others of them have 0."""
    if greedy_every == 0:
        return np.ones(count, int)
    place = np.arange(count)
    return ((place + place // prompts) % greedy_every != 0).astype(int)


def read_data(target: Pretrained, setting: Setting, reads: Reads) -> Material:
    """Returns the texts of a file, unchanged except that they are cut to the length of
    the recipe."""
    assert setting.data is not None
    read = prompts.read(setting.data, target)
    length, end = setting.recipe.length, [*target.ends[:1]]
    begins = shuffled(
        [[*ids, *end] for ids in unique(read.tokens)], setting.recipe.seed
    )
    apart, rest = split(begins, setting)
    score, both = target_states.scorer(target, reads), []
    size = setting.part

    def part(texts: list[list[int]]) -> Arrays:
        return score(target_states.pad(texts, length, target.vocab))

    for some in (rest, apart):
        texts = target_states.chunks(some, length)
        cut = [texts[at : at + size] for at in range(0, len(texts), size)]
        both.append([partial(part, x) for x in cut])
    about = {
        "texts": digest_ids(begins),
        "length": length,
        "seed": setting.recipe.seed,
        "held_out": len(apart),
    }
    return Material(both[0], both[1], about)


def unique(texts: Iterable[Iterable[int]]) -> list[list[int]]:
    """Returns each text once, so that none is both learnt and held out."""
    return [*map(list, dict.fromkeys(tuple(map(int, ids)) for ids in texts))]


def shuffled(texts: list[list[int]], seed: int) -> list[list[int]]:
    """Returns texts in an order that depends on a seed."""
    order = np.random.default_rng(seed).permutation(len(texts))
    return [texts[i] for i in order]


def split(
    texts: list[list[int]], setting: Setting
) -> tuple[list[list[int]], list[list[int]]]:
    """Returns the held-out texts, at most an eighth, and the rest."""
    if len(texts) < 2:
        raise ValueError(
            f"{setting.data or setting.generate} has one text: write two at least, some"
            " hundred are better"
        )
    count = min(setting.held_out, max(1, len(texts) // 8))
    return texts[:count], texts[count:]


def digest_ids(texts: Sequence[Sequence[int]]) -> str:
    """Returns the sha256 of lists of ids."""
    lengths = np.array([len(ids) for ids in texts], np.int32)
    flat = np.concatenate([np.asarray(ids, np.int32) for ids in texts])
    return loop.digest((lengths, flat))


def frequent_ids(shards: Shards, vocab: int, setting: Setting) -> np.ndarray | None:
    """Returns the ids [K] that the target would emit most often in its texts,
    ascending; None for a draft that proposes all ids."""
    count = setting.sizes.vocab or -(-vocab // SHARE)
    if setting.kind != "eagle3" or count >= vocab:
        return None
    mass = np.zeros(vocab)
    for at in range(0, len(shards), FREQUENT):
        index = np.arange(at, min(at + FREQUENT, len(shards)))
        whole = shards.rows(index, hidden=False).whole
        counts = np.asarray(written.scored_positions(whole.texts))[..., None]
        share = np.exp(whole.log_p[..., :-1]) * counts
        np.add.at(mass, whole.ids.ravel(), share.ravel())
    return np.sort(np.argsort(-mass, kind="stable")[:count])


def make_learner(
    target: Pretrained, setting: Setting, ids: np.ndarray | None
) -> Learner:
    """Returns the draft of a setting."""
    sizes, goal = setting.sizes, setting.objective
    if setting.kind == "eagle3":
        return draft_kinds.eagle3_learner(target, sizes, goal, ids)
    if setting.kind == "medusa":
        return draft_kinds.medusa_learner(target, sizes, goal)
    if setting.kind == "blockwise":
        return draft_kinds.blockwise_learner(target, sizes, goal)
    return draft_kinds.model_learner(target, sizes, goal, setting.kind)


def make_task(
    target: Pretrained,
    setting: Setting,
    learner: Learner,
    both: tuple[Shards, Shards],
) -> loop.Task:
    """Returns the task of the training loop: batches of the states, and what is
    measured."""
    shards, apart = both
    size, vocab = setting.recipe.batch, target.vocab
    place = np.arange(vocab, dtype=np.int32)
    if learner.ids is not None:
        place = np.full(vocab, learner.ids.size, np.int32)
        place[learner.ids] = np.arange(learner.ids.size)
    params: Any = target.params
    reads_tokens = setting.kind == "eagle3"
    table = np.asarray(params["embedding"]) if reads_tokens else None

    def lesson(some: Shards, index: np.ndarray) -> Lesson:
        rows = some.rows(index)
        whole = rows.whole._replace(ids=place[rows.whole.ids])
        embedded = None if table is None else table[whole.texts.tokens]
        return rows._replace(whole=whole, embedded=embedded)

    def batch(seed: tuple[int, ...]) -> Lesson:
        rng = np.random.default_rng(seed)
        return lesson(shards, rng.integers(len(shards), size=size))

    count = len(apart) // size * size or len(apart)
    fixed = [
        lesson(apart, np.arange(at, min(at + size, count)))
        for at in range(0, count, size)
    ]
    loss = accumulation.in_parts(learner.loss, setting.parts, weight_of)
    return loop.Task(
        sizes={},
        init=learner.init,
        loss=loss,
        config=None,
        batch=batch,
        held_out={"held_out": fixed},
        measure=learner.measure,
        shown=learner.shown,
        weight=weight_of,
        at_most="alpha" if vocab > written.KEPT else "",
    )


def weight_of(rows: Lesson) -> Any:
    """Returns how many tokens of a batch count in its loss."""
    return written.scored_positions(rows.whole.texts).sum()


def identity(setting: Setting, learner: Learner) -> dict[str, Any]:
    """Returns what identifies a run, besides its recipe, target and texts."""
    said = None if learner.ids is None else loop.digest(learner.ids)
    return {
        "kind": setting.kind,
        "draft": learner.config._asdict(),
        "sizes": setting.sizes._asdict(),
        "objective": setting.objective._asdict(),
        "ids": said,
        "parts": setting.parts,
    }


def to_json(about: dict[str, Any]) -> dict[str, Any]:
    """Returns the same value as JSON stores it, which has no tuples."""
    return json.loads(json.dumps(about))


def save(setting: Setting, target: Pretrained, learner: Learner, params: Any) -> None:
    """Writes the folder of a draft, in a layout that `specjax.load_draft` reads."""
    config: Any = learner.config
    if isinstance(config, eagle3.Config):
        turns = setting.sizes.turns or draft_kinds.TURNS
        eagle3_files.write(
            setting.out,
            config,
            params,
            ids=learner.ids,
            target=target,
            chain=turns,
        )
    elif isinstance(config, medusa.Config):
        write = blockwise_files.write if config.blockwise else medusa_files.write
        write(setting.out, config, params, target=target)
    else:
        config = config._replace(dtype="float32")
        if isinstance(config, gpt.Config) and config.positions is None:
            with huggingface.new_folder(setting.out) as folder:
                zoo.save(folder / FILE, config, params)
            return
        made = Pretrained(
            setting.out.name,
            config,
            families.build(config),
            params,
            start=target.start,
            ends=target.ends,
        )
        checkpoints.save(setting.out, made)
