"""Drafts for a target of a few ids: every kind that a name may stand for.

Most are built by the functions that their names call (`specjax.drafts`), with a model
`q` in the place of a file's. Those that take a tokenizer, texts or layers of the target
are built here of arbitrary ones.
Axes: B rows, G = gamma, V vocabulary, K ids that a draft says.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import drafts
from specjax.drafters import (
    autoregressive,
    datastore,
    early_exit,
    intersection,
    ngram,
    strings,
    tree,
)
from specjax.drafters.rollout import independent
from specjax.drafts import source as sides
from specjax.drafts.source import CERTAIN, REDUCED, SAMPLED, TABLE, Remade, Side
from specjax.exactness import tables
from specjax.runtime.plugins import built
from specjax.types import Drafter, Model, Reduced

STRETCH = 2  # ids of a draft for each of the target's


def says_some(model: Model) -> Model:
    """Returns the model that says two in three of its ids."""
    size = model.vocab
    ids = np.flatnonzero(np.arange(size) % 3)
    place = np.full(size, ids.size)
    place[ids] = np.arange(ids.size)
    known = jnp.asarray(ids, jnp.int32), jnp.asarray(place, jnp.int32)

    def readout(params: Any, features: Array) -> Reduced:
        return Reduced(model.readout(params, features)[..., ids], *known)

    return model._replace(readout=readout)


def spelled(size: int) -> intersection.Spelling:
    """Returns a spelling of `size` ids: two in three are another id to the draft, the
    others two of them."""
    word = [i.to_bytes(2) for i in range(size)]
    after = word[1:] + word[:1]
    read = [after[i] if i % 3 else word[i] + after[i] for i in range(size)]
    names = [None] * size
    return intersection.spelling(read, word, same={}, names=names, head=[1])


def of_other_ids(model: Model, gamma: int, draw: Callable = independent) -> Drafter:
    """Returns a drafter of the ids that both have, by `spelled`."""
    drafter = autoregressive.build(in_ids_of_target(model), gamma, draw)
    return intersection.limit_to_room(drafter, model, STRETCH)


def in_ids_of_target(model: Model) -> Model:
    return intersection.in_target_vocab(model, model.vocab, STRETCH)


def by_strings(model: Model, gamma: int, respelled: Callable | None = None) -> Drafter:
    """Returns a drafter that cuts what a model says in the ids of `spelled`."""
    size = model.vocab
    after = [*range(1, size), 0]
    ids = {(j,) if i % 3 else (i, j): i for i, j in enumerate(after)}

    def cut(behind: Any, said: Any) -> tuple[np.ndarray, np.ndarray]:
        tokens, num = np.zeros(said.shape, np.int32), np.zeros(len(said), np.int32)
        for row, left in enumerate(np.asarray(said).tolist()):
            while found := [n for n in (2, 1) if tuple(left[:n]) in ids]:
                tokens[row, num[row]] = ids[tuple(left[: found[0]])]
                num[row], left = num[row] + 1, left[found[0] :]
        return tokens, num

    return strings.build(model, gamma, size, STRETCH, respelled or cut)


def counts(size: int) -> ngram.NGram:
    """Returns trigrams of arbitrary text, some of whose contexts come up."""
    text = np.random.default_rng(0).integers(0, size, (12, 3 * size))
    return ngram.fit(text.tolist(), size, order=3, places=8)


def texts(size: int) -> datastore.Store:
    """Returns a store of arbitrary texts, some of whose tokens come up."""
    return datastore.index(np.random.default_rng(0).integers(0, size, (4, 3 * size)))


def named(name: str, target: Side) -> Side:
    """The draft of a name as `specjax.drafts` has it, for a target that is a table.

    A model is named `q`, `q_some` (it says some ids), `q_other` (its ids are others)
    or `bigram`; `hand_made:0/0/1` is a tree whose i-th node follows the row of that
    number, 0 being the last committed token.

    Raises ValueError as `drafts.named`.
    """
    bare, _, options = name.partition(":")
    if bare in MADE:
        return built(name, MADE[bare], options, {"target": target})
    if bare in drafts.DRAFTS:
        told = {"target": target, "paired": paired}
        return built(name, drafts.DRAFTS[bare], options, told)
    return drafts.named(name, target)


def paired(target: Side, name: str) -> tuple[Side, Side]:
    """Returns a target and the draft of a name: `specjax.drafts.paired` of these."""
    return target, named(name, target)


def weights(target: Side) -> Array:
    """Returns logits that agree with the target's about two times in three."""
    noise = tables.weights(target.vocab, seed=2)
    return jnp.asarray(0.5 * np.asarray(target.params) + 0.7 * noise, jnp.float32)


@functools.cache
def table(size: int) -> Model:
    return tables.build(size)


@functools.cache
def table_of_some(size: int) -> Model:
    return says_some(table(size))


@functools.cache
def table_of_others(size: int) -> Model:
    return in_ids_of_target(table(size))


def q(target: Side) -> Side:
    return sides.of_model("q", table(target.vocab), weights(target))


def of_some_ids(target: Side) -> Side:
    model = sides.built(table_of_some, Remade, size=target.vocab)
    make = sides.built(sides.by_model, model=model)
    return q(target)._replace(drafter=make, regime=REDUCED, model=None)


def of_others(target: Side) -> Side:
    model = sides.built(table_of_others, Remade, size=target.vocab)
    make = sides.built(_of_others, model=model)
    params = spelled(target.vocab).params(weights(target))
    return Side("q_other", params, target.vocab, make, REDUCED)


def _of_others(gamma: int, draw: Callable, model: Remade) -> Drafter:
    return of_other_ids(table(model().vocab), gamma, draw)


def exiting_early(target: Side) -> Side:
    def make(gamma: int, draw: Callable = independent) -> Drafter:
        return early_exit.build(table(target.vocab), lambda cache: cache, gamma, draw)

    return Side("early_exit", weights(target), target.vocab, make, SAMPLED)


def counted(target: Side, order: int) -> Side:
    make = sides.built(ngram.build, vocab=target.vocab, order=order)
    return Side("counts", counts(target.vocab), target.vocab, make, TABLE)


def bigram(target: Side) -> Side:
    return counted(target, 2)


def stored(target: Side) -> Side:
    return sides.certain("datastore", datastore.build, texts(target.vocab))


def of_strings(target: Side) -> Side:
    def make(gamma: int, draw: Callable = independent) -> Drafter:
        del draw  # nothing is drawn
        return by_strings(table(target.vocab), gamma)

    params = spelled(target.vocab).params(weights(target))
    return Side("strings", params, target.vocab, make, CERTAIN)


def hand_made(target: Side, parents: str, siblings: str = "without") -> Side:
    above = tuple(int(row) - 1 for row in parents.split("/"))

    def make(gamma: int, draw: Callable = independent) -> Drafter:
        del gamma, draw
        return tree.build(table(target.vocab), above, siblings)

    return q(target)._replace(name="hand_made", drafter=make, law=None, model=None)


MADE: dict[str, Callable[..., Side]] = {
    "q": q,
    "q_some": of_some_ids,
    "q_other": of_others,
    "early_exit": exiting_early,
    "unigram": functools.partial(counted, order=1),
    "bigram": bigram,
    "trigram": functools.partial(counted, order=3),
    "datastore": stored,
    "strings": of_strings,
    "hand_made": hand_made,
}
