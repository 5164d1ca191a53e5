"""A server under load: predicted from what its parts cost, then measured.

Requests of unequal lengths, by a batch whose rows are refilled and by batches that wait
for their longest row, with a draft and without; all there at once, or as they come. The
simulation has costs and acceptance of other texts (`parts`), and is asked (`expect`)
before anything is served.
"""

import time
from functools import partial

import jax
import numpy as np

from experiments.serving import expect, parts, simulate
from experiments.serving.parts import LoadSetting
from specjax import drafts, generate, native, serving, sides
from specjax.inputs import bucket
from specjax.measure import costs, pairs
from specjax.measure.row import Measurement
from specjax.measure.texts import width
from specjax.prompts import Prompts
from specjax.serving import Server
from specjax.sides import Side


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
    """Raises ValueError for a setting that cannot be measured."""
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
    by_batch = [*expect.steps(median, emitted, setting)]
    here = [it for it in by_batch if it["batch"] == setting.rows and it["gamma"]]
    gamma = max(here, key=lambda it: it["speedup"])["gamma"]
    tokens = np.random.default_rng(setting.seed).integers(
        setting.least, setting.most + 1, setting.requests
    )
    predicted = expect.runs(median, emitted, tokens, gamma, setting)
    at = simulate.poisson(predicted.pop("load"), setting.requests, setting.seed)
    asked = requests(prompts, tokens, setting)
    measured = {}
    for drafted, own in ((False, 0), (True, gamma)):
        runs = serve_all(pair, own, servers[own], asked, tokens, at, setting)
        measured |= expect.named(drafted, runs)
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
        **expect.gains(measured),
        **{f"{k}_predicted": x for k, x in expect.gains(predicted).items()},
        "by_batch": by_batch,
        **expect.loads(median, emitted, setting),
    }


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
