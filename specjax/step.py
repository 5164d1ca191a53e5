"""A step of speculative decoding: draft, score in one call, verify, commit.

It is Algorithm 1 of Leviathan et al. (2023), in its own symbols. Axes: B rows, G =
gamma, L buffer, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import chunks, keys, probs, trees
from specjax.drafters import nothing
from specjax.runtime import contracts
from specjax.types import (
    Draft,
    Drafter,
    Hidden,
    Info,
    Law,
    Model,
    Params,
    Policy,
    ReadHidden,
    ReadLaw,
    Request,
    State,
    TargetCall,
    Verdict,
    Verifier,
)
from specjax.verifiers import token

Scored = tuple[Law, Any, Hidden | None]  # a law, the target's cache, hidden states


class Decoder(NamedTuple):
    """The parts that decode together: two models, a rule, and a drafting policy.

    logprobs: whether each step measures `Info.logprob`, which reads the target's logits
    [B, G + 1, V] once more.
    """

    target: Model
    drafter: Drafter = nothing.drafter
    verifier: Verifier = token.verifier
    policy: Policy | None = None
    logprobs: bool = False


def build_step(
    target: Model,
    drafter: Drafter,
    verifier: Verifier = token.verifier,
    policy: Policy | None = None,
    logprobs: bool = False,
) -> Callable[[Params, Request, State], tuple[State, Info]]:
    """Returns `spec_step(params, request, state) -> (state, info)`, a pure function.

    The arguments are the fields of a `Decoder`. Raises ValueError for a drafter of more
    tokens than the target's caches can take back; for trees that the verifier or the
    target does not support; and for a drafter that a policy cannot stop within a draft,
    where this policy does so.
    """
    gamma = drafter.gamma
    spec_round = build_round(target, drafter, verifier, policy)

    def spec_step(params: Params, request: Request, state: State) -> tuple[State, Info]:
        drafting = with_full_budget(state, gamma) if policy is None else state
        made = spec_round(request.key, params, request, drafting)
        verdict, carry = made.verdict, made.policy
        tokens, length = commit(request, state, verdict)
        info = measure(request, state, made.draft, verdict, length)
        if logprobs:
            logits = trees.rows_on_path(made.law.logits, verdict)
            logprob = log_probabilities(logits, verdict.tokens, info.emitted)
            info = info._replace(logprob=logprob)
        budget = state.budget
        if policy is not None:
            budget, carry = policy.update(budget, carry, info)
            budget = jnp.minimum(budget, gamma)
        state = state._replace(
            tokens=tokens,
            length=length,
            target_cache=made.target_cache,
            draft_cache=made.draft_cache,
            budget=budget,
            policy=carry,
        )
        return state, info

    return spec_step


class Round(NamedTuple):
    """A draft, and the decision on it from one call of the target, before anything is
    committed.

    draft: without `Draft.policy`. law: the target's [B, G + 1] after each token; of a
    tree, after each node. target_cache, draft_cache: after the call. policy: what the
    policy carries after the draft.
    """

    draft: Draft
    law: Law
    verdict: Verdict
    target_cache: Any
    draft_cache: Any
    policy: Any


def build_round(
    target: Model,
    drafter: Drafter,
    verifier: Verifier = token.verifier,
    policy: Policy | None = None,
) -> Callable[[Array, Params, Request, State], Round]:
    """Returns `spec_round(key, params, request, state) -> Round`, a pure function.

    key: [B], by which drafts are drawn; the verifier's noise is by `request.key`. No
    more than `state.budget` tokens are drafted. Raises ValueError like `build_step`.
    """
    gamma = drafter.gamma
    chunks.check_room(target, gamma, "target")
    trees.check_parts(target, drafter, verifier)
    hook, widths = hook_and_widths(drafter, policy)

    def spec_round(key: Array, params: Params, request: Request, state: State) -> Round:
        # x_1 .. x_gamma from M_q.
        draft_key = keys.purpose(keys.iteration(key, state.length), keys.DRAFT)
        batch = state.length.shape[0]
        draft, draft_cache = contracts.check_draft(
            drafter.draft(draft_key, params.draft, request, state, *hook),
            batch,
            gamma,
        )
        carry = draft.policy if hook else state.policy
        draft = draft._replace(policy=None)
        # p_1 .. p_{gamma + 1} from M_p, in one call.
        law, target_cache, hidden = score_as_needed(
            target,
            params.target,
            request,
            state,
            draft,
            read=verifier.law or probs.standardize,
            widths=widths,
            read_hidden=target.hidden if drafter.needs_features else None,
        )
        noise = verifier.noise(request.key, state.length, gamma, target.vocab)
        verdict = verifier.verify(law, draft, noise)
        contracts.check_verdict(verdict, batch, gamma)
        if draft.parent is not None:  # moves the kept path to consecutive slots
            assert target.keep is not None  # see `trees.check_parts`
            path = trees.kept_nodes(verdict, drafter.depth or gamma)
            target_cache = target.keep(target_cache, state.length, path)
        if drafter.observe is not None:
            start = state.length - 1
            last = jnp.take_along_axis(state.tokens, start[:, None], axis=1)
            block = jnp.concatenate([last, draft.tokens], axis=1)
            n, features = verdict.num_accepted, trees.rows_on_path(hidden, verdict)
            seen = TargetCall(block, law, draft.num, n, start, features)
            draft_cache = drafter.observe(params.draft, draft_cache, seen)
        return Round(draft, law, verdict, target_cache, draft_cache, carry)

    return spec_round


def with_full_budget(state: State, gamma: int) -> State:
    """Returns the state with a budget of gamma tokens in every row, as a constant.

    Without a policy the budget is the same in every step, so a compiler may know it.
    """
    return state._replace(budget=np.full(state.budget.shape, gamma, np.int32))


def hook_and_widths(drafter: Drafter, policy: Policy | None) -> tuple[tuple, tuple]:
    """Returns the policy's hook for `draft`, as () or (go_on,), and the policy's widths
    below gamma.

    The widths are those of the target's call. Raises ValueError like `build_step`.
    """
    if policy is None:
        return (), widths_below(drafter.gamma, drafter.widths)
    widths = widths_below(drafter.gamma, drafter.widths + policy.widths)
    if policy.go_on is None or drafter.gamma == 0:
        return (), widths
    if not drafter.stops:
        raise ValueError(
            "the policy stops within a draft, but this drafter drafts all tokens at"
            " once, as copies and trees do: use the policy adaptive or cost_table, or a"
            " model's draft"
        )
    return (policy.go_on,), widths


def widths_below(gamma: int, widths: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the widths below gamma in ascending order, each once."""
    return tuple(sorted({width for width in widths if width < gamma}))


