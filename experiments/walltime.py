"""Walltime as Tables 2 and 4 show it: expected, predicted exactly, measured.

Leviathan et al. (2023), Sections 4.1 and A.3. `specjax.bench` measures; here it gets a
task's prompts and becomes a row.
"""

from functools import partial

from experiments import fingerprint, tasks
from experiments.row import Measurement
from specjax.bench import walltime
from specjax.bench.decoding import Prompts
from specjax.bench.players import Player


def build(
    target: Player, draft: Player, setting: walltime.Setting, task: str = "code"
) -> Measurement:
    """The measurement of one row. Raises ValueError for what cannot be measured."""
    walltime.check(target, draft, setting)
    found = tasks.read(task)
    files = fingerprint.rule(setting.rule)
    inputs = (*target.files, *draft.files, *found.files, *files)
    run = partial(measure, target, draft, (task, found.prompts), setting)
    return Measurement(run, __name__, inputs, target.dtype, setting.seed)


def measure(
    target: Player, draft: Player, task: tuple[str, Prompts], setting: walltime.Setting
) -> dict:
    name, prompts = task
    return {"task": name, **walltime.measure(target, draft, prompts, setting)}
