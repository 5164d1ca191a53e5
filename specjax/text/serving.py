"""A server whose batch does not wait for its longest row: a row that is free takes the
next request.

Iteration-level scheduling (Yu et al. 2022, Orca), between steps of speculative
decoding. Nothing is compiled for a request that comes: its row and all that it asks are
arguments. Its text is that of the request decoded alone, as randomness is named by
request (`specjax.keys`) and nothing of the row before is left: every leaf of the state
is overwritten.
Axes: B rows of the batch, T prompt tokens, L buffer.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import finite, generate, inputs
from specjax.step import Decoder, build_step, has_ended
from specjax.types import Info, Params, Prompt, Request, State

Batch = tuple[State, Request]


class Server(NamedTuple):
    """The compiled programs for a batch of `rows` rows, with a buffer of `slots`.

    begin: (params, Prompt [1, T], Request [1]) -> (State, Request) of B rows, all of
    which have ended; what it is given is an example of what will be admitted.
    admit: (params, State, Request, row=, prompt=, new_request=) -> (State, Request), in
    which row `row` [] int32 restarts with a Prompt [1, T] and a Request [1]; takes
    the state's buffers. Compiled for each T.
    step: (params, Request, State) -> (State, Info, ended [B] bool), which takes them.
    check: (params, Prompt, Request) -> None, raises ValueError for what cannot decode.
    """

    rows: int
    slots: int
    begin: Callable[[Params, Prompt, Request], Batch]
    admit: Callable[..., Batch]
    step: Callable[[Params, Request, State], tuple[State, Info, Array]]
    check: Callable[[Params, Prompt, Request], None]


class Arrival(NamedTuple):
    """A request: prompt [1, T], request [1], and its time of arrival, in seconds since
    serving began."""

    prompt: Prompt
    request: Request
    at: float = 0.0


class Served(NamedTuple):
    """The answer to a request.

    index: the index of its arrival, from 0. tokens: ids [N].
    calls: the number of calls of the target. arrived, admitted, ended: seconds since
    serving began.
    """

    index: int  # type: ignore[assignment]  # in place of tuple.index
    tokens: np.ndarray
    calls: int
    arrived: float
    admitted: float
    ended: float


def build(decoder: Decoder, slots: int, rows: int) -> Server:
    """Returns the programs of a decoder for `rows` texts at a time.

    All requests have the same settings on or off (`Sampling`), as many ids in `eos` and
    inputs of one width, or `begin` and `admit` raise ValueError. Raises ValueError for
    less than one row.
    """
    if rows < 1:
        raise ValueError(f"a server has at least one row; got {rows}")
    guarded = decoder._replace(verifier=finite.guard(decoder.verifier))
    step = build_step(*guarded)

    def begin(params: Params, prompt: Prompt, request: Request) -> Batch:
        state = generate.prefill(decoder, params, prompt, slots)
        one = state, request._replace(limit=request.start)
        check_fits(one, one)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (rows, *x.shape[1:])), one)

    def admit(
        params: Params,
        state: State,
        request: Request,
        *,
        row: Array,
        prompt: Prompt,
        new_request: Request,
    ) -> Batch:
        batch = state, request
        one = generate.prefill(decoder, params, prompt, slots), new_request
        check_fits(batch, one)
        put = jax.lax.dynamic_update_slice_in_dim
        return jax.tree.map(lambda rows, new: put(rows, new, row, axis=0), batch, one)

    def step_and_end(
        params: Params, request: Request, state: State
    ) -> tuple[State, Info, Array]:
        state, info = step(params, request, state)
        return state, info, has_ended(request, state)

    def check(params: Params, prompt: Prompt, request: Request) -> None:
        inputs.check(decoder, slots, params, prompt, request)

    return Server(
        rows,
        slots,
        begin=jax.jit(begin),
        admit=jax.jit(admit, donate_argnums=1),
        step=jax.jit(step_and_end, donate_argnums=2),
        check=check,
    )


def check_fits(batch: Batch, one: Batch) -> None:
    """Raises ValueError if a row has other shapes or dtypes than the rows of the
    batch."""

    def kind(tree: Any) -> tuple:
        leaves, form = jax.tree.flatten(tree)
        return form, [(x.shape[1:], x.dtype) for x in leaves]

    single = {x.shape[:1] for x in jax.tree.leaves(one)} == {(1,)}
    if not single or kind(batch) != kind(one):
        raise ValueError(
            "a request is not of its batch's kind: give one row at a time, the same"
            " settings of Sampling on or off, as many ids in eos, and inputs padded to"
            " one width"
        )


def serve(
    server: Server, params: Params, arrivals: Iterable[Arrival]
) -> Iterator[Served]:
    """Answers requests as rows become free, and yields each when it has ended.

    arrivals: in the order of their times; the next one is asked for when one was
    admitted. Prompts are padded to widths that many share (`inputs.pad_to_bucket`). The
    host looks after every step which rows have ended. Raises ValueError for a request
    that cannot decode, FloatingPointError for logits that are not finite
    (`specjax.finite`).
    """
    origin = time.perf_counter()
    now = lambda: time.perf_counter() - origin  # noqa: E731
    numbered, calls = enumerate(arrivals), 0
    request: Request | None = None
    free = list(range(server.rows))
    busy: dict[int, tuple[int, int, float, float]] = {}
    coming = next(numbered, None)

    def next_batch(state: State | None) -> Batch | None:
        """Gives free rows to requests that have come; waits where no row has one."""
        nonlocal request, coming
        while busy or coming:
            while free and coming and coming[1].at <= now():
                index, (prompt, new_request, at) = coming
                prompt = inputs.pad_to_bucket(prompt, server.slots)
                server.check(params, prompt, new_request)
                if state is None:
                    state, request = server.begin(params, prompt, new_request)
                assert request is not None
                row, admitted = free.pop(), now()
                state, request = server.admit(
                    params,
                    state,
                    request,
                    row=np.int32(row),
                    prompt=prompt,
                    new_request=new_request,
                )
                busy[row] = index, calls, at, admitted
                coming = next(numbered, None)
            if busy:
                assert state is not None and request is not None
                return state, request
            if coming:
                time.sleep(max(0.0, coming[1].at - now()))
        return None

    steps = generate.run_steps(server.step, params, None, next_batch=next_batch)
    for state, _, ended in steps:
        calls, ended = calls + 1, np.asarray(ended)
        assert request is not None
        done, at = [row for row in busy if ended[row]], now()
        if done:  # copies: the next step takes the buffers
            tokens, length = np.array(state.tokens), np.array(state.length)
            start = np.array(request.start)
            generate.check_finite(tokens, start, length)
        for row in done:
            free.append(row)
            index, before, arrived, admitted = busy.pop(row)
            ids = tokens[row, start[row] : length[row]]
            yield Served(index, ids, calls - before, arrived, admitted, ended=at)
