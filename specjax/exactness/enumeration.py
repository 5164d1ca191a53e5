"""The enumeration of one step of a verifier from one prefix, with its compiled code.

Every draft of G tokens is verified with noise from every cell on which the verdict is
constant. The weight of a verdict is the chance of its draft times the volume of its
cell, and its extra token is spread by the residual that it returns. Axes: B rows, G =
gamma, V vocabulary, N = V^G drafts, K cells with P = 4 points each (B = N K P), C
contexts: the tokens that may have been drafted before a slot."""

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs, step
from specjax.drafters.rollout import Proposal, rollout
from specjax.exactness.cells import Cells, Situation, gather
from specjax.exactness.checks import failed_checks, normalize
from specjax.exactness.claims import Claim
from specjax.exactness.fixtures import Fixture, laws, references
from specjax.types import Draft, Law, Policy, Request, State, Verdict, Verifier


class Case(NamedTuple):
    """The parts of a certificate that are the same at every prefix; p, q, drawn: prefix
    -> law [V]."""

    verifier: Verifier
    claim: Claim
    fixture: Fixture
    gamma: int
    dtype: str
    p: Callable
    q: Callable
    drawn: Callable


class Step(NamedTuple):
    """The result of a step.

    law: (tokens emitted, memory after) -> chance; the rest as in `certify.Certificate`,
    closed None where there is no claim."""

    law: dict
    tokens: float
    closed: float | None
    broken: set


class Grid(NamedTuple):
    """The grid of possible drafts, the same from every prefix.

    contexts: C tuples of ids. nodes: [N, G + 1], each row's place among them. drafts:
    [N, G]. parent: [G], of each drafted token the row that it follows."""

    contexts: list
    nodes: np.ndarray
    drafts: np.ndarray
    parent: np.ndarray


def make_case(
    verifier: Verifier, claim: Claim, fixture: Fixture, gamma: int, dtype: str
) -> Case:
    p, q = references(fixture)
    return Case(verifier, claim, fixture, gamma, dtype, p, q, fixture.drawn or q)


@functools.cache
def make_grid(vocab: int, gamma: int, tree: tuple[int, ...] | None = None) -> Grid:
    """Returns the grid. tree: the parent of each node; None for a chain."""
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
    return make_grid(case.fixture.vocab, case.gamma, case.fixture.parent)


def draft_chances(
    fixture: Fixture, drawn: np.ndarray, at: Grid, live: np.ndarray
) -> np.ndarray:
    """Returns the probability of each draft [N], where node i is drawn from drawn[:,
    i].

    Siblings "without" replacement are drawn from the rest of the law; where nothing is
    left, as for "certain", the first id that is not taken is drawn. Slots beyond `live`
    may hold anything: each id has the same chance."""
    chance = np.ones(len(at.drafts))
    for i, row in enumerate(at.parent):
        if not live[i]:
            chance /= fixture.vocab
            continue
        law = drawn[:, i].copy()
        if i in fixture.sure:  # the draft's most likely token
            law = np.eye(fixture.vocab)[law.argmax(1)]
        if fixture.parent is not None and fixture.siblings not in ("with", "own"):
            taken = [j for j in range(i) if at.parent[j] == row]
            np.put_along_axis(law, at.drafts[:, taken], 0.0, axis=1)
            free = np.ones_like(law)
            np.put_along_axis(free, at.drafts[:, taken], 0.0, axis=1)
            sure = np.arange(fixture.vocab) == free.argmax(1)[:, None]
            law = np.where(law.sum(1, keepdims=True) > 0, normalize(law), sure)
        chance *= gather(law, at.drafts[:, i])
    return chance


def run(case: Case, prefix: tuple, memory: tuple) -> Step:
    """Returns one step from `prefix`; `memory` is the policy's (budget, carry), or
    ()."""
    if not callable(case.fixture.parent):
        return run_shape(case, prefix, memory)
    trees: defaultdict[tuple, dict] = defaultdict(dict)
    drawn = case.fixture.parent(lambda context: case.drawn(prefix + context))
    for (parents, tokens), chance in drawn.items():
        trees[parents][tokens] = chance
    parts = []
    for parents, known in trees.items():  # each is one shape for all of its drafts
        alike = case._replace(fixture=case.fixture._replace(parent=parents))
        parts.append(run_shape(alike, prefix, memory, known))
    return merge(parts)


def merge(parts: Sequence[Step]) -> Step:
    """Returns the step that several parts make up, each for some of its drafts."""
    law: defaultdict[tuple, float] = defaultdict(float)
    _, tokens, closed, broken = zip(*parts, strict=True)
    for part in parts:
        for outcome, chance in part.law.items():
            law[outcome] += chance
    closed = None if None in closed else sum(closed)
    return Step(law, sum(tokens), closed, set().union(*broken))


