"""Operations and bytes per emitted token, with and without speculation, by XLA's count.

Leviathan et al. (2023), Section 3.4: Theorem 3.11 and Definition 3.10 for operations,
and the claim that the target's weights are read once a call. Nothing is timed: programs
are compiled and their `cost_analysis()` read. Axes: B rows, G = gamma, L slots.

What the counts are. Operations are XLA's `flops`: 2 m n k of a product, 1 of each
elementwise number, softmax and sampling included, transcendental functions not. Bytes
are XLA's `bytes accessed`: operands and results of each fused kernel. That is not
memory traffic: what a cache serves counts, a buffer that two kernels read counts twice,
and so does a copy that only this compiler makes. Attention counts all L slots.

What a loop costs. XLA counts a loop's body once, however often it runs, and a drafter
of gamma tokens is a first token and a loop over the others. So a drafter of one token,
which has no loop, is compiled beside it, and the difference is one further token. What
a draft of gamma costs is the first, with the drafter's catch-up, plus gamma - 1 of the
second. Other loops are those of random bits and of the search in a table: integers, a
few hundred operations.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments import tasks
from experiments.row import Measurement
from specjax import estimate, generate, theory, zoo
from specjax.bench.decoding import Protocol, speculate
from specjax.bench.players import Player
from specjax.generate import Parts
from specjax.step import build_step, score
from specjax.types import Draft, Params, Request, State


class Setting(NamedTuple):
    """Shapes that the programs are compiled for: B rows, caches of L slots."""

    gamma: int
    batch: int
    slots: int


class Cost(NamedTuple):
    """Of one run of a program, for all B rows."""

    operations: float
    bytes: float


class Costs(NamedTuple):
    """alone: a target call of 1 token. target: of gamma + 1. first, next: the first
    drafted token, and each after it. step_alone, step: whole iterations at gamma 0 and
    at gamma, with what verifies and commits, for reference.
    """

    alone: Cost
    target: Cost
    first: Cost
    next: Cost
    step_alone: Cost
    step: Cost


def build(
    target: Player,
    draft: Player,
    protocol: Protocol,
    batch: int = 1,
    slots: int = 128,
    alpha: float | None = None,
) -> Measurement:
    """The measurement of one row, at the gamma of the protocol.

    batch, slots: of the programs that are counted. alpha: of Eq. 1; None decodes one
    batch of the protocol and counts the tokens per call. Raises ValueError for a pair
    that does not decode together, or a gamma or batch below 1.
    """
    setting = Setting(protocol.gamma, batch, slots)
    check(target, draft, setting)
    inputs = (*target.files, *draft.files, *tasks.read(protocol.task).files)
    run = partial(measure, target, draft, protocol, setting, alpha)
    return Measurement(run, __name__, inputs, target.dtype, protocol.seed)


def check(target: Player, draft: Player, setting: Setting) -> None:
    if target.model is None:
        raise ValueError(f"{target.name} only drafts: name a model as the target")
    if draft.vocab not in (None, target.vocab):
        raise ValueError(
            f"{target.name} has a vocabulary of {target.vocab}, {draft.name} one of"
            f" {draft.vocab}: name a pair with one tokenizer"
        )
    if setting.gamma < 1 or setting.batch < 1:
        raise ValueError(
            f"gamma and batch must be at least 1; got {setting.gamma} and"
            f" {setting.batch}: each row reports gamma 0 beside its own"
        )
    if setting.slots < setting.gamma + 2:
        raise ValueError(f"slots must be at least gamma + 2; got {setting.slots}")


def measure(
    target: Player,
    draft: Player,
    protocol: Protocol,
    setting: Setting,
    alpha: float | None,
) -> dict:
    """Counts of every program, per call and per emitted token: plain numbers."""
    if alpha is None:
        found = decode(target, draft, protocol)
    else:
        tokens = theory.expected_tokens(alpha, setting.gamma)  # Eq. 1
        found = {"alpha": alpha, "tokens_per_call": tokens}
    costs = count(target, draft, setting)
    return {
        "target": target.name,
        "draft": draft.name,
        "draft_regime": draft.regime,
        **setting._asdict(),
        **found,
        **per_token(costs, setting, found["tokens_per_call"]),
        "weight_bytes": {
            "target": weight_bytes(target),
            "draft": weight_bytes(draft),
        },
        "operations_per_call": {k: v.operations for k, v in costs._asdict().items()},
        "bytes_per_call": {k: v.bytes for k, v in costs._asdict().items()},
    }


def decode(target: Player, draft: Player, protocol: Protocol) -> dict:
    """Tokens per call of one decoded batch, calls counted uncut; beside them those of
    Eq. 1 at the share of tested drafts that was accepted."""
    prompts = tasks.distinct(protocol.task)
    calls = speculate((target, draft), prompts, protocol.batch, protocol)
    implied = estimate.implied_alpha(calls.accepted, calls.calls, protocol.gamma)
    total, accepted = int(calls.calls.sum()), int(calls.accepted.sum())
    share = accepted / int(calls.tested.sum())
    return {
        "alpha": implied.value,
        "alpha_se": implied.se,
        "alpha_counts": share,
        "tokens_per_call": 1 + accepted / total,
        "tokens_per_call_eq1": theory.expected_tokens(share, protocol.gamma),
        "tokens": int(calls.tokens.sum()),
        "target_calls": total,
        "protocol": protocol._asdict(),
    }


def per_token(costs: Costs, setting: Setting, tokens: float) -> dict:
    """What the programs cost per emitted token, beside Section 3.4.

    tokens: emitted by a call. c_hat includes the drafter's catch-up; the expected
    factor of bytes is that of calls which read weights and cache once, drafts aside.
    """
    gamma, each = setting.gamma, setting.batch * tokens
    alone, drafted = costs.alone, plus(costs.first, costs.next, gamma - 1)
    both = plus(costs.target, drafted)
    # Definition 3.10.
    c_hat = drafted.operations / gamma / alone.operations
    alpha = theory.implied_alpha(tokens, gamma)
    return {
        "c_hat": c_hat,
        "operations_per_token_autoregressive": alone.operations / setting.batch,
        "operations_per_token": both.operations / each,
        "operations_factor": both.operations / alone.operations / tokens,
        # Theorem 3.11.
        "operations_factor_theorem": theory.operations_factor(alpha, gamma, c_hat),
        "bytes_per_token_autoregressive": alone.bytes / setting.batch,
        "bytes_per_token": both.bytes / each,
        "bytes_factor": both.bytes / alone.bytes / tokens,
        "bytes_factor_expected": 1 / tokens,  # Section 3.4, by Eq. 1
    }


def count(target: Player, draft: Player, setting: Setting) -> Costs:
    """Compiles every program for these shapes; runs none."""
    drafter, gamma = draft.drafter(setting.gamma), setting.gamma
    params = Params(target.params, draft.params)
    programs = Parts(target.model, drafter), Parts(target.model)
    request, state = shapes(programs[0], params, setting)

    def call(length: int) -> Cost:
        def run(cache, params, request, state, drafted):
            state = state._replace(target_cache=cache)
            return score(target.model, params, request, state, drafted)

        drafted = jax.ShapeDtypeStruct((setting.batch, length - 1), jnp.int32)
        rest = state._replace(target_cache=None)
        return cost(run, state.target_cache, params.target, request, rest, drafted)

    def drafting(gamma: int) -> Cost:
        drafter = draft.drafter(gamma)

        def run(cache, params, request, state):
            state = with_budget(state._replace(draft_cache=cache), gamma)
            return own(*drafter.draft(request.key, params, request, state))

        rest = state._replace(draft_cache=None)
        return cost(run, state.draft_cache, params.draft, request, rest)

    def stepping(parts: Parts) -> Cost:
        def run(state, params, request):
            return build_step(*parts)(params, request, with_budget(state, 1))

        request, state = shapes(parts, params, setting)
        return cost(run, state, params, request)

    first = drafting(1)
    more = plus(drafting(gamma), first, -1) if gamma > 1 else Cost(0.0, 0.0)
    # A step's own loop is counted once already.
    steps = stepping(programs[1]), plus(stepping(programs[0]), more, max(gamma - 2, 0))
    return Costs(call(1), call(gamma + 1), first, more, *steps)


def shapes(parts: Parts, params: Params, setting: Setting) -> tuple[Request, State]:
    """What a step is given, as ShapeDtypeStructs."""

    def begin(params: Params):
        prompt = generate.make_prompt([[zoo.START]] * setting.batch)
        sampling = generate.make_sampling(setting.batch, 1.0)
        request = generate.make_request(jax.random.key(0), prompt, 1, sampling)
        return request, generate.prefill(parts, params, prompt, setting.slots)

    return jax.eval_shape(begin, params)


def with_budget(state: State, budget: int) -> State:
    """The same budget in every row, as a constant of the program."""
    return state._replace(budget=jnp.full_like(state.budget, budget))


def own(draft: Draft, cache) -> tuple[Draft, Any]:
    """Without the table that its rows are read from, which no step copies."""
    if draft.law is None or draft.law.row is None:
        return draft, cache
    return draft._replace(law=draft.law._replace(logits=None)), cache


def cost(run: Callable, state, *inputs) -> Cost:
    """What XLA counts in a compiled program, which may overwrite `state`, as the loop
    of `generate` does."""
    compiled = jax.jit(run, donate_argnums=0).lower(state, *inputs).compile()
    found = compiled.cost_analysis()
    return Cost(found.get("flops", 0.0), found.get("bytes accessed", 0.0))


def plus(one: Cost, other: Cost, times: int = 1) -> Cost:
    return Cost(*(x + times * y for x, y in zip(one, other, strict=True)))


def weight_bytes(player: Player) -> int:
    """All parameters, also the embeddings, of which a call reads a row a token."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(player.params))
