"""Honest times of calls that are shorter than a dispatch, and proof that they ran.

A program verifies S sets of inputs one after another inside one compilation, so that
neither a dispatch nor a warm cache is in its time; each verification waits for the one
before, and the compiled code is searched for that.
Axes: S sets, R rounds.
"""

import re
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.gpu.kernels.inputs import Inputs
from specjax.measure import timing

HEAD = re.compile(r"^ENTRY .*\{$")
LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.+?) ([a-z][\w\-]*)\((.*)$")
NAME = re.compile(r"%([\w.\-]+)")


def waiting(n: Array, tokens: Array) -> Array:
    """0 that nobody but a run can know: no number of tokens and no id is below 0."""
    return jnp.where((n[0] < 0) | (tokens[0, 0] < 0), 1.0, 0.0)


def after(batch: Inputs, zero: Array) -> Inputs:
    """The same inputs, but what reads them waits for `zero`."""
    p, q = (law._replace(scale=law.scale + zero) for law in (batch.p, batch.q))
    heat, accept = batch.temperature + zero, batch.accept + zero
    return batch._replace(temperature=heat, accept=accept, p=p, q=q)


def chained(call: Callable, wait: Callable = waiting) -> Callable:
    """(sets) -> the outputs of each, one after another. Of a large row the logits
    themselves are not changed, as that would move them: whoever reads them without a
    temperature may begin before the call ahead has ended."""
    inner = jax.jit(call)

    def run(sets: Sequence[Inputs]) -> list[tuple[Array, Array]]:
        zero, out = jnp.float32(0), []
        for batch in sets:
            out.append(inner(after(batch, zero)))
            zero = wait(*out[-1])
        return out

    return run


def compiled(call: Callable, sets: Sequence[Inputs], wait: Callable = waiting):
    """A program of S calls that read the target's logits. Raises ValueError if the last
    does not wait for all."""
    program = unchecked(call, sets, wait)
    count = waited_for(program.as_text(), sets[0].target.shape)
    if count != len(sets):
        raise ValueError(
            f"the last of {len(sets)} calls waits for {count} of them: the others could"
            " run beside it, or not at all"
        )
    return program


def unchecked(call: Callable, sets: Sequence[Inputs], wait: Callable = waiting):
    """A program of S calls."""
    return jax.jit(chained(call, wait)).lower(sets).compile()


def waited_for(text: str, sizes: tuple[int, ...]) -> int:
    """Parameters of these sizes that the last result of a compiled program needs."""
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if HEAD.match(line))
    needs, kinds, root = {}, {}, None
    for line in lines[begin + 1 :]:
        if line.startswith("}"):
            break
        if not (match := LINE.match(line)):
            continue
        first, name, kind, opcode, rest = match.groups()
        needs[name] = NAME.findall(rest.partition("metadata=")[0])
        kinds[name] = kind if opcode == "parameter" else ""
        root = name if first else root
    wanted, seen = [needs[root][-1]], set()
    while wanted:
        name = wanted.pop()
        if name in needs and name not in seen:
            seen.add(name)
            wanted += needs[name]
    spelled = f"[{','.join(map(str, sizes))}]"
    return sum(spelled in kinds[name] for name in seen)


def measured(
    programs: Mapping[str, Callable], sets: Sequence[Inputs], rounds: int, label: str
) -> dict[str, dict]:
    """Microseconds of one call by program, in turns: median, and the tenth and
    ninetieth percentiles of R rounds."""
    runs = {
        name: lambda program=program: program(sets)
        for name, program in programs.items()
    }
    seconds = timing.interleaved(runs, rounds, label)
    return {name: spread(samples, len(sets)) for name, samples in seconds.items()}


def spread(seconds: np.ndarray, calls: int) -> dict:
    low, middle, high = 1e6 * np.percentile(seconds, [10, 50, 90]) / calls
    return {"us": float(middle), "p10": float(low), "p90": float(high)}


def latencies(calls: Mapping[str, Callable], batch: Inputs, rounds: int) -> dict:
    """Microseconds from a call to its result, dispatch and waiting included."""
    runs = {name: jax.jit(call) for name, call in calls.items()}
    each = {name: lambda run=run: run(batch) for name, run in runs.items()}
    by_name = timing.interleaved(each, rounds, "latency")
    return {name: spread(seconds, 1) for name, seconds in by_name.items()}
