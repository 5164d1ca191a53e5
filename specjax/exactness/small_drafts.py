"""Drafts of every kind that has a name, for a target of a few ids.

Most are built by the functions that their names call (`specjax.drafts`), with a model
`q` in place of one in a file. Drafts that need a tokenizer, texts or layers of the
target are built here from arbitrary ones. Axes: B rows, G = gamma, V vocabulary, K ids
of a draft with a reduced vocabulary."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import drafts
from specjax.checkpoints import Pretrained
from specjax.drafters import (
    autoregressive,
    datastore,
    eagle,
    eagle3,
    early_exit,
    heads,
    intersection,
    medusa,
    ngram,
    strings,
    tree,
)
from specjax.drafters.rollout import draw_independent
from specjax.drafts.models import chain, chain_source, model_source
from specjax.drafts.source import (
    REDUCED_VOCAB,
    SAMPLED,
    TABLE,
    DraftSource,
    certain_source,
    derived_source,
    recipe,
)
from specjax.exactness import tables
from specjax.models import llama
from specjax.runtime.plugins import call_with_options
from specjax.types import Drafter, Model, Reduced

STRETCH = 2  # ids of a draft for each of the target's
HEADS = "medusa", "blockwise", "eagle", "eagle3"
GUESSES = 8  # tokens that Medusa's heads draft at once


def reduce_vocab(model: Model) -> Model:
    """Returns the model limited to two in three of its ids."""
    size = model.vocab
    ids = np.flatnonzero(np.arange(size) % 3)
    place = np.full(size, ids.size)
    place[ids] = np.arange(ids.size)
    own, places = jnp.asarray(ids, jnp.int32), jnp.asarray(place, jnp.int32)

    def readout(params: Any, features: Array) -> Reduced:
        return Reduced(model.readout(params, features)[..., ids], own, places)

    return model._replace(readout=readout)


def make_spelling(size: int) -> intersection.Spelling:
    """Returns a spelling of `size` ids.

    Two in three of them are one other id for the draft, the others are two of its ids.
    """
    word = [i.to_bytes(2) for i in range(size)]
    after = word[1:] + word[:1]
    read = [after[i] if i % 3 else word[i] + after[i] for i in range(size)]
    names = [None] * size
    return intersection.spelling(read, word, same={}, names=names, head=[1])


def other_ids_drafter(
    model: Model, gamma: int, draw: Callable = draw_independent
) -> Drafter:
    """Returns a drafter of the ids that both models have, given `make_spelling`."""
    drafter = autoregressive.build(in_target_vocab(model), gamma, draw)
    return intersection.limit_to_room(drafter, model, STRETCH)


def in_target_vocab(model: Model) -> Model:
    return intersection.in_target_vocab(model, model.vocab, STRETCH)


def strings_drafter(
    model: Model, gamma: int, respelled: Callable | None = None
) -> Drafter:
    """Returns a drafter that cuts the text of a model into the ids of
    `make_spelling`."""
    size = model.vocab
    after = [*range(1, size), 0]
    ids = {(j,) if i % 3 else (i, j): i for i, j in enumerate(after)}

    def tokenize(behind: Any, said: Any) -> tuple[np.ndarray, np.ndarray]:
        tokens, num = np.zeros(said.shape, np.int32), np.zeros(len(said), np.int32)
        for row, left in enumerate(np.asarray(said).tolist()):
            while found := [n for n in (2, 1) if tuple(left[:n]) in ids]:
                tokens[row, num[row]] = ids[tuple(left[: found[0]])]
                num[row], left = num[row] + 1, left[found[0] :]
        return tokens, num

    return strings.build(model, gamma, size, STRETCH, respelled or tokenize)


def counts(size: int) -> ngram.NGram:
    """Returns the counts of trigrams in random text, in which some contexts of the
    tests occur."""
    text = np.random.default_rng(0).integers(0, size, (12, 3 * size))
    return ngram.fit(text.tolist(), size, order=3, places=8)


def texts(size: int) -> datastore.Store:
    """Returns a store of random texts, in which some tokens of the tests occur."""
    return datastore.index(np.random.default_rng(0).integers(0, size, (4, 3 * size)))


def load(name: str, target: Pretrained) -> DraftSource:
    """Returns the draft that a name of `specjax.drafts` stands for, for a target that
    is a table.

    A model is named `q`, `q_some` (a reduced vocabulary), `q_other` (its ids are
    others) or `bigram`; `hand_made:0/0/1` is a tree whose i-th node follows the row of
    that number, 0 being the last committed token.

    Raises ValueError as `drafts.load_draft`."""
    bare, _, options = name.partition(":")
    context = {"target": target, "pair": load_pair}
    for builders in (BUILDERS, drafts.DRAFTS):
        if bare in builders:
            return call_with_options(name, builders[bare], options, context)
    return drafts.load_draft(name, target)


def load_pair(target: Pretrained, name: str) -> tuple[Pretrained, DraftSource]:
    """Returns a target and the draft of a name: `specjax.drafts.pair` for these
    names."""
    return target, load(name, target)


def weights(target: Pretrained) -> Array:
    """Returns logits that agree with the target's about two times in three."""
    noise = tables.weights(target.vocab, seed=2)
    return jnp.asarray(0.5 * np.asarray(target.params) + 0.7 * noise, jnp.float32)


@functools.cache
def table(size: int) -> Model:
    return tables.build(size)


@functools.cache
def table_of_some(size: int) -> Model:
    return reduce_vocab(table(size))


@functools.cache
def table_of_others(size: int) -> Model:
    return in_target_vocab(table(size))


def q(target: Pretrained) -> DraftSource:
    model = Pretrained("q", None, table(target.vocab), weights(target))
    return model_source(model)


