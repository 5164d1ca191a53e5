"""One step of a verifier from one prefix, enumerated by its own compiled code.

Every draft of G tokens is verified with noise from every cell on which the verdict is
constant. A verdict weighs the chance of its draft times the volume of its cell, and
spreads its extra token by the residual that it returns.
Axes: B rows, G = gamma, V vocabulary, N = V^G drafts, K cells with P = 4 points each
(B = N K P), C contexts: what may have been drafted before a slot.
"""

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs, step
from specjax.exactness.claims import Cells, Claim, Situation, along
from specjax.exactness.fixtures import Fixture, laws, references
from specjax.types import Draft, Law, Policy, Request, State, Verdict, Verifier

TOLERANCE = {"float32": 1e-6, "float64": 1e-12}  # of a law


class Case(NamedTuple):
    """What stays the same from prefix to prefix; p, q, drawn: prefix -> law [V]."""

    verifier: Verifier
    claim: Claim
    fixture: Fixture
    gamma: int
    dtype: str
    p: Callable
    q: Callable
    drawn: Callable


class Step(NamedTuple):
    """law: (tokens emitted, memory after) -> chance; the rest as in
    `certify.Certificate`, closed None where nothing is claimed."""

    law: dict
    tokens: float
    closed: float | None
    broken: set


class Grid(NamedTuple):
    """What may be drafted, the same from every prefix. contexts: C tuples of ids.
    nodes: [N, G + 1], each slot's place among them. drafts: [N, G]."""

    contexts: list
    nodes: np.ndarray
    drafts: np.ndarray


def case_of(
    verifier: Verifier, claim: Claim, fixture: Fixture, gamma: int, dtype: str
) -> Case:
    p, q = references(fixture)
    drawn = fixture.drawn or q
    return Case(verifier, claim, fixture, gamma, dtype, p, q, drawn)


@functools.cache
def grid_of(vocab: int, gamma: int) -> Grid:
    some = [list(itertools.product(range(vocab), repeat=i)) for i in range(gamma + 1)]
    contexts, drafts = list(itertools.chain(*some)), some[-1]
    place = {context: i for i, context in enumerate(contexts)}
    nodes = np.array([[place[x[:i]] for i in range(gamma + 1)] for x in drafts])
    drafts = np.array(drafts, np.int32).reshape(len(drafts), gamma)
    return Grid(contexts, nodes, drafts)


def run(case: Case, prefix: tuple, memory: tuple) -> Step:
    """One step from `prefix`; `memory` is the policy's (budget, carry), () without."""
    fixture, gamma = case.fixture, case.gamma
    grid = grid_of(fixture.vocab, gamma)
    bounds = [gamma, *memory[:1]] + ([fixture.num(prefix)] if fixture.num else [])
    num = int(min(bounds))
    live = np.arange(gamma) < num
    p, q, drawn = (
        np.stack([law(prefix + context) for context in grid.contexts])
        for law in (case.p, case.q, case.drawn)
    )
    before = grid.nodes[:, :-1]
    # Beyond `num` lies anything: each id equally often.
    chance = along(drawn[before], grid.drafts)
    chance = np.where(live, chance, 1 / fixture.vocab).prod(-1)
    unknown = np.full(grid.drafts.shape, 0.5)
    situation = Situation(p[grid.nodes], q[before], grid.drafts, live, unknown)

    verified = functools.partial(_verify, case, prefix, memory, num)
    if case.claim.bounded:  # what is reported of a slot does not depend on the noise
        first = verified(case.claim.cells(situation, case.dtype))[0]
        situation = situation._replace(reported=np.float64(first.accept_prob[:, 0, 0]))
    cells = case.claim.cells(situation, case.dtype)
    verdict, extra, after = verified(cells)
    situation = situation._replace(reported=np.float64(verdict.accept_prob[:, 0, 0]))

    weight = chance[:, None] * cells.volume
    broken = _check(case, situation, num, (chance, weight, cells), (verdict, extra))
    n, tokens, residual = (leaf[:, :, 1] for leaf in shown(verdict))
    mass = residual.sum(-1, keepdims=True)
    share = residual / np.where(mass > 0, mass, 1.0)
    law = defaultdict(float)
    for i, k in zip(*np.nonzero(weight), strict=True):
        kept = tuple(tokens[i, k, : n[i, k]].tolist())
        then = after(i, k)
        for extra_id in np.flatnonzero(share[i, k]).tolist():
            law[(*kept, extra_id), then] += weight[i, k] * share[i, k, extra_id]

    mean, closed = float((weight * (n + 1)).sum()), None
    if case.claim.tokens is not None:
        closed = float(chance @ case.claim.tokens(situation))
        broken |= set() if abs(mean - closed) <= 1e-5 else {"per_call"}
    return Step(law, mean, closed, broken)


