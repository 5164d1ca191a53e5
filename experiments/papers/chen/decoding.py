"""Texts of both ways, the target alone and by speculation, and r, counted on the way.

Axes: N texts.
"""

import jax
import numpy as np
from tqdm import tqdm

from experiments.papers.chen.setting import ChenSetting
from experiments.papers.leviathan import quality
from experiments.papers.wagner.runs import batched, by_prompt, error_of_ratio
from experiments.tasks import Task
from specjax import generate
from specjax.inputs import make_sampling
from specjax.measure import costs
from specjax.measure.texts import Calls, counted
from specjax.step import build_step
from specjax.text import continuation
from specjax.theory import closed_forms
from specjax.types import Prompt, Request

ALONE, SPECULATIVE = 0, 1  # streams of coins, so that the two ways are independent


def batch_of(
    task: Task, setting: ChenSetting, index: np.ndarray, stream: int, spare: int = 0
) -> tuple[Prompt, Request]:
    """The texts of these places, from the first prompt on again where they end."""
    key = jax.random.fold_in(jax.random.key(setting.seed), stream)
    # A filter that keeps everything would sort every row for nothing.
    nucleus = {"top_p": setting.top_p} if setting.top_p < 1 else {}
    sampling = make_sampling(index.size, setting.temperature, **nucleus)
    return batched(task.prompts, index, key, setting.new_tokens + spare, sampling)


def indices(setting: ChenSetting, count: int) -> list[np.ndarray]:
    """Batches of one shape, which hold the first `count` texts."""
    each = range(0, count, setting.batch)
    return [np.arange(first, first + setting.batch) for first in each]


def write_alone(
    pair: costs.Pair, task: Task, setting: ChenSetting, count: int
) -> list[np.ndarray]:
    """Texts by the target alone, without their prompts."""
    decode, texts = costs.decode(pair, 0), []
    for index in tqdm(indices(setting, count), "target alone", disable=None):
        prompt, request = batch_of(task, setting, index, ALONE)
        texts += quality.without_prompts(decode(prompt, request), prompt.length)
    return texts[:count]


def speculate(pair: costs.Pair, task: Task, setting: ChenSetting, count: int) -> Calls:
    """Texts by speculation, with coins of their own, and their calls, of which no end
    or limit of a text cuts one that counts."""
    decoder, params = pair.decoder(setting.K), pair.params(setting.K)
    begin = jax.jit(lambda p, x: generate.prefill(decoder, p, x, pair.slots))
    step = jax.jit(build_step(*decoder), donate_argnums=2)
    decoded = []
    for index in tqdm(indices(setting, count), "speculation", disable=None):
        spare = setting.K + 1
        prompt, request = batch_of(task, setting, index, SPECULATIVE, spare)
        state = begin(params, prompt)
        decoded.append(counted(step, params, request, state, setting.new_tokens))
    *totals, texts = zip(*decoded, strict=True)
    flat = [text for batch in texts for text in batch]
    return Calls(*(np.concatenate(leaf)[:count] for leaf in totals), flat[:count])


def rate(calls: Calls, setting: ChenSetting) -> dict:
    """r of Chen et al., Figure 1: tokens decoded a call, over K + 1."""
    tokens, runs = calls.accepted + calls.calls, calls.calls
    per_call = float(tokens.sum() / runs.sum())
    parts = (by_prompt(each, setting.samples) for each in (tokens, runs))
    error = error_of_ratio(*parts)
    return {
        "r": closed_forms.chen_r(per_call, setting.K),
        "r_se": None if error is None else error / (setting.K + 1),
        "tokens_per_call": per_call,
        "accepted_of_drafted": (per_call - 1) / setting.K,
        "target_calls": int(runs.sum()),
    }


def strings(pair: costs.Pair, task: Task, texts: list[np.ndarray]) -> list[str]:
    """What was written of each prompt, as it reads after it."""
    tokenizer, prompts = pair.target.pretrained.tokenizer, task.prompts.tokens
    written = []
    for i, ids in enumerate(texts):
        before = list(prompts[i % len(prompts)])
        whole = before + [int(x) for x in ids if int(x) not in task.prompts.ends]
        written.append(continuation(tokenizer, whole, len(before), len(whole)))
    return written
