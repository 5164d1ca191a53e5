"""What is expected of a server under load, of what its parts cost (`parts.timed`).

How long the requests of a row take, by rows that are refilled and by batches that wait;
and simulated alone, from which load on a draft does not pay, for a server that has a
program for each of several batches and runs the least that holds its busy rows.
"""

from collections.abc import Iterator

import numpy as np

from experiments.serving import simulate
from experiments.serving.parts import LoadSetting
from experiments.serving.simulate import Costs

NAMES = {False: "plain", True: "drafted"}
SIMULATED = 1000  # requests of a simulated load
SHARES = 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9  # of what is answered at most


def named(drafted: bool, runs: dict[str, dict[str, float]]) -> dict[str, float]:
    """What is told of runs, by its name in a record."""
    each = runs.items()
    who = NAMES[drafted]
    return {f"{mode}_{who}_{key}": x for mode, it in each for key, x in it.items()}


def steps(median: dict, emitted: dict, setting: LoadSetting) -> Iterator[dict]:
    """Of each batch and gamma: c, v, milliseconds, tokens a step, and how much faster
    than without a draft where all rows are busy."""
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
    median: dict, emitted: dict, tokens: np.ndarray, gamma: int, setting: LoadSetting
) -> dict[str, float]:
    """What each run is expected to measure, by its name, and "load": the requests a
    second of the open one."""
    at, rows, found = np.zeros(len(tokens)), setting.rows, {}
    for drafted, own in ((False, 0), (True, gamma)):
        part = {x: median[x, rows, own] for x in ("step", "admit", "begin", "loop")}
        costs = Costs((rows,), (part["step"],), admit=part["admit"])
        together = Costs((rows,), (part["loop"],), begin=part["begin"])
        calls = simulate.calls_of(tokens, emitted[own], setting.seed)

        def told(serve, costs: Costs, at: np.ndarray, calls=calls) -> dict[str, float]:
            return simulate.told(at, simulate.ended(serve, costs, at, calls), tokens)

        each = {"refill": told(simulate.refilled(rows), costs, at)}
        each["wait"] = told(simulate.waiting(rows), together, at)
        if not drafted:
            load = setting.load * each["refill"]["rate"] / tokens.mean()
            later = simulate.poisson(load, len(tokens), setting.seed)
        each["open"] = told(simulate.refilled(rows), costs, later)
        found |= named(drafted, each)
    return found | {"load": float(load)}


def gains(runs: dict[str, float]) -> dict[str, float]:
    """Of tokens a second: what refilling gives, and what a draft does."""

    def over(one: str, other: str) -> float:
        return runs[f"{one}_rate"] / runs[f"{other}_rate"]

    return {
        "gain_refill_plain": over("refill_plain", "wait_plain"),
        "gain_refill_drafted": over("refill_drafted", "wait_drafted"),
        "gain_draft_refill": over("refill_drafted", "refill_plain"),
        "gain_draft_wait": over("wait_drafted", "wait_plain"),
    }


def loads(median: dict, emitted: dict, setting: LoadSetting) -> dict:
    """Simulated loads of a server that runs the least program that holds its busy rows:
    a line a load, and from which on the mean answer is no faster with a draft."""
    random = np.random.default_rng(setting.seed)
    tokens = random.integers(setting.least, setting.most + 1, SIMULATED)
    most = setting.batches[-1]
    serve = simulate.refilled(most)

    def costs_of(gamma: int) -> Costs:
        steps = tuple(median["step", batch, gamma] for batch in setting.batches)
        return Costs(setting.batches, steps, median["admit", setting.rows, gamma])

    def told(gamma: int, at: np.ndarray) -> dict[str, float]:
        calls = simulate.calls_of(tokens, emitted[gamma], setting.seed)
        times = simulate.ended(serve, costs_of(gamma), at, calls)
        return simulate.told(at, times, tokens)

    full = told(0, np.zeros(SIMULATED))["rate"] / tokens.mean()
    rates = [share * full for share in SHARES]
    lines = []
    for rate in rates:
        at = simulate.poisson(rate, SIMULATED, setting.seed)
        lines += [{"load": rate, "gamma": x, **told(x, at)} for x in setting.gammas]
    mean = {x: [it["mean"] for it in lines if it["gamma"] == x] for x in setting.gammas}
    best = np.min([mean[x] for x in setting.gammas[1:]], axis=0)
    return {
        "loads": lines,
        "capacity": full,
        "stops": simulate.crossing(rates, best, mean[0]),
        **{f"stops_{x}": simulate.crossing(rates, mean[x], mean[0]) for x in mean if x},
    }
