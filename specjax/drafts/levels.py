"""A model drafts, and is itself accelerated by a faster drafter (Section 6).

The target p is drafted for by a middle model q, whose tokens come from Algorithm 1 with
a lower drafter r in place of gamma calls of q, one for each token. Each of these rounds
is the one of `step.build_round`, which is exact for q, and each token's law is q's, so
that the target's verifier needs to know of no level below. How many tokens a round
gives does not matter: given that token i is drafted, it follows q after those before
it, whatever stopped the draft later (the number of tokens is decided before each of
them is drawn). The lower drafter may be such a hierarchy too.

Level 1 is the drafter of the target. Between two of its drafts a level k is behind by
what the levels above added: each of them ends with a token that it has not read. So it
reads k + 1 committed tokens again, as `autoregressive.catch_up` reads two.
Axes: B rows, G = gamma, L buffer, T tokens of one call.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import chunks, keys, probs
from specjax.drafters import nothing
from specjax.drafters.autoregressive import init_fn
from specjax.drafters.rollout import draw_coupled, draw_independent
from specjax.step import Round, build_round, commit, has_ended, put
from specjax.types import Draft, Drafter, Law, Model, Params, Prompt, Request, State
from specjax.verifiers import gumbel, token


class Caches(NamedTuple):
    """The caches of the middle model and of the lower drafter."""

    model: Any
    lower: Any


class Reading(NamedTuple):
    """The cache of `read_again`: that of the model, and the text [B, L] that it
    reads."""

    cache: Any
    tokens: Array


def build(
    model: Model,
    lower: Drafter,
    gamma: int,
    draw: Callable = draw_independent,
    *,
    level: int = 1,
) -> Drafter:
    """Returns a drafter of `gamma` tokens of `model`, for which `lower` drafts.

    Its parameters are `Params(model's, lower's)`.

    Args:
      model: q, whose law every token has.
      lower: r, built for this level: a model's reads `level + 2` tokens again.
      gamma: the most tokens of a draft; a round drafts at most `lower.gamma` of them.
      draw: how `lower` draws, see `drafters.rollout`; where that is by the noise of
        `verifiers.gumbel`, this level decides by it too, and so draws by it.
      level: 1 drafts for the target, 2 for level 1.

    Raises:
      ValueError: for gamma below 0; for a model that is a head; for a lower drafter of
        trees, or that reads hidden states, or of another vocabulary; or for more tokens
        than the model's caches can take back.
    """
    if gamma < 0:
        raise ValueError(f"gamma must be at least 0 (0 is autoregression); got {gamma}")
    if gamma == 0:
        return nothing.drafter
    check_levels(model, lower)
    chunks.check_room(model, gamma + lower.gamma, "draft")
    coupled = draw is draw_coupled
    rule = gumbel.verifier if coupled else token.verifier
    spare = lower.gamma + level + 1
    spec_round = build_round(read_again(all_logits(model), level), lower, rule)

    def init(params: Params, prompt: Prompt, slots: int) -> Caches:
        own = init_fn(model, spare)(params.target, prompt, slots)
        return Caches(own, lower.init(params.draft, prompt, slots + spare))

    def draft(
        key: Array, params: Params, request: Request, state: State
    ) -> tuple[Draft, Caches]:
        num = jnp.minimum(state.budget, gamma)
        if model.slots is not None:  # as in `rollout`
            num = jnp.clip(model.slots + 1 - state.length, 0, num)
        num = jnp.where(has_ended(request, state), 0, num)
        # Where this level ends. It knows nothing of the row's own limit, by which a
        # text would depend on where it is cut.
        own = request._replace(limit=state.length + num)

        def decide(inner: State, count: Array) -> Round:
            left = own.limit - inner.length
            budget = jnp.clip(left - 1, 0, lower.gamma)  # and one that q adds
            cache = Reading(inner.target_cache, inner.tokens)
            inner = inner._replace(budget=budget, target_cache=cache)
            named = round_keys(key, count)
            asked = own if coupled else own._replace(key=named)
            return spec_round(named, params, asked, inner)

        def is_running(carried: tuple[Array, State, Law]) -> Array:
            return ~jnp.all(has_ended(own, carried[1]))

        def run_inner_step(
            carried: tuple[Array, State, Law],
        ) -> tuple[Array, State, Law]:
            count, inner, laws = carried
            made = decide(inner, count)
            law, at = mark_lost(made), inner.length - state.length
            laws = jax.tree.map(lambda x, new: put_rows(x, new, at), laws, law)
            tokens, length = commit(own, inner, made.verdict)
            inner = inner._replace(
                tokens=tokens,
                length=length,
                target_cache=made.target_cache.cache,
                draft_cache=made.draft_cache,
            )
            return count + 1, inner, laws

        initial = state._replace(
            tokens=jnp.pad(state.tokens, ((0, 0), (0, spare))),
            target_cache=state.draft_cache.model,
            draft_cache=state.draft_cache.lower,
            budget=num,
            policy=None,
        )
        first = jnp.int32(0)
        empty = jax.eval_shape(decide, initial, first).law
        laws = jax.tree.map(lambda leaf: more_rows(leaf, gamma), empty)
        _, inner, laws = jax.lax.while_loop(
            is_running, run_inner_step, (first, initial, laws)
        )
        index = state.length[:, None] + jnp.arange(gamma)
        tokens = jnp.take_along_axis(inner.tokens, index, axis=1)
        made = Draft(
            tokens, inner.length - state.length, probs.first_tokens(laws, gamma)
        )
        return made, Caches(inner.target_cache, inner.draft_cache)

    return Drafter(
        init,
        draft,
        gamma,
        vocab=model.vocab,
        shapes=Params(model.shapes, lower.shapes),
        slots=model.slots,
    )


def check_levels(model: Model, lower: Drafter) -> None:
    """Raises ValueError for a pair of levels that `build` cannot make."""
    if model.observe is not None:
        raise ValueError(
            "a head reads its target's hidden states, and no other draft can draft for"
            " it: name a model as the first draft of a hierarchy"
        )
    if lower.siblings is not None:
        raise ValueError(
            "a draft inside a hierarchy is a tree, and its levels verify chains: name a"
            " draft of chains"
        )
    if lower.needs_features:
        raise ValueError(
            "a draft inside a hierarchy is a head, and no level gives it hidden states:"
            " name a model, or a draft without one"
        )
    if lower.vocab not in (None, model.vocab):
        raise ValueError(
            f"a draft inside a hierarchy has a vocabulary of {lower.vocab}, the level"
            f" above one of {model.vocab}: name drafts of one tokenizer"
        )


def all_logits(model: Model) -> Model:
    """Returns the same model, whose logits are of all ids."""

    def readout(params: Any, features: Any) -> Array:
        return probs.expand_logits(model.readout(params, features))

    return model._replace(readout=readout)


def read_again(model: Model, count: int) -> Model:
    """Returns a model whose every call first reads the last `count` tokens of the text
    again, then its own tokens.

    Its cache is a `Reading`, with the text from which it takes them.
    """

    def apply(
        params: Any, tokens: Array, start: Array, reading: Reading, branches: Any = None
    ) -> tuple[Any, Reading]:
        assert branches is None  # see `check_levels`
        text, begin = put(reading.tokens, tokens, start), jnp.maximum(start - count, 0)
        index = begin[:, None] + jnp.arange(tokens.shape[1] + count)
        block = jnp.take_along_axis(text, index, axis=1)
        features, cache = model.apply(params, block, begin, reading.cache)
        own = (start - begin)[:, None] + jnp.arange(tokens.shape[1])

        def take_own_rows(leaf: Array) -> Array:
            at = own.reshape(*own.shape, *[1] * (leaf.ndim - 2))
            return jnp.take_along_axis(leaf, at, axis=1)

        return jax.tree.map(take_own_rows, features), Reading(cache, text)

    return model._replace(apply=apply)


def round_keys(key: Array, count: Array) -> Array:
    """Returns the keys [B] of the round with this number, derived from the keys of its
    draft.

    The length alone does not name a round: a row that has ended keeps its length while
    others go on.
    """
    return keys.iteration(key, jnp.full(key.shape, count))


def mark_lost(made: Round) -> Law:
    """Returns the law of a round. Where the lower drafter's law was not finite, neither
    is this one, so that the check of logits (`specjax.finite`) finds it."""
    draft = made.draft
    if draft.law is None:
        return made.law
    live = jnp.arange(draft.tokens.shape[1]) < draft.num[:, None]
    lost = (live & ~jnp.isfinite(draft.law.top)).any(1, keepdims=True)
    return made.law._replace(top=jnp.where(lost, jnp.nan, made.law.top))


def more_rows(leaf: Any, count: int) -> Array:
    """Returns zeros in the shape [B, T, ...] of a leaf, with `count` more rows."""
    batch, rows, *rest = leaf.shape
    return jnp.zeros((batch, rows + count, *rest), leaf.dtype)


def put_rows(rows: Array, new: Array, start: Array) -> Array:
    """Returns `rows` [B, N, ...] with `new` [B, T, ...] from `start` [B] on."""

    def row(rows: Array, new: Array, start: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(rows, new, start, axis=0)

    return jax.vmap(row)(rows, new, start)
