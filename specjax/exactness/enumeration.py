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
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs, step
from specjax.drafters.rollout import Proposal, rollout
from specjax.exactness.cells import Cells, Situation, along
from specjax.exactness.checks import failed, normalized
from specjax.exactness.claims import Claim
from specjax.exactness.fixtures import Fixture, laws, references
from specjax.types import Draft, Law, Policy, Request, State, Verdict, Verifier


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
    nodes: [N, G + 1], each row's place among them. drafts: [N, G]. parent: [G], of each
    drafted token the row that it follows."""

    contexts: list
    nodes: np.ndarray
    drafts: np.ndarray
    parent: np.ndarray


def case_of(
    verifier: Verifier, claim: Claim, fixture: Fixture, gamma: int, dtype: str
) -> Case:
    p, q = references(fixture)
    return Case(verifier, claim, fixture, gamma, dtype, p, q, fixture.drawn or q)


@functools.cache
def grid_of(vocab: int, gamma: int, tree: tuple[int, ...] | None = None) -> Grid:
    """tree: of each node its parent, None for a chain."""
    above = np.arange(gamma) if tree is None else np.array(tree) + 1
    drafts = list(itertools.product(range(vocab), repeat=gamma))

    def paths(draft: tuple) -> list[tuple]:
        each = [()]
        for token, row in zip(draft, above, strict=True):
            each.append((*each[row], token))
        return each

    rows = list(map(paths, drafts))
    contexts = sorted(set(itertools.chain(*rows)), key=lambda x: (len(x), x))
    place = {context: i for i, context in enumerate(contexts)}
    nodes = np.array([[place[context] for context in each] for each in rows])
    drafts = np.array(drafts, np.int32).reshape(len(drafts), gamma)
    return Grid(contexts, nodes, drafts, above)


def grid(case: Case) -> Grid:
    return grid_of(case.fixture.vocab, case.gamma, case.fixture.parent)


def chances(fixture: Fixture, drawn: np.ndarray, at: Grid, live: np.ndarray):
    """Of each draft [N], where node i is drawn from drawn[:, i]. Siblings "without"
    replacement: from what is left of it; where nothing is, as "certain": the first id
    that is not taken. Beyond `live` lies anything: each id equally often."""
    chance = np.ones(len(at.drafts))
    for i, row in enumerate(at.parent):
        if not live[i]:
            chance /= fixture.vocab
            continue
        law = drawn[:, i].copy()
        if i in fixture.sure:  # what the draft finds likeliest
            law = np.eye(fixture.vocab)[law.argmax(1)]
        if fixture.parent is not None and fixture.siblings not in ("with", "own"):
            taken = [j for j in range(i) if at.parent[j] == row]
            np.put_along_axis(law, at.drafts[:, taken], 0.0, axis=1)
            free = np.ones_like(law)
            np.put_along_axis(free, at.drafts[:, taken], 0.0, axis=1)
            sure = np.arange(fixture.vocab) == free.argmax(1)[:, None]
            law = np.where(law.sum(1, keepdims=True) > 0, normalized(law), sure)
        chance *= along(law, at.drafts[:, i])
    return chance


def run(case: Case, prefix: tuple, memory: tuple) -> Step:
    """One step from `prefix`; `memory` is the policy's (budget, carry), () without."""
    if not callable(case.fixture.parent):
        return of_shape(case, prefix, memory)
    trees = defaultdict(dict)
    drawn = case.fixture.parent(lambda context: case.drawn(prefix + context))
    for (parents, tokens), chance in drawn.items():
        trees[parents][tokens] = chance
    parts = []
    for parents, known in trees.items():  # each is one shape for all of its drafts
        alike = case._replace(fixture=case.fixture._replace(parent=parents))
        parts.append(of_shape(alike, prefix, memory, known))
    return together(parts)


def together(parts: Sequence[Step]) -> Step:
    """A step of several parts, each of some of its drafts."""
    law, (_, tokens, closed, broken) = defaultdict(float), zip(*parts, strict=True)
    for part in parts:
        for outcome, chance in part.law.items():
            law[outcome] += chance
    closed = None if None in closed else sum(closed)
    return Step(law, sum(tokens), closed, set().union(*broken))


