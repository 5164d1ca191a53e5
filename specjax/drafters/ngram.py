"""Counts draft: unigram, bigram and longer contexts, at a cost of almost nothing.

Section 3.6 of Leviathan et al. (2023), who leave the smoothing open. Ours: unigrams
with `add` counts added to each id; longer contexts by Jelinek-Mercer interpolation,
q(x | h) = w C(h, x) / C(h) + (1 - w) q(x | h without its first token), of which the
`places` most probable ids are kept and the rest follow the unigram. A context that was
never seen falls back to its longest seen suffix.
Axes: B rows, T tokens, R contexts, K tokens of context, M places, V vocabulary.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs
from specjax.drafters.nothing import no_cache
from specjax.drafters.rollout import Proposal, independent, rollout
from specjax.types import Draft, Drafter, Model, Request, State, Table


class NGram(NamedTuple):
    """Row 0 of `table` is the unigram law; the others belong to `contexts`. contexts:
    [R, K] int32, left-padded with -1. codes: [R - 1] uint32, those of rows 1 .. R - 1,
    ascending, to find a context by bisection."""

    table: Table
    contexts: Array
    codes: Array


def build(
    vocab: int, gamma: int, order: int = 2, draw: Callable = independent
) -> Drafter:
    """Drafts `gamma` >= 1 tokens, each from the `order` - 1 before it; 1 is unigram.
    draw: see `drafters.rollout`. Its parameters are an `NGram` of at least that order.
    Raises ValueError otherwise."""
    if gamma < 1 or order < 1:
        raise ValueError(f"gamma and order must be at least 1; got {gamma} and {order}")

    def draft(
        key: Array, params: NGram, request: Request, state: State, *go_on: Callable
    ) -> tuple[Draft, tuple]:
        def propose(context: Array) -> Proposal:
            row = find(params, context)
            logits = probs.table_rows(params.table, row)
            return Proposal(logits, context, params.table, row)

        def advance(context: Array, token: Array, slot) -> Proposal:
            del slot
            return propose(jnp.concatenate([context, token[:, None]], axis=1)[:, 1:])

        begun = propose(last_tokens(state.tokens, state.length, order - 1))
        drawn = draw(key, request, state, gamma)
        return rollout(drawn, state, gamma, begun, advance, None, *go_on)[0], ()

    return Drafter(no_cache, draft, gamma, vocab, stops=True)


def bigram(vocab: int) -> Model:
    """Counts of pairs as a model whose features are the token itself, for drafters of
    trees. Its parameters are an `NGram`."""

    def apply(params, tokens: Array, start: Array, cache, branches=None) -> tuple:
        del params, start, branches
        return tokens[..., None], cache

    def readout(params: NGram, features: Array) -> Array:
        return probs.table_rows(params.table, find(params, features))

    return Model(no_cache, apply, readout, vocab)


def last_tokens(tokens: Array, length: Array, count: int) -> Array:
    """The `count` tokens before `length` [B] in tokens [B, L], -1 before the start."""
    index = length[:, None] - count + jnp.arange(count)
    context = jnp.take_along_axis(tokens, jnp.maximum(index, 0), axis=1)
    return jnp.where(index >= 0, context, -1)


def contexts_of(tokens: Array, order: int) -> Array:
    """Of tokens [B, T], what each next token is drafted from: [B, T, order - 1]."""
    padded = jnp.pad(tokens, ((0, 0), (order - 1, 0)), constant_values=-1)
    width = tokens.shape[1]
    shifted = [padded[:, i + 1 : i + 1 + width] for i in range(order - 1)]
    none = jnp.zeros((*tokens.shape, 0), int)
    return jnp.stack(shifted, axis=-1) if shifted else none


def find(params: NGram, context: Array) -> Array:
    """The row of the longest known suffix of `context` [..., k] -> [...] int32."""
    known = params.contexts.shape[1]
    row = jnp.zeros(context.shape[:-1], jnp.int32)
    for size in range(1, min(known, context.shape[-1]) + 1):
        suffix = context[..., context.shape[-1] - size :]
        blank = jnp.full((*context.shape[:-1], known - size), -1, jnp.int32)
        wanted = jnp.concatenate([blank, suffix.astype(jnp.int32)], axis=-1)
        at = jnp.searchsorted(params.codes, code(wanted)) + 1
        at = jnp.minimum(at, params.contexts.shape[0] - 1)
        hit = jnp.all(params.contexts[at] == wanted, axis=-1)
        row = jnp.where(hit, at, row)
    return row


def code(context):
    """A 32-bit hash (FNV-1a over words) of contexts [..., K] -> [...] uint32."""
    module = jnp if isinstance(context, Array) else np
    value = module.full(context.shape[:-1], 2166136261, module.uint32)
    for i in range(context.shape[-1]):
        value = value ^ context[..., i].astype(module.uint32)
        value = value * module.uint32(16777619)
    return value


def fit(
    documents: Iterable[Sequence[int]],
    vocab: int,
    order: int = 2,
    weight: float = 0.8,
    add: float = 0.1,
    places: int = 64,
) -> NGram:
    """Counts the documents (token lists that begin with the start token). weight: w of
    the module's formula, best chosen by held-out likelihood."""
    documents = [list(document) for document in documents]
    followers = [defaultdict(Counter) for _ in range(order)]  # by length of context
    for document in documents:
        for at in range(1, len(document)):
            for size in range(min(order - 1, at) + 1):
                followers[size][tuple(document[at - size : at])][document[at]] += 1
    base = np.full(vocab, add)
    for token, count in followers[0][()].items():
        base[token] += count
    base /= base.sum()
    rows = {(): ({}, 1.0)}  # context -> (probabilities of its places, factor of base)
    for size in range(1, order):
        for context, counts in followers[size].items():
            below = rows[context[1:]]
            rows[context] = _interpolate(counts, below, base, weight, places)
    return _pack(rows, np.log(base), order - 1, places)


def _interpolate(counts: Counter, lower: tuple[dict, float], base, weight, places):
    known, factor = lower
    total = sum(counts.values())
    mixed = {}
    for token in counts.keys() | known.keys():
        below = known.get(token, factor * base[token])
        mixed[token] = weight * counts[token] / total + (1 - weight) * below
    best = sorted(mixed, key=lambda token: (-mixed[token], token))[:places]
    return {token: mixed[token] for token in best}, factor * (1 - weight)


def _pack(rows: dict, log_base: np.ndarray, known: int, places: int) -> NGram:
    """Sorts the contexts by hash; two of one hash keep the first only."""
    padded = np.full((len(rows), known), -1, np.int32)
    for i, context in enumerate(rows):
        padded[i, known - len(context) :] = context
    codes = code(padded)
    unique = 1 + np.unique(codes[1:], return_index=True)[1]
    order = np.concatenate([[0], unique])
    entries = list(rows.values())
    ids = np.full((order.size, places), log_base.size, np.int32)
    logits = np.zeros((order.size, places), np.float32)
    offset = np.zeros(order.size, np.float32)
    for i, row in enumerate(order):
        known_places, factor = entries[row]
        ids[i, : len(known_places)] = list(known_places)
        logits[i, : len(known_places)] = np.log(list(known_places.values()))
        offset[i] = np.log(factor)
    table = Table(*map(jnp.asarray, (log_base.astype(np.float32), offset, ids, logits)))
    return NGram(table, jnp.asarray(padded[order]), jnp.asarray(codes[unique]))