def q_some(target: Pretrained) -> DraftSource:
    model = recipe(table_of_some, size=target.vocab)
    source = q(target)._replace(factory=recipe(chain, model=model), model=model)
    return source._replace(regime=REDUCED_VOCAB, pretrained=None)


def q_other(target: Pretrained) -> DraftSource:
    return DraftSource(
        name="q_other",
        factory=recipe(_q_other_drafter, size=target.vocab),
        params=make_spelling(target.vocab).params(weights(target)),
        vocab=target.vocab,
        regime=REDUCED_VOCAB,
        model=recipe(table_of_others, size=target.vocab),
    )


def _q_other_drafter(gamma: int, draw: Callable, size: int) -> Drafter:
    return other_ids_drafter(table(size), gamma, draw)


def early_exit_draft(target: Pretrained) -> DraftSource:
    factory = recipe(_early_exit_drafter, size=target.vocab)
    return DraftSource(
        "early_exit", factory, weights(target), target.vocab, regime=SAMPLED
    )


def _early_exit_drafter(gamma: int, draw: Callable, size: int) -> Drafter:
    return early_exit.build(table(size), lambda cache: cache, gamma, draw)


def count_draft(target: Pretrained, order: int) -> DraftSource:
    vocab = target.vocab
    return DraftSource(
        name="counts",
        factory=recipe(ngram.build, vocab=vocab, order=order),
        params=counts(vocab),
        vocab=vocab,
        regime=TABLE,
        model=recipe(ngram.bigram, vocab=vocab) if order == 2 else None,
    )


def bigram(target: Pretrained) -> DraftSource:
    return count_draft(target, 2)


def datastore_draft(target: Pretrained) -> DraftSource:
    return certain_source("datastore", datastore.build, texts(target.vocab))


def strings_draft(target: Pretrained) -> DraftSource:
    params = make_spelling(target.vocab).params(weights(target))
    source = certain_source("strings", _strings_drafter, params, size=target.vocab)
    return source._replace(vocab=target.vocab)


def _strings_drafter(gamma: int, size: int) -> Drafter:
    return strings_drafter(table(size), gamma)


def hand_made(
    target: Pretrained, parents: str, siblings: str = "without"
) -> DraftSource:
    above = tuple(int(row) - 1 for row in parents.split("/"))
    factory = recipe(_hand_made_tree, size=target.vocab, above=above, siblings=siblings)
    return derived_source(q(target), name="hand_made", factory=factory, regime=SAMPLED)


def _hand_made_tree(
    gamma: int, draw: Callable, *, size: int, above: tuple[int, ...], siblings: str
) -> Drafter:
    del gamma, draw
    return tree.build(table(size), above, siblings)


class Head(NamedTuple):
    """A head with arbitrary weights; arbitrary tables stand in for the target's
    parameters."""

    model: Model
    params: Any


@functools.cache
def head(kind: str, size: int, width: int) -> Head:
    """Returns a head for a vocabulary of `size` ids.

    Args:
      kind: "medusa", "blockwise", "eagle" or "eagle3", which says two in three ids.
      size: V.
      width: the width of the target's hidden states.
    """
    rng = np.random.default_rng(5)

    def normal(*shape: int, scale: float = 0.7) -> Array:
        return jnp.asarray(scale * rng.normal(size=shape), jnp.float32)

    def weights_like(shapes: Any) -> Any:
        return jax.tree.map(lambda leaf: normal(*leaf.shape), shapes)

    # `rejection` keeps tokens of flat laws; EAGLE's are of states without a norm.
    flat = 0.2 if kind == "eagle" else 0.7
    tables = {"embedding": normal(size, width)}
    tables["readout"] = normal(width, size, scale=flat)
    layer = llama.Config(size, width, 8, 1, 2, 1, 4)

    def readout(params: Any, states: Array) -> Array:
        return states @ params["readout"]

    if kind in ("medusa", "blockwise"):
        hidden = 8 if kind == "blockwise" else None
        several = medusa.Config(size, width, heads=GUESSES, mlp_dim=hidden)
        own = weights_like(medusa.abstract_params(several))
        return Head(medusa.head(several, readout), heads.with_target(own, tables))
    if kind == "eagle":
        one = eagle.Config(layer)
        own = weights_like(eagle.abstract_params(one))
        return Head(eagle.head(one, readout), heads.with_target(own, tables))
    ids = np.flatnonzero(np.arange(size) % 3)
    few = eagle3.Config(layer, width, (0, 1, 2), draft_vocab=ids.size)
    own = weights_like(eagle3.abstract_params(few))
    params = eagle3.parameters(few, own, tables, ids - np.arange(ids.size))
    return Head(eagle3.head(few), params)


def head_draft(target: Pretrained, kind: str) -> DraftSource:
    """Returns the draft of a head for a target that is a table."""
    size = target.vocab
    model = recipe(_head_model, kind=kind, size=size)
    params = head(kind, size, 2 * size).params
    made = Pretrained(kind, None, model(), params)
    regime = REDUCED_VOCAB if kind == "eagle3" else SAMPLED
    return chain_source(made, model, regime=regime)._replace(law=None)


def _head_model(kind: str, size: int) -> Model:
    return head(kind, size, 2 * size).model


BUILDERS: dict[str, Callable[..., DraftSource]] = {
    "q": q,
    "q_some": q_some,
    "q_other": q_other,
    "early_exit": early_exit_draft,
    "unigram": functools.partial(count_draft, order=1),
    "bigram": bigram,
    "trigram": functools.partial(count_draft, order=3),
    "datastore": datastore_draft,
    "strings": strings_draft,
    "hand_made": hand_made,
    **{kind: functools.partial(head_draft, kind=kind) for kind in HEADS},
}
