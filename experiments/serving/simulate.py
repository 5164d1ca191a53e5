"""What a server would do under load, from what its parts cost: a discrete simulation.

Requests come, wait for a free row, are prefilled there while the others stand still,
and are answered step by step; rows are refilled between steps (iteration-level
scheduling, Yu et al. 2022), or all at once when the whole batch has ended. A step gives
each row as many tokens as a step of one of the texts that acceptance was measured on.
Nothing here decodes.
Axes: N requests.
"""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import numpy as np
import simpy


class Costs(NamedTuple):
    """Seconds. batches: rows of the programs there are, ascending; steps: of each, one
    step. admit: what the others wait while a row is prefilled; begin: a whole batch
    that waits for its longest row."""

    batches: tuple[int, ...]
    steps: tuple[float, ...]
    admit: float = 0.0
    begin: float = 0.0

    def step(self, busy: int) -> float:
        """By the least program that holds so many rows."""
        return self.steps[int(np.searchsorted(self.batches, busy))]


def calls_of(
    tokens: np.ndarray, emitted: Sequence[np.ndarray], seed: int = 0
) -> np.ndarray:
    """Steps that each request takes, [N]. tokens [N]: of its answer. emitted: of some
    texts the tokens of each step, at least one; a request follows one text from its
    beginning, where less is accepted than where it repeats itself."""
    random = np.random.default_rng(seed)

    def of(count: int) -> int:
        steps = emitted[random.integers(len(emitted))]
        given = np.cumsum(np.resize(steps, count))
        return 1 + int(np.searchsorted(given, count))

    return np.array([of(int(count)) for count in tokens])


Serve = Callable[[simpy.Environment, simpy.Store, Costs, Callable], Generator]


def refilled(rows: int) -> Serve:
    """Rows take the next request between steps."""

    def serve(env: simpy.Environment, queue: simpy.Store, costs: Costs, tell: Callable):
        busy = {}  # request -> steps that are left
        while True:
            while len(busy) < rows and (queue.items or not busy):
                index, calls = yield queue.get()
                yield env.timeout(costs.admit)
                busy[index] = calls
            yield env.timeout(costs.step(len(busy)))
            busy = {index: left - 1 for index, left in busy.items()}
            for index in [index for index, left in busy.items() if not left]:
                del busy[index]
                tell(index)

    return serve


def waiting(rows: int) -> Serve:
    """Those who are there are decoded together, and answered together."""

    def serve(env: simpy.Environment, queue: simpy.Store, costs: Costs, tell: Callable):
        while True:
            batch = [(yield queue.get())]
            while queue.items and len(batch) < rows:
                batch.append((yield queue.get()))
            longest = max(calls for _, calls in batch)
            yield env.timeout(costs.begin + longest * costs.step(rows))
            for index, _ in batch:
                tell(index)

    return serve


def ended(serve: Serve, costs: Costs, at: np.ndarray, calls: np.ndarray) -> np.ndarray:
    """When each request has been answered, [N], in seconds. at [N]: when each comes,
    ascending. calls [N]: steps that each takes."""
    env, times = simpy.Environment(), np.zeros(len(at))
    queue, left = simpy.Store(env), {*range(len(at))}
    all_told = env.event()

    def come():
        yield env.timeout(0)
        for index, when in enumerate(at):
            if when > env.now:  # who come at once are there at once
                yield env.timeout(when - env.now)
            queue.put((index, calls[index]))

    def tell(index: int) -> None:
        times[index] = env.now
        left.discard(index)
        if not left:
            all_told.succeed()

    env.process(come())
    env.process(serve(env, queue, costs, tell))
    env.run(all_told)
    return times


def told(at: np.ndarray, times: np.ndarray, tokens: np.ndarray) -> dict[str, float]:
    """tokens a second, and of latencies the mean and percentiles, in seconds. at,
    times, tokens: [N]."""
    latency = times - at
    middle, slow = np.percentile(latency, [50, 95])
    return {
        "rate": float(tokens.sum() / times.max()),
        "mean": float(latency.mean()),
        "p50": float(middle),
        "p95": float(slow),
    }


def poisson(rate: float, count: int, seed: int = 0) -> np.ndarray:
    """Times of `count` arrivals, `rate` a second, [N]."""
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


def crossing(loads: Sequence[float], drafted: Sequence[float], alone: Sequence[float]):
    """The first of ascending loads from which on answers with a draft take no less than
    without, here and at all loads above; None where they take less at the last."""
    slower = np.asarray(drafted) >= np.asarray(alone)
    if not slower[-1]:
        return None
    return float(loads[len(slower) - int(np.argmin([*slower[::-1], False]))])
