"""The states of a target on disk: computed once, in shards, and read a few rows at a
time.

A shard holds a batch of texts with what the target computed at each of their tokens:
its law, and the hidden states that a head reads. A kill loses the shard that was being
made; a run over the same texts goes on with it.
Axes: N texts, B of them, L tokens, K kept ids, D features, V vocabulary.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from safetensors.numpy import save

from specjax import probs
from specjax.checkpoints import Pretrained, archive
from specjax.checkpoints.archive import Archive
from specjax.runtime import progress, writing
from specjax.training import storage, written
from specjax.training.written import Texts, Written
from specjax.types import Hidden, Model, Prompt, Sampling

ABOUT = "states.json"
LAST, TAP = "last", "tap_"
LARGEST = float(np.finfo(np.float16).max)


class Reads(NamedTuple):
    """The hidden states that a draft reads: those after the last layer, and those at
    `taps`, numbered as in `types.Hidden`."""

    last: bool = False
    taps: tuple[int, ...] = ()


class Lesson(NamedTuple):
    """A batch of texts that a draft learns from.

    Attributes:
      whole: the texts, with the target's law after each token.
      hidden: the target's hidden states [B, L, D] float32; None for a draft that reads
        none, and without `last` for one that reads taps alone.
      embedded: the target's embedding of each token [B, L, D]; None without a head.
    """

    whole: Written
    hidden: Hidden | None = None
    embedded: np.ndarray | None = None


class Shards(NamedTuple):
    """The texts in some shards.

    Attributes:
      files: an open archive for each.
      first: [len(files) + 1], how many texts lie before each shard.
      reads: what hidden states they hold.
    """

    files: tuple[Archive, ...]
    first: np.ndarray
    reads: Reads

    def __len__(self) -> int:
        return int(self.first[-1])

    def rows(self, index: np.ndarray, *, hidden: bool = True) -> Lesson:
        """Returns the texts with these indices. hidden: whether their hidden states are
        included."""
        found = [self._row(int(i), hidden) for i in index]
        flat = {name: np.concatenate([row[name] for row in found]) for name in found[0]}
        texts = written.without_inputs(flat["tokens"], flat["length"], flat["begun"])
        law = Written(texts, flat["ids"], flat["log_p"])
        every = np.arange(len(index))
        states = None
        if hidden and self.reads != Reads():
            taps: Any = tuple(flat[f"{TAP}{i}"] for i in range(len(self.reads.taps)))
            last: Any = flat.get(LAST, np.zeros((len(index), 0, 0), np.float16))
            states = written.rows_of(Hidden(last, taps), every)
        return Lesson(written.rows_of(law, every), states)

    def _row(self, number: int, hidden: bool) -> dict[str, np.ndarray]:
        which = int(np.searchsorted(self.first, number, side="right")) - 1
        at, file = number - int(self.first[which]), self.files[which]
        row = slice(at, at + 1)
        return {
            name: file.read(name, (row, *(slice(None),) * (len(of.shape) - 1)))
            for name, of in file.arrays.items()
            if hidden or (name != LAST and not name.startswith(TAP))
        }


Arrays = dict[str, np.ndarray]


def keep(
    folder: Path,
    parts: Sequence[Callable[[], Arrays]],
    *,
    reads: Reads,
    about: dict[str, Any],
    label: str = "states",
) -> Shards:
    """Returns the states of a target, computed once, then read from `folder`.

    Args:
      folder: the folder of the shards.
      parts: for each shard, a function that returns its arrays, always the same ones,
        as one by `scorer` or `writer` does.
      reads: the hidden states that are stored.
      about: JSON, all that the states depend on.
      label: the name of the bar.

    Raises:
      ValueError: the folder holds states of another target, or of other texts.
    """
    stated = {**about, "reads": list(reads), "kept": written.KEPT, "of": len(parts)}
    check_same(folder, json.loads(json.dumps(stated)))
    paths = []
    for number, make in enumerate(progress.track(parts, label, kept=True)):
        path = folder / f"{number:05}.safetensors"
        if not path.exists():
            writing.write_whole(path, save(make()))
        paths.append(path)
    files = tuple(archive.open_safetensors([path], str(path)) for path in paths)
    sizes = [file.arrays["tokens"].shape[0] for file in files]
    return Shards(files, np.cumsum([0, *sizes]), reads)


def check_same(folder: Path, about: dict[str, Any]) -> None:
    """Notes what the states in a folder belong to. Raises ValueError where it holds
    other states."""
    path = folder / ABOUT
    if path.exists():
        there = json.loads(path.read_text())
        unlike = sorted(
            name
            for name in there.keys() | about.keys()
            if there.get(name) != about.get(name)
        )
        if unlike:
            raise ValueError(
                f"{folder} holds states of another run ({', '.join(unlike)} differ):"
                " name another folder or delete this one"
            )
    storage.write_json(path, about)


def scorer(target: Pretrained, reads: Reads) -> Callable[[Texts], Arrays]:
    """Returns the function that adds the target's law and states to texts, as the
    arrays of a shard. target: with its layers tapped at the places of `reads`."""
    model = target.model

    @jax.jit
    def run(params: Any, tokens: Array) -> tuple[Any, list[Array]]:
        start = jnp.zeros(len(tokens), jnp.int32)
        features, _ = model.apply(params, tokens, start, None)
        before = jax.tree.map(lambda x: x[:, :-1], features)
        law = written.most_likely_ids(model.readout(params, before))
        return law, _states(model, features, reads)

    def score(texts: Texts) -> Arrays:
        tokens = np.asarray(texts.tokens, np.int32)
        law, states = jax.device_get(run(target.params, tokens))
        return _arrays(target, texts, law, states, reads)

    return score


def writer(target: Pretrained, reads: Reads, new: int) -> Callable[..., Arrays]:
    """Returns the function (key, Prompt, temperatures [B]) -> the arrays of a shard of
    texts, each continued by the target by at most `new` tokens.

    Law and states come from the calls that write, so nothing is read twice. Prompts of
    one shape are compiled for once. target: as for `scorer`.
    """
    model, ends = target.model, jnp.asarray(target.ends, jnp.int32)

    @jax.jit
    def run(params: Any, key: Array, prompt: Prompt, temperature: Array) -> tuple:
        (batch, width), length = prompt.tokens.shape, prompt.length
        cache = model.init(params, prompt, width + new)
        start = jnp.zeros(batch, jnp.int32)
        features, cache = model.apply(params, prompt.tokens, start, cache)

        def row_law(row: Any) -> tuple[Array, Array]:
            return written.most_likely_ids(model.readout(params, row))

        law = jax.lax.map(row_law, features)  # of one row at a time, for memory
        states = _states(model, features, reads)

        def last(leaf: Array) -> Array:
            at = (length - 1).reshape(-1, *[1] * (leaf.ndim - 1))
            return jnp.take_along_axis(leaf, at, axis=1)

        def step(carried: tuple, at: Array) -> tuple:
            features, cache, ended = carried
            logits = model.readout(params, features)[:, 0]
            u = jax.random.uniform(jax.random.fold_in(key, at), (batch, 2))
            token, _ = probs.draw(logits, Sampling(temperature), u)
            live = ~ended
            ended |= (token[:, None] == ends).any(-1)
            features, cache = model.apply(params, token[:, None], length + at, cache)
            own = [x[:, 0] for x in _states(model, features, reads)]
            out = token, live, written.most_likely_ids(logits), own
            return (features, cache, ended), out

        begun = jax.tree.map(last, features), cache, jnp.zeros(batch, bool)
        made: Any = jax.lax.scan(step, begun, jnp.arange(new))[1]
        made = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), made)
        token, live, law_after, states_after = made

        def join(prompt: Array, after: Array, first: Array, count: int) -> Array:
            """Returns what is of the prompt before place `first` [B], then the rest."""
            at = jnp.arange(count)
            place = jnp.where(at < first[:, None], at, width + at - first[:, None])
            whole = jnp.concatenate([prompt, after], axis=1)
            place = jnp.minimum(place, whole.shape[1] - 1)  # beyond the text
            place = place.reshape(*place.shape, *[1] * (whole.ndim - 2))
            return jnp.take_along_axis(whole, place, axis=1)

        total = width + new
        ends_at = length + live.sum(1)
        tokens = join(prompt.tokens, token, length, total)
        tokens = jnp.where(jnp.arange(total) < ends_at[:, None], tokens, 0)
        both = zip(law, law_after, strict=True)
        law = tuple(join(x, y, length - 1, total - 1) for x, y in both)
        both = zip(states, states_after, strict=True)
        states = [join(x, y, length, total) for x, y in both]
        return tokens, ends_at, law, states

    def write(key: Array, prompt: Prompt, temperature: np.ndarray) -> Arrays:
        each = jnp.asarray(temperature, jnp.float32)
        out: Any = jax.device_get(run(target.params, key, prompt, each))
        tokens, length, law, states = out
        begun = np.asarray(prompt.length, np.int32)
        texts = written.without_inputs(tokens, length.astype(np.int32), begun)
        return _arrays(target, texts, law, states, reads)

    return write


def _states(model: Model, features: Any, reads: Reads) -> list[Array]:
    """Returns the hidden states that are stored, in the order of `_names`."""
    if reads == Reads():
        return []
    assert model.hidden is not None  # of every family that is tapped
    hidden = model.hidden(features)
    states = [hidden.last] * reads.last + [*hidden.taps]
    return [jnp.clip(x, -LARGEST, LARGEST).astype(jnp.float16) for x in states]


def _names(reads: Reads) -> list[str]:
    return [LAST] * reads.last + [f"{TAP}{i}" for i in range(len(reads.taps))]


def _arrays(
    target: Pretrained, texts: Texts, law: Any, states: Any, reads: Reads
) -> Arrays:
    """Returns the arrays of a shard."""
    kind = written.id_dtype(target.vocab)
    return {
        "tokens": texts.tokens.astype(kind),
        "length": texts.length,
        "begun": texts.begun,
        "ids": law[0].astype(kind),
        "log_p": law[1],
        **dict(zip(_names(reads), states, strict=True)),
    }


def chunks(documents: Sequence[Sequence[int]], length: int) -> list[list[int]]:
    """Returns documents cut into texts of at most `length` tokens; a remainder of fewer
    than two is left out."""
    cut = [
        [*ids[at : at + length]]
        for ids in documents
        for at in range(0, len(ids), length)
    ]
    return [ids for ids in cut if len(ids) > 1]


def pad(texts: Sequence[Sequence[int]], length: int, vocab: int) -> Texts:
    """Returns texts that were read, not written, as one array of width `length`."""
    tokens = np.zeros((len(texts), length), written.id_dtype(vocab))
    for row, ids in enumerate(texts):
        tokens[row, : len(ids)] = ids
    lengths = np.array([len(ids) for ids in texts], np.int32)
    return written.without_inputs(tokens, lengths, np.ones(len(texts), np.int32))
