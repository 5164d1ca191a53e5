"""Drafts from counts: unigram, bigram and longer contexts, at almost no cost.

Section 3.6 of Leviathan et al. (2023), which leaves the smoothing open. Here unigrams
have `add` counts added to each id. Longer contexts use Jelinek-Mercer interpolation,
q(x | h) = w C(h, x) / C(h) + (1 - w) q(x | h without its first token), of which the
`places` most probable ids are stored, and the others follow the unigram. A context that
was never seen falls back to its longest seen suffix. Axes: B rows, T tokens, R
contexts, K tokens of context, M places, V vocabulary.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs
from specjax.drafters.nothing import no_cache
from specjax.drafters.rollout import Proposal, draw_independent, rollout
from specjax.types import Draft, Drafter, Model, Request, State, Table


class NGram(NamedTuple):
    """The tables of an n-gram model.

    Attributes:
      table: row 0 is the unigram law; the others belong to `contexts`.
      contexts: [R, K] int32, left-padded with -1.
      codes: [R - 1] uint32, the hashes of rows 1 .. R - 1, ascending, to find a context
        by bisection.
    """

    table: Table
    contexts: Array
    codes: Array


def build(
    vocab: int, gamma: int, order: int = 2, draw: Callable = draw_independent
) -> Drafter:
    """Returns a drafter of `gamma` tokens, each from the `order` - 1 tokens before it.

    Order 1 is unigram. The parameters are an `NGram` of at least this order. draw: see
    `drafters.rollout`. Raises ValueError unless gamma and order are at least 1.
    """
    if gamma < 1 or order < 1:
        raise ValueError(f"gamma and order must be at least 1; got {gamma} and {order}")

    def draft(
        key: Array,
        params: NGram,
        request: Request,
        state: State,
        go_on: Callable | None = None,
    ) -> tuple[Draft, tuple]:
        def propose(context: Array) -> Proposal:
            row = find(params, context)
            logits = probs.table_rows(params.table, row)
            return Proposal(logits, context, params.table, row)

        def advance(context: Array, token: Array, slot: Any) -> Proposal:
            del slot
            return propose(jnp.concatenate([context, token[:, None]], axis=1)[:, 1:])

        draft, _ = rollout(
            draw(key, request, state, gamma),
            state,
            gamma,
            initial=propose(last_tokens(state.tokens, state.length, order - 1)),
            advance=advance,
            go_on=go_on,
        )
        return draft, ()

    return Drafter(no_cache, draft, gamma, vocab, stops=True)


def bigram(vocab: int) -> Model:
    """Returns bigram counts as a model with tokens as features, for drafters of trees.

    Its parameters are an `NGram`.
    """

    def apply(
        params: Any, tokens: Array, start: Array, cache: Any, branches: Any = None
    ) -> tuple:
        del params, start, branches
        return tokens[..., None], cache

    def readout(params: NGram, features: Array) -> Array:
        return probs.table_rows(params.table, find(params, features))

    return Model(no_cache, apply, readout, vocab, keep=lambda cache, *_: cache)


def last_tokens(tokens: Array, length: Array, count: int) -> Array:
    """Returns the `count` tokens before `length` [B] in tokens [B, L], else -1."""
    index = length[:, None] - count + jnp.arange(count)
    context = jnp.take_along_axis(tokens, jnp.maximum(index, 0), axis=1)
    return jnp.where(index >= 0, context, -1)


def draft_contexts(tokens: Array, order: int) -> Array:
    """Returns each next token's context in tokens [B, T]: [B, T, order - 1]."""
    padded = jnp.pad(tokens, ((0, 0), (order - 1, 0)), constant_values=-1)
    width = tokens.shape[1]
    shifted = [padded[:, i + 1 : i + 1 + width] for i in range(order - 1)]
    none = jnp.zeros((*tokens.shape, 0), int)
    return jnp.stack(shifted, axis=-1) if shifted else none


def find(params: NGram, context: Array) -> Array:
    """Returns the row of the longest known suffix of `context` [..., k], [...].

    The rows are int32.
    """
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


def code(context: Any) -> Any:
    """Returns a 32-bit hash (FNV-1a over words) of contexts [..., K]: [...] uint32."""
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
    *,
    weight: float = 0.8,
    add: float = 0.1,
    places: int = 64,
) -> NGram:
    """Returns the counts of documents: token lists that begin with the start token.

    weight: w of the module's formula, best chosen by held-out likelihood.
    """
    documents = [list(document) for document in documents]
    followers: list[dict[tuple, Counter]] = [  # by context length
        defaultdict(Counter) for _ in range(order)
    ]
    for document in documents:
        for at in range(1, len(document)):
            for size in range(min(order - 1, at) + 1):
                followers[size][tuple(document[at - size : at])][document[at]] += 1
    base = np.full(vocab, add)
    for token, count in followers[0][()].items():
        base[token] += count
    base /= base.sum()
    # Context -> (probabilities of its places, factor of base).
    rows: dict[tuple, tuple[dict, float]] = {(): ({}, 1.0)}
    for size in range(1, order):
        for context, counts in followers[size].items():
            below = rows[context[1:]]
            rows[context] = _interpolate(
                counts, below, base=base, weight=weight, places=places
            )
    return _pack(rows, np.log(base), order - 1, places)


def _interpolate(
    counts: Counter, lower: tuple[dict, float], *, base: Any, weight: float, places: int
) -> tuple[dict, float]:
    known, factor = lower
    total = sum(counts.values())
    mixed = {}
    for token in counts.keys() | known.keys():
        below = known.get(token, factor * base[token])
        mixed[token] = weight * counts[token] / total + (1 - weight) * below
    best = sorted(mixed, key=lambda token: (-mixed[token], token))[:places]
    return {token: mixed[token] for token in best}, factor * (1 - weight)


def _pack(rows: dict, log_base: np.ndarray, known: int, places: int) -> NGram:
    """Sorts the contexts by hash; of two with the same hash only the first is kept."""
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
