"""A discrete simulation of a server under load, from the cost of its parts
(`parts.time_parts`).

Requests arrive, wait for a free row, are prefilled there while the others stand still,
and are answered step by step. Rows are refilled between steps (iteration-level
scheduling, Yu et al. 2022), or all at once when the whole batch has ended. A step gives
each row as many tokens as a step of one of the texts that acceptance was measured on.
Nothing here decodes.

The results are the time that the requests of a row take, with rows that are refilled
and with batches that wait; and the load from which a draft does not pay, for a server
that has a program for each of several batches and runs the smallest that holds its busy
rows. Axes: N requests.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import simpy

from experiments.serving.parts import LoadSetting

NAMES = {False: "plain", True: "drafted"}
SIMULATED = 1000  # requests of a simulated load
SHARES = 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9  # of what is answered at most


class Costs(NamedTuple):
    """The costs of the parts of a server, in seconds.

    Attributes:
        batches: rows of the programs, ascending.
        steps: one step of each program.
        admit: the time that the other rows wait while a row is prefilled.
        begin: the prefill of a whole batch that waits for its longest row.
    """

    batches: tuple[int, ...]
    steps: tuple[float, ...]
    admit: float = 0.0
    begin: float = 0.0

    def step(self, busy: int) -> float:
        """Returns the time of a step by the smallest program that has room for `busy`
        rows."""
        return self.steps[int(np.searchsorted(self.batches, busy))]


def steps_per_request(
    tokens: np.ndarray, step_tokens: Sequence[np.ndarray], seed: int = 0
) -> np.ndarray:
    """Returns how many steps each request takes, [N].

    A request follows one of the texts from its beginning, where fewer tokens are
    accepted than where the text repeats itself.

    Args:
        tokens: [N], the number of tokens of each answer.
        step_tokens: for some texts, the number of tokens of each step, at least one.
    """
    random = np.random.default_rng(seed)

    def count_steps(count: int) -> int:
        steps = step_tokens[random.integers(len(step_tokens))]
        given = np.cumsum(np.resize(steps, count))
        return 1 + int(np.searchsorted(given, count))

    return np.array([count_steps(int(count)) for count in tokens])


Serve = Callable[[simpy.Environment, simpy.Store, Costs, Callable], Generator]


def serve_refilling(rows: int) -> Serve:
    """Returns the way of serving in which a free row takes the next request between
    steps."""

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


def serve_in_batches(rows: int) -> Serve:
    """Returns the way of serving in which all waiting requests are decoded, and
    answered, together.
    """

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


def answer_times(
    serve: Serve, costs: Costs, *, at: np.ndarray, calls: np.ndarray
) -> np.ndarray:
    """Returns the time at which each request was answered, [N], in seconds.

    Args:
        at: [N], the time at which each request arrives, ascending.
        calls: [N], the steps that each takes.
    """
    env, times = simpy.Environment(), np.zeros(len(at))
    queue, left = simpy.Store(env), {*range(len(at))}
    all_told = env.event()

    def add_requests():
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

    env.process(add_requests())
    env.process(serve(env, queue, costs, tell))
    env.run(all_told)
    return times


def latency_numbers(
    *, at: np.ndarray, times: np.ndarray, tokens: np.ndarray
) -> dict[str, float]:
    """Returns the tokens per second (`rate`), and the mean and percentiles of the
    latency in seconds.

    Args:
        at, times, tokens: [N], arrivals, ends and answer lengths.
    """
    latency = times - at
    middle, slow = np.percentile(latency, [50, 95])
    return {
        "rate": float(tokens.sum() / times.max()),
        "mean": float(latency.mean()),
        "p50": float(middle),
        "p95": float(slow),
    }


def poisson(rate: float, count: int, seed: int = 0) -> np.ndarray:
    """Returns the times of `count` arrivals of a Poisson process with `rate` arrivals
    per second, [N]."""
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


def crossing(loads: Sequence[float], drafted: Sequence[float], plain: Sequence[float]):
    """Returns the lowest load at which, as at all higher ones, a draft makes answers no
    faster.

    None if a draft still makes them faster at the last load.

    Args:
        loads: ascending.
    """
    slower = np.asarray(drafted) >= np.asarray(plain)
    if not slower[-1]:
        return None
    return float(loads[len(slower) - int(np.argmin([*slower[::-1], False]))])


# What is expected.


def record_names(drafted: bool, runs: dict[str, dict[str, float]]) -> dict[str, float]:
    """Returns the numbers of runs under their names in a record."""
    each = runs.items()
    who = NAMES[drafted]
    return {f"{mode}_{who}_{key}": x for mode, it in each for key, x in it.items()}


def steps(median: dict, emitted: dict, setting: LoadSetting) -> Iterator[dict]:
    """Yields, for each batch and gamma, c, v, milliseconds, tokens per step, and the
    speedup over no draft when all rows are busy.
    """
    for batch in setting.batches:
        alone, plain = median["target", batch, 0], median["step", batch, 0]
        for gamma in setting.gammas:
            target, step = (median[x, batch, gamma] for x in ("target", "step"))
            drafted = median["draft", batch, gamma] if gamma else 0.0
            given = float(np.mean([each.mean() for each in emitted[gamma]]))
            yield {
                "batch": batch,
                "gamma": gamma,
                "c": drafted / gamma / alone if gamma else None,
                "v": target / alone,
                "target_ms": 1e3 * alone,
                "overhead_ms": 1e3 * (step - drafted - target),
                "step_ms": 1e3 * step,
                "given": given,
                "speedup": given * plain / step,
            }


def runs(
    median: dict, emitted: dict, *, tokens: np.ndarray, gamma: int, setting: LoadSetting
) -> dict[str, float]:
    """Returns the numbers that each run is expected to measure, by name, and "load":
    the requests per second of the open run.
    """
    at, rows, found = np.zeros(len(tokens)), setting.rows, {}
    for drafted, own in ((False, 0), (True, gamma)):
        part = {x: median[x, rows, own] for x in ("step", "admit", "begin", "loop")}
        costs = Costs((rows,), (part["step"],), admit=part["admit"])
        together = Costs((rows,), (part["loop"],), begin=part["begin"])
        calls = steps_per_request(tokens, emitted[own], setting.decode.seed)

        def run(serve, costs: Costs, at: np.ndarray, calls=calls) -> dict[str, float]:
            return latency_numbers(
                at=at,
                times=answer_times(serve, costs, at=at, calls=calls),
                tokens=tokens,
            )

        each = {"refill": run(serve_refilling(rows), costs, at)}
        each["wait"] = run(serve_in_batches(rows), together, at)
        if not drafted:
            load = setting.load * each["refill"]["rate"] / tokens.mean()
            later = poisson(load, len(tokens), setting.decode.seed)
        each["open"] = run(serve_refilling(rows), costs, later)
        found |= record_names(drafted, each)
    return found | {"load": float(load)}


def gains_per_second(runs: dict[str, float]) -> dict[str, float]:
    """Returns the gains in tokens per second of refilling, and of a draft."""

    def relative_gain(one: str, other: str) -> float:
        return runs[f"{one}_rate"] / runs[f"{other}_rate"]

    return {
        "gain_refill_plain": relative_gain("refill_plain", "wait_plain"),
        "gain_refill_drafted": relative_gain("refill_drafted", "wait_drafted"),
        "gain_draft_refill": relative_gain("refill_drafted", "refill_plain"),
        "gain_draft_wait": relative_gain("wait_drafted", "wait_plain"),
    }


def loads(median: dict, emitted: dict, setting: LoadSetting) -> dict:
    """Simulates the loads of a server that runs the smallest program with room for its
    busy rows.

    Returns a line for each load, and the load from which on the mean answer is no
    faster with a draft.
    """
    random = np.random.default_rng(setting.decode.seed)
    tokens = random.integers(setting.least, setting.most + 1, SIMULATED)
    most = setting.batches[-1]
    serve = serve_refilling(most)

    def make_costs(gamma: int) -> Costs:
        steps = tuple(median["step", batch, gamma] for batch in setting.batches)
        return Costs(setting.batches, steps, median["admit", setting.rows, gamma])

    def run(gamma: int, at: np.ndarray) -> dict[str, float]:
        calls = steps_per_request(tokens, emitted[gamma], setting.decode.seed)
        times = answer_times(serve, make_costs(gamma), at=at, calls=calls)
        return latency_numbers(at=at, times=times, tokens=tokens)

    full = run(0, np.zeros(SIMULATED))["rate"] / tokens.mean()
    rates = [share * full for share in SHARES]
    lines = []
    for rate in rates:
        at = poisson(rate, SIMULATED, setting.decode.seed)
        lines += [{"load": rate, "gamma": x, **run(x, at)} for x in setting.gammas]
    mean = {x: [it["mean"] for it in lines if it["gamma"] == x] for x in setting.gammas}
    best = np.min([mean[x] for x in setting.gammas[1:]], axis=0)
    return {
        "loads": lines,
        "capacity": full,
        "stops": crossing(rates, best, mean[0]),
        **{f"stops_{x}": crossing(rates, mean[x], mean[0]) for x in mean if x},
    }