def of_shape(
    case: Case, prefix: tuple, memory: tuple, known: dict | None = None
) -> Step:
    """The same of drafts of one shape. known: tokens -> how probable they are, of those
    that are drafted at all; None is as the fixture says."""
    fixture, gamma = case.fixture, case.gamma
    bounds = [gamma, *memory[:1]] + ([fixture.num(prefix)] if fixture.num else [])
    most, count = int(min(bounds)), len(grid(case).drafts)
    every, memories = np.full(count, most), [memory] * count
    if fixture.policy is not None and fixture.policy.go_on is not None:
        every, memories = stopped(case, prefix, memory, most)
    parts = [
        of_length(case, prefix, memories, (num, most), every == num, known)
        for num in np.unique(every).tolist()
    ]
    whole = together(parts)
    if whole.closed is not None and abs(whole.tokens - whole.closed) > 1e-5:
        whole.broken.add("per_call")
    return whole


def stopped(
    case: Case, prefix: tuple, memory: tuple, most: int
) -> tuple[np.ndarray, list[tuple]]:
    """How much of each draft [N] is drafted, and the policy's memory after it, by
    `rollout` itself: a policy may stop it after each token, of which `most` are."""
    at = grid(case)
    contexts = [prefix + context for context in at.contexts]
    law = laws(case.fixture, contexts, case.dtype)[1]
    budget, carry = restored(case, [memory] * len(at.drafts))
    run = _rolled(case.fixture.policy)
    before = at.nodes[:, at.parent]
    num, carry = run(law, at.drafts, before, np.minimum(budget, most), carry)
    return np.asarray(num), rows((budget, carry))


@functools.cache
def _rolled(policy: Policy) -> Callable:
    @jax.jit
    def run(law: Law, drafts: Array, before: Array, budget: Array, carry):
        def draw(_, slot) -> tuple[Array, Law]:
            own = jax.tree.map(lambda leaf: leaf[before[:, slot]], probs.per_row(law))
            return drafts[:, slot], probs.with_shared(own, law.logits)

        zero = jnp.zeros_like(budget)
        state = State(zero[:, None], zero + 1, None, None, budget, policy=carry)
        same = Proposal(zero, ())
        draft, _ = rollout(
            draw,
            state,
            drafts.shape[1],
            initial=same,
            advance=lambda *_: same,
            go_on=policy.go_on,
        )
        return draft.num, draft.policy

    return run


def restored(case: Case, memories: list[tuple]):
    """The policy's (budget, carry), leaves [B, ...], from `rows`."""
    structure = jax.tree.structure(case.fixture.policy.init(1, case.gamma))
    return jax.tree.unflatten(structure, map(np.asarray, zip(*memories, strict=True)))


def of_length(
    case: Case,
    prefix: tuple,
    memories: list[tuple],
    length: tuple,
    chosen: np.ndarray,
    known: dict | None = None,
) -> Step:
    """The part of a step that its `chosen` drafts [N] have, which are of one length.
    memories: of each draft. length: (num, of how many might have been drafted). known:
    as of `of_shape`."""
    (num, most), fixture, gamma = length, case.fixture, case.gamma
    at = grid(case)
    live = np.arange(gamma) < num
    p, q, drawn = (
        np.stack([law(prefix + context) for context in at.contexts])
        for law in (case.p, case.q, case.drawn)
    )
    before = at.nodes[:, at.parent]
    if known is None:
        chance = chances(fixture, drawn[before], at, np.arange(gamma) < most)
    else:
        chance = np.array([known.get(x, 0.0) for x in map(tuple, at.drafts.tolist())])
    chance = chosen * chance
    unknown, tree = np.full(at.drafts.shape, 0.5), fixture.parent is not None
    by = q[before]
    by[:, list(fixture.sure)] = 0.0
    situation = Situation(p[at.nodes], by, at.drafts, live, unknown)
    if tree:
        situation = situation._replace(parent=at.parent, siblings=fixture.siblings)

    verified = functools.partial(_verify, case, prefix, memories, num)
    if tree:  # what is reported is of nodes that were decided
        situation = situation._replace(reported=case.claim.limits(situation)[0])
    elif case.claim.bounded:  # what is reported of a slot is the same for all noise
        first = verified(case.claim.cells(situation, case.dtype))[0]
        situation = situation._replace(reported=np.float64(first.accept_prob[:, 0, 0]))
    cells = case.claim.cells(situation, case.dtype)
    verdict, extra, after = verified(cells)
    if not tree:
        reported = np.float64(verdict.accept_prob[:, 0, 0])
        situation = situation._replace(reported=reported)

    weight = chance[:, None] * cells.volume
    broken = failed(
        case.claim,
        case.dtype,
        situation,
        num,
        (chance, weight, cells),
        (verdict, extra),
    )
    n, tokens = verdict.num_accepted[:, :, 1], verdict.tokens[:, :, 1]
    share = normalized(verdict.residual[:, :, 1])
    law = defaultdict(float)
    for i, k in zip(*np.nonzero(weight), strict=True):
        kept = tuple(tokens[i, k, : n[i, k]].tolist())
        then = after(i, k)
        for extra_id in np.flatnonzero(share[i, k]).tolist():
            law[(*kept, extra_id), then] += weight[i, k] * share[i, k, extra_id]

    mean, closed = float((weight * (n + 1)).sum()), None
    if case.claim.tokens is not None:
        closed = float(chance @ case.claim.tokens(situation))
    return Step(law, mean, closed, broken)


