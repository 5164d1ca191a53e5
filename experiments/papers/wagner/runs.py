"""Texts decoded as Wagner et al. (2024) decode them: kept drafts, calls, ROUGE-1, and
time.

Section 4.1: temperature 1; gamma starts at 5, grows by 2 after a draft that is kept
whole and falls by 1 after any other. Programs here have fixed shapes: a schedule's
calls check `most` + 1 tokens, however many were drafted. Axes: N texts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
import sentencepiece
from jax import Array

from experiments import tasks
from experiments.papers.leviathan import quality
from experiments.papers.wagner.methods import Method, filter_pair
from experiments.tasks import Task
from specjax import generate, policies
from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftSource
from specjax.generate import Counts, Output
from specjax.inputs import make_request, make_sampling
from specjax.keys import root_key
from specjax.measure import timing
from specjax.measure.texts import take, width
from specjax.prompts import Prompts
from specjax.step import Decoder
from specjax.theory import speedup
from specjax.types import Params, Prompt, Request, Sampling

SCHEDULE = 0  # in the place of a gamma: 5, then +2 or -1


class Sample(NamedTuple):
    """The prompts of a row: a share of a task's prompts, chosen by `seed`.

    Attributes:
        repeats: how often each prompt is continued, with its own coins.
        references: the human text for each prompt.
        decode: decodes ids; None is the bundled T5 family's decoder.
    """

    prompts: Prompts
    references: list[str]
    share: float
    repeats: int
    seed: int
    new_tokens: int
    decode: Callable[[list[int]], str] | None = None

    @property
    def count(self) -> int:
        return self.repeats * len(self.prompts.tokens)


def sample_prompts(
    source: Task,
    *,
    share: float,
    repeats: int,
    seed: int,
    new_tokens: int,
    suffix: str = "",
    decode: Callable[[list[int]], str] | None = None,
) -> Sample:
    """Returns a share of a task's prompts, rounded up, in their original order.

    Args:
        suffix: put after each text that an encoder reads.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0 < share <= 1 or min(repeats, new_tokens) < 1:
        raise ValueError(
            "need a share in (0, 1] and at least 1 of repeats and new_tokens; got"
            f" {share}, {repeats}, {new_tokens}"
        )
    total = len(source.prompts.tokens)
    order = np.random.default_rng(seed).permutation(total)
    index = sorted(order[: int(np.ceil(share * total))])

    def take_chosen(listed: list | None) -> list | None:
        return [listed[i] for i in index] if listed else listed

    tokens, inputs = (
        take_chosen(source.prompts.tokens),
        take_chosen(source.prompts.inputs),
    )
    if suffix:
        if inputs is None:
            raise ValueError("a suffix follows what an encoder reads: name such a task")
        more = t5_pieces().encode(suffix)
        inputs = [[*ids[:-1], *more, ids[-1]] for ids in inputs]
    prompts = source.prompts._replace(tokens=tokens, inputs=inputs)
    references = take_chosen(source.references)
    return Sample(prompts, references, share, repeats, seed, new_tokens, decode)


def t5_pieces() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(tasks.T5_TOKENIZER))


class Run(NamedTuple):
    """The texts of a run, and their counts.

    Attributes:
        counts: [N] each, see `specjax.generate.Counts`.
        texts: N outputs, uncut.
    """

    counts: Counts
    texts: list[np.ndarray]


def decoder(
    pair: tuple[Pretrained, DraftSource],
    method: Method,
    *,
    gamma: int,
    slots: int,
    most: int = 20,
) -> Callable[[Prompt, Request], Output]:
    """Returns a compiled decoder with this gamma, or with the SCHEDULE of up to
    `most`."""
    target, draft = filter_pair(pair, method.top_k)
    policy = policies.heuristic() if gamma == SCHEDULE else None
    drafter = method.drafter(draft, gamma or most)
    decoder = Decoder(target.model, drafter, method.verifier, policy)
    loop = jax.jit(generate.build_loop(decoder, slots))
    params = Params(target.params, draft.params)
    return lambda prompt, request: loop(params, prompt, request)


def buffer_length(sample: Sample, most: int) -> int:
    """Returns the length of a buffer that serves every gamma."""
    return width(sample.prompts) + sample.new_tokens + most + 1


def sample_batch(sample: Sample, index: Sequence[int]) -> tuple[Prompt, Request]:
    """Returns prompts and requests of the texts at these positions, at temperature
    1.
    """
    key, sampling = root_key(sample.seed), make_sampling(len(index), 1.0)
    return make_batch(
        sample.prompts, index, key=key, tokens=sample.new_tokens, sampling=sampling
    )


def make_batch(
    prompts: Prompts,
    index: Sequence[int],
    *,
    key: Array,
    tokens: int,
    sampling: Sampling,
) -> tuple[Prompt, Request]:
    """Returns the prompts and requests of the texts at these positions; the prompts
    start again after the last one.

    Text i has its own key, whatever texts share its batch.
    """
    prompt = take(prompts, index)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, np.asarray(index))
    return prompt, make_request(keys, prompt, tokens, sampling, prompts.ends)


def decode(
    pair: tuple[Pretrained, DraftSource],
    method: Method,
    *,
    gamma: int,
    sample: Sample,
    batch: int,
) -> Run:
    """Decodes every text of a sample, in batches."""
    most = max(gamma, 20)
    run = decoder(pair, method, gamma=gamma, slots=buffer_length(sample, most))
    counts, texts = [], []
    for first in range(0, sample.count, batch):
        prompt, request = sample_batch(sample, range(first, first + batch))
        out = jax.device_get(run(prompt, request))
        counts.append(out.counts)
        texts += quality.without_prompts(out, request.start)
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *counts)
    cut = jax.tree.map(lambda leaf: leaf[: sample.count], whole)
    return Run(cut, texts[: sample.count])


