"""The drafts of the T5 target, distilled on what the target wrote for its tasks.

Half of the texts are written at T = 0; the target's law at every token is kept
(`written`). Drafts that read the input learn to copy it (`copying`), then by KL until
that is flat, then by another loss, twice: for a while, and for long. One that does not
read it cannot agree much, and is left at that.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tqdm import tqdm

from experiments.training import language, loop, pairs
from experiments.training.drafts import copying, written
from experiments.training.drafts.written import Lessons, Written
from experiments.training.pairs import Pair
from experiments.training.targets import t5 as targets
from specjax import generate
from specjax.checkpoints import Pretrained
from specjax.inputs import make_request, make_sampling
from specjax.models import gpt, t5
from specjax.types import Params, Prompt

VOCAB, PIECES = targets.LARGE.vocab, targets.LARGE.pieces
DRAFTS = {
    "t5_small": t5.Config(VOCAB, 64, 176, 2, 2, 2, 32, pieces=PIECES),
    "t5_base": t5.Config(VOCAB, 128, 352, 2, 2, 4, 32, pieces=PIECES),
    "t5_large": t5.Config(VOCAB, 192, 416, 2, 3, 3, 64, pieces=PIECES),
    "t5_decoder": gpt.Config(VOCAB, 64, 256, 2, 2),
}
SCALED = loop.Recipe(4000, 1000, rate=2e-2, warmup=200, optimizer="scaled")
KL = {
    "t5_small": SCALED._replace(steps=8000, decay=2000),
    "t5_base": SCALED._replace(steps=5000, decay=1400),
    "t5_large": SCALED._replace(steps=2500, decay=800),
    "t5_decoder": SCALED._replace(
        steps=1500, decay=600, rate=6e-3, weight_decay=0.0, optimizer="adamw"
    ),
}
AFTER = dict(steps=600, decay=400, warmup=20, evaluate_every=200)
LONGER = {  # from the start the rate falls to nothing
    "t5_small": dict(steps=8000, decay=7800),
    "t5_base": dict(steps=2000, decay=1800),
    "t5_large": dict(steps=2000, decay=1800),
}
SLOWER = 0.3  # the rate after KL, of that before
BATCH = 64  # texts that are written together
ROW_TOKENS = 2048  # read and written, of a batch


class Part(NamedTuple):
    """Of a task: how many texts are written, their longest input and text; how often it
    is learnt from."""

    texts: int
    inputs: int
    targets: int
    share: float


PARTS = {
    "joined": Part(8192, 128, 112, 0.4),
    "correct": Part(3072, 144, 112, 0.3),
    "sentences": Part(4096, 64, 48, 0.1),
    "docs": Part(2560, 128, 40, 0.2),
}
HELD_OUT = 256  # texts of a task


def read(
    runs: Path, target: Pretrained, train: targets.Texts, valid: targets.Texts
) -> Lessons:
    """What the target writes for inputs of every task, with its law, by task; held out,
    by task and temperature."""
    runs.mkdir(parents=True, exist_ok=True)
    logits, digest = logits_of(target.config), loop.digest(target.params)

    def law(rows: written.Texts) -> Array:
        return jax.nn.log_softmax(logits(target.params, rows))

    def wrote(side: str, name: str, listed: list[Pair], count: int) -> Written:
        part = PARTS[name]._replace(texts=count)
        texts = partial(write, target, listed, part)
        about = {"target": digest, **part._asdict()}
        del about["share"]
        return written.keep(runs / f"{side}_{name}.npz", texts, law, about)

    every = {
        name: wrote("train", name, train[name], part.texts)
        for name, part in PARTS.items()
    }
    held_out = {}
    for name in PARTS:
        both = wrote("held_out", name, valid[name], 2 * HELD_OUT)
        for temperature in (0, 1):  # they take turns
            index = np.arange(temperature, len(both.ids), 2)
            part = jax.tree.map(lambda leaf, index=index: leaf[index], both)
            held_out[f"{name}_t{temperature}"] = part
    return Lessons(every, held_out, digest)


def write(target: Pretrained, listed: list[Pair], part: Part) -> written.Texts:
    """The target's texts for some of the inputs, in turns at T = 0 and T = 1."""
    longest = part.targets
    run = generate.autoregressive(target.model, longest + 2)
    sampling = make_sampling(BATCH, 1.0)
    sampling = sampling._replace(temperature=jnp.arange(BATCH) % 2 * 1.0)
    fitting = [source for source, _ in listed if len(source) <= part.inputs]
    count = min(part.texts, len(fitting)) // BATCH * BATCH
    chosen = np.random.default_rng(0).choice(len(fitting), count, replace=False)
    rows = []
    for at in tqdm(range(0, count, BATCH), desc="texts"):
        sources = [(fitting[i], []) for i in chosen[at : at + BATCH]]
        read = pairs.pad(sources, part.inputs, 1)
        start = jnp.zeros((BATCH, 1), jnp.int32), jnp.ones(BATCH, jnp.int32)
        inputs = jnp.asarray(read.inputs), jnp.asarray(read.length)
        key, prompt = jax.random.key(at), Prompt(*start, inputs)
        request = make_request(key, prompt, longest, sampling, t5.END)
        out = run(Params(target.params), prompt, request)
        tokens = np.asarray(out.tokens[:, : longest + 1], np.uint16)
        length, begun = np.asarray(out.length, np.int32), np.ones(BATCH, np.int32)
        inputs = read.inputs.astype(np.uint16)
        rows.append(written.Texts(tokens, length, begun, inputs, read.length))
    return written.Texts(*(np.concatenate(part) for part in zip(*rows, strict=True)))


