"""Times of calls that are shorter than a dispatch, and checks that the calls were
really executed.

A program verifies one batch again and again in a loop with a constant number of steps,
so that its time contains no dispatch and no wait of the host. Every step overwrites the
first logit, depending on the tokens of the step before: a compiler can neither skip a
step nor compute ahead, and `check_loop` verifies that in the compiled code. Caches are
cold where every step first reads more bytes than they hold. Batches are not stacked and
sliced, because XLA copies a slice that a Pallas kernel reads, and so moves it into the
cache. Axes: B rows, G = gamma, V vocabulary, K parts, R rounds.
"""

import re
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from experiments.gpu.aot import hlo
from experiments.gpu.kernels.inputs import Inputs
from specjax.measure.timing import time_in_turns

MOVED = 2**34  # bytes that a loop of copies or reads is to move
LENGTHS = 20, 4096  # fewest and most steps of such a loop
ROUNDS = 7
COLUMNS = 2**13  # float32 of a row that is read
PARTS = 4  # of what clears a cache: a part is not read again before three others were
NAME = re.compile(r"%([\w.\-]+)")
SHORT = 2  # steps of the shorter chain; XLA makes no loop of one
RUNS = 20  # that CUPTI times
# It reports only kernels that are launched one by one.
UNCAPTURED = {"xla_gpu_graph_min_graph_size": 10**6}
NEVER = -(2**31)  # no sum of tokens, and no logit


class Fixed(NamedTuple):
    """The values of a chain that no step changes.

    Attributes:
        firsts: the first logit of the target and of the draft, [1, 1, 1].
        never: NEVER, a value that a compiler must not know.
        other: [K, rows, COLUMNS], zeros, a part of which clears the caches; None leaves
            them warm.
    """

    batch: Inputs
    firsts: tuple[Array, Array]
    never: Array
    other: Array | None


class State(NamedTuple):
    """The values that a step returns: logits, and the verdict n [B], tokens [B, G +
    1].
    """

    target: Array
    draft: Array
    n: Array
    tokens: Array


def chain(step: Callable, length: int) -> Callable:
    """Returns a jitted (fixed, state) -> state of `length` steps in a loop.

    The number of steps is a constant, so that a GPU's loop does not ask the host
    whether to go on. Each step gets the state of the one before; what it is given
    beside that comes as an argument, so that no compiler can work ahead with it.

    Args:
        step: (index, fixed, state) -> state, of the same shapes.
        length: steps of the loop, at least SHORT.
    """

    def run(fixed, state):
        return lax.fori_loop(0, length, lambda i, it: step(i, fixed, it), state)

    return jax.jit(run)


def step_seconds(long: np.ndarray, short: np.ndarray, length: int) -> np.ndarray:
    """Returns the seconds of one step, (T(n) - T(m)) / (n - m) with m = SHORT.

    A dispatch, and the copies ahead of a loop, are in both times.
    """
    return (long - short) / (length - SHORT)


def build_step(call: Callable) -> Callable:
    """Returns the step that verifies: (index, Fixed, State) -> State.

    `programs.do_nothing` makes the empty chain of it: the same loop, clearing and
    waiting.
    """
    inner = jax.jit(call)

    def step(i: Array, fixed: Fixed, state: State) -> State:
        zero = zero_after(fixed.never, state)
        if fixed.other is not None:
            zero = (fixed.other[i % len(fixed.other)] + zero).max(1).max()
        both = zip(fixed.firsts, (state.target, state.draft), strict=True)
        target, draft = (write_first_after(first, z, zero) for first, z in both)
        batch = fixed.batch._replace(target=target, draft=draft)
        return State(target, draft, *inner(wait_for(batch, zero)))

    return step


def zero_after(impossible: Array, state: State) -> Array:
    """Returns 0, in a way that the compiler does not know: the 0 depends on all results
    of the step before.
    """
    total = state.n.sum() + state.tokens.sum()
    ends = (state.target[0, 0, 0] + state.draft[0, 0, 0]).astype(jnp.float32)
    return jnp.where((total == impossible) | (ends == impossible), 1.0, 0.0)


