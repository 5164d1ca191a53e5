"""A server under load: predicted from the cost of its parts, then measured.

Requests of unequal lengths are served by a batch whose rows are refilled, and by
batches that wait for their longest row; with a draft and without; all there at once, or
as they arrive. The simulation uses costs and acceptance of other texts (`parts`), and
runs before anything is served.
"""

import time
from functools import partial

import jax
import numpy as np

from experiments.serving import parts, simulate
from experiments.serving.parts import LoadSetting
from specjax import decode_config, drafts, generate, native
from specjax.checkpoints import Pretrained
from specjax.decode_config import record_fields
from specjax.drafts.source import (
    DraftLike,
    DraftSource,
    check_pair,
    pair_files,
    record_names,
)
from specjax.inputs import bucket
from specjax.measure import costs, pairs
from specjax.measure.row import Measurement
from specjax.measure.texts import width
from specjax.prompts import Prompts
from specjax.text import serving
from specjax.text.serving import Server
from specjax.types import Prompt, Request


def build(
    target: Pretrained,
    draft: DraftLike,
    *,
    setting: LoadSetting,
    task: str,
    read: pairs.Read = pairs.prompts,
) -> Measurement:
    """Returns the measurement of one row.

    Raises:
        ValueError: the models are no pair, the setting cannot be measured, or the
            prompts have inputs.
    """
    target, draft = drafts.pair(target, draft)
    check_pair(target, draft, with_alpha=False)
    check(setting)
    there = read(task, target)
    texts = [ids for ids in there.prompts.tokens if len(ids) <= setting.longest]
    if there.prompts.inputs is not None or len(texts) <= setting.others:
        raise ValueError(
            f"{task} needs more than {setting.others} prompts of at most"
            f" {setting.longest} tokens, for a decoder alone: take TASK = 'code'"
        )
    prompts = there.prompts._replace(tokens=texts)
    run = partial(measure, target, draft, prompts, setting)
    files = *pair_files(target, draft), *there.files
    files = *files, *native.sources()
    return Measurement(run, __name__, files, target.dtype, setting.decode.seed)


def check(setting: LoadSetting) -> None:
    """Raises ValueError for a setting that cannot be measured."""
    decode_config.check(setting.decode)
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


def measure(
    target: Pretrained, draft: DraftSource, prompts: Prompts, setting: LoadSetting
) -> dict:
    """Serves the requests in every way, and returns the numbers of the row's record."""
    room = setting.most + max(setting.gammas) + 1
    pair = costs.Pair(target, draft, bucket(width(prompts)) + room)
    servers = {x: parts.server(pair, x, setting.rows) for x in setting.gammas}
    median = parts.time_parts(pair, prompts, setting=setting, servers=servers)
    emitted = {0: [np.ones(1, int)]} | {
        x: parts.emitted_tokens(
            pair, gamma=x, prompts=prompts, setting=setting, server=servers[x]
        )
        for x in setting.gammas[1:]
    }
    by_batch = [*simulate.steps(median, emitted, setting)]
    here = [it for it in by_batch if it["batch"] == setting.rows and it["gamma"]]
    gamma = max(here, key=lambda it: it["speedup"])["gamma"]
    tokens = np.random.default_rng(setting.decode.seed).integers(
        setting.least, setting.most + 1, setting.requests
    )
    predicted = simulate.runs(
        median, emitted, tokens=tokens, gamma=gamma, setting=setting
    )
    at = simulate.poisson(predicted.pop("load"), setting.requests, setting.decode.seed)
    asked = requests(prompts, tokens, setting)
    chosen = {x: servers[x] for x in (0, gamma)}
    measured = serve_all(pair, chosen, asked, tokens=tokens, at=at, setting=setting)
    compared = {f"{name}_predicted": x for name, x in predicted.items()}
    compared |= {f"{k}_ratio": measured[k] / x for k, x in predicted.items()}
    return {
        **record_names(target, draft),
        **record_fields(setting, ("temperature", "seed")),
        "gamma": gamma,
        "tokens": int(tokens.sum()),
        "arrivals": float(setting.requests / at[-1]),
        **measured,
        **compared,
        **simulate.gains_per_second(measured),
        **{
            f"{k}_predicted": x for k, x in simulate.gains_per_second(predicted).items()
        },
        "by_batch": by_batch,
        **simulate.loads(median, emitted, setting),
    }


def requests(prompts: Prompts, tokens: np.ndarray, setting: LoadSetting):
    """Returns requests for prompts on which acceptance was not measured; prompts repeat
    if there are too few.
    """
    new = len(prompts.tokens) - setting.others
    index = setting.others + np.arange(len(tokens)) % new
    return parts.make_requests(prompts, index=index, tokens=tokens, setting=setting)


def serve_all(
    pair: costs.Pair,
    servers: dict[int, Server],
    asked: tuple[Prompt, Request],
    *,
    tokens: np.ndarray,
    at: np.ndarray,
    setting: LoadSetting,
) -> dict[str, float]:
    """Measures every way to serve; returns the numbers by name.

    Runs with a draft and without alternate, because a machine's speed drifts.

    Args:
        servers: by gamma.
    """
    arrivals, none, found = [*parts.one_by_one(asked)], np.zeros(len(at)), {}

    def serve_refilled(gamma: int, at: np.ndarray) -> np.ndarray:
        each = [it._replace(at=x) for it, x in zip(arrivals, at, strict=True)]
        times = np.zeros(len(each))
        for it in serving.serve(servers[gamma], pair.params(gamma), each):
            times[it.index] = it.ended
            assert it.tokens.size == tokens[it.index]
        return times

    batches = [
        jax.tree.map(lambda x, i=i: x[i : i + setting.rows], asked)
        for i in range(0, len(at), setting.rows)
    ]
    wholes = {x: generate.build(pair.decoder(x), pair.slots) for x in servers}
    for gamma, whole in wholes.items():  # compiled before it is timed
        whole(pair.params(gamma), *batches[0])

    def serve_batches(gamma: int, at: np.ndarray) -> np.ndarray:
        begun, times = time.perf_counter(), []
        for batch in batches:
            wholes[gamma](pair.params(gamma), *batch)
            times += [time.perf_counter() - begun] * setting.rows
        return np.array(times)

    runs = (
        ("refill", serve_refilled, none),
        ("wait", serve_batches, none),
        ("open", serve_refilled, at),
    )
    for mode, run, when in runs:
        by_gamma = {gamma: [] for gamma in servers}
        for _ in range(setting.rounds):
            for gamma, each in by_gamma.items():
                each.append(
                    simulate.latency_numbers(
                        at=when, times=run(gamma, when), tokens=tokens
                    )
                )
        for gamma, each in by_gamma.items():
            median = {k: float(np.median([it[k] for it in each])) for k in each[0]}
            found |= simulate.record_names(gamma > 0, {mode: median})
    return found
