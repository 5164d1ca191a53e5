"""Drafts of small pairs while they decode, and logits of whole texts for comparison.

Axes: N texts, T tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from specjax import generate
from specjax.inputs import make_request, make_sampling
from specjax.step import Decoder, build_step
from specjax.types import Draft, Model, Params, Prompt, Sampling, State

SLOTS = 40


class Drafted(NamedTuple):
    """A draft, and the state before it.

    cache: of the drafter, after this draft.
    """

    state: State
    draft: Draft
    cache: Any

    def texts(self) -> list[list[int]]:
        """Returns the texts that were written before the draft."""
        rows = zip(self.state.tokens.tolist(), self.state.length.tolist(), strict=True)
        return [row[:length] for row, length in rows]


def drafts_by_step(
    decoder: Decoder,
    params: Params,
    prompt: Prompt,
    *,
    steps: int,
    sampling: Sampling | None = None,
) -> list[Drafted]:
    """Returns the drafts after each number of steps up to `steps`, at temperature 1 by
    default."""
    sampling = sampling or make_sampling(prompt.length.size, 1.0)
    request = make_request(jax.random.key(3), prompt, 24, sampling)
    state = jax.jit(lambda: generate.prefill(decoder, params, prompt, SLOTS))()

    @jax.jit
    def step(params, state):
        made = []

        def draft(*asked):
            made.append(decoder.drafter.draft(*asked))
            return made[0]

        noting = decoder._replace(drafter=decoder.drafter._replace(draft=draft))
        after, _ = build_step(*noting)(params, request, state)
        return after, *made[0]

    found = []
    for _ in range(steps + 1):
        after, *drafted = step(params, state)
        found.append(Drafted(state, *drafted))
        state = after
    return found


def draft_twice(
    decoder: Decoder,
    params: Params,
    prompt: Prompt,
    *,
    written: Sequence[int],
    sampling: Sampling | None = None,
) -> list[Drafted]:
    """Returns a first draft, and a second one after the tokens `written` in every row.

    They are as many as a step may commit, and others than the first drafted, so that
    nothing of it serves.
    """
    sampling = sampling or make_sampling(prompt.length.size, 1.0)
    request = make_request(jax.random.key(3), prompt, 24, sampling)
    state = jax.jit(lambda: generate.prefill(decoder, params, prompt, SLOTS))()

    @jax.jit
    def draft(state):
        return decoder.drafter.draft(request.key, params.draft, request, state)

    first = Drafted(state, *draft(state))
    rows, more = jnp.arange(state.length.size)[:, None], jnp.arange(len(written))
    tokens = state.tokens.at[rows, state.length[:, None] + more].set(jnp.array(written))
    on = dict(tokens=tokens, length=state.length + len(written))
    state = state._replace(draft_cache=first.cache, **on)
    return [first, Drafted(state, *draft(state))]


def build_whole_text_logits(model: Model) -> Callable:
    """Builds a function (params, tokens [N, T]) -> logits [N, T, V], without a
    cache."""

    @jax.jit
    def logits(params, tokens):
        zero = jnp.zeros(len(tokens), jnp.int32)
        features, _ = model.apply(params, tokens, zero, None)
        return model.readout(params, features)

    return logits
