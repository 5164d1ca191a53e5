"""Operations and bytes per emitted token, with and without speculation, as XLA counts
them.

Leviathan et al. (2023), Section 3.4: Theorem 3.11 and Definition 3.10 for operations,
and the claim that the target's weights are read once a call. Nothing is timed: programs
are compiled and their `cost_analysis()` read. Axes: B rows, G = gamma, L slots.

Counts are spread over the tokens per call of a run; the theorem takes alpha = E(sum_x
min(p, q)) on the target's own text, as Table 3 does, and so expects its own number of
tokens per call. Their difference is what the theorem misses.

Operations are XLA's `flops`: 2 m n k of a product, 1 of each elementwise number,
softmax and sampling included, transcendental functions not. Bytes are XLA's `bytes
accessed`: operands and results of each fused kernel, which is not memory traffic: what
a cache serves counts, a buffer that two kernels read counts twice, and so does a copy
that only this compiler makes. Attention counts all L slots.

XLA counts a loop's body once, however often it runs, and a drafter of gamma tokens is a
first token and a loop over the others. So a drafter of one token, which has no loop, is
compiled beside it, and the difference is one further token. Other loops are those of
random bits and of the search in a table: integers, a few hundred operations.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import tasks
from specjax import drafts, generate, native, zoo
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftLike, DraftSource, check_pair, pair_files
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.keys import root_key
from specjax.measure import pairs
from specjax.measure.row import Measurement
from specjax.measure.texts import Protocol
from specjax.step import Decoder, build_step, score
from specjax.theory import closed_forms
from specjax.types import Draft, Params, Request, State


class OperationsSetting(NamedTuple):
    """The shapes that programs are compiled for: B rows, caches of L slots."""

    gamma: int
    batch: int
    slots: int


class Cost(NamedTuple):
    """The cost of one run of a program, for all B rows."""

    operations: float
    bytes: float


class Costs(NamedTuple):
    """The costs of the programs of a step.

    Attributes:
        alone: a target call on 1 token.
        target: a target call on gamma + 1 tokens.
        first, next: the first drafted token, and each later one.
        step_alone, step: iterations at gamma 0 and gamma.
    """

    alone: Cost
    target: Cost
    first: Cost
    next: Cost
    step_alone: Cost
    step: Cost


def build(
    target: Pretrained,
    draft: DraftLike,
    protocol: Protocol,
    *,
    batch: int = 1,
    slots: int = 128,
    alpha: float | None = None,
) -> Measurement:
    """Returns the measurement of one row, at the gamma of the protocol.

    Args:
        batch, slots: of the programs that are counted.
        alpha: that of Eq. 1, which then also gives the tokens per call; None
            measures both.

    Raises:
        ValueError: the pair does not decode together or has no alpha, or gamma or batch
            is below 1.
    """
    setting = OperationsSetting(protocol.decode.gamma, batch, slots)
    target, draft = drafts.pair(target, draft)
    check(target, draft, setting)
    if alpha is None:
        check_pair(target, draft)
    inputs = (*pair_files(target, draft), *tasks.read(protocol.task).files)
    run = partial(
        measure, target, draft, protocol=protocol, setting=setting, alpha=alpha
    )
    return Measurement(run, __name__, inputs, target.dtype, protocol.decode.seed)


def check(target: Pretrained, draft: DraftSource, setting: OperationsSetting) -> None:
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
    target: Pretrained,
    draft: DraftSource,
    *,
    protocol: Protocol,
    setting: OperationsSetting,
    alpha: float | None,
) -> dict:
    """Returns the counts of every program, per call and per emitted token, as plain
    numbers.
    """
    if alpha is None:
        decoded = decode(target, draft, protocol)
    else:
        tokens = closed_forms.expected_tokens(alpha, setting.gamma)  # Eq. 1
        decoded = {"alpha": alpha, "alpha_se": None}
        decoded |= {"tokens_per_call": tokens, "tokens_per_call_se": None}
    costs = count(target, draft, setting)
    return {
        "target": target.name,
        "draft": draft.name,
        "draft_regime": draft.regime,
        **setting._asdict(),
        **decoded,
        **per_token(costs, setting, decoded),
        "weight_bytes": {"target": weight_bytes(target), "draft": weight_bytes(draft)},
        "operations_per_call": {k: v.operations for k, v in costs._asdict().items()},
        "bytes_per_call": {k: v.bytes for k, v in costs._asdict().items()},
    }


def decode(target: Pretrained, draft: DraftSource, protocol: Protocol) -> dict:
    """Returns alpha as Table 3 measures it, the tokens per call of the same run, where
    the last call of a text counts in full, and the tokens per call of Eq. 1 at that
    alpha.
    """
    prompts, most = tasks.distinct(protocol.task), protocol.decode.gamma + 1
    measured = pairs.measure_alpha((target, draft), prompts, protocol)
    r = measured["estimates"]["chen_r"]
    alpha = min(measured["alpha"], 1.0)  # a float32 sum
    return measured | {
        "tokens_per_call": most * r["value"],
        "tokens_per_call_se": None if r["se"] is None else most * r["se"],
        "tokens_per_call_eq1": closed_forms.expected_tokens(
            alpha, protocol.decode.gamma
        ),
    }


def per_token(costs: Costs, setting: OperationsSetting, counts: dict) -> dict:
    """Returns the cost of the programs per emitted token, and the cost by Section 3.4.

    The bytes of Section 3.4 are of calls that read weights and cache once. c_hat
    includes the drafter's catch-up.
    """
    gamma, tokens = setting.gamma, counts["tokens_per_call"]
    alpha, each = min(counts["alpha"], 1.0), setting.batch * tokens
    alone, drafted = costs.alone, add_costs(costs.first, costs.next, gamma - 1)
    both = add_costs(costs.target, drafted)
    # Definition 3.10.
    c_hat = drafted.operations / gamma / alone.operations

    def theorem(alpha: float) -> float:
        return closed_forms.operations_factor(alpha, gamma, c_hat)  # Theorem 3.11

    factor, theorem_se = both.operations / alone.operations / tokens, None
    if counts["alpha_se"] is not None:
        ends = np.clip(alpha + counts["alpha_se"] * np.array([-1, 1]), 0, 1)
        theorem_se = float(np.ptp([theorem(end) for end in ends])) / 2
    error = counts["tokens_per_call_se"]
    return {
        "c_hat": c_hat,
        "operations_per_token_autoregressive": alone.operations / setting.batch,
        "operations_per_token": both.operations / each,
        "operations_factor": factor,
        "operations_factor_se": None if error is None else factor * error / tokens,
        "operations_factor_theorem": theorem(alpha),
        "operations_factor_theorem_se": theorem_se,
        "bytes_per_token_autoregressive": alone.bytes / setting.batch,
        "bytes_per_token": both.bytes / each,
        "bytes_factor": both.bytes / alone.bytes / tokens,
        # Section 3.4, by Eq. 1.
        "bytes_factor_expected": 1 / closed_forms.expected_tokens(alpha, gamma),
    }


def count(target: Pretrained, draft: DraftSource, setting: OperationsSetting) -> Costs:
    """Compiles every program for these shapes; none is run."""
    drafter, gamma = draft.drafter(setting.gamma), setting.gamma
    params = Params(target.params, draft.params)
    programs = Decoder(target.model, drafter), Decoder(target.model)
    request, state = shapes(programs[0], params, setting)

    def call(length: int) -> Cost:
        def run(cache, params, request, state, drafted):
            state = state._replace(target_cache=cache)
            return score(target.model, params, request, state, drafted)[:2]

        drafted = jax.ShapeDtypeStruct((setting.batch, length - 1), jnp.int32)
        rest = state._replace(target_cache=None)
        return cost(run, state.target_cache, params.target, request, rest, drafted)

    def draft_cost(gamma: int) -> Cost:
        drafter = draft.drafter(gamma)

        def run(cache, params, request, state):
            state = with_budget(state._replace(draft_cache=cache), gamma)
            return without_shared_table(
                *drafter.draft(request.key, params, request, state)
            )

        rest = state._replace(draft_cache=None)
        return cost(run, state.draft_cache, params.draft, request, rest)

    def step_cost(decoder: Decoder) -> Cost:
        def run(state, params, request):
            return build_step(*decoder)(params, request, with_budget(state, 1))

        request, state = shapes(decoder, params, setting)
        return cost(run, state, params, request)

    first = draft_cost(1)
    more = add_costs(draft_cost(gamma), first, -1) if gamma > 1 else Cost(0.0, 0.0)
    # A step's own loop is counted once already.
    step = add_costs(step_cost(programs[0]), more, max(gamma - 2, 0))
    return Costs(
        alone=call(1),
        target=call(gamma + 1),
        first=first,
        next=more,
        step_alone=step_cost(programs[1]),
        step=step,
    )


def shapes(
    decoder: Decoder, params: Params, setting: OperationsSetting
) -> tuple[Request, State]:
    """Returns the arguments of a step as ShapeDtypeStructs."""

    def begin(params: Params):
        prompt = make_prompt([[zoo.START]] * setting.batch)
        sampling = make_sampling(setting.batch, 1.0)
        request = make_request(root_key(0), prompt, 1, sampling)
        return request, generate.prefill(decoder, params, prompt, setting.slots)

    return jax.eval_shape(begin, params)


def with_budget(state: State, budget: int) -> State:
    """Returns the state with the same budget in every row, as a constant of the
    program.
    """
    return state._replace(budget=jnp.full_like(state.budget, budget))


def without_shared_table(draft: Draft, cache) -> tuple[Draft, Any]:
    """Returns the draft without the table that its rows are read from, because no step
    copies it.
    """
    if draft.law is None or draft.law.row is None:
        return draft, cache
    return draft._replace(law=draft.law._replace(logits=None)), cache


def cost(run: Callable, state, *inputs) -> Cost:
    """Returns XLA's counts for a compiled program, which may overwrite `state`, as the
    loop of `generate` does.

    It is compiled with XLA's own products, because XLA does not count our thin
    products.
    """
    with native.products(native.XLA):
        compiled = jax.jit(run, donate_argnums=0).lower(state, *inputs).compile()
    counts = compiled.cost_analysis()
    return Cost(counts.get("flops", 0.0), counts.get("bytes accessed", 0.0))


def add_costs(base: Cost, other: Cost, times: int = 1) -> Cost:
    return Cost(*(x + times * y for x, y in zip(base, other, strict=True)))


def weight_bytes(model: Pretrained | DraftSource) -> int:
    """Returns the bytes of all parameters, including the embeddings, of which a call
    reads only one row for each token.
    """
    return sum(leaf.nbytes for leaf in jax.tree.leaves(model.params))
