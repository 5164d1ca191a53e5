"""The programs whose times add up to a step: a draft, a target call, whole texts.

Each runs compiled, with its caches in place, in a loop on the device, as in decoding. c
and v of Leviathan et al. (2023), Definition 3.7 and Section 3.3, are their ratios.
Axes: B rows, G = gamma.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from specjax import generate, keys, probs
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftSource
from specjax.fused import reference
from specjax.measure import timing
from specjax.step import Decoder, score
from specjax.types import (
    Draft,
    Drafter,
    Kernels,
    Params,
    Policy,
    Prompt,
    Request,
    State,
    Verifier,
)


class Pair(NamedTuple):
    """The parts that decode: two models, kernels, a policy, and buffers of `slots`.

    The buffers have the same length for every gamma.
    """

    target: Pretrained
    draft: DraftSource
    slots: int
    kernels: Kernels = reference()
    policy: Policy | None = None

    def drafter(self, gamma: int) -> Drafter:
        return self.draft.drafter(gamma, self.kernels.draw)

    def verifier(self, gamma: int) -> Verifier:
        return self.kernels.verifier if gamma else self.kernels.alone

    def decoder(self, gamma: int) -> Decoder:
        if gamma == 0:
            return Decoder(self.target.model, verifier=self.verifier(0))
        drafter = self.drafter(gamma)
        return Decoder(self.target.model, drafter, self.verifier(gamma), self.policy)

    def params(self, gamma: int) -> Params:
        return Params(self.target.params, self.draft.params if gamma else None)


def prefill(pair: Pair, gamma: int) -> partial:
    """Returns the program before the first step of a text: (prompt) -> `State`.

    It is a partial of a jitted function. Another way to compile it takes its `func` and
    `args`.
    """
    run = generate.jit_prefill(pair.decoder(gamma), pair.slots)
    return partial(run, pair.params(gamma))


def begin(pair: Pair, gamma: int, prompt: Prompt, request: Request) -> State:
    """Returns a state in the middle of its texts, at which single calls are timed."""
    return halfway_state(prefill(pair, gamma)(prompt), request)


def halfway_state(state: State, request: Request) -> State:
    """Returns a state whose rows are half way to their limits."""
    return state._replace(length=(request.start + request.limit) // 2)


def decode(pair: Pair, gamma: int) -> partial:
    """Returns the program of whole texts: (prompt, request) -> `generate.Output`.

    See `prefill`.
    """
    loop = jax.jit(generate.build_loop(pair.decoder(gamma), pair.slots))
    return partial(loop, pair.params(gamma))


def target_calls(pair: Pair, gamma: int, loops: int) -> partial:
    """Returns the program of `loops` target calls on gamma + 1 tokens, including the
    laws."""
    model = pair.target.model

    def call(params: Any, request: Request, state: State) -> tuple[State, Any]:
        state = _turn(state, model.vocab)
        drafted = state.tokens[:, :gamma]
        read = pair.verifier(gamma).law or probs.standardize
        law, cache, _ = score(model, params.target, request, state, drafted, read=read)
        return state._replace(target_cache=cache), law

    return _repeat(call, loops, pair.params(gamma))


def drafts(pair: Pair, gamma: int, loops: int) -> partial:
    """Returns the program of `loops` drafts of gamma tokens per row, including
    catch-up.

    The budget is gamma and known to the compiler, as it is in the steps of a decoder
    without a policy.
    """
    drafter, vocab = pair.drafter(gamma), pair.target.vocab

    def call(params: Any, request: Request, state: State) -> tuple[State, Any]:
        budget = np.full(state.budget.shape, gamma, np.int32)
        drafting = _turn(state, vocab)._replace(budget=budget)
        key = keys.iteration(request.key, drafting.tokens[:, 0])
        key = keys.purpose(key, keys.DRAFT)
        draft, cache = drafter.draft(key, params.draft, request, drafting)
        state = state._replace(tokens=drafting.tokens, draft_cache=cache)
        return state, _without_shared(draft)

    return _repeat(call, loops, pair.params(gamma))


def memory(pair: Pair, gamma: int, prompt: Prompt) -> int:
    """Returns the bytes that decoding holds: the weights, the caches and buffers of all
    rows, and three float32 laws."""
    decoder, params = pair.decoder(gamma), pair.params(gamma)
    state = jax.eval_shape(
        lambda p, x: generate.prefill(decoder, p, x, pair.slots), params, prompt
    )
    batch = prompt.tokens.shape[0]
    laws = 3 * 4 * batch * (gamma + 1) * decoder.target.vocab
    return laws + count_bytes(params) + count_bytes(state)


def memory_mb(pair: Pair, gammas: Sequence[int], prompt: Prompt) -> list[float]:
    """Returns `memory` in MiB for each gamma."""
    return [memory(pair, gamma, prompt) / 2**20 for gamma in gammas]


def count_bytes(tree: Any) -> int:
    """Returns the bytes of the arrays in a pytree; an array that occurs twice, such as
    an embedding that a head shares with its target, counts once."""
    arrays = {id(leaf): leaf for leaf in jax.tree.leaves(tree)}
    return sum(leaf.size * leaf.dtype.itemsize for leaf in arrays.values())


def _repeat(call: Callable, loops: int, params: Params) -> partial:
    """Returns (request, state) -> the result of the last of `loops` calls.

    No call can be left out, since each carries its result on and reads other tokens.
    """

    @jax.jit
    def run(params: Any, request: Request, state: State) -> Any:
        def body(_: Any, carry: tuple[State, Any]) -> tuple[State, Any]:
            return call(params, request, carry[0])

        return jax.lax.fori_loop(1, loops, body, call(params, request, state))[1]

    return partial(run, params)


def _turn(state: State, vocab: int) -> State:
    """Returns a state with other tokens in all slots, so that no call is repeated."""
    return state._replace(tokens=(state.tokens + 1) % vocab)


def _without_shared(draft: Draft) -> tuple:
    """Returns the parts of a draft that are written again: tokens, and its law without
    what rows share."""
    law = None if draft.law is None else probs.per_row(draft.law)
    return draft.tokens, draft.num, law


def call_ms(
    pair: Pair, gamma: int, prompt: Prompt, request: Request, rounds: int
) -> dict[str, float]:
    """Returns the milliseconds of a drafted token and of target calls.

    The calls are on one token and on gamma + 1 tokens.
    """
    programs = {}
    timed = {"t_draft": (gamma, drafts), "t_target": (0, target_calls)}
    timed["t_score"] = gamma, target_calls
    for name, (count, calls) in timed.items():
        state = begin(pair, count, prompt, request)
        loops = calls(pair, count, timing.LOOPS)
        programs[name] = partial(loops, request, state)
    seconds = timing.time_in_turns(programs, rounds, "calls")
    ms = {name: 1e3 * float(np.median(s)) for name, s in seconds.items()}
    ms["t_draft"] /= gamma
    return {f"{name}_ms": x / timing.LOOPS for name, x in ms.items()}