def run_shape(
    case: Case, prefix: tuple, memory: tuple, known: dict | None = None
) -> Step:
    """Returns the step over all drafts of a tree of one shape, or over all chains.

    known: the probability of each possible draft, by its tokens; None takes those of
    the fixture."""
    fixture, gamma = case.fixture, case.gamma
    bounds = [gamma, *memory[:1]] + ([fixture.num(prefix)] if fixture.num else [])
    most, count = int(min(bounds)), len(grid(case).drafts)
    every, memories = np.full(count, most), [memory] * count
    if fixture.policy is not None and fixture.policy.go_on is not None:
        every, memories = roll_out(case, prefix, memory, most)
    parts = [
        run_length(
            case,
            prefix,
            memories,
            num=num,
            most=most,
            chosen=every == num,
            known=known,
        )
        for num in np.unique(every).tolist()
    ]
    whole = merge(parts)
    if whole.closed is not None and abs(whole.tokens - whole.closed) > 1e-5:
        whole.broken.add("per_call")
    return whole


def roll_out(
    case: Case, prefix: tuple, memory: tuple, most: int
) -> tuple[np.ndarray, list[tuple]]:
    """Returns how many tokens of each draft [N] are drafted, and the policy's memory
    after it.

    It uses `rollout` itself: a policy may stop after each of the `most` tokens."""
    at = grid(case)
    contexts = [prefix + context for context in at.contexts]
    law = laws(case.fixture, contexts, case.dtype)[1]
    budget, carry = restore_memory(case, [memory] * len(at.drafts))
    run = _build_rollout(case.fixture.policy)
    before = at.nodes[:, at.parent]
    num, carry = run(law, at.drafts, before, np.minimum(budget, most), carry)
    return np.asarray(num), rows((budget, carry))


@functools.cache
def _build_rollout(policy: Policy) -> Callable:
    @jax.jit
    def run(law: Law, drafts: Array, before: Array, budget: Array, carry: Any) -> Any:
        def draw(_: Any, slot: Any) -> tuple[Array, Law]:
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


def restore_memory(case: Case, memories: list[tuple]) -> Any:
    """Returns the policy's (budget, carry), leaves [B, ...], from `rows`."""
    assert case.fixture.policy is not None
    structure = jax.tree.structure(case.fixture.policy.init(1, case.gamma))
    return jax.tree.unflatten(structure, map(np.asarray, zip(*memories, strict=True)))


def run_length(
    case: Case,
    prefix: tuple,
    memories: list[tuple],
    *,
    num: int,
    most: int,
    chosen: np.ndarray,
    known: dict | None = None,
) -> Step:
    """Returns the part of a step that belongs to the `chosen` drafts [N], all of one
    length.

    memories: the state of each draft. num: tokens drafted. most: tokens that might
    have been drafted. known: see `run_shape`."""
    fixture, gamma = case.fixture, case.gamma
    at = grid(case)
    live = np.arange(gamma) < num
    p, q, drawn = (
        np.stack([law(prefix + context) for context in at.contexts])
        for law in (case.p, case.q, case.drawn)
    )
    before = at.nodes[:, at.parent]
    if known is None:
        chance = draft_chances(fixture, drawn[before], at, np.arange(gamma) < most)
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
        assert case.claim.limits is not None
        situation = situation._replace(reported=case.claim.limits(situation)[0])
    elif case.claim.bounded:  # what is reported of a slot is the same for all noise
        first = verified(case.claim.cells(situation, case.dtype))[0]
        situation = situation._replace(
            reported=np.asarray(first.accept_prob[:, 0, 0], np.float64)
        )
    cells = case.claim.cells(situation, case.dtype)
    verdict, extra, after = verified(cells)
    if not tree:
        reported = np.asarray(verdict.accept_prob[:, 0, 0], np.float64)
        situation = situation._replace(reported=reported)

    weight = chance[:, None] * cells.volume
    broken = failed_checks(
        case.claim,
        situation,
        dtype=case.dtype,
        num=num,
        chances=(chance, weight, cells),
        results=(verdict, extra),
    )
    n, tokens = verdict.num_accepted[:, :, 1], verdict.tokens[:, :, 1]
    share = normalize(verdict.residual[:, :, 1])
    law: defaultdict[tuple, float] = defaultdict(float)
    for i, k in zip(*np.nonzero(weight), strict=True):
        kept = tuple(tokens[i, k, : n[i, k]].tolist())
        then = after(i, k)
        for extra_id in np.flatnonzero(share[i, k]).tolist():
            law[(*kept, extra_id), then] += weight[i, k] * share[i, k, extra_id]

    mean, closed = float((weight * (n + 1)).sum()), None
    if case.claim.tokens is not None:
        closed = float(chance @ case.claim.tokens(situation))
    return Step(law, mean, closed, broken)


