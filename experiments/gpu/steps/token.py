"""The kernels of one drafted token, listed by CUPTI, beside its time.

    python -m experiments.gpu.steps.token [TARGET, DRAFT, SETTING] FOLDER

The last line that it prints is JSON. A token's kernels are those by which a draft of
gamma tokens exceeds one of gamma - 1. They are listed of programs without CUDA graphs,
because CUPTI cannot see into graphs that were made before it started. The token's time
is that of whole drafts with graphs, over their tokens: the difference of two such times
is less than what each varies by.
"""

import json
from collections import Counter
from collections.abc import Iterable
from functools import partial

import jax
import numpy as np

from experiments.gpu.paper_size.row import NO_GRAPHS
from experiments.gpu.steps import pair
from specjax.measure import timing

MOST, WIDTH = 60, 80  # of a list: kernels, and characters of a name
Listed = list[tuple[str, float]]  # (name, milliseconds) of every launch


def main(arguments: list[str] | None = None) -> None:
    if (platform := jax.devices()[0].platform) != "gpu":
        raise RuntimeError(f"CUPTI lists kernels of GPUs, and here is a {platform}")
    print(json.dumps(measure(pair.parse_inputs(arguments))))


def measure(it: pair.Inputs) -> dict:
    """Returns microseconds: of a token with and without graphs, of its kernels, and of
    the gaps between them with graphs; and the list of kernels.
    """
    gamma, loops = it.setting.decode.gamma, it.setting.loops
    drafts = partial(pair.draft_program, it, loops=loops)
    programs = {"graphs": drafts(gamma), "launches": drafts(gamma, options=NO_GRAPHS)}
    seconds = timing.time_in_turns(programs, it.setting.rounds, "token", again=2)
    took = {
        way: 1e6 * float(np.median(each)) / loops / gamma
        for way, each in seconds.items()
    }
    longer = list_kernels(programs["launches"])
    shorter = list_kernels(drafts(gamma - 1, options=NO_GRAPHS))
    kernels = difference(longer, shorter, loops)
    busy = (total(longer) - total(shorter)) / loops
    return {
        "kernels": (len(longer) - len(shorter)) / loops,
        "kernels_us": busy,
        "token_us": took["graphs"],
        "token_without_graphs_us": took["launches"],
        "gaps_us": took["graphs"] - busy,
        "listed": kernels[:MOST],
    }


def list_kernels(program) -> Listed:
    """Returns every kernel that one run launches. Raises RuntimeError where CUPTI
    records none."""
    from jax.experimental.mosaic.gpu import profiler

    seen = profiler.measure(program.func, aggregate=False)(*program.args)[1]
    if not seen:
        raise RuntimeError("CUPTI saw no kernel")
    return seen


def total(kernels: Iterable[tuple[str, float]]) -> float:
    """Returns the microseconds of kernels whose times are listed in milliseconds."""
    return 1e3 * sum(ms for _, ms in kernels)


def difference(longer: Listed, shorter: Listed, loops: int) -> list[dict]:
    """Returns the kernels that `longer` has and `shorter` has not, for one of `loops`
    drafts: how often each is launched and the microseconds of all its launches, the
    longest first."""
    counts: Counter = Counter()
    spent: Counter = Counter()
    for kernels, sign in ((longer, 1), (shorter, -1)):
        for name, ms in kernels:
            counts[name] += sign
            spent[name] += sign * 1e3 * ms
    each = [
        {
            "name": x[:WIDTH],
            "count": counts[x] / loops,
            "us": round(spent[x] / loops, 3),
        }
        for x in counts
        if counts[x]
    ]
    return sorted(each, key=lambda it: -it["us"])


if __name__ == "__main__":
    main()
