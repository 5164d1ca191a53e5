"""The drivers that decode whole texts: a prefill, then steps until every row has ended.

`build` compiles both into one program, whose loop runs on the device. `build_programs`
compiles each on its own, for a host that looks at every step (`run_steps`).
Axes: B rows, T prompt tokens, G = gamma, L buffer.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.stages import Wrapped

from specjax import chunks, finite
from specjax.inputs import check
from specjax.runtime import hosts
from specjax.step import Decoder, build_step, has_ended
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
    """The texts of a run.

    Attributes:
      tokens: [B, L], prompt, then output, then 0.
      length: [B].
      counts: [B].
      logprob: [B], the sum of `Info.logprob` over the output, None unless it was
        measured.
    """

    tokens: Array
    length: Array
    counts: Counts
    logprob: Array | None = None


def build(decoder: Decoder, slots: int) -> Callable[[Params, Prompt, Request], Output]:
    """Returns `generate(params, prompt, request) -> Output`, with a buffer of `slots`.

    It compiles once per shape. It raises ValueError for bad input before any compute,
    see `check`, and FloatingPointError, with row and step, for logits that are not
    finite, see `specjax.finite`. `build_loop`, for use under a caller's own jit, does
    neither.
    """
    guarded = decoder._replace(verifier=finite.guard(decoder.verifier))
    loop = jax.jit(build_loop(guarded, slots))

    def generate(params: Params, prompt: Prompt, request: Request) -> Output:
        check(decoder, slots, params, prompt, request)
        output = loop(params, prompt, request)
        check_finite(output.tokens, request.start, output.length)
        return output

    return generate


def autoregressive(target: Model, slots: int) -> Callable:
    """Returns the baseline: the same loop, model and cache with gamma = 0."""
    return build(Decoder(target), slots)


def build_loop(
    decoder: Decoder, slots: int
) -> Callable[[Params, Prompt, Request], Output]:
    """Returns `generate` without its checks: pure, to be called under another jit."""
    finish = build_rest(decoder)

    def loop(params: Params, prompt: Prompt, request: Request) -> Output:
        return finish(params, request, prefill(decoder, params, prompt, slots))

    return loop


def build_rest(decoder: Decoder) -> Callable[[Params, Request, State], Output]:
    """Returns the steps of `build_loop` after `prefill`, until every row has ended."""

    def add(
        total: tuple[Array, Array | None], info: Info
    ) -> tuple[Array, Array | None]:
        counts, logprob = total
        if logprob is not None and info.logprob is not None:
            logprob += info.logprob.sum(-1)
        return counts + count(info), logprob

    fold = build_fold(decoder, add)

    def finish(params: Params, request: Request, state: State) -> Output:
        zero = jnp.zeros_like(state.length)
        logprob = jnp.zeros(zero.shape, jnp.float32) if decoder.logprobs else None
        total = jnp.stack([zero] * len(Counts._fields)), logprob
        state, (counts, logprob) = fold(params, request, state, total)
        written = jnp.arange(state.tokens.shape[1]) < state.length[:, None]
        tokens = jnp.where(written, state.tokens, 0)
        return Output(tokens, state.length, Counts(*counts), logprob)

    return finish


def build_fold(
    decoder: Decoder, add: Callable[[Any, Info], Any]
) -> Callable[[Params, Request, State, Any], tuple[State, Any]]:
    """Returns the loop over steps that runs on the device, until every row has ended.

    Args:
      decoder: the models and the rule that decode.
      add: (total, info) -> total, of what is summed over the steps; any pytree.

    Returns:
      fold: (params, request, state, total) -> the state and the total after the last
        step. Pure, to be called under a caller's own jit.
    """
    step = build_step(*decoder)

    def fold(
        params: Params, request: Request, state: State, total: Any
    ) -> tuple[State, Any]:
        def is_running(carry: tuple[State, Any]) -> Array:
            return ~jnp.all(has_ended(request, carry[0]))

        def body(carry: tuple[State, Any]) -> tuple[State, Any]:
            state, total = carry
            state, info = step(params, request, state)
            return state, add(total, info)

        return jax.lax.while_loop(is_running, body, (state, total))

    return fold


class Programs(NamedTuple):
    """The two programs that decode a batch step by step.

    Attributes:
      prefill: (params, prompt) -> State, which has every prompt token in its caches.
      step: (params, request, state) -> (State, Info). It takes over the buffers of the
        state that it is given: copy what is read later.
    """

    prefill: Any
    step: Any


def build_programs(decoder: Decoder, slots: int) -> Programs:
    """Returns the programs of a decoder, with a buffer of `slots`.

    Each is compiled at its first call with a shape. Raises ValueError as `build_step`.
    """
    return Programs(jit_prefill(decoder, slots), jit_step(decoder))


def jit_prefill(decoder: Decoder, slots: int) -> Wrapped:
    """Returns `prefill` of a decoder and a buffer of `slots`, jitted."""
    return jax.jit(lambda params, prompt: prefill(decoder, params, prompt, slots))


def jit_step(decoder: Decoder, **options: Any) -> Wrapped:
    """Returns the step of a decoder, jitted; it reuses the buffers of the state that it
    is given.

    Args:
      decoder: the models and the rule that decode.
      **options: further ones of `jax.jit`, such as `out_shardings`.
    """
    return jax.jit(build_step(*decoder), donate_argnums=2, **options)


def compile_programs(
    programs: Programs, params: Params, prompt: Prompt, request: Request
) -> Programs:
    """Returns the same programs, compiled for these shapes; JAX keeps both forms."""
    begin = programs.prefill.lower(params, prompt).compile()
    state, step = jax.eval_shape(programs.prefill, params, prompt), programs.step
    if not jax.sharding.get_abstract_mesh().empty:  # a step keeps the state's sharding
        where = begin.output_shardings
        state = jax.tree.map(lambda x, at: x.update(sharding=at), state, where)
        step = jax.jit(step, donate_argnums=2, out_shardings=(where, None))
    return Programs(begin, step.lower(params, request, state).compile())


def run_steps(
    step: Callable[[Params, Request, State], tuple],
    params: Params,
    state: State | None,
    *,
    next_batch: Callable[[State | None], tuple[State, Request] | None],
) -> Iterator[tuple]:
    """Runs steps from the host and yields what each returns, until `next_batch` returns
    None.

    Args:
      step: as of `Programs`; what it returns begins with the state.
      params: weights of both models.
      state: after the prefill, or None where `next_batch` has the first one.
      next_batch: called with the state before every step, for the state and the request
        that this step decodes. A caller changes here what rows have still to do. None
        ends the loop.
    """
    while (batch := next_batch(state)) is not None:
        state, request = batch
        result = step(params, request, state)
        state = result[0]
        yield result


def build_stream(
    decoder: Decoder, slots: int
) -> Callable[[Params, Prompt, Request], Iterator[tuple[State, Info]]]:
    """Returns `stream(params, prompt, request)`, for display and traces.

    It yields the state and the measurements after every step: the same texts as
    `build`, with one host synchronization per step. The next step takes over a state's
    buffers, so copy what is needed later. Raises FloatingPointError, with row and step,
    for logits that are not finite; see `specjax.finite`.
    """
    guarded = decoder._replace(verifier=finite.guard(decoder.verifier))
    programs = build_programs(guarded, slots)

    def stream(
        params: Params, prompt: Prompt, request: Request
    ) -> Iterator[tuple[State, Info]]:
        check(decoder, slots, params, prompt, request)

        def or_none_if_ended(state: State | None) -> tuple[State, Request] | None:
            assert state is not None
            return (
                None if bool(jnp.all(has_ended(request, state))) else (state, request)
            )

        initial = programs.prefill(params, prompt)
        for state, info in run_steps(
            programs.step, params, initial, next_batch=or_none_if_ended
        ):
            check_finite(state.tokens, request.start, state.length)
            yield state, info

    return stream


def check_finite(
    tokens: Array | np.ndarray, start: Array | np.ndarray, length: Array | np.ndarray
) -> None:
    """Raises FloatingPointError for rows [B, L] that have the mark of a guarded
    verifier.

    Only tokens between `start` and `length` [B] are checked.
    """
    rows = zip(*hosts.read((tokens, start, length)), strict=True)
    finite.check(ids[begin:end] for ids, begin, end in rows)


def prefill(decoder: Decoder, params: Params, prompt: Prompt, slots: int) -> State:
    """Returns the state before the first step, with every prompt token in the caches.

    Rows are right-padded; long ones are read in portions. What the target's cache holds
    does not depend on `slots`.
    """
    batch, length = prompt.tokens.shape
    target, drafter = decoder.target, decoder.drafter
    whole = target.init(params.target, prompt, slots)
    cache = chunks.first_slots(target, params.target, prompt, whole)
    draft_cache = drafter.init(params.draft, prompt, slots)
    if drafter.needs_features:
        observing = chunks.with_observer(target, drafter, params.draft, prompt)
        caches = chunks.prefill(observing, params.target, prompt, (cache, draft_cache))
        cache, draft_cache = caches
    else:
        cache = chunks.prefill(target, params.target, prompt, cache)
    tokens = jnp.zeros((batch, slots), jnp.int32).at[:, :length].set(prompt.tokens)
    budget, policy = jnp.full(batch, decoder.drafter.gamma, jnp.int32), None
    if decoder.policy is not None:
        budget, policy = decoder.policy.init(batch, decoder.drafter.gamma)
    return State(
        tokens=tokens,
        length=prompt.length,
        target_cache=chunks.put_first(whole, cache),
        draft_cache=draft_cache,
        budget=budget,
        context=prompt.inputs,
        policy=policy,
    )


def count(info: Info) -> Array:
    """Returns the numbers that a step adds to `Counts`, in its order: [4, B] int32.

    It is one array, because separate sums are a kernel each on a GPU.
    """
    more = Counts(info.emitted > 0, info.drafted, info.tested, info.accepted)
    return jnp.stack([each.astype(jnp.int32) for each in more])
