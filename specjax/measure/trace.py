"""Figure 1 of Leviathan et al. (2023): what each step kept, rejected and added."""

import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from specjax import generate
from specjax.fused import reference
from specjax.step import Decoder
from specjax.tokenizers import Tokenizer
from specjax.types import Info, Kernels, Params, Prompt, Request

GREEN, RED, BLUE = 32, 31, 34
# What stands around an accepted, a rejected and an added token where there is no color.
MARKS = {GREEN: ("", ""), RED: ("[-", "-]"), BLUE: ("{+", "+}")}
STYLES = {GREEN: "32", RED: "31;9", BLUE: "34;4"}  # struck through, underlined


class Step(NamedTuple):
    """The token ids of an iteration of Algorithm 1, and how many drafted tokens it
    tested."""

    accepted: list[int]
    rejected: list[int]
    added: list[int]
    tested: int


class Case(NamedTuple):
    """The decoder, prompt and kernels of a trace, checked and ready to run."""

    names: tuple[str, str]
    decoder: Decoder
    slots: int
    params: Params
    prompt: Prompt
    request: Request
    tokenizer: Tokenizer
    kernels: Kernels = reference()


def iterate(case: Case) -> Iterator[tuple[np.ndarray, Info]]:
    """Decodes the text again step by step; yields the text so far and the measurements
    of the step."""
    stream = generate.build_stream(case.decoder, case.slots)
    for state, info in stream(case.params, case.prompt, case.request):
        text = np.array(state.tokens)[0, : int(state.length[0])]
        yield text, jax.tree.map(lambda leaf: np.asarray(leaf)[0], info)


def make_step(new: np.ndarray, info: Info) -> Step:
    """Returns a step. new: the ids that it committed. info: the `Info` of this row
    only."""
    n, tested = int(info.accepted), int(info.tested)
    kept, drafted = new.tolist(), info.tokens.tolist()
    return Step(kept[:n], drafted[n:tested], kept[n:], tested)


def supports_color() -> bool:
    """Returns whether the output is a terminal on which the user has not switched
    colors off."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def print_trace(tokenizer: Tokenizer, trace: list[Step], color: bool) -> None:
    """Prints Figure 1, one line per step."""
    print("\nTrace: ", end="")
    kinds = {"accepted": GREEN, "rejected": RED, "added by the target": BLUE}
    print(", ".join(paint(name, kind, color) for name, kind in kinds.items()))
    for step in trace:
        runs = zip((GREEN, RED, BLUE), step[:3], strict=True)
        tokens = ((tokenizer.piece(i), kind) for kind, ids in runs for i in ids)
        print("".join(paint(text, kind, color) for text, kind in tokens))


def paint(text: str, kind: int, color: bool) -> str:
    before, after = (f"\x1b[{STYLES[kind]}m", "\x1b[0m") if color else MARKS[kind]
    return before + text + after
