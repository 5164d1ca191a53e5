"""Texts decoded as Wagner et al. (2024) decode them: drafts kept, calls, ROUGE-1, time.

Section 4.1: temperature 1, gamma from 5 on, 2 more after a draft that is kept whole, 1
less after another. Here programs have fixed shapes: a schedule's calls check `most` + 1
tokens, however many were drafted.
Axes: N texts.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
import sentencepiece
from tqdm import tqdm

from experiments import tasks
from experiments.papers.leviathan import quality
from experiments.papers.wagner.methods import Method, filtered
from specjax import generate, policies
from specjax.generate import Counts, Output
from specjax.inputs import make_request, make_sampling
from specjax.measure.texts import take, width
from specjax.prompts import Prompts
from specjax.sides import Player
from specjax.step import Decoder
from specjax.types import Params, Prompt, Request

SCHEDULE = 0  # in the place of a gamma: 5, then +2 or -1


class Sample(NamedTuple):
    """The prompts of a row, chosen by `seed` as a share of a task's, each continued
    `repeats` times with coins of its own; references: what a person wrote for each."""

    prompts: Prompts
    references: list[str]
    share: float
    repeats: int
    seed: int
    new_tokens: int

    @property
    def count(self) -> int:
        return self.repeats * len(self.prompts.tokens)


def sampled(
    task: str,
    share: float,
    repeats: int,
    seed: int,
    new_tokens: int,
    suffix: str = "",
) -> Sample:
    """A share of a task's prompts, rounded up, in their own order.

    suffix: see `with_suffix`. Raises ValueError unless 0 < share <= 1 and repeats and
    new_tokens are at least 1.
    """
    if not 0 < share <= 1 or min(repeats, new_tokens) < 1:
        raise ValueError(
            "need a share in (0, 1] and at least 1 of repeats and new_tokens; got"
            f" {share}, {repeats}, {new_tokens}"
        )
    source = tasks.read(task)
    total = len(source.prompts.tokens)
    index = np.random.default_rng(seed).permutation(total)[
        : int(np.ceil(share * total))
    ]

    def chosen(listed) -> list:
        return [listed[i] for i in sorted(index)]

    prompts = source.prompts._replace(tokens=chosen(source.prompts.tokens))
    if prompts.inputs is not None:
        prompts = prompts._replace(inputs=chosen(prompts.inputs))
    prompts = with_suffix(prompts, suffix)
    references = chosen(source.references) if source.references else []
    return Sample(prompts, references, share, repeats, seed, new_tokens)


def with_suffix(prompts: Prompts, suffix: str) -> Prompts:
    """Puts a suffix after the text that an encoder reads, before its end.

    Raises ValueError for prompts that no encoder reads.
    """
    if not suffix:
        return prompts
    if prompts.inputs is None:
        raise ValueError("a suffix follows what an encoder reads: name such a task")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tasks.T5_TOKENIZER))
    more = pieces.encode(suffix)
    inputs = [[*ids[:-1], *more, ids[-1]] for ids in prompts.inputs]
    return prompts._replace(inputs=inputs)


class Run(NamedTuple):
    """counts: [N] each, see `specjax.generate.Counts`. texts: N outputs, uncut."""

    counts: Counts
    texts: list[np.ndarray]


def decoder(
    pair: tuple[Player, Player], method: Method, gamma: int, slots: int, most: int = 20
) -> Callable[[Prompt, Request], Output]:
    """A compiled decoder at a gamma, or by the SCHEDULE up to `most`."""
    target, draft = filtered(pair, method.top_k)
    policy = policies.heuristic() if gamma == SCHEDULE else None
    drafter = method.drafter(draft, gamma or most)
    parts = Decoder(target.model, drafter, method.verifier, policy)
    loop = jax.jit(generate.build_loop(parts, slots))
    params = Params(target.params, draft.params)
    return lambda prompt, request: loop(params, prompt, request)


def slots_of(sample: Sample, most: int) -> int:
    """One buffer for every gamma."""
    return width(sample.prompts) + sample.new_tokens + most + 1


def batch_of(sample: Sample, index: Sequence[int]) -> tuple[Prompt, Request]:
    """The texts of these places; text i has its own key, whatever its mates."""
    index = np.asarray(index)
    prompt = take(sample.prompts, index)
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    keys = fold(jax.random.key(sample.seed), index)
    sampling = make_sampling(index.size, 1.0)
    limits = sample.new_tokens, sampling, sample.prompts.ends
    return prompt, make_request(keys, prompt, *limits)


def decode(
    pair: tuple[Player, Player], method: Method, gamma: int, sample: Sample, batch: int
) -> Run:
    """Every text of a sample, in batches."""
    most = max(gamma, 20)
    run = decoder(pair, method, gamma, slots_of(sample, most))
    counts, texts = [], []
    for first in range(0, sample.count, batch):
        prompt, request = batch_of(sample, range(first, first + batch))
        out = jax.device_get(run(prompt, request))
        counts.append(out.counts)
        ends = zip(np.asarray(request.start), out.length, strict=True)
        texts += [row[slice(*e)] for row, e in zip(out.tokens, ends, strict=True)]
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *counts)
    cut = jax.tree.map(lambda leaf: leaf[: sample.count], whole)
    return Run(cut, texts[: sample.count])


def kept(run: Run, repeats: int = 1) -> dict:
    """Shares of drafted, and of tested, tokens that were kept; means per call.

    The standard error is over prompts: repeats of one are not independent.
    A draft's tokens beyond the end of its text count as drafted and are never kept.
    """
    calls, drafted, tested, accepted = (int(total.sum()) for total in run.counts)
    tokens = sum(map(len, run.texts))
    parts = run.counts.accepted, run.counts.drafted
    of_prompts = (by_prompt(each, repeats) for each in parts)
    return {
        "acceptance": accepted / drafted,
        "acceptance_tested": accepted / tested,
        "acceptance_se": error_of_ratio(*of_prompts),
        "tokens_per_call": tokens / calls,
        "calls": calls,
        "tokens": tokens,
        "drafted_per_call": drafted / calls,
    }


def by_prompt(each: np.ndarray, repeats: int) -> np.ndarray:
    """What each of N texts has -> what each prompt has, repeats summed."""
    return np.reshape(each, (repeats, -1)).sum(0)


def error_of_ratio(part: np.ndarray, whole: np.ndarray) -> float | None:
    """Standard error of sum(part) / sum(whole) over what is given; None of one."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    if part.size < 2:
        return None
    off = part - part.sum() / whole.sum() * whole
    return float(np.sqrt(part.size / (part.size - 1) * (off**2).sum()) / whole.sum())


