"""The texts of a target, with its law at every token: computed once, then stored.

A draft learns from these alone; its target is not run again. Axes: N texts, B of them,
L tokens, I ids or [S, E] states of an encoder, K kept ids.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import generate
from specjax.checkpoints import Pretrained
from specjax.inputs import make_request, make_sampling
from specjax.models import t5, whisper
from specjax.runtime import progress
from specjax.training import forward, losses, storage
from specjax.types import Params, Prompt

KEPT = 64  # or all of a smaller vocabulary
Numbers = Any  # an array of NumPy where texts are stored, of JAX in a program


class Texts(NamedTuple):
    """The texts that a target wrote.

    Attributes:
        tokens: [N, L].
        length: [N], of each text.
        begun: [N], tokens that were there before the target wrote.
        inputs: the encoder's input of each, [N, I], I = 0 without one; for speech the
            states themselves, [N, S, E].
        read: [N], the length of each input.
    """

    tokens: Numbers
    length: Numbers
    begun: Numbers
    inputs: Numbers
    read: Numbers


class Written(NamedTuple):
    """The texts of a target, with its law at every token.

    Attributes:
        ids: [N, L - 1, K] uint16, the target's most likely ids after each token, best
            first.
        log_p: [N, L - 1, K + 1] float16, as `losses.classes`.
    """

    texts: Texts
    ids: Numbers
    log_p: Numbers

    def rows(self, index: np.ndarray) -> "Written":
        return rows_of(self, index)


def rows_of(whole: Any, index: np.ndarray) -> Any:
    """Returns some rows of `Texts` or `Written`, in the dtypes that a loss reads: int32
    and float32.
    """

    def wide(leaf: np.ndarray) -> np.ndarray:
        return leaf[index].astype(np.int32 if leaf.dtype.kind in "iu" else np.float32)

    return jax.tree.map(wide, whole)


def id_dtype(vocab: int) -> np.dtype:
    """Returns the dtype that stores ids of a vocabulary."""
    return np.dtype(np.uint16 if vocab <= 2**16 else np.uint32)


def without_inputs(tokens: np.ndarray, length: np.ndarray, begun: np.ndarray) -> Texts:
    none = np.zeros((len(tokens), 0), np.uint16)
    return Texts(tokens, length, begun, none, np.zeros(len(tokens), np.int32))


def join(parts: Sequence[Any]) -> Any:
    """Returns several objects joined to one; their shapes differ in N only."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def write(
    target: Pretrained,
    begin: Callable[[np.ndarray], tuple[Array, Prompt, tuple | None]],
    *,
    size: tuple[int, int, int],
    temperature: float | np.ndarray,
    label: str = "texts",
) -> Texts:
    """Returns the target's texts, all of one width.

    Args:
        begin: a function from the indices of a batch to its key, its prompts, and the
            encoder's inputs as `Texts` holds them, if there is an encoder.
        size: the number of texts, of those in a batch, and the most new tokens.
    """
    parts, run, (count, batch, new) = [], None, size
    for at in progress.track(range(0, count, batch), label, kept=True):
        key, prompt, sources = begin(np.minimum(np.arange(at, at + batch), count - 1))
        width = prompt.tokens.shape[1] + new
        run = run or generate.autoregressive(target.model, width + 1)
        each = jnp.broadcast_to(jnp.float32(temperature), batch)
        sampling = make_sampling(batch, 1.0)._replace(temperature=each)
        request = make_request(key, prompt, new, sampling, target.ends)
        out = run(Params(target.params), prompt, request)
        tokens = np.asarray(out.tokens[:, :width], id_dtype(target.vocab))
        length, begun = (np.asarray(x, np.int32) for x in (out.length, prompt.length))
        texts = without_inputs(tokens, length, begun)
        if sources is not None:
            texts = texts._replace(inputs=sources[0], read=sources[1])
        parts.append(texts)
    return jax.tree.map(lambda leaf: leaf[:count], join(parts))


def keep(
    path: Path,
    target: Pretrained,
    *,
    texts: Callable[[], Texts],
    about: dict[str, Any],
    batch: int = 16,
) -> Written:
    """Returns texts with the target's law after each token, computed once and then read
    from `path`.

    Args:
        about: JSON, the target and the settings that the texts depend on.
        batch: texts that are scored together.

    Raises:
        ValueError: the file holds other texts.
    """

    def make() -> dict[str, np.ndarray]:
        whole = texts()
        ids, log_p = join(_score(target, whole, batch, path.stem))
        if whole.inputs.dtype == np.float32:
            whole = whole._replace(inputs=whole.inputs.astype(np.float16))
        return whole._asdict() | {"ids": ids, "log_p": log_p}

    read = storage.keep(path, make, about={**about, "kept": KEPT})
    whole = Texts(*(read[name] for name in Texts._fields))
    return Written(whole, read["ids"], read["log_p"])