def score(
    target: Model,
    params: Any,
    request: Request,
    state: State,
    drafted: Array,
    *,
    read: ReadLaw = probs.standardize,
    parent: Array | None = None,
    read_hidden: ReadHidden | None = None,
) -> Scored:
    """Returns the target's law [B, G + 1] after the last committed and drafted tokens.

    read: (logits, Sampling) -> Law. parent: for drafts that are trees, as in `Draft`.
    read_hidden: what makes the hidden states of these tokens, where they are needed.
    The result is (law, cache, hidden states or None).
    """
    start = state.length - 1
    last = jnp.take_along_axis(state.tokens, start[:, None], axis=1)
    block = jnp.concatenate([last, drafted], axis=1)
    tree = () if parent is None else (trees.branches(parent),)
    features, cache = target.apply(params, block, start, state.target_cache, *tree)
    law = read(target.readout(params, features), request.sampling)
    return law, cache, None if read_hidden is None else read_hidden(features)


def score_as_needed(
    target: Model,
    params: Any,
    request: Request,
    state: State,
    draft: Draft,
    *,
    read: ReadLaw,
    widths: tuple[int, ...] = (),
    read_hidden: ReadHidden | None = None,
) -> Scored:
    """Returns `score` of only as many drafted tokens as the longest draft of the batch
    has.

    The call has the smallest of `widths` that is enough; they ascend and are below
    gamma. The law after the other tokens is 0, and never read; so are their hidden
    states.
    """
    gamma = draft.tokens.shape[1]
    if not widths or draft.parent is not None:
        return score(
            target,
            params,
            request,
            state,
            draft.tokens,
            read=read,
            parent=draft.parent,
            read_hidden=read_hidden,
        )

    def call_of_width(width: int) -> Callable[[Any], Scored]:
        def call(cache: Any) -> Scored:
            law, cache, hidden = score(
                target,
                params,
                request,
                state._replace(target_cache=cache),
                draft.tokens[:, :width],
                read=read,
                read_hidden=read_hidden,
            )

            def pad(leaf: Array) -> Array:
                more = [(0, 0), (0, gamma - width), *[(0, 0)] * (leaf.ndim - 2)]
                return jnp.pad(leaf, more)

            law, hidden = jax.tree.map(pad, (law, hidden))
            return law, cache, hidden

        return call

    every = [*widths, gamma]
    least = jnp.searchsorted(jnp.array(every), jnp.max(draft.num))
    return run_one(list(map(call_of_width, every)), least, state.target_cache)


