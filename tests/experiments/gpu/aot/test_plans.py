"""A step for eight devices that are not there: what it takes is what was predicted, it
says where it does not fit, and all that it sends is found."""

import re

import pytest

from experiments.gpu.aot import collectives, compilers
from experiments.gpu.plans import compiled, memory
from experiments.gpu.plans.chips import CHIPS
from experiments.gpu.plans.memory import Plan
from specjax import mesh
from specjax.mesh import Layout
from specjax.models import llama

TARGET = llama.Config(2048, 1024, 2048, 2, 16, 8, 128, dtype="bfloat16")
DRAFT = TARGET._replace(dim=256, mlp_dim=512, num_layers=1, num_heads=8)
PLAN = Plan(8, 4096, 2, Layout(1, 8, 8))
BEGUN = re.compile(rf" (?:{'|'.join(collectives.KINDS)})(?:-start)?\(")


def asked(name: str):
    reason = compilers.missing(compilers.DEVICES[name].platform)
    without = pytest.mark.skipif(bool(reason), reason=str(reason))
    return pytest.param(name, marks=without)


def predicted(target: llama.Config) -> int:
    return memory.device(memory.sizes(target), memory.sizes(DRAFT), PLAN)["total"]


@pytest.mark.parametrize("name", [asked("v5e"), asked("h100")])
def test_a_step_takes_what_is_predicted_and_all_that_it_sends_is_found(name):
    with mesh.using("model=8,draft=8", compilers.topology(name, CHIPS[name].slice)):
        with compilers.uncached():
            step = compiled.lower(TARGET, DRAFT, PLAN).compile()
    text, taken = step.as_text(), compiled.taken(step)
    assert taken["argument_bytes"] == pytest.approx(predicted(TARGET), rel=0.03)
    found = collectives.sent(text, PLAN.gamma)  # a loop over drafts runs once
    assert found["collectives"] == len(BEGUN.findall(text))
    sums = 2 * 2 + 1 + 2 * (2 * 1 + 1)  # of the target's call, and of two of the draft
    assert found["all_reduce"] >= sums


@pytest.mark.parametrize("name", [asked("v5e")])
def test_what_does_not_fit_says_what_it_needs(name):
    large = TARGET._replace(mlp_dim=2**24)
    told = compiled.step(large, DRAFT, PLAN, name)
    assert not told["fits"]
    assert told["bytes"] == pytest.approx(predicted(large), rel=0.05)