def rouge1(run: Run, sample: Sample) -> dict:
    """Mean ROUGE-1 F1, at most 1, against the references, and its standard error; empty
    where nobody wrote any. Repeats of a prompt are averaged first."""
    if not sample.references:
        return {}
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tasks.T5_TOKENIZER))
    ends = sample.prompts.ends
    texts = [
        pieces.decode([i for i in row.tolist() if i not in ends]) for row in run.texts
    ]
    wanted = sample.references * sample.repeats
    each = [
        quality.rouge([a], [b])["rouge1"] / 100
        for a, b in zip(texts, wanted, strict=True)
    ]
    means = by_prompt(each, sample.repeats) / sample.repeats
    error = means.std(ddof=1) / np.sqrt(means.size) if means.size > 1 else 0
    return {"rouge1": float(means.mean()), "rouge1_se": float(error)}


def walltimes(
    pair: tuple[Player, Player],
    methods: Sequence[Method],
    gamma: int,
    sample: Sample,
    count: int,
) -> dict[str, dict]:
    """By method: seconds of each of the first `count` texts alone, [N], whole decoding
    with the prompt's prefill, and the calls and tokens of each.

    Batch 1. All methods decode a text in turn, so that a disturbance is met by all.
    """
    slots, count = slots_of(sample, max(gamma, 20)), min(count, sample.count)
    runs = {m.name: decoder(pair, m, gamma, slots) for m in methods}
    kinds = "seconds", "calls", "tokens"
    measured = {name: {kind: np.zeros(count) for kind in kinds} for name in runs}
    for run in runs.values():
        jax.block_until_ready(run(*batch_of(sample, [0])))
    for i in tqdm(range(count), f"gamma {gamma or 'adaptive'}: texts", disable=None):
        batch = batch_of(sample, [i])
        for name, run in runs.items():
            begun = time.perf_counter()
            out = jax.block_until_ready(run(*batch))
            taken = time.perf_counter() - begun, out.counts.calls[0]
            for kind, value in zip(kinds, (*taken, out.length[0]), strict=True):
                measured[name][kind][i] = value
            measured[name]["tokens"][i] -= batch[1].start[0]
    return measured