def run_one(
    calls: Sequence[Callable[[Any], Scored]], chosen: Array, cache: Any
) -> Scored:
    """Returns the result of one of the calls, without copying the cache.

    XLA copies a cache that a branch of a conditional changes, but a loop changes it in
    place. So each call is a loop, of one round for the chosen one and of none for the
    others.
    """
    law, _, hidden = jax.eval_shape(calls[-1], cache)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (law, hidden))
    scored = nothing[0], cache, nothing[1]
    for i, call in enumerate(calls):

        def body(carry: tuple[Array, Scored], call: Callable = call) -> Any:
            return jnp.bool(False), call(carry[1][1])

        _, scored = jax.lax.while_loop(
            lambda carry: carry[0], body, (chosen == i, scored)
        )
    return scored


def has_ended(request: Request, state: State) -> Array:
    """Returns which rows are at their limit or end with one of their `eos`; [B]
    bool."""
    last = jnp.take_along_axis(state.tokens, state.length[:, None] - 1, axis=1)[:, 0]
    ended = is_end(last, request.eos) & (state.length > request.start)
    return ended | (state.length >= request.limit)


def is_end(tokens: Array, eos: Array) -> Array:
    """Returns which of the tokens [B] or [B, T] end their row: see `Request.eos`."""
    each = eos if tokens.ndim == 1 else eos[:, None]
    if eos.ndim == 1:
        return tokens == each
    return (tokens[..., None] == each).any(-1)


def commit(request: Request, state: State, verdict: Verdict) -> tuple[Array, Array]:
    """Writes the kept tokens, up to the row's limit and its end of text.

    Returns tokens [B, L] and length [B]; a finished row keeps its length. Cutting is
    exact: the limit is fixed in advance, and nothing follows an end of text.
    """
    slots = jnp.arange(verdict.tokens.shape[1])
    ends = is_end(verdict.tokens, request.eos)
    to_end = jnp.where(ends.any(1), jnp.argmax(ends, axis=1) + 1, slots.size)
    emitted = jnp.minimum(verdict.num_accepted + 1, to_end)
    emitted = jnp.minimum(emitted, request.limit - state.length)
    emitted = jnp.where(has_ended(request, state), 0, emitted)
    emitted = emitted.astype(state.length.dtype)
    tokens = put(state.tokens, verdict.tokens, state.length)
    return tokens, state.length + emitted


def put(rows: Array, new: Array, start: Array) -> Array:
    """Returns `rows` [B, L] with `new` [B, T] written from slot `start` [B] on.

    A GPU's compiler makes three kernels of this for several rows, and a single one for
    one row, but only in the form used here.
    """
    if start.size == 1:
        return jax.lax.dynamic_update_slice(rows, new, (0, start[0]))
    return jax.vmap(jax.lax.dynamic_update_slice)(rows, new, start[:, None])


def measure(
    request: Request, state: State, draft: Draft, verdict: Verdict, length: Array
) -> Info:
    """Returns what the step did; a row that had ended before counts for nothing."""
    active, emitted = ~has_ended(request, state), length - state.length
    n, num = verdict.num_accepted, draft.num
    depth = num  # the levels of the kept path, and one more where the draft went on
    drafted, chance = draft.tokens, verdict.accept_prob
    if draft.parent is not None:
        assert verdict.path is not None  # as of trees
        at = trees.last_node(verdict.path, n)
        depth = n + ~trees.is_leaf(draft, at)
        order = trees.order_by_path(verdict)
        drafted, chance = (
            jnp.take_along_axis(x, order, axis=1) for x in (drafted, chance)
        )
    tested = jnp.minimum(jnp.minimum(n + 1, depth), emitted)
    return Info(
        drafted=jnp.where(active, num, 0),
        accepted=jnp.minimum(n, emitted),
        tested=tested,
        emitted=emitted,
        accept_prob=jnp.where(active[:, None], chance, 0.0),
        tokens=drafted,
        full=active & (n == depth) & (num > 0),
    )


def log_probabilities(logits: Array, tokens: Array, count: Array) -> Array:
    """Returns log softmax of `logits` [B, T, V] at `tokens` [B, T], and 0 from `count`
    on.

    count is [B]; the result is [B, T] float32.
    """
    logits = logits.astype(jnp.float32)
    at = jnp.maximum(tokens, 0)[..., None]  # negative where logits are not finite
    each = jnp.take_along_axis(logits, at, axis=-1)[..., 0]
    each -= jax.nn.logsumexp(logits, axis=-1)
    return jnp.where(jnp.arange(tokens.shape[1]) < count[:, None], each, 0.0)