def _verify(case: Case, prefix: tuple, memory: tuple, num: int, cells: Cells):
    """The verdict [N, K, P, ...], the extra token as `probs.pick` draws it from the
    residual [N, K, P], and (i, k) -> the memory after."""
    fixture, grid = case.fixture, grid_of(case.fixture.vocab, case.gamma)
    shape = (*cells.volume.shape, 4)
    batch = int(np.prod(shape))
    row = np.repeat(np.arange(len(grid.drafts)), batch // len(grid.drafts))
    contexts = [prefix + context for context in grid.contexts]
    target, law = laws(fixture, contexts, case.dtype)
    draft = Draft(grid.drafts[row], np.full(batch, num, np.int32), law)
    flat = (cells.noise, cells.sample)
    flat = jax.tree.map(lambda leaf: leaf.reshape(batch, *leaf.shape[3:]), flat)
    carried = None
    if memory:
        structure = jax.tree.structure(fixture.policy.init(1, case.gamma))
        full = [np.full(batch, value) for value in memory]
        carried = jax.tree.unflatten(structure, full)
    decide = _compiled(case.verifier, fixture.policy)
    *results, carried = decide(target, draft, grid.nodes[row], flat, carried)
    results = jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(*shape, *leaf.shape[1:]), results
    )
    states = rows(carried) if memory else None

    def after(i: int, k: int) -> tuple:
        return states[np.ravel_multi_index((i, k, 1), shape)] if memory else ()

    return *results, after


@functools.cache
def _compiled(verifier: Verifier, policy: Policy | None) -> Callable:
    """One compilation for each vocabulary, gamma, dtype and regime of the draft."""

    def of(law: Law | None, nodes: Array) -> Law | None:
        if law is None:
            return None
        own = jax.tree.map(lambda leaf: leaf[nodes], probs.apart(law))
        return probs.shared(own, law.logits)

    @jax.jit
    def decide(target: Law, draft: Draft, nodes: Array, flat: tuple, memory):
        noise, sample = flat
        draft = draft._replace(law=of(draft.law, nodes[:, :-1]))
        verdict = verifier.verify(of(target, nodes), draft, noise, keep_residual=True)
        drawn = probs.pick(verdict.residual, sample)
        if policy is not None:
            memory = _update(policy, draft, verdict, memory)
        return verdict, drawn, memory

    return decide


def _update(policy: Policy, draft: Draft, verdict: Verdict, memory: tuple) -> tuple:
    """(budget, carry) after the step, from what `step.measure` reports of it."""
    zero = jnp.zeros_like(draft.num)
    request = Request(None, None, start=zero, limit=zero + 2**30, eos=zero - 1)
    state = State(zero[:, None], zero + 1, None, None, budget=memory[0])
    length = state.length + verdict.num_accepted + 1
    info = step.measure(request, state, draft, verdict, length)
    budget, carry = policy.update(*memory, info)
    return jnp.minimum(budget, draft.tokens.shape[1]), carry


def _check(
    case: Case, situation: Situation, num: int, chances: tuple, results: tuple
) -> set[str]:
    """Names of the checks that one step fails, without law and per_call."""
    (chance, weight, cells), (verdict, drawn) = chances, results
    n, tokens, residual = shown(verdict)
    drafts, live, p = situation.drafts, situation.live, situation.p
    likely, inside = (chance > 0)[:, None, None], (weight > 0)[..., None]
    slots, last = np.arange(live.size + 1), n[..., None]
    mass = residual.sum(-1, keepdims=True)
    share = residual / np.where(mass > 0, mass, 1.0)
    tolerance = TOLERANCE[case.dtype]
    other_share = np.abs(share[..., :3, :] - share[..., 1:2, :]).max(-1) > tolerance
    wanted = np.pad(drafts, ((0, 0), (0, 1)))[:, None, None]
    wanted = np.where(slots < last, wanted, 0)
    wanted = np.where(slots == last, drawn[..., None], wanted)
    known = np.clip(tokens, 0, p.shape[-1] - 1)
    p_x = np.where(known == tokens, along(p[:, None, None], known), 0.0)
    reported = (situation.reported * live)[:, None, None]
    failed = {
        "cells": inside & ((n[..., :3] != n[..., 1:2]) | other_share),
        "tokens": likely & ((tokens != wanted).any(-1) | (n > num)),
        "support": likely
        & (((slots <= last) & (p_x == 0)).any(-1) | ~(mass > 0)[..., 0]),
        "accept_prob": likely & ~(verdict.accept_prob == reported).all(-1),
    }
    if cells.path is not None:
        other = (slots <= last) & (tokens != cells.path[:, :, None])
        failed["path"] = inside & other[..., :3, :].any(-1)
    names = {name for name, where in failed.items() if where.any()}
    if case.claim.limits is not None:
        limits, slack = case.claim.limits(situation)
        off = np.abs(situation.reported - limits) > slack
        names |= {"accept_prob"} if (likely[:, 0] & off & live).any() else set()
    return names


def shown(verdict: Verdict) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return verdict.num_accepted, verdict.tokens, verdict.residual


def rows(memory) -> list[tuple]:
    """A pytree of [B] leaves as B tuples, to tell states apart by."""
    return list(zip(*map(np.asarray, jax.tree.leaves(memory)), strict=True))
