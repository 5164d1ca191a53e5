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

from specjax.checkpoints import Pretrained, archive
from specjax.checkpoints.archive import Archive
from specjax.runtime import progress, writing
from specjax.training import storage, written
from specjax.training.written import Texts, Written
from specjax.types import Hidden

ABOUT = "states.json"
LAST, TAP = "last", "tap_"
LARGEST = float(np.finfo(np.float16).max)


class Reads(NamedTuple):
    """The hidden states that a draft reads: those after the last layer, and `taps` as
    `types.Hidden` counts them."""

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
    """The texts of some shards.

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
        """Returns the texts of these numbers. hidden: whether with hidden states."""
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


def keep(
    folder: Path,
    target: Pretrained,
    parts: Sequence[Callable[[], Texts]],
    *,
    reads: Reads,
    about: dict[str, Any],
    label: str = "states",
) -> Shards:
    """Returns the states of a target, computed once, then read from `folder`.

    Args:
      folder: of the shards.
      target: it taps the layers of `reads`.
      parts: of each shard, a function that returns its texts, always the same ones.
      reads: the hidden states that are stored.
      about: JSON, all that the texts depend on.
      label: of the bar.

    Raises:
      ValueError: the folder holds states of another target, or of other texts.
    """
    stated = {**about, "reads": list(reads), "kept": written.KEPT, "of": len(parts)}
    check_same(folder, json.loads(json.dumps(stated)))
    score, paths = scorer(target, reads), []
    for number, texts in enumerate(progress.track(parts, label, kept=True)):
        path = folder / f"{label}-{number:05}.safetensors"
        if not path.exists():
            arrays = score(texts())
            writing.write_whole(path, save(arrays))
        paths.append(path)
    files = tuple(archive.open_safetensors([path], str(path)) for path in paths)
    sizes = [file.arrays["tokens"].shape[0] for file in files]
    return Shards(files, np.cumsum([0, *sizes]), reads)


def check_same(folder: Path, about: dict[str, Any]) -> None:
    """Notes what a folder's states are of. Raises ValueError where it holds those of
    something else."""
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


def scorer(
    target: Pretrained, reads: Reads
) -> Callable[[Texts], dict[str, np.ndarray]]:
    """Returns the function that adds the target's law and states to texts, as the
    arrays of a shard."""
    model = target.model
    kind = written.id_dtype(target.vocab)

    @jax.jit
    def run(params: Any, tokens: Array) -> tuple[Array, Array, list[Array]]:
        start = jnp.zeros(len(tokens), jnp.int32)
        features, _ = model.apply(params, tokens, start, None)
        logits = model.readout(params, jax.tree.map(lambda x: x[:, :-1], features))
        ids, log_p = written.most_likely_ids(logits)
        states: list[Array] = []
        if reads != Reads():
            assert model.hidden is not None  # of every family that is tapped
            hidden = model.hidden(features)
            states = [hidden.last] * reads.last + [*hidden.taps]
        narrow = [jnp.clip(x, -LARGEST, LARGEST).astype(jnp.float16) for x in states]
        return ids, log_p, narrow

    def score(texts: Texts) -> dict[str, np.ndarray]:
        tokens = np.asarray(texts.tokens, np.int32)
        ids, log_p, states = jax.device_get(run(target.params, tokens))
        names = [LAST] * reads.last + [f"{TAP}{i}" for i in range(len(reads.taps))]
        return {
            "tokens": texts.tokens.astype(kind),
            "length": texts.length,
            "begun": texts.begun,
            "ids": ids.astype(kind),
            "log_p": log_p,
            **dict(zip(names, states, strict=True)),
        }

    return score


def chunks(documents: Sequence[Sequence[int]], length: int) -> list[list[int]]:
    """Returns documents cut into texts of at most `length` tokens; a rest of less than
    two is left out."""
    cut = [
        [*ids[at : at + length]]
        for ids in documents
        for at in range(0, len(ids), length)
    ]
    return [ids for ids in cut if len(ids) > 1]


def pad(texts: Sequence[Sequence[int]], length: int, vocab: int) -> Texts:
    """Returns texts that were read, not written, in one array of a width."""
    tokens = np.zeros((len(texts), length), written.id_dtype(vocab))
    for row, ids in enumerate(texts):
        tokens[row, : len(ids)] = ids
    lengths = np.array([len(ids) for ids in texts], np.int32)
    return written.without_inputs(tokens, lengths, np.ones(len(texts), np.int32))