def _verify(case: Case, prefix: tuple, memories: list, num: int, cells: Cells):
    """The verdict [N, K, P, ...], the extra token as `probs.pick` draws it from the
    residual [N, K, P], and (i, k) -> the memory after."""
    fixture, at = case.fixture, grid(case)
    shape = (*cells.volume.shape, 4)
    batch = int(np.prod(shape))
    row = np.repeat(np.arange(len(at.drafts)), batch // len(at.drafts))
    contexts = [prefix + context for context in at.contexts]
    target, law = laws(fixture, contexts, case.dtype)
    draft = Draft(at.drafts[row], np.full(batch, num, np.int32), law)
    if fixture.parent is not None:
        above = np.int32(at.parent - 1)
        draft = draft._replace(parent=np.broadcast_to(above, draft.tokens.shape))
    flat = (cells.noise, cells.sample)
    flat = jax.tree.map(lambda leaf: leaf.reshape(batch, *leaf.shape[3:]), flat)
    carried = None
    if memories[0]:
        carried = restored(case, [memories[i] for i in row])
    decide = _compiled(case.verifier, fixture.policy, fixture.sure)
    nodes, before = at.nodes[row], at.nodes[:, at.parent][row]
    *results, carried = decide(target, draft, (nodes, before), flat, carried)
    results = jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(*shape, *leaf.shape[1:]), results
    )
    states = rows(carried) if memories[0] else None

    def after(i: int, k: int) -> tuple:
        return states[np.ravel_multi_index((i, k, 1), shape)] if states else ()

    return *results, after


@functools.cache
def _compiled(
    verifier: Verifier, policy: Policy | None, sure: tuple[int, ...] = ()
) -> Callable:
    """One compilation for each vocabulary, gamma, dtype and regime of the draft."""

    def of(law: Law | None, nodes: Array) -> Law | None:
        if law is None:
            return None
        own = jax.tree.map(lambda leaf: leaf[nodes], probs.per_row(law))
        return probs.with_shared(own, law.logits)

    @jax.jit
    def decide(target: Law, draft: Draft, places: tuple, flat: tuple, memory):
        (nodes, before), (noise, sample) = places, flat
        draft = draft._replace(law=of(draft.law, before))
        if sure:
            certain = jnp.isin(jnp.arange(draft.tokens.shape[1]), jnp.array(sure))
            draft = draft._replace(law=probs.mask_certain(draft.law, certain))
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


def rows(memory) -> list[tuple]:
    """A pytree of [B, ...] leaves as B tuples, to tell states apart by."""

    def plain(row: np.ndarray):
        return tuple(map(plain, row)) if np.ndim(row) else row

    leaves = map(np.asarray, jax.tree.leaves(memory))
    return list(zip(*([plain(row) for row in leaf] for leaf in leaves), strict=True))
