"""One step of speculative decoding: draft, score in one call, verify, commit.

Algorithm 1 of Leviathan et al. (2023), in its own symbols.
Axes: B rows, G = gamma, L buffer, V vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import chunks, contracts, keys, probs, trees
from specjax.drafters import nothing
from specjax.types import (
    Draft,
    Drafter,
    Info,
    Kept,
    Model,
    Params,
    Policy,
    Request,
    State,
    Verdict,
    Verifier,
)
from specjax.verifiers import token


class Decoder(NamedTuple):
    """What decodes together: two models, a rule, and who decides how much to draft.

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
    """Returns `spec_step(params, request, state) -> (state, info)`, pure.

    The arguments are the fields of a `Decoder`. Raises ValueError for a drafter of more
    tokens than the target's caches take back, or of trees that the verifier or the
    target is not made for, or that no policy stops within a draft where this one does.
    """
    chunks.check_room(target, drafter.gamma, "target")
    trees.check_parts(target, drafter, verifier)
    hook, widths = within_draft(drafter, policy)

    def spec_step(params: Params, request: Request, state: State) -> tuple[State, Info]:
        key = keys.iteration(request.key, state.length)
        # x_1 .. x_gamma from M_q.
        draft_key = keys.purpose(key, keys.DRAFT)
        drafting = whole(state, drafter.gamma) if policy is None else state
        asked = draft_key, params.draft, request, drafting, *hook
        size = state.length.shape[0], drafter.gamma
        draft, draft_cache = contracts.draft_of(drafter.draft(*asked), *size)
        carry = draft.policy if hook else state.policy
        draft = draft._replace(policy=None)
        # p_1 .. p_{gamma + 1} from M_p, in one call.
        read = verifier.law or probs.standardize
        arguments = target, params.target, request, state
        law, target_cache = score_as_needed(*arguments, draft, read, widths)
        at = request.key, state.length
        noise = verifier.noise(*at, drafter.gamma, target.vocab)
        verdict = verifier.verify(law, draft, noise)
        contracts.check_verdict(verdict, *size)
        if draft.parent is not None:  # the kept path's slots, one after the other
            path = trees.kept(verdict, drafter.depth or drafter.gamma)
            target_cache = target.keep(target_cache, state.length, path)
        if drafter.observe is not None:
            start = state.length - 1
            last = jnp.take_along_axis(state.tokens, start[:, None], axis=1)
            block = jnp.concatenate([last, draft.tokens], axis=1)
            seen = Kept(block, law, draft.num, verdict.num_accepted)
            draft_cache = drafter.observe(params.draft, draft_cache, seen)

        tokens, length = commit(request, state, verdict)
        info = measure(request, state, draft, verdict, length)
        if logprobs:
            logits = trees.rows_along(law.logits, verdict)
            sure = log_probabilities(logits, verdict.tokens, info.emitted)
            info = info._replace(logprob=sure)
        budget = state.budget
        if policy is not None:
            budget, carry = policy.update(budget, carry, info)
            budget = jnp.minimum(budget, drafter.gamma)
        caches = dict(target_cache=target_cache, draft_cache=draft_cache)
        carried = dict(budget=budget, policy=carry)
        return state._replace(tokens=tokens, length=length, **caches, **carried), info

    return spec_step


def whole(state: State, gamma: int) -> State:
    """The state of a step that drafts gamma tokens in every row, known to a compiler:
    what no policy does is the same in every step."""
    return state._replace(budget=np.full(state.budget.shape, gamma, np.int32))


def within_draft(drafter: Drafter, policy: Policy | None) -> tuple[tuple, tuple]:
    """What `draft` is told of a policy that stops within drafts, and the widths of the
    target's call that are below gamma. Raises ValueError as `build_step`."""
    if policy is None:
        return (), below(drafter.gamma, drafter.widths)
    widths = below(drafter.gamma, drafter.widths + policy.widths)
    if policy.go_on is None or drafter.gamma == 0:
        return (), widths
    if not drafter.stops:
        raise ValueError(
            "the policy stops within a draft, and this draft is made at once, as copies"
            " and trees are: take the policy adaptive or cost_table, or a model's draft"
        )
    return (policy.go_on,), widths


