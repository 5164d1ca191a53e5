"""What devices send each other is counted in compiled code, loops as they run; and a
step for eight devices that are not there takes what was predicted, or does not fit."""

import re

import jax
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding

from experiments.gpu.aot import collectives, compilers, hlo
from experiments.gpu.plans import compiled, memory
from experiments.gpu.plans.chips import CHIPS
from experiments.gpu.plans.memory import Plan
from experiments.records import records
from specjax import configs, mesh
from specjax.mesh import Layout
from specjax.models import llama

TEXT = """HloModule m

body (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %all-gather.1 = f32[8]{0} all-gather(f32[4]{0} %x), dimensions={0}
}

condition (x: f32[4]) -> pred[] {
  %x.1 = f32[4]{0} parameter(0)
  ROOT %all-reduce.1 = pred[] all-reduce(%x.1), to_apply=%any
}

ENTRY main (x: f32[4]) -> f32[4] {
  %x.2 = f32[4]{0} parameter(0)
  %all-reduce.2 = (f32[4]{0}, /*index=1*/s32[2]{0}) all-reduce(%x.2), to_apply=%sum
  ROOT %while.1 = f32[4]{0} while(%x.2), condition=%condition, body=%body
}
"""
KNOWN = TEXT.replace(
    "body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"3"}}'
)


@pytest.mark.parametrize(("text", "trips"), [(TEXT, 4), (KNOWN, 3)])
def test_a_collective_counts_as_often_as_it_runs(text, trips):
    found = collectives.crossings(hlo.read(text), gamma=5)
    assert [(kernel.opcode, kernel.bytes) for kernel in found] == [
        ("all-reduce", 24),
        *[("all-gather", 32)] * trips,
        *[("all-reduce", 1)] * trips,
    ]


def test_a_row_needs_its_mesh():
    rows = records.rows("sharding")
    built = configs.build(rows["code_whole"])
    assert built.row.mesh == "data=4,model=2"
    with pytest.raises(ValueError, match="name a mesh"):
        built.row.measurement.run()
    assert lies(built) == {SingleDeviceSharding}  # there are too few devices
    here = configs.build(rows["code_whole"]._replace(bindings=("MESH = 'data=1'",)))
    assert lies(here) == {NamedSharding}


def lies(built: configs.Built) -> set[type]:
    """How the weights lie that a row's target was built with."""
    target = built.row.measurement.run.args[0]
    return {type(leaf.sharding) for leaf in jax.tree.leaves(target.params)}


# Plans.

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
