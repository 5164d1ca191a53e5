"""What a target writes, and what it thought at every token of it: read once, then kept.

A draft learns from these alone; its target is not asked again.
Axes: N texts, B of them, L tokens, I ids or [S, E] states that an encoder gives, K kept
ids.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tqdm import tqdm

from experiments.training import forward, storage
from experiments.training.drafts import losses
from experiments.training.pipeline import Data, Stage
from specjax import generate
from specjax.checkpoints import Checkpoint
from specjax.inputs import make_request, make_sampling
from specjax.models import t5, whisper
from specjax.types import Params, Prompt

KEPT = 64


class Texts(NamedTuple):
    """tokens [N, L], the first `length` [N] of each a text, of which the first `begun`
    [N] were there before the target wrote. inputs: what an encoder reads of each,
    [N, I], the first `read` [N] of them, I = 0 without one; of speech the states
    themselves, [N, S, E]."""

    tokens: np.ndarray
    length: np.ndarray
    begun: np.ndarray
    inputs: np.ndarray
    read: np.ndarray

    def rows(self, index: np.ndarray) -> "Texts":
        return Texts(*(_wide(part[index]) for part in self))


class Written(NamedTuple):
    """ids [N, L - 1, K] uint16, the target's likeliest after each token, best first;
    log_p [N, L - 1, K + 1] float16, as `losses.classes`."""

    texts: Texts
    ids: np.ndarray
    log_p: np.ndarray

    def rows(self, index: np.ndarray) -> "Written":
        """Those texts, as a loss reads them."""
        wide = _wide(self.ids[index]), _wide(self.log_p[index])
        return Written(self.texts.rows(index), *wide)


def _wide(leaf: np.ndarray) -> np.ndarray:
    return leaf.astype(np.int32 if leaf.dtype.kind in "iu" else np.float32)


class Lessons(NamedTuple):
    """What a draft learns from. train: by task, with how often each is learnt from, and
    how many of its texts are a batch, None for the recipe's. held_out: by what the
    curve calls them. target: the `loop.digest` of who wrote them."""

    train: Mapping[str, tuple[Written, float, int | None]]
    held_out: Mapping[str, Written]
    target: str


class Beginning(NamedTuple):
    """A batch that a target goes on from. sources: what its encoder reads, as `Texts`
    keep it."""

    key: Array
    prompt: Prompt
    temperature: np.ndarray
    sources: tuple[np.ndarray, np.ndarray] | None = None


def alone(tokens: np.ndarray, length: np.ndarray, begun: np.ndarray) -> Texts:
    """Texts of a decoder, which reads nothing."""
    none = np.zeros((len(tokens), 0), np.uint16)
    return Texts(tokens, length, begun, none, np.zeros(len(tokens), np.int32))


def join(parts: Sequence[Any]) -> Any:
    """Several as one; their shapes are the same but for N."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def write(
    target: Checkpoint, beginnings: Iterable[Beginning], new: int, label: str = "texts"
) -> Texts:
    """The target's continuations, of at most `new` tokens; all of one width."""
    parts, run, width = [], None, 0
    for key, prompt, temperature, sources in tqdm(beginnings, label):
        if run is None:
            width = prompt.tokens.shape[1] + new
            run = generate.autoregressive(target.model, width + 1)
        sampling = make_sampling(len(temperature), 1.0)
        sampling = sampling._replace(temperature=jnp.float32(temperature))
        request = make_request(key, prompt, new, sampling, target.ends)
        out = run(Params(target.params), prompt, request)
        tokens = np.asarray(out.tokens[:, :width], np.uint16)
        length, begun = (np.asarray(x, np.int32) for x in (out.length, prompt.length))
        texts = alone(tokens, length, begun)
        if sources is not None:
            texts = texts._replace(inputs=sources[0], read=sources[1])
        parts.append(texts)
    return join(parts)


def keep(
    path: Path,
    target: Checkpoint,
    texts: Callable[[], Texts],
    about: dict[str, Any],
    batch: int = 16,
) -> Written:
    """Texts with the target's law after each token; once, then from `path`.

    about: JSON, the target and the settings that the texts depend on. batch: texts that
    are scored together. Raises ValueError for a file of others.
    """

    def made() -> dict[str, np.ndarray]:
        whole = texts()
        ids, log_p = join(_scored(target, whole, batch, path.stem))
        if whole.inputs.dtype == np.float32:
            whole = whole._replace(inputs=whole.inputs.astype(np.float16))
        return whole._asdict() | {"ids": ids, "log_p": log_p}

    read = storage.keep(path, made, {**about, "kept": KEPT})
    return Written(
        Texts(*(read[name] for name in Texts._fields)), read["ids"], read["log_p"]
    )