def write_first_after(first: Array, logits: Array, zero: Array) -> Array:
    """Returns the same logits, whose first element is written only after `zero` is
    known.

    The first logit is an argument: if it were read where it is written, XLA would copy
    all logits.
    """
    return lax.dynamic_update_slice(logits, first + zero.astype(first.dtype), (0, 0, 0))


def wait_for(batch: Inputs, zero: Array) -> Inputs:
    """Returns the same inputs, in a form whose readers must wait for `zero`."""
    p, q = (law._replace(scale=law.scale + zero) for law in (batch.p, batch.q))
    heat, accept = batch.temperature + zero, batch.accept + zero
    return batch._replace(temperature=heat, accept=accept, p=p, q=q)


def operands(batch: Inputs, cache: int | None) -> tuple[Fixed, State]:
    """Returns the operands of a chain that `build_step` makes.

    Args:
        batch: that every step verifies.
        cache: bytes of a cache, twice as many of which are read before every step; None
            leaves caches warm.
    """
    size, gamma = batch.tokens.shape
    n, tokens = jnp.zeros(size, jnp.int32), jnp.zeros((size, gamma + 1), jnp.int32)
    firsts = batch.target[:1, :1, :1], batch.draft[:1, :1, :1]
    rest = batch._replace(target=None, draft=None)
    fixed = Fixed(rest, firsts, jnp.int32(NEVER), None)
    if cache is not None:
        rows = max(1, 2 * cache // (4 * COLUMNS))
        fixed = fixed._replace(other=jnp.zeros((PARTS, rows, COLUMNS), jnp.float32))
    return fixed, State(batch.target, batch.draft, n, tokens)


def check_loop(text: str, state: State, length: int) -> None:
    """Raises ValueError unless a compiled chain reads the logits only in a loop of
    `length` steps, and each step writes the first logit in place.

    Work before the loop is not in the time of a step, and a copy would be in the
    caches.
    """
    found, entry = hlo.computations(text)
    loops = [loop.trips for loop in hlo.loops(hlo.read(text))]
    if length not in loops:
        raise ValueError(f"no loop of {length} steps, but {loops}: it was rewritten")
    sizes = [f"[{','.join(map(str, z.shape))}]" for z in (state.target, state.draft)]

    def has_logits(op: hlo.Instruction) -> bool:
        return any(size in op.shape for size in sizes)

    logits = {op.name for op in found[entry] if has_logits(op)}
    moves = {kernel.name for kernel in hlo.read(text).kernels if kernel.moves}
    for op in found[entry]:
        moved = op.name in moves or op.opcode.startswith("copy")  # begun and ended too
        ahead = op.opcode not in hlo.FREE and not moved
        if ahead and logits & {*hlo_operands(op)}:
            raise ValueError(f"{op.name} reads logits before the loop or after it")
    (loop,) = (op for op in found[entry] if op.opcode == "while")
    body = found[re.search(r"\bbody=%?([\w.\-]+)", loop.rest)[1]]
    (root,) = (op for op in body if op.root)
    for op in body:
        left = op.name in hlo_operands(root) and op.opcode not in hlo.FREE
        if left and has_logits(op) and not writes_in_place(op, found):
            raise ValueError(f"{op.name} copies the logits in every step")


def hlo_operands(op: hlo.Instruction) -> list[str]:
    return NAME.findall(op.rest.partition("metadata=")[0])


def writes_in_place(
    op: hlo.Instruction, found: dict[str, list[hlo.Instruction]]
) -> bool:
    """Returns whether an update writes into its own operand: alone, or in a fusion that
    reads the operand nowhere else.
    """
    if op.opcode == "dynamic-update-slice":
        return True
    called = hlo.CALLED.search(op.rest)
    if op.opcode != "fusion" or not called:
        return False
    inside = found[called[1]]
    (root,) = (inner for inner in inside if inner.root)
    written = hlo_operands(root)[0]
    readers = [inner.name for inner in inside if written in hlo_operands(inner)]
    return root.opcode == "dynamic-update-slice" and readers == [root.name]


def measure_steps(
    programs: Mapping[Hashable, tuple[Callable, Callable]],
    *,
    length: int,
    rounds: int,
    label: str,
) -> dict[Hashable, np.ndarray]:
    """Returns the seconds [R] per step of each program, measured in turns.

    Args:
        programs: by name, a function that runs `length` steps and one that runs SHORT.
        length: steps of the longer chain, more than SHORT.
        rounds: R.
        label: for the progress bar.
    """
    runs = {
        (name, i): run for name, pair in programs.items() for i, run in enumerate(pair)
    }
    seconds = time_in_turns(runs, rounds, label)
    return {
        name: step_seconds(seconds[name, 0], seconds[name, 1], length)
        for name in programs
    }


def spread(seconds: np.ndarray) -> dict:
    """Returns microseconds: the median, and the tenth and ninetieth percentiles."""
    low, middle, high = 1e6 * np.percentile(seconds, [10, 50, 90])
    return {"us": float(middle), "p10": float(low), "p90": float(high)}


def kernel_microseconds(program, *arguments) -> dict:
    """Returns the microseconds for which the kernels of a compiled program run on an
    NVIDIA GPU, by CUPTI, without the gaps between them.

    Returns:
        "device_us", the median of RUNS runs, and "kernels", how many were launched; or
            "device" alone, a line that says why there is no number.
    """
    platform = jax.devices()[0].platform
    if platform != "gpu":
        return {"device": f"not measured: CUPTI is of GPUs, and this is a {platform}"}
    try:
        from jax.experimental.mosaic.gpu import profiler

        one = profiler.measure(program, aggregate=False, iterations=RUNS)
        _, runs = one(*arguments)
    except Exception as error:  # how CUPTI fails differs by driver and permission
        return {"device": f"not measured: {type(error).__name__}: {error}"}
    if not runs:
        return {"device": "not measured: CUPTI reported no kernel"}
    each = [sum(ms for _, ms in run) for run in runs]
    return {"device_us": 1e3 * float(np.median(each)), "kernels": len(runs[0])}


def _seconds_a_step(step: Callable, fixed: Array, state: Array, nbytes: int) -> float:
    """Returns the median seconds of a step that moves `nbytes`, from loops long enough
    that a clock can distinguish them from a dispatch.
    """
    length = int(np.clip(MOVED // nbytes, *LENGTHS))
    counts = length, SHORT
    runs = {count: partial(chain(step, count), fixed, state) for count in counts}
    seconds = time_in_turns(runs, ROUNDS, "memory")
    each = float(np.median(step_seconds(seconds[length], seconds[SHORT], length)))
    if each <= 0:
        raise RuntimeError(
            f"{length} steps on {nbytes} bytes took no longer than {SHORT}: time more"
        )
    return each


def copy_speed(nbytes: int) -> float:
    """Returns the bytes per second, read and written, of a looped copy.

    Every step reads an array of `nbytes` and writes as many; neither a dispatch nor a
    wait of the host is in its time. Twice `nbytes` over a copy's time is what it gives.
    """
    array = jnp.arange(max(1, nbytes // 4), dtype=jnp.float32)

    def step(i, more, array):
        return array + more

    each = _seconds_a_step(step, jnp.float32(1), array, array.nbytes)
    return 2 * array.nbytes / each


def read_speed(nbytes: int) -> float:
    """Returns the bytes per second of a looped read of `nbytes`, which writes only a
    maximum.
    """
    rows = max(1, nbytes // (4 * COLUMNS))
    array = jnp.arange(rows * COLUMNS, dtype=jnp.float32).reshape(rows, COLUMNS)

    def step(i, array, top):
        return (array + top).max(1).max()

    each = _seconds_a_step(step, array, jnp.float32(0), array.nbytes)
    return array.nbytes / each
