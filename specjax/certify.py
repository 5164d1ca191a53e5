"""The exact law of a verifier, from its own compiled code and without statistics.

All drafts that a step may meet are put before `Verifier.verify`, each with uniforms
from every cell of [0, 1)^G on which the verdict is constant. A verdict weighs the
chance of its draft times the volume of its cell, and spreads its extra token by the
residual that it returns: the law of one step. Steps are composed over the prefixes that
they emit, up to n tokens, and compared with the target's own law (Appendix A.1).
What is expected (laws, thresholds, tokens per call) is worked out apart, in float64.
`python -m specjax.certify` prints the table, and fails where a claim to be exact does.
Axes: B rows, G = gamma, V vocabulary, N = V^G drafts, K = 2^G cells with 4 points each
(B = 4 N K), C contexts: what may have been drafted before a slot.
"""

import argparse
import functools
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs, step
from specjax.certify_draws import NEXT_TO_ONE, noise_p_value, pick_law
from specjax.certify_fixtures import Fixture, laws, references, trials
from specjax.types import (
    BLOCK,
    Draft,
    Law,
    Policy,
    Request,
    State,
    Table,
    Verdict,
    Verifier,
)
from specjax.verifiers import token

VERIFIERS = {"token": token.verifier}  # those that claim to be exact
TOLERANCE = 1e-6  # of a float32 law
NARROW = 2**-22  # a side of a few float32 uniforms, with no room for a point inside


class Certificate(NamedTuple):
    """What was found, and the names of the checks that failed at any prefix.

    error: max |law - target| over texts of n tokens. tv: their total variation.
    tokens, closed: mean tokens of the first call, as enumerated and by the closed form,
    1 + sum_i E(product of the thresholds of slots 1 .. i).
    broken: of those below, sorted. exact: none is, or "per_call" alone.

    law: `error` is above TOLERANCE. cells: the verdict is not constant on a cell, which
    voids the enumeration. tokens: they are not the accepted prefix, a draw from the
    residual by `noise.sample`, and zeros. support: an id of p = 0 is emitted or nothing
    is left to draw from, at uniforms of 0 and next to 1 too. accept_prob: it is not the
    threshold. per_call: `tokens` is not `closed`, which costs speed and not exactness.
    """

    error: float
    tv: float
    tokens: float
    closed: float
    broken: tuple[str, ...]
    exact: bool


