"""Times of a call and of whole texts, both ways in turns, and the two speedups.

Chen et al. (2023) print mean token times of both ways; what r and the times of single
calls give in theory stands beside their ratio.
"""

import numpy as np

from experiments.papers.chen.decoding import ALONE, SPECULATIVE, batch_of
from experiments.papers.chen.setting import ChenSetting
from experiments.tasks import Task
from specjax.measure import costs, timing
from specjax.measure.parts import LOOPS
from specjax.theory import closed_forms


def call_times(pair: costs.Pair, task: Task, setting: ChenSetting, r: float) -> dict:
    """Milliseconds of a draft, of a target call on one token and on K + 1, batch 1, and
    the speedup that they and r give."""
    K = setting.K
    prompt, request = batch_of(task, setting, np.arange(1), ALONE)
    programs = {}
    for name, gamma, calls in (
        ("t_draft", K, costs.drafts),
        ("t_target", 0, costs.target_calls),
        ("t_score", K, costs.target_calls),
    ):
        state, loop = (
            costs.begin(pair, gamma, prompt, request),
            calls(pair, gamma, LOOPS),
        )
        programs[name] = lambda loop=loop, state=state: loop(request, state)
    seconds = timing.interleaved(programs, setting.rounds, "calls")
    ms = {name: 1e3 * float(np.median(s)) / LOOPS for name, s in seconds.items()}
    ms["t_draft"] /= K
    speed = closed_forms.chen_speedup(r, K, ms["t_draft"], ms["t_target"])
    return {
        **{f"{name}_ms": value for name, value in ms.items()},
        "theoretical_speed": speed,
    }


def walltimes(pair: costs.Pair, task: Task, setting: ChenSetting, count: int) -> dict:
    """Mean token times of both ways, whole texts at batch 1 with their prompts, and the
    speedup: their ratio. The ways decode a text in turn."""
    ways = {"alone": (0, ALONE), "speculative": (setting.K, SPECULATIVE)}
    decode = {way: costs.decode(pair, gamma) for way, (gamma, _) in ways.items()}
    number, outputs, programs = min(setting.timed, count), {}, {}
    for i in range(number):
        for way, (_, stream) in ways.items():
            batch = batch_of(task, setting, np.array([i]), stream)

            def program(way=way, i=i, batch=batch):
                outputs[way, i] = decode[way](*batch)
                return outputs[way, i]

            programs[way, i] = program
    warm = [programs[way, 0] for way in ways]
    taken = timing.interleaved(programs, 1, "whole texts", warm)
    lengths = [len(x) for x in task.prompts.tokens]
    seconds, tokens = {}, {}
    for way in ways:
        seconds[way] = np.array([taken[way, i][0] for i in range(number)])
        written = [
            int(outputs[way, i].length[0]) - lengths[i % len(lengths)]
            for i in range(number)
        ]
        tokens[way] = np.array(written)
    each = {way: 1e3 * seconds[way].sum() / tokens[way].sum() for way in ways}

    def speed(*four: np.ndarray) -> float:
        a, m, b, n = (part.sum() for part in four)
        return float((a / m) / (b / n))

    four = seconds["alone"], tokens["alone"]
    four += seconds["speculative"], tokens["speculative"]
    return {
        **{f"token_ms_{way}": float(value) for way, value in each.items()},
        "speed": speed(*four),
        "speed_interval": timing.interval(speed, four),
    }
