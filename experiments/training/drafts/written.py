"""What a target writes, and what it thought at every token of it: read once, then kept.

A draft learns from these alone; its target is not asked again.
Axes: N texts, B of them, L tokens, I ids or [S, E] states that an encoder gives, K kept
ids.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.training import forward, storage
from experiments.training.drafts import losses
from experiments.training.pipeline import Data, Stage
from specjax import generate
from specjax.checkpoints import Pretrained
from specjax.inputs import make_request, make_sampling
from specjax.models import t5, whisper
from specjax.runtime import progress
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


class Written(NamedTuple):
    """ids [N, L - 1, K] uint16, the target's likeliest after each token, best first;
    log_p [N, L - 1, K + 1] float16, as `losses.classes`."""

    texts: Texts
    ids: np.ndarray
    log_p: np.ndarray

    def rows(self, index: np.ndarray) -> "Written":
        return chosen(self, index)


def chosen(whole: Any, index: np.ndarray) -> Any:
    """Rows of `Texts` or `Written`, as a loss reads them: int32 and float32."""

    def wide(leaf: np.ndarray) -> np.ndarray:
        return leaf[index].astype(np.int32 if leaf.dtype.kind in "iu" else np.float32)

    return jax.tree.map(wide, whole)


class Lessons(NamedTuple):
    """What a draft learns from. train: by task, with how often each is learnt from, and
    how many of its texts are a batch, None for the recipe's. held_out: by what the
    curve calls them. target: the `loop.digest` of who wrote them."""

    train: Mapping[str, tuple[Written, float, int | None]]
    held_out: Mapping[str, Written]
    target: str


def alone(tokens: np.ndarray, length: np.ndarray, begun: np.ndarray) -> Texts:
    none = np.zeros((len(tokens), 0), np.uint16)
    return Texts(tokens, length, begun, none, np.zeros(len(tokens), np.int32))


def join(parts: Sequence[Any]) -> Any:
    """Several as one; their shapes are the same but for N."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def lessons(
    target: str,
    wrote: Callable[[str, bool, float], Written],
    more: Sequence[Written] = (),
) -> Lessons:
    """Greedy and sampled texts, to learn from and held out. target: its digest. wrote:
    (name, whether held out, temperature) -> texts. more: to learn from, besides."""
    train = [wrote("greedy", False, 0.0), wrote("sampled", False, 1.0), *more]
    held_out = {"t0": wrote("held_out_greedy", True, 0.0)}
    held_out["t1"] = wrote("held_out_sampled", True, 1.0)
    return Lessons({"": (join(train), 1.0, None)}, held_out, target)


def write(
    target: Pretrained,
    begin: Callable[[np.ndarray], tuple[Array, Prompt, tuple | None]],
    size: tuple[int, int, int],
    temperature: float | np.ndarray,
    label: str = "texts",
) -> Texts:
    """The target's texts, all of one width.

    begin: the indices of a batch -> its key, its prompts, and what an encoder reads as
    `Texts` keep it, if there is one. size: texts, of a batch, and the most new tokens.
    """
    parts, run, (count, batch, new) = [], None, size
    for at in progress.track(range(0, count, batch), label, kept=True):
        key, prompt, sources = begin(np.minimum(np.arange(at, at + batch), count - 1))
        width = prompt.tokens.shape[1] + new
        run = run or generate.autoregressive(target.model, width + 1)
        heat = jnp.broadcast_to(jnp.float32(temperature), batch)
        sampling = make_sampling(batch, 1.0)._replace(temperature=heat)
        request = make_request(key, prompt, new, sampling, target.ends)
        out = run(Params(target.params), prompt, request)
        tokens = np.asarray(out.tokens[:, :width], np.uint16)
        length, begun = (np.asarray(x, np.int32) for x in (out.length, prompt.length))
        texts = alone(tokens, length, begun)
        if sources is not None:
            texts = texts._replace(inputs=sources[0], read=sources[1])
        parts.append(texts)
    return jax.tree.map(lambda leaf: leaf[:count], join(parts))


