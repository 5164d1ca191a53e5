"""Times of a call and of whole texts, both ways in turns, and the two speedups.

Chen et al. (2023) print mean token times of both ways; what r and the times of single
calls give in theory stands beside their ratio.
"""

from functools import partial

import numpy as np

from experiments.papers.chen.decoding import ALONE, SPECULATIVE, batch_of
from experiments.papers.chen.setting import ChenSetting
from experiments.papers.wagner.runs import in_turns
from experiments.tasks import Task
from specjax.measure import costs, timing
from specjax.measure.timing import LOOPS
from specjax.theory import closed_forms

WAYS = {"alone": (False, ALONE), "speculative": (True, SPECULATIVE)}  # drafts, stream


def call_times(pair: costs.Pair, task: Task, setting: ChenSetting, r: float) -> dict:
    """Milliseconds of a draft, of a target call on one token and on K + 1, batch 1, and
    the speedup that they and r give."""
    K = setting.K
    prompt, request = batch_of(task, setting, np.arange(1), ALONE)
    programs = {}
    timed = {"t_draft": (K, costs.drafts), "t_target": (0, costs.target_calls)}
    timed["t_score"] = K, costs.target_calls
    for name, (gamma, calls) in timed.items():
        state = costs.begin(pair, gamma, prompt, request)
        programs[name] = partial(calls(pair, gamma, LOOPS), request, state)
    seconds = timing.interleaved(programs, setting.rounds, "calls")
    ms = {name: 1e3 * float(np.median(s)) / LOOPS for name, s in seconds.items()}
    ms["t_draft"] /= K
    speed = closed_forms.chen_speedup(r, K, ms["t_draft"], ms["t_target"])
    return {f"{name}_ms": x for name, x in ms.items()} | {"theoretical_speed": speed}


def walltimes(pair: costs.Pair, task: Task, setting: ChenSetting, count: int) -> dict:
    """Mean token times of both ways, whole texts at batch 1 with their prompts, and the
    speedup: their ratio. The ways decode a text in turn."""
    each, places = {}, [np.array([i]) for i in range(min(setting.timed, count))]
    for way, (gamma, stream) in WAYS.items():
        batches = [batch_of(task, setting, i, stream) for i in places]
        each[way] = costs.decode(pair, setting.K if gamma else 0), batches
    measured = in_turns(each, "whole texts")

    def speed(*four: np.ndarray) -> float:
        a, m, b, n = (part.sum() for part in four)
        return float((a / m) / (b / n))

    four = [measured[way][key] for way in WAYS for key in ("seconds", "tokens")]
    token_ms = {
        f"token_ms_{way}": 1e3 * float(it["seconds"].sum() / it["tokens"].sum())
        for way, it in measured.items()
    }
    interval = timing.interval(speed, tuple(four))
    return token_ms | {"speed": speed(*four), "speed_interval": interval}
