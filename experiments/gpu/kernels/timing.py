"""Honest times of calls that are shorter than a dispatch, and proof that they ran.

A program verifies S sets of inputs one after another inside one compilation, so that
neither a dispatch nor a warm cache is in its time; each verification waits for the one
before, and the compiled code is searched for that.
Axes: S sets, R rounds.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.gpu.aot import hlo
from experiments.gpu.kernels.inputs import Inputs
from specjax.measure import timing

MOVED = 2**34  # bytes that a loop of copies or reads is to move
LENGTHS = 20, 4096  # fewest and most steps of such a loop
ROUNDS = 7
COLUMNS = 2**13  # float32 of a row that is read
NAME = re.compile(r"%([\w.\-]+)")


def waiting(n: Array, tokens: Array) -> Array:
    """0 that nobody but a run can know: no number of tokens and no id is below 0."""
    return jnp.where((n[0] < 0) | (tokens[0, 0] < 0), 1.0, 0.0)


def after(batch: Inputs, zero: Array) -> Inputs:
    """The same inputs, but what reads them waits for `zero`."""
    p, q = (law._replace(scale=law.scale + zero) for law in (batch.p, batch.q))
    heat, accept = batch.temperature + zero, batch.accept + zero
    return batch._replace(temperature=heat, accept=accept, p=p, q=q)


def lowered(call: Callable, sets: Sequence[Inputs], wait: Callable = waiting):
    """A program that is not compiled yet, (sets) -> the outputs of each, one after
    another."""
    inner = jax.jit(call)

    def run(sets: Sequence[Inputs]) -> list[tuple[Array, Array]]:
        zero, out = jnp.float32(0), []
        for batch in sets:
            out.append(inner(after(batch, zero)))
            zero = wait(*out[-1])
        return out

    return jax.jit(run).lower(sets)


def chained(call: Callable, sets: Sequence[Inputs], wait: Callable = waiting):
    return lowered(call, sets, wait).compile()


def check_chain(program, sets: Sequence[Inputs]) -> None:
    """Raises ValueError if the last of calls that read the target's logits does not
    wait for all: not all of them are parameters that its result needs."""
    computations, entry = hlo.computations(program.as_text())
    by_name = {op.name: op for op in computations[entry]}

    def needs(op: hlo.Instruction) -> list[str]:
        return NAME.findall(op.rest.partition("metadata=")[0])

    (root,) = (op for op in by_name.values() if op.root)
    wanted, seen = [needs(root)[-1]], set()
    while wanted:
        name = wanted.pop()
        if name in by_name and name not in seen:
            seen.add(name)
            wanted += needs(by_name[name])
    found = (by_name[name] for name in seen if by_name[name].opcode == "parameter")
    sizes = f"[{','.join(map(str, sets[0].target.shape))}]"
    count = sum(sizes in op.shape for op in found)
    if count != len(sets):
        raise ValueError(
            f"the last of {len(sets)} calls waits for {count} of them: the others could"
            " run beside it, or not at all"
        )


def measured(
    programs: Mapping[str, Callable], calls: int, rounds: int, label: str
) -> dict[str, dict]:
    """Microseconds of each of `calls` calls of a program, in turns: median, and the
    tenth and ninetieth percentiles of R rounds."""
    seconds = timing.interleaved(programs, rounds, label)
    return {name: spread(samples / calls) for name, samples in seconds.items()}


def spread(seconds: np.ndarray) -> dict:
    low, middle, high = 1e6 * np.percentile(seconds, [10, 50, 90])
    return {"us": float(middle), "p10": float(low), "p90": float(high)}


def chain(step: Callable, length: int) -> Callable:
    """Returns a compiled-on-call (fixed, state) -> state of `length` steps in a loop.

    The number of steps is a constant, so that a GPU's loop does not ask the host
    whether to go on. Each step gets the state of the one before; what it is given
    beside that comes as an argument, so that no compiler can work ahead with it.

    Args:
        step: (index, fixed, state) -> state, of the same shapes.
        length: steps of the loop, at least 1.
    """

    def run(fixed, state):
        return jax.lax.fori_loop(0, length, lambda i, it: step(i, fixed, it), state)

    return jax.jit(run)


def of_one(long: np.ndarray, short: np.ndarray, length: int) -> np.ndarray:
    """Seconds of one step, (T(n) - T(1)) / (n - 1): a dispatch is in both."""
    return (long - short) / (length - 1)


def _seconds_a_step(step: Callable, fixed: Array, state: Array, nbytes: int) -> float:
    """The median seconds of a step that moves `nbytes`, from loops of enough of them
    that a clock can tell them from a dispatch."""
    length = int(np.clip(MOVED // nbytes, *LENGTHS))
    runs = {count: partial(chain(step, count), fixed, state) for count in (length, 1)}
    seconds = timing.interleaved(runs, ROUNDS, "memory")
    each = float(np.median(of_one(seconds[length], seconds[1], length)))
    if each <= 0:
        raise RuntimeError(
            f"{length} steps on {nbytes} bytes took no longer than one: time more bytes"
        )
    return each


def copy_speed(nbytes: int) -> float:
    """Returns the bytes a second, read and written, of a looped copy.

    Every step reads an array of `nbytes` and writes as many; neither a dispatch nor a
    wait of the host is in its time. Twice `nbytes` over a copy's time is what it gives.
    """
    array = jnp.zeros(max(1, nbytes // 4), jnp.float32)

    def step(i, more, array):
        return array + more

    each = _seconds_a_step(step, jnp.float32(1), array, array.nbytes)
    return 2 * array.nbytes / each


def read_speed(nbytes: int) -> float:
    """Returns the bytes a second of a looped read of `nbytes`, of which nothing is
    written but a maximum."""
    rows = max(1, nbytes // (4 * COLUMNS))
    array = jnp.zeros((rows, COLUMNS), jnp.float32)

    def step(i, array, top):
        return (array + top).max(1).max()

    each = _seconds_a_step(step, array, jnp.float32(0), array.nbytes)
    return array.nbytes / each


def bandwidth(size: int, rounds: int) -> float:
    return copy_speed(size)