def keep(
    path: Path,
    target: Pretrained,
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
    whole = Texts(*(read[name] for name in Texts._fields))
    return Written(whole, read["ids"], read["log_p"])


def _scored(target: Pretrained, texts: Texts, batch: int, label: str) -> list[tuple]:
    @jax.jit
    def law(params, rows: Texts) -> tuple[Array, Array]:
        return likeliest(logits(target.config, params, rows))

    count, parts = len(texts.tokens), []
    for at in progress.track(range(0, count, batch), label, kept=True):
        index = np.minimum(np.arange(at, at + batch), count - 1)
        part = law(target.params, chosen(texts, index))
        parts.append(tuple(np.asarray(leaf)[: count - at] for leaf in part))
    return parts


def likeliest(logits: Array) -> tuple[Array, Array]:
    """`Written.ids` and `log_p` of a target's logits [..., V]."""
    log_p = jax.nn.log_softmax(logits)
    ids = jax.lax.top_k(log_p, KEPT)[1]
    return ids.astype(jnp.uint16), losses.classes(log_p, ids).astype(jnp.float16)


def logits(config: forward.Config, params: Any, texts: Texts) -> Array:
    """[B, L - 1, V]: after each token but the last. A decoder sees nothing but text."""
    read = None
    if isinstance(config, t5.Config):
        read = t5.Inputs(texts.inputs, texts.read)
    elif isinstance(config, whisper.Config):
        read = texts.inputs
    return forward.logits(config, params, texts.tokens[:, :-1], read)


class Compared(NamedTuple):
    """A draft after each token but the last of a text. log_q [B, L - 1, K + 1]: as the
    target's `log_p`, -inf of what it cannot say. best [B, L - 1]: whether its argmax is
    the target's. rows: what it was compared with."""

    log_q: Array
    best: Array
    rows: Written


def compare(config: forward.Config, params: Any, rows: Written) -> Compared:
    z = logits(config, params, rows.texts)
    log_q = losses.classes(jax.nn.log_softmax(z), rows.ids)
    return Compared(log_q, jnp.argmax(z, -1) == rows.ids[..., 0], rows)


def distillation(
    name: str, config: forward.Config, compare: Callable[..., Compared] = compare
) -> Callable:
    """A loss of `losses.LOSSES`, mean a token: (params, rows) -> scalar. What the draft
    cannot say adds nothing to learn from."""
    divergence = losses.LOSSES[name]

    def loss(params: Any, rows: Any) -> Array:
        log_q, _, own = compare(config, params, rows)
        each = divergence(own.log_p, jnp.where(log_q > -jnp.inf, log_q, own.log_p))
        weight = live(own.texts)
        return jnp.sum(each * weight) / weight.sum()

    return loss


def live(texts: Texts) -> Array:
    """[B, L - 1] bool: the places after which a token of the text follows."""
    return jnp.arange(1, texts.tokens.shape[1]) < texts.length[:, None]


def data(lessons: Lessons) -> Callable[[Stage], Data]:
    """What a stage of a draft learns from: a task by its share, then texts of it."""
    tasks = list(lessons.train.values())
    share = np.array([part[1] for part in tasks])
    held_out = {name: batches(part) for name, part in lessons.held_out.items()}

    def of(stage: Stage) -> Data:
        def batch(seed: tuple[int, ...]) -> Written:
            rng, at = np.random.default_rng(seed), 0
            if len(tasks) > 1:
                at = rng.choice(len(tasks), p=share / share.sum())
            texts, _, rows = tasks[at]
            size = rows or stage.recipe.batch
            return texts.rows(rng.integers(len(texts.ids), size=size))

        loss, about = partial(distillation, stage.loss), {"target": lessons.target}
        return Data(batch, held_out, loss, about)

    return of


def batches(part: Written, size: int = 32) -> list[Written]:
    every = np.arange(len(part.ids))
    return [part.rows(every[at : at + size]) for at in range(0, len(every), size)]


def accepted(
    config: forward.Config, params: Any, held_out: Mapping[str, Written]
) -> dict[str, float]:
    """`rates` of what the target wrote, by temperature."""
    parts = {name: batches(part) for name, part in held_out.items()}
    return rates(config, params, parts, compare)


def rates(
    config: forward.Config,
    params: Any,
    held_out: Mapping[str, Sequence[Any]],
    compare: Callable[..., Compared],
) -> dict[str, float]:
    """alpha of batches, by temperature: of "t0" the share of argmaxes that are the
    target's; of "t1" the mean of sum min(p, q)."""

    @jax.jit
    def of(params: Any, rows: Any) -> tuple[Array, Array, Array]:
        log_q, best, own = compare(config, params, rows)
        after = jnp.arange(1, own.texts.tokens.shape[1])
        here = live(own.texts) & (after >= own.texts.begun[:, None])
        alpha = losses.alpha(own.log_p, log_q)
        return (best * here).sum(), (alpha * here).sum(), here.sum()

    found = {}
    for name, rows in held_out.items():
        same, alpha, count = np.sum([of(params, it) for it in rows], axis=0)
        best = same if name.endswith("t0") else alpha
        found[f"alpha_{name}"] = float(best / count)
    return found
