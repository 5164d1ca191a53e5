"""Drafts of extreme logits, drawn by real drafters, and statistics of their draws.

`soak` draws drafts correctly by itself. Here a drafter of chains or trees draws them
with its own keys, from a model whose logits are a problem's, row by row of the target's
call. Over many draws two nodes must agree as often as their laws say, and each must
follow its own law; otherwise noise is shared or a law is wrong. Axes: B rows, G nodes,
R = G + 1 rows of the target's call, V vocabulary, Z statistics."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import keys, probs
from specjax.drafters import autoregressive, tree
from specjax.drafters.rollout import for_rule
from specjax.exactness.nasty import GAMMA, TREE, Problem
from specjax.types import (
    Draft,
    Drafter,
    Model,
    Request,
    State,
    Verifier,
)

LIMIT = 8.0  # standard errors


def build(vocab: int) -> Model:
    """Returns the model whose parameters are (logits [B, R, V], length [B]).

    For the token in slot `length` - 1 + r it reads row r, whatever the token is."""

    def apply(
        params: Any, tokens: Array, start: Array, cache: Any, tree: Any = None
    ) -> Any:
        del tree
        slot = start[:, None] + jnp.arange(tokens.shape[1])
        return (slot - params[1][:, None] + 1)[..., None], cache

    def readout(params: Any, features: Array) -> Array:
        row = features.reshape(len(features), -1, 1)  # of one token or of several
        found = jnp.take_along_axis(params[0], row, axis=1, mode="clip")
        return found.reshape(*features.shape[:-1], vocab)

    return Model(lambda *_: (), apply, readout, vocab)


def make_drafter(verifier: Verifier, vocab: int, branches: bool) -> Drafter:
    """Returns the drafter for a rule: chains of GAMMA tokens, or TREE."""
    if branches:
        return tree.build(build(vocab), TREE, verifier.siblings[0])
    return autoregressive.build(build(vocab), GAMMA, for_rule(verifier))


def draft(drafter: Drafter, problem: Problem, number: Array) -> Draft:
    """Returns the draft with number `number` for each problem, with all of its
    nodes."""
    logits, batch = problem.logits[1], len(problem.key)
    length = jnp.full(batch, number, jnp.int32)
    state = State(
        tokens=jnp.zeros((batch, 1), jnp.int32),
        length=length,
        target_cache=(),
        draft_cache=(),
        budget=jnp.full(batch, drafter.gamma, jnp.int32),
    )
    request = Request(problem.key, problem.sampling[1], length, length, length)
    key = keys.purpose(keys.iteration(problem.key, length), keys.DRAFT)
    return drafter.draft(key, (logits, length), request, state)[0]


def moments(drafted: Draft, siblings: str | None) -> Array:
    """Returns the sum over rows of each statistic minus its mean, and its variance: [2,
    Z].

    The statistics are whether two nodes agree, then q(x) of each node; of siblings
    drawn without replacement only the first counts."""
    assert drafted.law is not None
    q, above = probs.dense(drafted.law), node_parents(siblings)
    sums = []
    for i, j in independent_pairs(siblings):
        same = (drafted.tokens[:, i] == drafted.tokens[:, j]).astype(q.dtype)
        mean = jnp.sum(q[:, i] * q[:, j], axis=-1)
        sums.append((same - mean, mean * (1 - mean)))
    for i in plain_draws(above, siblings):
        own = jnp.take_along_axis(q[:, i], drafted.tokens[:, i : i + 1], axis=1)[:, 0]
        mean = jnp.sum(q[:, i] ** 2, axis=-1)
        sums.append((own - mean, jnp.sum(q[:, i] ** 3, axis=-1) - mean**2))
    return jnp.array([[jnp.sum(x) for x in each] for each in sums]).T


def node_parents(siblings: str | None) -> Sequence[int]:
    """Returns the parent of each node."""
    return TREE if siblings else tuple(range(-1, GAMMA - 1))


def plain_draws(above: Sequence[int], siblings: str | None) -> list[int]:
    """Returns the nodes that were drawn from their unchanged law."""
    whole = [i for i, row in enumerate(above) if row not in above[:i]]
    return whole if siblings == tree.WITHOUT else [*range(len(above))]


def independent_pairs(siblings: str | None) -> list[tuple[int, int]]:
    """Returns the pairs of nodes whose draws are independent."""
    above = node_parents(siblings)
    firsts = plain_draws(above, siblings)
    return [*itertools.combinations(firsts, 2)]


def scores(sums: np.ndarray) -> np.ndarray:
    """Returns each statistic in standard errors [Z].

    Where the variance is nearly 0, a few draws of difference are allowed."""
    total, variance = np.asarray(sums, float)
    return total / np.sqrt(np.maximum(variance, 0) + 100.0)


def names(siblings: str | None) -> list[str]:
    """Returns the name of each statistic."""
    agree = [f"nodes {i} and {j} agree" for i, j in independent_pairs(siblings)]
    firsts = plain_draws(node_parents(siblings), siblings)
    return [*agree, *(f"q(x) of node {i}" for i in firsts)]
