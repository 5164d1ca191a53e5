"""What a row at the paper's sizes times: copies, parts of a step, whole texts.

Axes: N texts; every batch has one row.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from specjax.measure import costs, timing
from specjax.types import Prompt, Request

CALL, DRAFT, DECODE, PREFILL = range(4)


class Text(NamedTuple):
    """What one text is decoded from."""

    prompt: Prompt
    request: Request


class Timed(NamedTuple):
    """Of one gamma: milliseconds [N] and target calls [N] of texts, and milliseconds of
    all that precedes the first step."""

    ms: np.ndarray
    calls: np.ndarray
    prefill: float

    def step(self) -> float:
        """Milliseconds of a step."""
        return float((self.ms - self.prefill).sum() / self.calls.sum())


def parts_of_a_step(
    pair: costs.Pair, gammas: Sequence[int], loops: int, rounds: int, text: Text
) -> tuple[dict[int, float], dict[int, float]]:
    """Milliseconds of a target call by gamma, 0 among them, and of gamma drafts."""
    most = max(gammas)
    state = costs.begin(pair, 0, *text)
    # A drafter does not read the target's cache: its own saves a compilation.
    alone = pair._replace(target=pair.draft)
    drafting, drafts = costs.begin(alone, most, *text), costs.drafts(alone, most, loops)
    programs = {}
    for gamma in (0, *gammas):
        calls = costs.target_calls(pair, gamma, loops)
        programs[CALL, gamma] = partial(calls, text.request, state)
        if gamma:  # one drafter for all: it stops at the budget
            short = drafting._replace(budget=jnp.full(1, gamma, jnp.int32))
            programs[DRAFT, gamma] = partial(drafts, text.request, short)
    seconds = timing.interleaved(programs, rounds, "parts of a step")
    ms = {name: 1e3 * float(np.median(s)) / loops for name, s in seconds.items()}
    call = {gamma: ms[CALL, gamma] for gamma in (0, *gammas)}
    return call, {gamma: ms[DRAFT, gamma] for gamma in gammas}


def whole_texts(
    decoders: dict[int, Callable], texts: Sequence[Text], rounds: int
) -> dict[int, Timed]:
    """Every text by every decoder, in turns, and each one's prefill."""
    outputs, programs = {}, {}

    def whole(gamma: int, index: int):
        outputs[gamma, index] = decoders[gamma](*texts[index])
        return outputs[gamma, index]

    for index, (prompt, request) in enumerate(texts):
        none = request._replace(limit=request.start)  # no step at all
        for gamma, run in decoders.items():
            programs[DECODE, gamma, index] = partial(whole, gamma, index)
            programs[PREFILL, gamma, index] = partial(run, prompt, none)
    warm = [programs[DECODE, gamma, 0] for gamma in decoders]
    seconds = timing.interleaved(programs, rounds, "whole texts", warm)
    timed = {}
    for gamma in decoders:
        each = range(len(texts))
        ms = [1e3 * np.median(seconds[DECODE, gamma, i]) for i in each]
        calls = [int(outputs[gamma, i].counts.calls[0]) for i in each]
        prefill = 1e3 * np.median([seconds[PREFILL, gamma, i] for i in each])
        timed[gamma] = Timed(np.array(ms), np.array(calls), float(prefill))
    return timed