def below(gamma: int, widths: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({width for width in widths if width < gamma}))


def score(
    target: Model,
    params,
    request: Request,
    state: State,
    drafted: Array,
    read: Callable = probs.standardize,
    parent: Array | None = None,
):
    """The target's law [B, G + 1] after the last committed and each drafted token.

    read: (logits, Sampling) -> Law. parent: of drafts that are trees, as in `Draft`.
    Returns (law, cache).
    """
    start = state.length - 1
    last = jnp.take_along_axis(state.tokens, start[:, None], axis=1)
    block = jnp.concatenate([last, drafted], axis=1)
    tree = () if parent is None else (trees.branches(parent),)
    features, cache = target.apply(params, block, start, state.target_cache, *tree)
    logits = target.readout(params, features)
    return read(logits, request.sampling), cache


def score_as_needed(
    target: Model,
    params,
    request: Request,
    state: State,
    draft: Draft,
    read: Callable,
    widths: tuple[int, ...] = (),
):
    """`score` of as many drafted tokens as the batch's longest draft needs, by the
    least of `widths` that holds it, ascending and below gamma. The law of those beyond
    is 0, and never read."""
    gamma = draft.tokens.shape[1]
    arguments = target, params, request, state
    if not widths or draft.parent is not None:
        return score(*arguments, draft.tokens, read, draft.parent)

    def of(width: int) -> Callable:
        def call(drafted: Array):
            law, cache = score(*arguments, drafted[:, :width], read)

            def whole(leaf: Array) -> Array:
                more = [(0, 0), (0, gamma - width), *[(0, 0)] * (leaf.ndim - 2)]
                return jnp.pad(leaf, more)

            return jax.tree.map(whole, law), cache

        return call

    every = [*widths, gamma]
    least = jnp.searchsorted(jnp.array(every), jnp.max(draft.num))
    return jax.lax.switch(least, list(map(of, every)), draft.tokens)


def finished(request: Request, state: State) -> Array:
    """[B] bool: rows at their limit, or whose last generated token is an `eos`."""
    last = jnp.take_along_axis(state.tokens, state.length[:, None] - 1, axis=1)[:, 0]
    ended = is_end(last, request.eos) & (state.length > request.start)
    return ended | (state.length >= request.limit)


def is_end(tokens: Array, eos: Array) -> Array:
    """Which of the tokens [B] or [B, T] end their row: see `Request.eos`."""
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
    emitted = jnp.where(finished(request, state), 0, emitted)
    emitted = emitted.astype(state.length.dtype)
    tokens = put(state.tokens, verdict.tokens, state.length)
    return tokens, state.length + emitted


def put(rows: Array, new: Array, start: Array) -> Array:
    """`rows` [B, L] with `new` [B, T] from slot `start` [B] of each on. Of several rows
    a GPU's compiler makes three kernels, of a lone one a single kernel if told so."""
    if start.size == 1:
        return jax.lax.dynamic_update_slice(rows, new, (0, start[0]))
    return jax.vmap(jax.lax.dynamic_update_slice)(rows, new, start[:, None])


def measure(
    request: Request, state: State, draft: Draft, verdict: Verdict, length: Array
) -> Info:
    """What the step did; a row that had ended counts for nothing."""
    active, emitted = ~finished(request, state), length - state.length
    n, num = verdict.num_accepted, draft.num
    depth = num  # of what was kept, with one more where it went on
    drafted, chance = draft.tokens, verdict.accept_prob
    if draft.parent is not None:
        at = trees.last(verdict.path, n)
        depth = n + ~trees.is_leaf(draft, at)
        order = trees.path_first(verdict)
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
    """log softmax of `logits` [B, T, V] at `tokens` [B, T]: [B, T] float32, 0 from
    `count` [B] on."""
    logits = logits.astype(jnp.float32)
    at = jnp.maximum(tokens, 0)[..., None]  # below 0 where logits are no law
    each = jnp.take_along_axis(logits, at, axis=-1)[..., 0]
    each -= jax.nn.logsumexp(logits, axis=-1)
    return jnp.where(jnp.arange(tokens.shape[1]) < count[:, None], each, 0.0)
