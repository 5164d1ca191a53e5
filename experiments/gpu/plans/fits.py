"""A pair on eight devices of one chip: memory predicted for every batch and cache, and
compiled for some of them.

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
    """The setting of a row that compares the predicted memory with the compiler's.

    Attributes:
        chip: one of `forms.CHIPS`.
        layout: the mesh, "model=8".
        batches, caches: of the predictions, caches by their slots.
        points: (batch, slots) of the compiled steps.
        alpha: published, or None.
        inputs: tokens of an encoder's input.
    """

    chip: str
    layout: str
    gamma: int
    alpha: float | None
    batches: Sequence[int]
    caches: Sequence[int]
    points: Sequence[tuple] = ()
    inputs: int = 0


def build(target: Config, draft: Config, setting: FitSetting) -> Measurement:
    """Returns the measurement of one row.

    Raises:
        ValueError: the chip is unknown, the vocabularies differ, or as `mesh.parse`.
    """
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
    """Returns every cell, and the compilers' results for some of them under flat names.

    Raises:
        ValueError: a compiler is needed and missing; the message has the command that
            installs it.
    """
    chip, layout = CHIPS[setting.chip], mesh.parse(setting.layout)
    if setting.points:
        compilers.check(setting.chip)
    cells, flat = [], {}
    points = [(batch, slots) for slots in setting.caches for batch in setting.batches]
    for batch, slots in points + [it for it in setting.points if it not in points]:
        plan = Plan(batch, slots, setting.gamma, layout, setting.inputs)
        cell = {"batch": batch, "slots": slots}
        cell["predicted"] = predict(target, draft, plan, setting)
        if (batch, slots) in setting.points:
            cell["compiled"] = compiled_numbers = compiled.step(
                target, draft, plan=plan, chip=setting.chip
            )
            flat |= flat_numbers(f"b{batch} s{slots}", compiled_numbers)
        cells.append(cell)
    return {
        **setting._asdict(),
        "device": f"{layout.data * layout.model} x {setting.chip}",
        "memory": chip.memory,
        "source": chip.source,
        "cells": cells,
        **flat,
    }


def predict(target: Config, draft: Config, plan: Plan, setting: FitSetting) -> dict:
    """Returns the prediction of the closed forms alone."""
    chip, large, small = CHIPS[setting.chip], forms.sizes(target), forms.sizes(draft)
    held = forms.device(large, small, plan)
    sent = forms.sent_bytes(large, plan, tokens=plan.gamma + 1, split=plan.layout.model)
    return {
        "bytes": held,
        "fits": held["total"] <= chip.memory,
        "largest_batch": forms.largest_batch(
            large, small, plan=plan, memory=chip.memory
        ),
        "sent": sent._asdict(),
        **forms.step(large, small, plan=plan, chip=chip, alpha=setting.alpha),
    }


def flat_numbers(point: str, numbers: dict) -> dict:
    """Returns the numbers under the flat names that the table's lines read."""
    sent = numbers.get("sent", {"collectives": None, "bytes": None})
    return {
        f"{point}:gb": numbers["bytes"] / 1e9,
        f"{point}:collectives": sent["collectives"],
        f"{point}:sent_mb": sent["bytes"] and sent["bytes"] / 1e6,
    }
