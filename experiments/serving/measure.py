"""A server under load: predicted from what its parts cost, then measured.

Requests of unequal lengths, by a batch whose rows are refilled and by batches that wait
for their longest row, with a draft and without; all there at once, or as they come. The
simulation has costs and acceptance of other texts (`parts`), and is asked before
anything is served. It also answers from which load on a draft does not pay, for a
server that has a program for each of several batches and runs the least that holds its
busy rows.
"""

import time
from functools import partial

import jax
import numpy as np

from experiments.serving import parts, simulate
from experiments.serving.parts import LoadSetting
from experiments.serving.simulate import Costs
from specjax import drafts, generate, native, serving, sides
from specjax.inputs import bucket
from specjax.measure import costs, pairs
from specjax.measure.row import Measurement
from specjax.measure.texts import width
from specjax.prompts import Prompts
from specjax.serving import Server
from specjax.sides import Side

NAMES = {False: "plain", True: "drafted"}
SIMULATED = 1000  # requests of a simulated load
SHARES = 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9  # of what is answered at most


def build(
    target: Side,
    draft: Side | str,
    setting: LoadSetting,
    task: str,
    read: pairs.Read = pairs.prompts,
) -> Measurement:
    """The measurement of one row. Raises ValueError for a pair that is none, for a
    setting that cannot be measured, and for prompts with inputs."""
    target, draft = drafts.paired(target, draft)
    sides.check(target, draft, with_alpha=False)
    check(setting)
    there = read(task, target)
    if there.prompts.inputs is not None or len(there.prompts.tokens) <= setting.others:
        raise ValueError(
            f"{task} needs more than {setting.others} prompts for a decoder alone: take"
            " TASK = 'code'"
        )
    run = partial(measure, target, draft, there.prompts, setting)
    files = *target.files, *draft.files, *there.files
    files = *files, *native.sources(target.dtype, draft.dtype)
    return Measurement(run, __name__, files, target.dtype, setting.seed)


def check(setting: LoadSetting) -> None:
    gammas, batches = setting.gammas, setting.batches
    if gammas[:1] != (0,) or sorted({*gammas}) != [*gammas] or len(gammas) < 2:
        raise ValueError(f"gammas must ascend from 0 to something; got {gammas}")
    if sorted({*batches}) != [*batches] or setting.rows not in batches:
        raise ValueError(
            f"batches must ascend, and rows be one of them; got {batches} and"
            f" {setting.rows}"
        )
    for name in ("others", "requests"):
        count = getattr(setting, name)
        if count < 1 or count % setting.rows:
            raise ValueError(f"{name} must fill batches of {setting.rows}; got {count}")


def measure(target: Side, draft: Side, prompts: Prompts, setting: LoadSetting) -> dict:
    """Every number of a row, plain."""
    room = setting.most + max(setting.gammas) + 1
    pair = costs.Pair(target, draft, bucket(width(prompts)) + room)
    servers = {x: parts.server(pair, x, setting.rows) for x in setting.gammas}
    median = parts.timed(pair, prompts, setting, servers)
    emitted = {0: [np.ones(1, int)]} | {
        x: parts.emitted(pair, x, prompts, setting, servers[x])
        for x in setting.gammas[1:]
    }
    by_batch = [*parts_of(median, emitted, setting)]
    here = [it for it in by_batch if it["batch"] == setting.rows and it["gamma"]]
    gamma = max(here, key=lambda it: it["speedup"])["gamma"]
    tokens = np.random.default_rng(setting.seed).integers(
        setting.least, setting.most + 1, setting.requests
    )
    predicted = predict(median, emitted, tokens, gamma, setting)
    at = simulate.poisson(predicted.pop("load"), setting.requests, setting.seed)
    asked = requests(prompts, tokens, setting)
    measured = {}
    for drafted, own in ((False, 0), (True, gamma)):
        runs = serve_all(pair, own, servers[own], asked, tokens, at, setting)
        measured |= {
            f"{mode}_{NAMES[drafted]}_{name}": x
            for mode, it in runs.items()
            for name, x in it.items()
        }
    compared = {f"{name}_predicted": x for name, x in predicted.items()}
    compared |= {f"{k}_ratio": measured[k] / x for k, x in predicted.items()}
    return {
        **sides.names(target, draft),
        **setting._asdict(),
        "gamma": gamma,
        "tokens": int(tokens.sum()),
        "arrivals": float(setting.requests / at[-1]),
        **measured,
        **compared,
        **gains(measured),
        **{f"{k}_predicted": x for k, x in gains(predicted).items()},
        "by_batch": by_batch,
        **loads(median, emitted, setting),
    }


def parts_of(median: dict, emitted: dict, setting: LoadSetting):
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


def predict(
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

        runs = {"refill": told(simulate.refilled(rows), costs, at)}
        runs["wait"] = told(simulate.waiting(rows), together, at)
        if not drafted:
            load = setting.load * runs["refill"]["rate"] / tokens.mean()
            later = simulate.poisson(load, len(tokens), setting.seed)
        runs["open"] = told(simulate.refilled(rows), costs, later)
        found |= {
            f"{mode}_{NAMES[drafted]}_{name}": x
            for mode, it in runs.items()
            for name, x in it.items()
        }
    return found | {"load": float(load)}


def requests(prompts: Prompts, tokens: np.ndarray, setting: LoadSetting):
    """Of prompts that acceptance was not measured on, from the first on again where
    they end."""
    new = len(prompts.tokens) - setting.others
    index = setting.others + np.arange(len(tokens)) % new
    return parts.asked(prompts, index, tokens, setting)


def serve_all(
    pair: costs.Pair,
    gamma: int,
    server: Server,
    asked: tuple,
    tokens: np.ndarray,
    at: np.ndarray,
    setting: LoadSetting,
) -> dict[str, dict[str, float]]:
    """What was measured of each run, by its name."""
    params, arrivals = pair.params(gamma), [*parts.one_by_one(asked)]
    none = np.zeros(len(at))

    def refilled(at: np.ndarray) -> dict[str, float]:
        each = [it._replace(at=x) for it, x in zip(arrivals, at, strict=True)]
        times = np.zeros(len(each))
        for it in serving.serve(server, params, each):
            times[it.index] = it.ended
            assert it.tokens.size == tokens[it.index]
        return simulate.told(at, times, tokens)

    whole = generate.build(pair.decoder(gamma), pair.slots)
    batches = [
        jax.tree.map(lambda x, i=i: x[i : i + setting.rows], asked)
        for i in range(0, len(at), setting.rows)
    ]
    whole(params, *batches[0])
    begun, times = time.perf_counter(), []
    for batch in batches:
        whole(params, *batch)
        times += [time.perf_counter() - begun] * setting.rows
    waited = simulate.told(none, np.array(times), tokens)
    return {"refill": refilled(none), "wait": waited, "open": refilled(at)}


def gains(runs: dict[str, float]) -> dict[str, float]:
    """Of tokens a second: what refilling gives, and what a draft does."""
    rate = {
        name.removesuffix("_rate"): x for name, x in runs.items() if "_rate" in name
    }
    return {
        "gain_refill_plain": rate["refill_plain"] / rate["wait_plain"],
        "gain_refill_drafted": rate["refill_drafted"] / rate["wait_drafted"],
        "gain_draft_refill": rate["refill_drafted"] / rate["refill_plain"],
        "gain_draft_wait": rate["wait_drafted"] / rate["wait_plain"],
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
