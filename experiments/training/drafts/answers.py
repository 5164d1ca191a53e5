"""A target's answers to questions with its law at every token, written and stored batch
by batch.

Scoring a text after it was written would read its long prompt twice. Here the prompt is
read once; only its end is stored, because a draft with a short window reads no more. A
kill loses the current batch; the same call continues with it. Any first part of the
batches is a fair mixture of the kinds, so that writing may stop when time does. Axes: B
answers written together, T prompt tokens, N new ones, P prompt tokens kept, K most
likely ids, V vocabulary, E features.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax.checkpoints import Pretrained
from specjax.keys import root_key
from specjax.runtime import progress
from specjax.training import loop, storage, written
from specjax.training.written import Texts, Written
from specjax.types import Prompt

ITSELF = "itself"  # the kind that the target asks
SEED, TURNS = 0, 4
WIDTH = 32  # prompts are padded to multiples of it: few shapes are compiled


class Plan(NamedTuple):
    """The static sizes of answers.

    Attributes:
        new: the most tokens of an answer.
        kept: tokens of a prompt that are stored.
        batch: answers written together.
    """

    new: int
    kept: int
    batch: int


def build(target: Pretrained, plan: Plan) -> Callable[..., Written]:
    """Returns `answer(key, prompts, temperature) -> Written`, for a list of at most
    `plan.batch` prompts.

    Answers end with the target's end ids.
    """
    model, (new, kept, batch) = target.model, plan
    ends = jnp.asarray(target.ends, jnp.int32)

    def run(params: Any, key: Array, tokens: Array, length: Array, heat: Array):
        cache = model.init(params, Prompt(tokens, length), tokens.shape[1] + new)
        start = jnp.zeros(batch, jnp.int32)
        features, cache = model.apply(params, tokens, start, cache)
        places = length[:, None] - kept + jnp.arange(kept)
        last = jnp.take_along_axis(
            features, jnp.maximum(places, 0)[..., None], axis=1
        )  # [B, P, E]

        def row_law(row: Array) -> tuple[Array, Array]:
            return written.most_likely_ids(model.readout(params, row))

        before = jax.lax.map(row_law, last)

        def step(carried, at):
            features, cache, ended = carried
            logits = model.readout(params, features)
            hot = logits / jnp.where(heat > 0, heat, 1.0)[:, None]
            drawn = jax.random.categorical(jax.random.fold_in(key, at), hot)
            token = jnp.where(heat > 0, drawn, jnp.argmax(logits, -1)).astype(jnp.int32)
            live = ~ended
            ended |= (token[:, None] == ends).any(-1)
            block = token[:, None]
            features, cache = model.apply(params, block, length + at, cache)
            out = token, live, *written.most_likely_ids(logits)
            return (features[:, 0], cache, ended), out

        begun = last[:, -1], cache, jnp.zeros(batch, bool)
        _, out = jax.lax.scan(step, begun, jnp.arange(new))
        return before, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), out)

    compiled = jax.jit(run)

    def answer(key: Array, prompts: list[list[int]], heat: np.ndarray) -> Written:
        filled = prompts + prompts[-1:] * (batch - len(prompts))
        lengths = np.array([len(ids) for ids in filled], np.int32)
        tokens = np.zeros((batch, -(-lengths.max() // WIDTH) * WIDTH), np.int32)
        for row, ids in enumerate(filled):
            tokens[row, : len(ids)] = ids
        heat = np.resize(np.float32(heat), batch)
        out = compiled(target.params, key, tokens, lengths, heat)
        before, (drawn, live, *after) = jax.device_get(out)
        joined = _join(plan, tokens, lengths, (before, drawn, live, after))
        return jax.tree.map(lambda leaf: leaf[: len(prompts)], joined)

    return answer


def _join(plan: Plan, tokens: np.ndarray, length: np.ndarray, made: tuple) -> Written:
    """Returns each row from its first stored prompt token on, with zeros after its
    end."""
    before, drawn, live, after = made
    rows, begun = np.arange(len(tokens))[:, None], np.minimum(length, plan.kept)
    ends = begun + live.sum(1)

    def shift_rows(
        prompt: np.ndarray, answer: np.ndarray, ends: np.ndarray
    ) -> np.ndarray:
        whole = np.concatenate([prompt, answer], axis=1)
        at = np.arange(whole.shape[1])
        place = np.minimum((plan.kept - begun)[:, None] + at, at[-1])
        inside = np.expand_dims(at < ends[:, None], tuple(range(2, whole.ndim)))
        return np.where(inside, whole[rows, place], 0)

    kept = length[:, None] - plan.kept + np.arange(plan.kept)
    texts = shift_rows(tokens[rows, np.maximum(kept, 0)], drawn, ends).astype(np.uint16)
    # The law after the prompt's last token is that of the answer's first.
    each = zip(before, after, strict=True)
    ids, log_p = (
        shift_rows(prompt[:, :-1], answer, ends - 1) for prompt, answer in each
    )
    texts = written.without_inputs(texts, ends.astype(np.int32), begun.astype(np.int32))
    return Written(texts, ids, log_p)


class QuestionSetting(NamedTuple):
    """The questions of a run.

    Attributes:
        shares: for each kind, the number of batches in a cycle.
        batches: the number of batches of all kinds.
        plan: the plan of an answer.
        question: the most tokens of a question that the target asks itself.
        longest: the most tokens of a prompt; longer ones are left out.
    """

    shares: Mapping[str, int]
    batches: int
    plan: Plan
    question: int
    longest: int


def write(
    target: Pretrained,
    asked: Mapping[str, list[str]],
    *,
    setting: QuestionSetting,
    folder: Path,
    part: tuple[int, int] = (0, 1),
) -> list[Written]:
    """Writes the answers of all batches, except that batches already in the folder are
    read.

    Every other answer is greedy, the others are sampled at T = 1.

    Args:
        part: (k, n), of n processes that each write every n-th batch, the k-th from 0
            on.
    """
    answer, prompts = build(target, setting.plan), _prompts(target, asked, setting)
    about = {"target": loop.digest(target.params), "asking": _to_json(setting)}
    whole = []
    for number in progress.track(range(setting.batches), "answers", kept=True):
        if number % part[1] != part[0]:
            continue

        def make(number=number) -> dict[str, np.ndarray]:
            key = jax.random.fold_in(root_key(SEED), number)
            heat = np.arange(setting.plan.batch) % 2
            texts, ids, log_p = answer(key, prompts(number), heat)
            return texts._asdict() | {"ids": ids, "log_p": log_p, "heat": heat}

        read = storage.keep(folder / f"{number:04}.npz", make, about=about)
        texts = Texts(*(read[name] for name in Texts._fields))
        whole.append(Written(texts, read["ids"], read["log_p"]))
    return whole


def _to_json(asking: QuestionSetting) -> dict:
    plain = asking._asdict() | {"plan": asking.plan._asdict()}
    return {k: v for k, v in plain.items() if k != "batches"}


def _prompts(
    target: Pretrained, asked: Mapping[str, list[str]], asking: QuestionSetting
) -> Callable[[int], list[list[int]]]:
    """Returns a function from the number of a batch to its prompts; the kinds of
    prompts alternate."""
    turns = [name for name, share in asking.shares.items() for _ in range(share)]
    np.random.default_rng(SEED).shuffle(turns)
    itself = _own_questions(target, asking)

    def next_prompts(number: int) -> list[list[int]]:
        rounds, at = divmod(number, len(turns))
        name = turns[at]
        if name == ITSELF:
            return itself(number)
        before = rounds * turns.count(name) + turns[:at].count(name)
        return _conversations(target, asked[name], asking, before)

    return next_prompts


def _conversations(
    target: Pretrained, texts: list[str], asking: QuestionSetting, number: int
) -> list[list[int]]:
    """Returns a batch of conversations from the texts, which start again after the last
    one.

    Four batches at a time are sorted by length, for little padding.
    """
    size, (four, part) = asking.plan.batch, divmod(number, 4)
    start = 5 * size * four
    kept = [texts[i % len(texts)] for i in range(start, start + 5 * size)]
    each = (_read(target, text) for text in kept)
    ids = sorted((x for x in each if len(x) <= asking.longest), key=len)
    return ids[part * len(ids) // 4 :][:size]


def _read(target: Pretrained, text: str) -> list[int]:
    return target.tokenizer.converse([{"role": "user", "content": text}])


def _own_questions(
    target: Pretrained, asking: QuestionSetting
) -> Callable[[int], list[list[int]]]:
    """Returns questions that the target itself writes, at the place of its template for
    the user's message.
    """
    size = asking.plan.batch
    before = _common_prefix(_read(target, "A"), _read(target, "1 b"))
    ask = build(target, Plan(asking.question, len(before), size))

    def next_prompts(number: int) -> list[list[int]]:
        ids: list[list[int]] = []
        for turn in range(TURNS):
            key = jax.random.fold_in(root_key(SEED + 1), number)
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

    return next_prompts


def _common_prefix(first: list[int], second: list[int]) -> list[int]:
    same = [a == b for a, b in zip(first, second, strict=False)]
    return first[: same.index(False)]