def _verify(case: Case, prefix: tuple, memories: list, num: int, cells: Cells) -> Any:
    """Returns the verdicts, the extra tokens, and a function to the policy's memory
    after them.

    The verdict is [N, K, P, ...], and the extra token [N, K, P] is drawn from the
    residual as by `probs.pick`. The function is (i, k) -> memory."""
    fixture, at = case.fixture, grid(case)
    shape = (*cells.volume.shape, 4)
    batch = int(np.prod(shape))
    row = np.repeat(np.arange(len(at.drafts)), batch // len(at.drafts))
    contexts = [prefix + context for context in at.contexts]
    target, law = laws(fixture, contexts, case.dtype)
    tokens: Any = at.drafts[row]
    count: Any = np.full(batch, num, np.int32)
    draft = Draft(tokens, count, law)
    if fixture.parent is not None:
        above = np.asarray(at.parent - 1, np.int32)
        parent: Any = np.broadcast_to(above, tokens.shape)
        draft = draft._replace(parent=parent)
    flat = (cells.noise, cells.sample)
    flat = jax.tree.map(lambda leaf: leaf.reshape(batch, *leaf.shape[3:]), flat)
    carried = None
    if memories[0]:
        carried = restore_memory(case, [memories[i] for i in row])
    decide = _compile(case.verifier, fixture.policy, fixture.sure)
    nodes, before = at.nodes[row], at.nodes[:, at.parent][row]
    *results, carried = decide(target, draft, (nodes, before), flat, carried)
    results = jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(shape + leaf.shape[1:]), results
    )
    states = rows(carried) if memories[0] else None

    def states_after(i: int, k: int) -> tuple:
        return states[np.ravel_multi_index((i, k, 1), shape)] if states else ()

    return *results, states_after


@functools.cache
def _compile(
    verifier: Verifier, policy: Policy | None, sure: tuple[int, ...] = ()
) -> Callable:
    """Returns the compiled verification.

    There is one compilation for each vocabulary, gamma, dtype and regime of the draft.
    """

    def take_nodes(law: Any, nodes: Array) -> Any:
        if law is None:
            return None
        own = jax.tree.map(lambda leaf: leaf[nodes], probs.per_row(law))
        return probs.with_shared(own, law.logits)

    @jax.jit
    def decide(
        target: Law, draft: Draft, places: tuple, flat: tuple, memory: Any
    ) -> Any:
        (nodes, before), (noise, sample) = places, flat
        draft = draft._replace(law=take_nodes(draft.law, before))
        if sure:
            certain = jnp.isin(jnp.arange(draft.tokens.shape[1]), jnp.array(sure))
            assert draft.law is not None
            draft = draft._replace(law=probs.mask_certain(draft.law, certain))
        verdict = verifier.verify(
            take_nodes(target, nodes), draft, noise, keep_residual=True
        )
        assert verdict.residual is not None
        drawn = probs.pick(verdict.residual, sample)
        if policy is not None:
            memory = _update(policy, draft, verdict, memory)
        return verdict, drawn, memory

    return decide


def _update(policy: Policy, draft: Draft, verdict: Verdict, memory: tuple) -> tuple:
    """Returns (budget, carry) after the step, from the report of `step.measure`."""
    zero = jnp.zeros_like(draft.num)
    unread: Any = None
    request = Request(unread, unread, start=zero, limit=zero + 2**30, eos=zero - 1)
    state = State(zero[:, None], zero + 1, None, None, budget=memory[0])
    length = state.length + verdict.num_accepted + 1
    info = step.measure(request, state, draft, verdict, length)
    before, carried = memory
    budget, carry = policy.update(before, carried, info)
    return jnp.minimum(budget, draft.tokens.shape[1]), carry


def rows(memory: Any) -> list[tuple]:
    """Returns a pytree of [B, ...] leaves as B tuples, which can be compared."""

    def to_tuples(row: np.ndarray) -> Any:
        return tuple(map(to_tuples, row)) if np.ndim(row) else row

    leaves = map(np.asarray, jax.tree.leaves(memory))
    return list(
        zip(*([to_tuples(row) for row in leaf] for leaf in leaves), strict=True)
    )
