"""Whole texts: prefill, then steps until every row has ended, in one compiled program.

Axes: B rows, T prompt tokens, G = gamma, L buffer.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from specjax import chunks, finite, hosts
from specjax.inputs import check
from specjax.step import Decoder, build_step, finished
from specjax.types import Info, Model, Params, Prompt, Request, State


class Counts(NamedTuple):
    """Sums over a run, [B] int32 each; see `specjax.types.Info`.

    `calls` of the target; `drafted`, `tested`, `accepted` tokens.
    """

    calls: Array
    drafted: Array
    tested: Array
    accepted: Array


class Output(NamedTuple):
    """tokens [B, L]: prompt, then output, then 0; length [B]; counts [B]. logprob [B]:
    the sum of `Info.logprob` over the output, None where it was not asked for."""

    tokens: Array
    length: Array
    counts: Counts
    logprob: Array | None = None


def build(decoder: Decoder, slots: int) -> Callable[[Params, Prompt, Request], Output]:
    """Returns `generate(params, prompt, request) -> Output`, with a buffer of `slots`.

    One compilation a shape. Raises ValueError for bad input before any compute, see
    `check`; and FloatingPointError, naming row and step, for logits that are no law,
    see `specjax.finite`. `build_loop` under a caller's own jit does neither.
    """
    guarded = decoder._replace(verifier=finite.guarded(decoder.verifier))
    loop = jax.jit(build_loop(guarded, slots))

    def generate(params: Params, prompt: Prompt, request: Request) -> Output:
        check(decoder, slots, params, prompt, request)
        output = loop(params, prompt, request)
        check_finite(output.tokens, request.start, output.length)
        return output

    return generate


def autoregressive(target: Model, slots: int) -> Callable:
    """The baseline: the same loop, model and cache with gamma = 0."""
    return build(Decoder(target), slots)


def build_loop(
    decoder: Decoder, slots: int
) -> Callable[[Params, Prompt, Request], Output]:
    """`generate` without its checks: pure, to be called under a caller's own jit."""
    finish = build_rest(decoder)

    def loop(params: Params, prompt: Prompt, request: Request) -> Output:
        return finish(params, request, prefill(decoder, params, prompt, slots))

    return loop


def build_rest(decoder: Decoder) -> Callable[[Params, Request, State], Output]:
    """What `build_loop` does after `prefill`: steps until every row has ended."""
    step = build_step(*decoder)

    def finish(params: Params, request: Request, state: State) -> Output:
        def running(carry):
            return ~jnp.all(finished(request, carry[0]))

        def body(carry):
            state, totals, logprob = carry
            state, info = step(params, request, state)
            if decoder.logprobs:
                logprob += info.logprob.sum(-1)
            return state, totals + count(info), logprob

        zero = jnp.zeros_like(state.length)
        logprob = jnp.zeros(zero.shape, jnp.float32) if decoder.logprobs else None
        begun = state, jnp.stack([zero] * len(Counts._fields)), logprob
        state, totals, logprob = jax.lax.while_loop(running, body, begun)
        written = jnp.arange(state.tokens.shape[1]) < state.length[:, None]
        tokens = jnp.where(written, state.tokens, 0)
        return Output(tokens, state.length, Counts(*totals), logprob)

    return finish


def build_stream(
    decoder: Decoder, slots: int
) -> Callable[[Params, Prompt, Request], Iterator[tuple[State, Info]]]:
    """Returns `stream(params, prompt, request)`, for display and traces.

    It yields the state and what was measured after every step: the same texts as
    `build`, with one host synchronisation a step. A state's buffers are given up at the
    next step: copy what is to be kept. Raises FloatingPointError, naming row and step,
    for logits that are no law; see `specjax.finite`.
    """
    guarded = decoder._replace(verifier=finite.guarded(decoder.verifier))
    step = jax.jit(build_step(*guarded), donate_argnums=2)
    begin = jax.jit(lambda params, prompt: prefill(decoder, params, prompt, slots))

    def stream(params: Params, prompt: Prompt, request: Request):
        check(decoder, slots, params, prompt, request)
        state = begin(params, prompt)
        while not bool(jnp.all(finished(request, state))):
            state, info = step(params, request, state)
            check_finite(state.tokens, request.start, state.length)
            yield state, info

    return stream


def check_finite(tokens: Array, start: Array, length: Array) -> None:
    """Raises FloatingPointError for rows [B, L] that a guarded verifier could not go on
    with between `start` and `length` [B]."""
    rows = zip(*hosts.read((tokens, start, length)), strict=True)
    finite.check(ids[begin:end] for ids, begin, end in rows)


def prefill(decoder: Decoder, params: Params, prompt: Prompt, slots: int) -> State:
    """The state before the first step: every prompt token is in the caches.

    Rows are right-padded, and read in portions where they are long.
    """
    batch, length = prompt.tokens.shape
    cache = decoder.target.init(params.target, prompt, slots)
    cache = chunks.prefill(decoder.target, params.target, prompt, cache)
    draft_cache = decoder.drafter.init(params.draft, prompt, slots)
    tokens = jnp.zeros((batch, slots), jnp.int32).at[:, :length].set(prompt.tokens)
    budget, policy = jnp.full(batch, decoder.drafter.gamma, jnp.int32), None
    if decoder.policy is not None:
        budget, policy = decoder.policy.init(batch, decoder.drafter.gamma)
    caches = cache, draft_cache
    return State(tokens, prompt.length, *caches, budget, prompt.inputs, policy)


def count(info: Info) -> Array:
    """What a step adds to `Counts`, in its order: [4, B] int32. One array, as sums
    apart are a kernel each on a GPU."""
    more = Counts(info.emitted > 0, info.drafted, info.tested, info.accepted)
    return jnp.stack([each.astype(jnp.int32) for each in more])
