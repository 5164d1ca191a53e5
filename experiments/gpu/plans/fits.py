"""One pair on eight devices of one chip: predicted at every batch and cache, and as
compiled at some of them.

A prediction is never a measurement, and nothing here runs.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from experiments.gpu.aot import compilers
from experiments.gpu.aot.launches import check_vocabularies
from experiments.gpu.plans import compiled, forms
from experiments.gpu.plans.forms import CHIPS, Config, Plan
from specjax.measure.row import Measurement
from specjax.models import t5
from specjax.runtime import mesh


class FitSetting(NamedTuple):
    """chip: one of `forms.CHIPS`. layout: the mesh, "model=8". batches, caches: of what
    is predicted, caches by their slots; points: (batch, slots) of what is compiled.
    alpha: published, or None. inputs: what an encoder read."""

    chip: str
    layout: str
    gamma: int
    alpha: float | None
    batches: Sequence[int]
    caches: Sequence[int]
    points: Sequence[tuple] = ()
    inputs: int = 0


def build(target: Config, draft: Config, setting: FitSetting) -> Measurement:
    """The measurement of one row. Raises ValueError for a chip that is not known, for a
    pair of two vocabularies, and as `mesh.parse`."""
    if setting.chip not in CHIPS:
        raise ValueError(f"unknown chip {setting.chip!r}: name one of {sorted(CHIPS)}")
    check_vocabularies(target, draft)
    mesh.parse(setting.layout)
    # A joined cache makes fewer kernels on a GPU, and copies on a TPU.
    joined = compilers.DEVICES[setting.chip].platform == "gpu"
    both = (
        config._replace(joined=joined) if isinstance(config, t5.Config) else config
        for config in (target, draft)
    )
    return Measurement(partial(measure, *both, setting), __name__, (), target.dtype)


def measure(target: Config, draft: Config, setting: FitSetting) -> dict:
    """Every cell, and under flat names what compilers say of some. Raises ValueError,
    naming the command that installs it, where a compiler is asked for and is not."""
    chip, layout = CHIPS[setting.chip], mesh.parse(setting.layout)
    if setting.points:
        compilers.check(setting.chip)
    cells, flat = [], {}
    points = [(batch, slots) for slots in setting.caches for batch in setting.batches]
    for batch, slots in points + [it for it in setting.points if it not in points]:
        plan = Plan(batch, slots, setting.gamma, layout, setting.inputs)
        cell = {"batch": batch, "slots": slots}
        cell["predicted"] = predicted(target, draft, plan, setting)
        if (batch, slots) in setting.points:
            cell["compiled"] = told = compiled.step(target, draft, plan, setting.chip)
            flat |= named(f"b{batch} s{slots}", told)
        cells.append(cell)
    return {
        **setting._asdict(),
        "device": f"{layout.data * layout.model} x {setting.chip}",
        "memory": chip.memory,
        "source": chip.source,
        "cells": cells,
        **flat,
    }


def predicted(target: Config, draft: Config, plan: Plan, setting: FitSetting) -> dict:
    """By the closed forms alone."""
    chip, both = CHIPS[setting.chip], (forms.sizes(target), forms.sizes(draft))
    held = forms.device(*both, plan)
    call = both[0], plan, plan.gamma + 1, plan.layout.model
    return {
        "bytes": held,
        "fits": held["total"] <= chip.memory,
        "largest_batch": forms.largest_batch(*both, plan, chip.memory),
        "sent": forms.sent(*call)._asdict(),
        **forms.step(*both, plan, chip, setting.alpha),
    }


def named(point: str, told: dict) -> dict:
    """By flat names what the table's lines ask for."""
    sent = told.get("sent", {"collectives": None, "bytes": None})
    return {
        f"{point}:gb": told["bytes"] / 1e9,
        f"{point}:collectives": sent["collectives"],
        f"{point}:sent_mb": sent["bytes"] and sent["bytes"] / 1e6,
    }