def _scored(target: Checkpoint, texts: Texts, batch: int, label: str) -> list[tuple]:
    @jax.jit
    def likeliest(params, rows: Texts) -> tuple[Array, Array]:
        log_p = jax.nn.log_softmax(logits(target.config, params, rows))
        ids = jax.lax.top_k(log_p, KEPT)[1]
        return ids.astype(jnp.uint16), losses.classes(log_p, ids).astype(jnp.float16)

    count, parts = len(texts.tokens), []
    for at in tqdm(range(0, count, batch), label):
        index = np.minimum(np.arange(at, at + batch), count - 1)
        part = likeliest(target.params, texts.rows(index))
        parts.append(tuple(np.asarray(leaf)[: count - at] for leaf in part))
    return parts


def logits(config: forward.Config, params: Any, texts: Texts) -> Array:
    """[B, L - 1, V]: after each token but the last. A decoder does not see what was
    read."""
    read = None
    if isinstance(config, t5.Config):
        read = t5.Inputs(texts.inputs, texts.read)
    elif isinstance(config, whisper.Config):
        read = texts.inputs
    return forward.logits(config, params, texts.tokens[:, :-1], read)


def distillation(name: str, config: forward.Config) -> Callable:
    """A loss of `losses.LOSSES`, mean a token: (params, Written rows) -> scalar."""
    divergence = losses.LOSSES[name]

    def loss(params, rows: Written) -> Array:
        log_q = jax.nn.log_softmax(logits(config, params, rows.texts))
        each = divergence(rows.log_p, losses.classes(log_q, rows.ids))
        weight = live(rows.texts)
        return jnp.sum(each * weight) / weight.sum()

    return loss


def live(texts: Texts) -> Array:
    """[B, L - 1] bool: the places after which a token of the text follows."""
    return jnp.arange(1, texts.tokens.shape[1]) < texts.length[:, None]


def by_target(texts: Texts) -> Array:
    """[B, L - 1] bool: those of them after which follows what the target wrote."""
    after = jnp.arange(1, texts.tokens.shape[1])
    return live(texts) & (after >= texts.begun[:, None])


def data(lessons: Lessons) -> Callable[[Stage], Data]:
    """What a stage of a draft learns from: a task by its share, then texts of it. A
    draft that learned from another target is not gone on with."""
    tasks = list(lessons.train.values())
    share = np.array([part[1] for part in tasks])
    held_out = {name: batches(part) for name, part in lessons.held_out.items()}

    def of(stage: Stage) -> Data:
        def batch(seed: tuple[int, ...]) -> Written:
            rng, chosen = np.random.default_rng(seed), 0
            if len(tasks) > 1:
                chosen = rng.choice(len(tasks), p=share / share.sum())
            texts, _, rows = tasks[chosen]
            size = rows or stage.recipe.batch
            return texts.rows(rng.integers(len(texts.ids), size=size))

        about = {"target": lessons.target}
        return Data(batch, held_out, lambda c: distillation(stage.loss, c), about)

    return of


def batches(part: Written, size: int = 32) -> list[Written]:
    """All rows, in order, as a loss reads them."""
    count = len(part.ids)
    starts = range(0, count, size)
    return [part.rows(np.arange(at, min(at + size, count))) for at in starts]


def accepted(
    config: forward.Config, params: Any, held_out: Mapping[str, Written]
) -> dict[str, float]:
    """alpha of what the target wrote, by temperature: "t0", the share of argmaxes that
    are the target's; "t1", the mean of sum min(p, q)."""

    @jax.jit
    def of(params, rows: Written) -> tuple[Array, Array, Array]:
        z, here = logits(config, params, rows.texts), by_target(rows.texts)
        same = jnp.argmax(z, -1) == rows.ids[..., 0]
        log_q = losses.classes(jax.nn.log_softmax(z), rows.ids)
        alpha = losses.alpha(rows.log_p, log_q)
        return (same * here).sum(), (alpha * here).sum(), here.sum()

    rates = {}
    for name, part in held_out.items():
        sums = np.sum([of(params, rows) for rows in batches(part)], axis=0)
        greedy = name.endswith("t0")
        rates[f"alpha_{name}"] = float((sums[0] if greedy else sums[1]) / sums[2])
    return rates
