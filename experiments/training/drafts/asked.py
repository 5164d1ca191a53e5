"""What a target is asked, batch by batch, and its answers: each batch kept in a file.

A kill loses the batch at hand; the same call goes on with it. Any first part of the
batches is a fair mixture of the kinds, so that writing may stop when time does.
Axes: B answers of a batch, K likeliest ids.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from experiments.training import loop, storage
from experiments.training.drafts import answers
from experiments.training.drafts.answers import Plan
from experiments.training.drafts.written import Texts, Written
from specjax import progress
from specjax.checkpoints import Pretrained

ITSELF = "itself"  # the kind that the target asks
SEED, TURNS = 0, 4


class Asking(NamedTuple):
    """shares: of each kind, how many batches in a row of them. batches: of all. plan:
    of an answer. question: tokens of a question that the target asks itself at most.
    longest: tokens of a prompt; longer ones are left out."""

    shares: Mapping[str, int]
    batches: int
    plan: Plan
    question: int
    longest: int


def write(
    target: Pretrained,
    asked: Mapping[str, list[str]],
    asking: Asking,
    folder: Path,
    part: tuple[int, int] = (0, 1),
) -> list[Written]:
    """All batches, those that are in the folder read from it. Every other answer is
    greedy, the others are sampled at T = 1. part: (k, n), of n processes that each
    write every n-th batch, the k-th from 0 on."""
    answer = answers.build(target, asking.plan)
    about = {"target": loop.digest(target.params), "asking": _plain(asking)}
    whole, prompts = [], _prompts(target, asked, asking)
    for number in progress.track(range(asking.batches), "answers", kept=True):
        batch = next(prompts)
        if number % part[1] != part[0]:
            continue

        def made(number=number, batch=batch) -> dict[str, np.ndarray]:
            key = jax.random.fold_in(jax.random.key(SEED), number)
            heat = np.arange(asking.plan.batch) % 2
            texts, ids, log_p = answer(key, batch(), heat)
            return texts._asdict() | {"ids": ids, "log_p": log_p, "heat": heat}

        read = storage.keep(folder / f"{number:04}.npz", made, about)
        texts = Texts(*(read[name] for name in Texts._fields))
        whole.append(Written(texts, read["ids"], read["log_p"]))
    return whole


def _plain(asking: Asking) -> dict:
    plain = asking._asdict() | {"plan": asking.plan._asdict()}
    return {k: v for k, v in plain.items() if k != "batches"}


def _prompts(
    target: Pretrained, asked: Mapping[str, list[str]], asking: Asking
) -> Iterator[Callable[[], list[list[int]]]]:
    """The prompts of each batch, of kinds in turn, made when they are asked for."""
    turns = [name for name, share in asking.shares.items() for _ in range(share)]
    np.random.default_rng(SEED).shuffle(turns)
    known = {name: _conversed(target, asked[name], asking) for name in asked}
    itself = _itself(target, asking)
    for number in count():
        name = turns[number % len(turns)]
        yield itself(number) if name == ITSELF else next(known[name])


def _conversed(
    target: Pretrained, texts: list[str], asking: Asking
) -> Iterator[Callable[[], list[list[int]]]]:
    """Batches of the texts, from the first on again after the last. Four at a time are
    sorted by their lengths, for little padding."""
    size = asking.plan.batch

    def ids_of(start: int) -> list[list[int]]:
        kept = [texts[i % len(texts)] for i in range(start, start + 5 * size)]
        each = (_read(target, text) for text in kept)
        return sorted((x for x in each if len(x) <= asking.longest), key=len)

    for start in count(0, 5 * size):
        for part in range(4):

            def batch(start=start, part=part) -> list[list[int]]:
                ids = ids_of(start)
                return ids[part * len(ids) // 4 :][:size]

            yield batch


def _read(target: Pretrained, text: str) -> list[int]:
    return target.tokenizer.converse([{"role": "user", "content": text}])


def _itself(target: Pretrained, asking: Asking) -> Callable:
    """Questions that the target writes where its template has the user speak."""
    size = asking.plan.batch
    before = _common(_read(target, "A"), _read(target, "1 b"))
    ask = answers.build(target, Plan(asking.question, len(before), size))

    def of(number: int) -> Callable[[], list[list[int]]]:
        def batch() -> list[list[int]]:
            ids: list[list[int]] = []
            for turn in range(TURNS):
                key = jax.random.fold_in(jax.random.key(SEED + 1), number)
                key = jax.random.fold_in(key, turn)
                texts = ask(key, [before] * size, np.ones(size)).texts
                for row, length in zip(texts.tokens, texts.length, strict=True):
                    question = row[len(before) : length - 1].tolist()
                    # One that goes on is none, unless too few come to an end.
                    ended = row[length - 1] in target.ends or turn + 1 == TURNS
                    if ended and len(question) > 3:
                        text = target.tokenizer.decode(question)
                        ids.append(_read(target, text.strip()))
                if len(ids) >= size:
                    break
            return sorted(ids[:size], key=len)

        return batch

    return of


def _common(first: list[int], second: list[int]) -> list[int]:
    same = [a == b for a, b in zip(first, second, strict=False)]
    return first[: same.index(False)]