def kept_shares(run: Run, repeats: int = 1) -> dict:
    """Returns the shares of drafted, and of tested, tokens that were kept, with errors
    over prompts.

    The repeats of a prompt are not independent. A draft's tokens beyond the end of its
    text count as drafted and are never kept.
    """
    calls, drafted, tested, accepted = (int(total.sum()) for total in run.counts)
    tokens = sum(map(len, run.texts))
    parts = run.counts.accepted, run.counts.drafted
    of_prompts = (sum_by_prompt(each, repeats) for each in parts)
    return {
        "acceptance": accepted / drafted,
        "acceptance_tested": accepted / tested,
        "acceptance_se": error_of_ratio(*of_prompts),
        "tokens_per_call": tokens / calls,
        "calls": calls,
        "tokens": tokens,
        "drafted_per_call": drafted / calls,
    }


def sum_by_prompt(each: np.ndarray, repeats: int) -> np.ndarray:
    """Returns the sums of the values of N texts over the repeats of each prompt."""
    return np.reshape(each, (repeats, -1)).sum(0)


def error_of_ratio(part: np.ndarray, whole: np.ndarray) -> float | None:
    """Returns the standard error of sum(part) / sum(whole); None for a single value."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    if part.size < 2:
        return None
    off = part - part.sum() / whole.sum() * whole
    return float(np.sqrt(part.size / (part.size - 1) * (off**2).sum()) / whole.sum())


def rouge1(run: Run, sample: Sample) -> dict:
    """Returns mean ROUGE-1 F1 against the references, at most 1, and its standard
    error, None for a single prompt, and the score of each prompt, by which methods are
    compared on the same prompts; {} without references.

    Repeats of a prompt are averaged first.
    """
    if not sample.references:
        return {}
    decode, ends = sample.decode or t5_pieces().decode, sample.prompts.ends
    texts = [decode([i for i in row.tolist() if i not in ends]) for row in run.texts]
    wanted = sample.references * sample.repeats
    both = zip(texts, wanted, strict=True)
    each = [quality.rouge([a], [b])["rouge1"] / 100 for a, b in both]
    means = sum_by_prompt(each, sample.repeats) / sample.repeats
    error = None
    if means.size > 1:
        error = float(means.std(ddof=1) / np.sqrt(means.size))
    by_prompt = np.round(means, 4).tolist()
    return {
        "rouge1": float(means.mean()),
        "rouge1_se": error,
        "rouge1_by_prompt": by_prompt,
    }


def walltimes(
    pair: tuple[Pretrained, DraftSource],
    methods: Sequence[Method],
    *,
    gamma: int,
    sample: Sample,
    count: int,
) -> dict[str, dict]:
    """Returns, by method, the seconds of each of the first `count` texts at batch 1,
    [N], including their prompts, and the calls and tokens of each.

    The methods decode each text in turn, so that a disturbance affects all of them.
    """
    slots = buffer_length(sample, max(gamma, 20))
    batches = [sample_batch(sample, [i]) for i in range(min(count, sample.count))]
    ways = {
        m.name: (decoder(pair, m, gamma=gamma, slots=slots), batches) for m in methods
    }
    return measure_in_turns(ways, f"gamma {gamma or 'adaptive'}: texts")


def reductions(
    run: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray], *, prompts: int
) -> dict[str, tuple[float, float | None]]:
    """Returns the reductions of the time of a text and of a token against a baseline,
    as shares, each with its error over prompts.

    Args:
        run, base: the seconds and tokens of the same texts, [N], as `walltimes` returns
            them; text i continues prompt i modulo `prompts`.
    """
    owner = np.arange(len(run["seconds"])) % prompts

    def by_prompt(name: str) -> tuple[np.ndarray, np.ndarray]:
        ours, theirs = (np.bincount(owner, it[name]) for it in (run, base))
        return ours, theirs

    (ours, theirs), (many, few) = by_prompt("seconds"), by_prompt("tokens")
    ratios = {
        "reduction": speedup.ratio([ours], [theirs]),
        "token_reduction": speedup.ratio([ours, few], [theirs, many]),
    }
    return {
        name: (1 - value, None if error is None else value * error)
        for name, (value, error) in ratios.items()
    }


def measure_in_turns(
    ways: Mapping[str, tuple[Callable[[Prompt, Request], Output], Sequence]], label: str
) -> dict[str, dict[str, np.ndarray]]:
    """Measures decoders by name, each with its prompts and requests; returns the same
    as `walltimes`.
    """
    outputs, programs = {}, {}
    for name, (decode, batches) in ways.items():
        for i, batch in enumerate(batches):

            def program(name=name, i=i, decode=decode, batch=batch) -> Output:
                outputs[name, i] = decode(*batch)
                return outputs[name, i]

            programs[i, name] = program
    programs = {key: programs[key] for key in sorted(programs, key=lambda key: key[0])}
    warm = [programs[0, name] for name in ways]
    taken, measured = timing.time_in_turns(programs, 1, label, warm=warm), {}
    for name, (_, batches) in ways.items():
        outs = [jax.device_get(outputs[name, i]) for i in range(len(batches))]
        lengths = np.array([float(out.length[0]) for out in outs])
        measured[name] = {
            "seconds": np.array([taken[i, name][0] for i in range(len(batches))]),
            "calls": np.array([float(out.counts.calls[0]) for out in outs]),
            "tokens": lengths - [int(request.start[0]) for _, request in batches],
        }
    return measured