def logits_of(config: t5.Config | gpt.Config) -> Callable:
    """(params, texts) -> [B, L - 1, V]; a decoder does not see what was read."""

    def logits(params, rows: written.Texts) -> Array:
        before = rows.tokens[:, :-1]
        if isinstance(config, gpt.Config):
            return language.logits_of(config, params, before)
        inputs = rows.inputs, rows.read, before, None, None
        return pairs.logits_of(config, params, pairs.PairRows(*inputs))

    return logits


def distilled(runs: Path, name: str, texts: Lessons) -> Any:
    """A draft by KL; one that reads the input has learnt before to copy it."""
    first = None
    if isinstance(DRAFTS[name], t5.Config):
        first = copying.learnt(runs / f"{name}_copying", DRAFTS[name])
    return trained(runs / name, name, "kl", KL[name], texts, first)


def continued(runs: Path, name: str, texts: Lessons, first: Any, loss: str) -> Any:
    """The same for a while more, and then for longer, by a loss of `losses.LOSSES`."""
    for stage, recipe in after(name, loss).items():
        first = trained(runs / f"{name}_{stage}", name, loss, recipe, texts, first)
    return first


def after(name: str, loss: str) -> dict[str, loop.Recipe]:
    """The stages of a draft after KL, in their order."""
    slower = KL[name]._replace(rate=SLOWER * KL[name].rate)
    lengths = {loss: AFTER}
    if name in LONGER:
        lengths[f"{loss}_longer"] = LONGER[name]
    return {stage: slower._replace(**length) for stage, length in lengths.items()}


def trained(
    folder: Path, name: str, loss: str, recipe: loop.Recipe, texts: Lessons, first: Any
) -> Any:
    """A draft by a loss, as `written.train`."""
    config = DRAFTS[name]
    of = language.task if isinstance(config, gpt.Config) else pairs.task
    task = of(config, written.distillation(loss, logits_of(config)))
    batch = sampler(texts.train)
    return written.train(folder, task, first, texts, batch, recipe)


def sampler(texts: Mapping[str, Written]) -> Callable[[tuple[int, ...]], Written]:
    """The batch of a seed: a task by its share, then texts of it."""
    names = list(texts)
    share = np.array([PARTS[name].share for name in names])

    def batch(seed: tuple[int, ...]) -> Written:
        rng = np.random.default_rng(seed)
        name = names[rng.choice(len(names), p=share / share.sum())]
        part, data = PARTS[name], texts[name]
        rows = max(8, ROW_TOKENS // (part.inputs + part.targets))
        return data.rows(rng.integers(len(data.ids), size=rows))

    return batch


def accepted(name: str, params: Any, texts: Lessons) -> dict[str, float]:
    """alpha on the held-out texts by task and temperature: `written.accepted`."""
    return written.accepted(logits_of(DRAFTS[name]), params, texts.held_out)
