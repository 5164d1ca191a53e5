"""A pair with random weights, ready to draft and to decode, in a separate process."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.gpu.paper_size import row, stand_ins
from experiments.gpu.steps.row import StepSetting, from_json
from specjax.drafts.models import model_source
from specjax.drafts.source import DraftSource, Recipe
from specjax.measure import costs
from specjax.types import Drafter, State


class Inputs(NamedTuple):
    """The inputs of a measuring process.

    Attributes:
        folder: where XLA dumps.
    """

    setting: StepSetting
    texts: list[row.Text]
    pair: costs.Pair
    folder: Path


def parse_inputs(arguments: list[str] | None = None) -> Inputs:
    """Returns the inputs from the command line: configurations and setting as JSON, and
    the folder of dumps; creates the weights.
    """
    asked, folder = sys.argv[1:] if arguments is None else arguments
    target, draft, setting = from_json(asked)
    sized = row.PaperSizeSetting(
        setting.decode,
        alpha=setting.alpha,
        input_tokens=setting.input_tokens,
        gammas=(setting.decode.gamma,),
    )
    source = model_source(stand_ins.pretrained("draft", draft, seed=1))
    pair = costs.Pair(
        stand_ins.pretrained("target", target),
        with_trips(source, setting.trips),
        row.slots(sized),
        row.choose(target, sized),
    )
    texts = [row.text(target, sized, i) for i in range(setting.texts)]
    return Inputs(setting, texts, pair, Path(folder))


def with_trips(source: DraftSource, trips: str) -> DraftSource:
    """Returns the source with drafts of always gamma tokens: `trips` says whether the
    compiler knows that number, or only the device."""

    def budget(rows: int, gamma: int):
        known = np.full(rows, gamma, np.int32)
        if trips == "known":
            return known
        return jax.lax.optimization_barrier(jnp.asarray(known))

    def drafter(gamma: int, draw: Callable) -> Drafter:
        made = source.drafter(gamma, draw)

        def draft(key, params, request, state: State, *go_on: Callable):
            drafting = state._replace(budget=budget(state.length.shape[0], gamma))
            return made.draft(key, params, request, drafting, *go_on)

        return made._replace(draft=draft)

    return source._replace(factory=Recipe(drafter))


def draft_program(
    it: Inputs, gamma: int, *, loops: int, options: dict | None = None
) -> partial:
    """Returns `loops` drafts of gamma tokens as a compiled program: () -> the result of
    the last draft.

    The caches hold zeros, which cost as much as other values.
    """
    prompt, request = it.texts[0]
    begin = partial(costs.prefill, it.pair)
    shapes = jax.eval_shape(lambda: begin(gamma)(prompt))
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    program = costs.drafts(it.pair, gamma, loops)
    return compile_program(
        program, request, costs.halfway_state(state, request), options=options
    )


def compile_program(
    program: partial, *arguments, options: dict | None = None
) -> partial:
    """Returns a program that is compiled for its arguments and bound to them.

    Args:
        options: the options of the compiler, by their names in XLA.
    """
    lowered = program.func.lower(*program.args, *arguments)
    compiled = lowered.compile(compiler_options=options)
    return partial(compiled, *program.args, *arguments)
