"""Texts by the target alone and by speculation, with Chen's r and their times.

Chen et al. (2023) print mean token times of both ways; beside their ratio stands the
theoretical speedup, from r and the times of single calls. Axes: N texts.
"""

import jax
import numpy as np

from experiments.papers.chen.setting import ChenSetting
from experiments.papers.leviathan import quality
from experiments.papers.wagner.runs import (
    error_of_ratio,
    make_batch,
    measure_in_turns,
    sum_by_prompt,
)
from experiments.tasks import Task
from specjax import generate
from specjax.keys import root_key
from specjax.measure import costs
from specjax.measure.texts import Calls, count_calls, prompt_units
from specjax.runtime import progress
from specjax.text.streaming import continuation
from specjax.theory import closed_forms, speedup
from specjax.types import Prompt, Request

ALONE, SPECULATIVE = 0, 1  # streams of coins, so that the two ways are independent
WAYS = {"alone": (False, ALONE), "speculative": (True, SPECULATIVE)}  # drafts, stream


def task_batch(
    task: Task, setting: ChenSetting, index: np.ndarray, stream: int, spare: int = 0
) -> tuple[Prompt, Request]:
    """Returns the prompts and requests of the texts at these places; after the last
    prompt the first follows."""
    key = jax.random.fold_in(root_key(setting.decode.seed), stream)
    decode = setting.decode
    if decode.top_p == 1:  # a filter that keeps everything would sort every row
        decode = decode.replace(top_p=None)
    return make_batch(
        task.prompts,
        index,
        key=key,
        tokens=decode.new_tokens + spare,
        sampling=decode.sampling(index.size),
    )


def indices(setting: ChenSetting, count: int) -> list[np.ndarray]:
    """Yields batches of one shape, which together have at least the first `count`
    texts."""
    each = range(0, count, setting.batch)
    return [np.arange(first, first + setting.batch) for first in each]


def write_alone(
    pair: costs.Pair, task: Task, setting: ChenSetting, count: int
) -> list[np.ndarray]:
    """Returns texts by the target alone, without their prompts."""
    decode, texts = costs.decode(pair, 0), []
    for index in progress.track(indices(setting, count), "target alone"):
        prompt, request = task_batch(task, setting, index, ALONE)
        texts += quality.without_prompts(decode(prompt, request), prompt.length)
    return texts[:count]


def speculate(pair: costs.Pair, task: Task, setting: ChenSetting, count: int) -> Calls:
    """Returns texts by speculation, which have random numbers of their own, and their
    calls; a call that an end of a text cuts is counted whole.
    """
    decoder, params = pair.decoder(setting.K), pair.params(setting.K)
    programs, decoded = generate.build_programs(decoder, pair.slots), []
    for index in progress.track(indices(setting, count), "speculation"):
        spare = setting.K + 1
        batch = task_batch(task, setting, index, SPECULATIVE, spare)
        new = setting.decode.new_tokens
        decoded.append(count_calls(programs, params, *batch, new_tokens=new))
    *totals, texts = zip(*decoded, strict=True)
    flat = [text for batch in texts for text in batch]
    return Calls(*(np.concatenate(leaf)[:count] for leaf in totals), flat[:count])


def rate(calls: Calls, setting: ChenSetting) -> dict:
    """Returns r of Chen et al., Figure 1: decoded tokens per call, divided by K + 1."""
    tokens, runs = calls.accepted + calls.calls, calls.calls
    per_call = float(tokens.sum() / runs.sum())
    parts = (sum_by_prompt(each, setting.samples) for each in (tokens, runs))
    error = error_of_ratio(*parts)
    return {
        "r": closed_forms.chen_r(per_call, setting.K),
        "r_se": None if error is None else error / (setting.K + 1),
        "tokens_per_call": per_call,
        "accepted_of_drafted": (per_call - 1) / setting.K,
        "target_calls": int(runs.sum()),
    }


def strings(pair: costs.Pair, task: Task, texts: list[np.ndarray]) -> list[str]:
    """Returns the text written after each prompt, decoded as it reads there."""
    tokenizer, prompts = pair.target.tokenizer, task.prompts.tokens
    written = []
    for i, ids in enumerate(texts):
        before = list(prompts[i % len(prompts)])
        whole = before + [int(x) for x in ids if int(x) not in task.prompts.ends]
        written.append(continuation(tokenizer, whole, len(before), len(whole)))
    return written


def call_times(pair: costs.Pair, task: Task, setting: ChenSetting, r: float) -> dict:
    """Returns milliseconds of a draft, of a target call on one token and on K + 1
    tokens, at batch 1, and the speedup that follows from them and r.
    """
    K, first = setting.K, task_batch(task, setting, np.arange(1), ALONE)
    ms = costs.call_ms(pair, K, *first, setting.rounds)
    speed = closed_forms.chen_speedup(
        r, K, t_draft=ms["t_draft_ms"], t_target=ms["t_target_ms"]
    )
    return ms | {"theoretical_speed": speed}


def walltimes(pair: costs.Pair, task: Task, setting: ChenSetting, count: int) -> dict:
    """Returns the mean time of a token by the target alone and by speculation, for
    whole texts at batch 1 including their prompts, and the ratio of both, with an
    interval over prompts.

    The ways decode each text in turns.
    """
    each, places = {}, [np.array([i]) for i in range(min(setting.timed, count))]
    for way, (gamma, stream) in WAYS.items():
        batches = [task_batch(task, setting, i, stream) for i in places]
        each[way] = costs.decode(pair, setting.K if gamma else 0), batches
    measured = measure_in_turns(each, "whole texts")

    numbers: dict = {}
    for way, it in measured.items():
        seconds, tokens = it["seconds"].sum(), it["tokens"].sum()
        numbers[f"token_ms_{way}"] = 1e3 * float(seconds / tokens)
        numbers[f"timed_tokens_{way}"] = int(tokens)  # the ways write different texts
    alone, drafted = measured.values()
    units = prompt_units(np.arange(len(places)), len(task.prompts.tokens))

    def by_prompt(numbers: np.ndarray) -> np.ndarray:
        return np.bincount(units, numbers)

    above = [by_prompt(alone["seconds"]), by_prompt(drafted["tokens"])]
    below = [by_prompt(alone["tokens"]), by_prompt(drafted["seconds"])]
    value, error = speedup.ratio(above, below)
    interval = speedup.interval(value, error, len(above[0]))
    return numbers | {"speed": value, "speed_interval": interval}
