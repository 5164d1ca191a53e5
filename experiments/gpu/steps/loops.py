"""Measures the time of a drafted token, of a step and of a prefill, and how often the
host waits.

    python -m experiments.gpu.steps.loops [TARGET, DRAFT, SETTING] FOLDER

The last line that it prints is JSON. A loop whose number of iterations is unknown at
compilation, and that is not inside a CUDA graph, copies its condition to the host each
time, and the host waits for it.
"""

import json
import zlib
from functools import partial

import jax
import numpy as np

from experiments.gpu.aot import compilers, graphs, hlo
from experiments.gpu.steps import pair
from specjax.measure import costs, timing


def main(arguments: list[str] | None = None) -> None:
    print(json.dumps(measure(pair.parse_inputs(arguments))))


def measure(it: pair.Inputs) -> dict:
    """Returns milliseconds of a drafted token, of a step and of a prefill; how often
    the host waits in a step; the launches of the program and how many are in CUDA
    graphs; and a checksum, which is equal for two rows with the same texts.
    """
    setting, (prompt, request) = it.setting, it.texts[0]
    gamma = setting.decode.gamma
    decode = costs.decode(it.pair, gamma)
    whole = pair.compile_program(decode, prompt, request).func
    run = partial(whole, *decode.args)
    none = request._replace(limit=request.start)  # no step at all
    programs = {("text", i): partial(run, *text) for i, text in enumerate(it.texts)}
    programs["prefill"] = partial(run, prompt, none)
    programs["drafts"] = pair.draft_program(it, gamma, loops=setting.loops)
    seconds = timing.time_in_turns(programs, setting.rounds, "steps", again=2)
    ms = {name: 1e3 * float(np.median(each)) for name, each in seconds.items()}
    outputs = [run(*text) for text in it.texts]
    calls = sum(int(output.counts.calls[0]) for output in outputs)
    texts = sum(ms["text", i] - ms["prefill"] for i in range(len(outputs)))
    tokens = np.concatenate([np.asarray(x.tokens[0]) for x in outputs])
    return {
        "token_ms": ms["drafts"] / setting.loops / gamma,
        "step_ms": texts / calls,
        "prefill_ms": ms["prefill"],
        "calls": calls,
        "checksum": zlib.crc32(tokens.astype(np.int32).tobytes()),
        "kernels": it.pair.kernels.record,
        **launch_numbers(it, whole),
    }


def launch_numbers(it: pair.Inputs, program: jax.stages.Compiled) -> dict:
    """Returns the launches and loops of the program, or why they are unknown; neither
    affects the times.
    """
    try:
        thunks = graphs.read(compilers.thunk_list(it.folder, "jit_loop"))
        inside = [within for _, within in graphs.all_launches(thunks)]
        loops = graphs.loops_inside(thunks)
        syncs = count_waits(hlo.read(program.as_text()), loops, it.setting.decode.gamma)
    except Exception as error:  # of a dump or a text that another XLA writes
        unknown = f"not known: {' '.join(str(error).split())[:200]}"
        return {"syncs": unknown, "captured": unknown}
    return {
        "syncs": syncs,
        "captured": f"{sum(inside)} of {len(inside)} launches",
        "graphs": graphs.count(thunks, graphs.GRAPH),
    }


def count_waits(program: hlo.Sequence, inside: set[str], gamma: int) -> int:
    """Returns how often the host waits in a step: once for the end of the text, and
    gamma times for the end of the draft's loop, which is checked before each token but
    the first and once more. inside: the names of loops in CUDA graphs."""

    def asks_host(loop: hlo.Loop) -> bool:
        return loop.trips is None and loop.name not in inside

    total = 0
    for steps in program.loops:
        if steps.body.loops:  # that of the steps has the draft's in it
            total += asks_host(steps) + gamma * sum(
                map(asks_host, hlo.loops(steps.body))
            )
    return total


if __name__ == "__main__":
    main()
