"""What devices send each other is counted in compiled code, loops as they run."""

import jax
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding

from experiments.gpu.aot import collectives, hlo
from experiments.records import records
from specjax import configs

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