def _score(target: Pretrained, texts: Texts, batch: int, label: str) -> list[tuple]:
    @jax.jit
    def law(params: Any, rows: Texts) -> tuple[Array, Array]:
        return most_likely_ids(logits(target.required_config, params, rows))

    count, parts = len(texts.tokens), []
    for at in progress.track(range(0, count, batch), label, kept=True):
        index = np.minimum(np.arange(at, at + batch), count - 1)
        part = law(target.params, rows_of(texts, index))
        parts.append(tuple(np.asarray(leaf)[: count - at] for leaf in part))
    return parts


def most_likely_ids(logits: Array) -> tuple[Array, Array]:
    """Returns `Written.ids` and `log_p` of a target's logits [..., V]."""
    ids = jax.lax.top_k(logits, min(KEPT, logits.shape[-1]))[1]
    kept = losses.classes(logits, ids).astype(jnp.float16)
    return ids.astype(id_dtype(logits.shape[-1])), kept


def logits(config: forward.Config, params: Any, texts: Texts) -> Array:
    """Returns the logits [B, L - 1, V] after each token but the last; a decoder reads
    text only.
    """
    read = None
    if isinstance(config, t5.Config):
        read = t5.Inputs(texts.inputs, texts.read)
    elif isinstance(config, whisper.Config):
        read = texts.inputs
    return forward.logits(config, params, texts.tokens[:, :-1], read=read)


class Comparison(NamedTuple):
    """The law of a draft after each token but the last of a text.

    Attributes:
        log_q: [B, L - 1, K + 1], in the form of the target's `log_p`, -inf for ids that
            the draft lacks.
        best: [B, L - 1], whether its argmax is the target's.
        rows: the texts of the comparison.
    """

    log_q: Array
    best: Array
    rows: Written


def compare(config: forward.Config, params: Any, rows: Written) -> Comparison:
    z = logits(config, params, rows.texts)
    log_q = losses.classes(z, rows.ids)
    return Comparison(log_q, jnp.argmax(z, -1) == rows.ids[..., 0], rows)


def distillation(
    name: str, config: forward.Config, compare: Callable[..., Comparison] = compare
) -> Callable:
    """Returns a loss of `losses.LOSSES`, mean a token: (params, rows) -> scalar.

    Ids that the draft lacks add nothing to it.
    """

    def loss(params: Any, rows: Any) -> Array:
        log_q, _, own = compare(config, params, rows)
        each = losses.divergence(name, own.log_p, log_q)
        weight = scored_positions(own.texts)
        return jnp.sum(each * weight) / weight.sum()

    return loss


def scored_positions(texts: Texts) -> Array:
    """Returns the positions after which a token of the text follows, [B, L - 1]
    bool.
    """
    return jnp.arange(1, texts.tokens.shape[1]) < texts.length[:, None]


def batches(part: Written, size: int = 32) -> list[Written]:
    every = np.arange(len(part.ids))
    return [part.rows(every[at : at + size]) for at in range(0, len(every), size)]


def acceptance(
    config: forward.Config, params: Any, held_out: Mapping[str, Written]
) -> dict[str, float]:
    """Returns the `rates` of the target's held-out texts, by temperature."""
    parts = {name: batches(part) for name, part in held_out.items()}
    return rates(config, params, held_out=parts, compare=compare)


def rates(
    config: forward.Config,
    params: Any,
    *,
    held_out: Mapping[str, Sequence[Any]],
    compare: Callable[..., Comparison],
) -> dict[str, float]:
    """Returns alpha on batches, by temperature.

    For "t0" it is the share of argmaxes that equal the target's; for "t1" the mean of
    sum min(p, q) over the kept ids and all others as one, an upper bound where the
    target has more than KEPT ids. Every token weighs the same.
    """

    @jax.jit
    def score_batch(params: Any, rows: Any) -> tuple[Array, Array, Array]:
        log_q, best, own = compare(config, params, rows)
        after = jnp.arange(1, own.texts.tokens.shape[1])
        here = scored_positions(own.texts) & (after >= own.texts.begun[:, None])
        alpha = losses.alpha(own.log_p, log_q)
        return (best * here).sum(), (alpha * here).sum(), here.sum()

    found = {}
    for name, rows in held_out.items():
        same, alpha, count = np.sum([score_batch(params, it) for it in rows], axis=0)
        best = same if name.endswith("t0") else alpha
        found[f"alpha_{name}"] = float(best / count)
    return found