def ratio(p: np.ndarray, q: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """min(1, p_i(x_i) / q_i(x_i)) [N, G], for p [N, G + 1, V], q [N, G, V]."""
    p_x, q_x = _at(p[:, :-1], tokens), _at(q, tokens)
    safe = np.where(q_x > 0, q_x, 1.0)
    return np.where(q_x > 0, np.minimum(1.0, p_x / safe), 0.0)


def certify(
    verifier: Verifier, fixture: Fixture, gamma: int, n: int, thresholds=ratio
) -> Certificate:
    """The law of the first `n` tokens that `verifier` emits, against the target's.

    verifier: any whose noise is `verifiers.token.Noise`. thresholds: as `ratio`, what
    the rule should compare each accept uniform with.

    Raises ValueError if n < 1, or for an unknown regime.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1; got {n}")
    case = _Case(verifier, fixture, gamma, thresholds, *references(fixture))
    masses = [defaultdict(float) for _ in range(n + 1)]
    memory = () if fixture.policy is None else _rows(fixture.policy.init(1, gamma))[0]
    masses[0][(), memory] = 1.0
    steps = []
    for length in range(n):
        for (prefix, memory), mass in masses[length].items():
            steps.append(_step(case, prefix, memory))
            for (emitted, after), chance in steps[-1].law.items():
                text = (prefix + emitted)[:n]
                masses[len(text)][text, after] += mass * chance
    law = defaultdict(float)
    for (text, _), mass in masses[n].items():
        law[text] += mass

    texts = itertools.product(range(fixture.vocab), repeat=n)
    own = {x: np.prod([case.p(x[:i])[x[i]] for i in range(n)]) for x in texts}
    gaps = np.abs([law[x] - own.get(x, 0.0) for x in own.keys() | law.keys()])
    broken = set().union(*(one.broken for one in steps))
    broken |= set() if gaps.max() <= TOLERANCE else {"law"}
    exact, names = broken <= {"per_call"}, tuple(sorted(broken))
    measured = (
        float(gaps.max()),
        float(gaps.sum() / 2),
        steps[0].tokens,
        steps[0].closed,
    )
    return Certificate(*measured, names, exact)


class _Case(NamedTuple):
    """What stays the same from prefix to prefix; p, q: prefix -> law [V]."""

    verifier: Verifier
    fixture: Fixture
    gamma: int
    thresholds: Callable
    p: Callable
    q: Callable


class _Step(NamedTuple):
    """law: (tokens emitted, memory after) -> chance; the rest as in `Certificate`."""

    law: dict
    tokens: float
    closed: float
    broken: set


class _Grid(NamedTuple):
    """What may happen, the same from every prefix.

    contexts: C tuples of ids. nodes: [N, G + 1], each slot's place among them.
    drafts: [N, G]. accepts: [K, G] bool, a cell's sides. sample: [B, 2] uniforms.
    """

    contexts: list
    nodes: np.ndarray
    drafts: np.ndarray
    accepts: np.ndarray
    sample: np.ndarray


@functools.cache
def _grid(vocab: int, gamma: int) -> _Grid:
    some = [list(itertools.product(range(vocab), repeat=i)) for i in range(gamma + 1)]
    contexts, drafts = list(itertools.chain(*some)), some[-1]
    place = {context: i for i, context in enumerate(contexts)}
    nodes = np.array([[place[x[:i]] for i in range(gamma + 1)] for x in drafts])
    accepts = np.array(list(itertools.product((True, False), repeat=gamma)))
    batch = 4 * len(drafts) * len(accepts)
    # Any spread of points serves: the draw is compared with that of `probs.pick`.
    sample = np.arange(1, batch + 1)[:, None] * [0.7548776662, 0.5698402910] % 1
    sample[::5], sample[1::5] = 0.0, NEXT_TO_ONE
    drafts = np.array(drafts, np.int32).reshape(len(drafts), gamma)
    return _Grid(contexts, nodes, drafts, accepts, sample.astype(np.float32))


def _step(case: _Case, prefix: tuple, memory: tuple) -> _Step:
    """One step from `prefix`; `memory` is the policy's (budget, carry), () without."""
    fixture, gamma = case.fixture, case.gamma
    grid = _grid(fixture.vocab, gamma)
    bounds = [gamma, *memory[:1]] + ([fixture.num(prefix)] if fixture.num else [])
    num = int(min(bounds))
    live = np.arange(gamma) < num
    p, q = (
        np.stack([law(prefix + context) for context in grid.contexts])
        for law in (case.p, case.q)
    )
    p_rows, q_rows = p[grid.nodes], q[grid.nodes[:, :-1]]
    # Beyond `num` lies anything: each id and either cell equally often.
    chance = np.where(live, _at(q_rows, grid.drafts), 1 / fixture.vocab).prod(-1)
    limits = case.thresholds(p_rows, q_rows, grid.drafts)
    u, volume = _points(np.where(live, limits, 0.5), grid.accepts)
    verdict, drawn, after = _verify(case, prefix, memory, u, num)

    weight, limits = chance[:, None] * volume, limits * live
    broken = _check(grid, (p_rows, limits, num), (chance, weight), (verdict, drawn))
    n, tokens, residual = (leaf[:, :, 1] for leaf in _shown(verdict))
    spread = residual / np.maximum(residual.sum(-1, keepdims=True), 1e-30)
    law = defaultdict(float)
    for i, k in zip(*np.nonzero(weight), strict=True):
        kept = tuple(tokens[i, k, : n[i, k]].tolist())
        for extra in np.flatnonzero(spread[i, k]).tolist():
            mass = weight[i, k] * spread[i, k, extra]
            law[
                (*kept, extra), after[np.ravel_multi_index((i, k, 1), u.shape[:3])]
            ] += mass

    measured = float((weight * (n + 1)).sum())
    closed = 1 + float(chance @ np.cumprod(limits, axis=1).sum(1))
    broken |= set() if abs(measured - closed) <= 1e-5 else {"per_call"}
    return _Step(law, measured, closed, broken)


def _points(limits: np.ndarray, accepts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Uniforms [N, K, 4, G] and volumes [N, K] of the cells that `limits` [N, G] bound.

    Points: near the lowest corner, the middle, near the highest corner; and, wherever
    the cell lies, the extremes 0 and next to 1.
    """
    low = np.where(accepts, 0.0, limits[:, None])
    high = np.where(accepts, limits[:, None], 1.0)
    side = high - low
    near = np.minimum(side / 4, 1e-5)  # further than rounding moves a threshold
    extreme = np.broadcast_to(np.where(accepts, 0.0, NEXT_TO_ONE), low.shape)
    u = np.stack([low + near, (low + high) / 2, high - near, extreme], axis=2)
    volume = np.where(side < NARROW, 0.0, side).prod(-1)
    return np.minimum(u, NEXT_TO_ONE).astype(np.float32), volume


def _verify(case: _Case, prefix: tuple, memory: tuple, u: np.ndarray, num: int):
    """The verdict [N, K, 4, ...], the extra token as `probs.pick` draws it from the
    residual [N, K, 4], and the memory after each of the B rows."""
    fixture, grid = case.fixture, _grid(case.fixture.vocab, case.gamma)
    batch = grid.sample.shape[0]
    row = np.repeat(np.arange(len(grid.drafts)), batch // len(grid.drafts))
    target, law = laws(fixture, [prefix + context for context in grid.contexts])
    draft = Draft(grid.drafts[row], np.full(batch, num, np.int32), law)
    noise = token.Noise(u.reshape(batch, case.gamma), grid.sample)
    carried = None
    if memory:
        structure = jax.tree.structure(fixture.policy.init(1, case.gamma))
        full = [np.full(batch, value) for value in memory]
        carried = jax.tree.unflatten(structure, full)
    run = _compiled(case.verifier, fixture.policy)
    *found, carried = run(target, draft, grid.nodes[row], noise, carried)
    found = jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(*u.shape[:3], *leaf.shape[1:]), found
    )
    return *found, _rows(carried) if memory else [()] * batch


@functools.cache
def _compiled(verifier: Verifier, policy: Policy | None) -> Callable:
    """One compilation for each vocabulary, gamma and regime of the draft."""

    def of(law: Law | None, nodes: Array) -> Law | None:
        if law is None or not isinstance(law.logits, Table):
            return jax.tree.map(lambda leaf: leaf[nodes], law)
        return of(law._replace(logits=None), nodes)._replace(logits=law.logits)

    @jax.jit
    def run(target: Law, draft: Draft, nodes: Array, noise: token.Noise, memory):
        draft = draft._replace(law=of(draft.law, nodes[:, :-1]))
        verdict = verifier.verify(of(target, nodes), draft, noise, keep_residual=True)
        drawn = probs.pick(verdict.residual, noise.sample)
        if policy is not None:
            memory = _update(policy, draft, verdict, memory)
        return verdict, drawn, memory

    return run


def _update(policy: Policy, draft: Draft, verdict: Verdict, memory: tuple) -> tuple:
    """(budget, carry) after the step, from what `step.measure` reports of it."""
    zero = jnp.zeros_like(draft.num)
    request = Request(None, None, start=zero, limit=zero + 2**30, eos=zero - 1)
    state = State(zero[:, None], zero + 1, None, None, budget=memory[0])
    length = state.length + verdict.num_accepted + 1
    info = step.measure(request, state, draft, verdict, length)
    budget, carry = policy.update(*memory, info)
    return jnp.minimum(budget, draft.tokens.shape[1]), carry


def _check(grid: _Grid, expected: tuple, chances: tuple, found: tuple) -> set[str]:
    """Names of the checks that one step fails, without law and per_call."""
    (p, limits, num), (chance, weight), (verdict, drawn) = expected, chances, found
    n, tokens, residual = _shown(verdict)
    likely, inside = (chance > 0)[:, None, None], (weight > 0)[..., None]
    slots, at = np.arange(limits.shape[1] + 1), n[..., None]
    mass = residual.sum(-1, keepdims=True)
    share = residual / np.where(mass > 0, mass, 1.0)
    other_share = np.abs(share[..., :3, :] - share[..., 1:2, :]).max(-1) > TOLERANCE
    wanted = np.pad(grid.drafts, ((0, 0), (0, 1)))[:, None, None]
    wanted = np.where(slots < at, wanted, 0)
    wanted = np.where(slots == at, drawn[..., None], wanted)
    known = np.clip(tokens, 0, p.shape[-1] - 1)
    p_x = np.where(known == tokens, _at(p[:, None, None], known), 0.0)
    off = np.abs(verdict.accept_prob - limits[:, None, None])
    failed = {
        "cells": inside & ((n[..., :3] != n[..., 1:2]) | other_share),
        "tokens": likely & ((tokens != wanted).any(-1) | (n > num)),
        "support": likely
        & (((slots <= at) & (p_x == 0)).any(-1) | ~(mass > 0)[..., 0]),
        "accept_prob": likely & ~(off <= 1e-5).all(-1),
    }
    return {name for name, where in failed.items() if where.any()}


def _shown(verdict: Verdict) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return verdict.num_accepted, verdict.tokens, verdict.residual


def _at(law: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """law [..., V] at ids [...], broadcast."""
    law = np.broadcast_to(law, (*ids.shape, law.shape[-1]))
    return np.take_along_axis(law, ids[..., None], axis=-1)[..., 0]


def _rows(memory) -> list[tuple]:
    """A pytree of [B] leaves as B tuples, to tell states apart by."""
    return list(zip(*map(np.asarray, jax.tree.leaves(memory)), strict=True))


def lines() -> Iterator[tuple]:
    """The table: ten columns a line, the last of them "exact" or what is wrong."""
    for (name, verifier), trial in itertools.product(VERIFIERS.items(), trials()):
        fixture, gamma, n = trial
        found = certify(verifier, *trial)
        sizes = name, fixture.name, fixture.vocab, gamma, n
        mean = f"{found.tokens:.5f}", f"{found.closed:.5f}"
        verdict = " ".join(["exact" if found.exact else "LOSSY", *found.broken])
        yield *sizes, f"{found.error:.1e}", f"{found.tv:.1e}", *mean, verdict
    for vocab in (4, BLOCK, 3 * BLOCK - 1):
        rng = np.random.default_rng(vocab)
        weights = rng.exponential(size=vocab) * (rng.random(vocab) < 0.8)
        gaps = np.abs(pick_law(weights) - weights / weights.sum())
        verdict = "exact" if gaps.max() <= TOLERANCE else "LOSSY"
        error = f"{gaps.max():.1e}", f"{gaps.sum() / 2:.1e}"
        yield "pick", "random weights", vocab, "", 1, *error, "", "", verdict
    for name, verifier in VERIFIERS.items():
        p_value = noise_p_value(verifier, 2, 3)
        verdict = "exact" if p_value > 1e-6 else "LOSSY"
        yield name, f"noise, p = {p_value:.2f}", 3, 2, "", "", "", "", "", verdict


def main(arguments: list[str] | None = None) -> None:
    """Prints the table with the seconds of each line; exits with 1 if any is wrong."""
    parser = argparse.ArgumentParser(prog="specjax certify", description=main.__doc__)
    parser.parse_args(arguments)
    form = "{:9} {:19} {:>3} {:>5} {:>2} {:>10} {:>8} {:>8} {:>8} {:>4}  {}"
    names = "verifier fixture V gamma n max|error| TV tokens closed s verdict"
    print(form.format(*names.split()))
    wrong, began = False, time.perf_counter()
    for *cells, verdict in lines():
        now = time.perf_counter()
        print(form.format(*cells, f"{now - began:.1f}", verdict), flush=True)
        wrong, began = wrong or verdict != "exact", now
    raise SystemExit(int(wrong))


if __name__ == "__main__":
    main()
