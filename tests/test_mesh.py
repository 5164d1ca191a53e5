"""One job, many devices: the same texts, and laws stay where they are.

What needs several devices runs in a process that has eight, see `tests.support.meshed`.
"""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from specjax import mesh
from tests.support import meshed

ROOT, EIGHT = Path(__file__).resolve().parents[1], "device_count=8"
CROSSING = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
INSTRUCTION = re.compile(rf"= (.+?) (?:{CROSSING})(?:-start)?\(")


def told(*arguments: str):
    """What `meshed` prints, on eight devices."""
    flags = f"--xla_force_host_platform_{EIGHT}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.meshed", *arguments],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("family", "layouts"),
    [
        ("gpt", ["data=4,model=2"]),
        pytest.param("gpt", ["data=1,model=8,draft=8", "data=8"], marks=SLOW),
        pytest.param("llama", ["data=4,model=2,draft=2", "data=1,model=8"], marks=SLOW),
        pytest.param("t5", ["data=2,model=4,draft=4", "model=8", "data=8"], marks=SLOW),
    ],
)
def test_the_texts_are_those_of_one_device(family, layouts):
    """Greedy rows and drawn ones, of which each keeps another part of its drafts."""
    found = told("compared", family, *layouts)
    assert found["differ"] == []
    assert len(set(found["accepted"])) > 2


@pytest.mark.parametrize("draft", [pytest.param("", marks=SLOW), ",draft=2"])
def test_no_law_crosses_devices(draft):
    """Laws, thresholds and draws are put together of partial sums, and of a block; and
    of other rows nothing is asked."""
    shapes = INSTRUCTION.findall(told("step", f"data=4,model=2{draft}"))
    sizes = [
        [int(size) for size in dims.split(",") if size]
        for shape in shapes
        for dims in re.findall(r"\[([\d,]*)\]", shape)
    ]
    assert len(sizes) > 10
    rows = len(meshed.TEXTS)
    assert max(map(math.prod, sizes)) < rows // 4 * meshed.GPT_VOCAB // 2
    assert rows not in (size[0] for size in sizes if size)


def test_a_law_over_two_devices_is_certified_and_a_wrong_sum_is_not():
    found = told("certificate")
    (error, *_, exact), (*_, broken, passed) = found["right"], found["wrong"]
    assert exact and error < 1e-6
    assert "law" in broken and not passed


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("data=0", "got 'data=0' in 'data=0'"),
        ("data", "got 'data'"),
        ("data=2,model=4,draft=2", "draft=4, or on each, draft=1"),
        ("data=64,model=2", "needs 128 devices, .*device_count=128"),
    ],
)
def test_a_mesh_that_cannot_be_is_refused(text, word):
    with pytest.raises(ValueError, match=word), mesh.using(text):
        pass


@pytest.mark.parametrize(
    ("changed", "model", "word"),
    [
        (dict(vocab=4098), 4, "the 4098 ids of target: take model of 1, 2$"),
        (dict(num_heads=6), 4, "the 6 heads of target: take model of 1, 2$"),
        (dict(mlp_dim=66), 4, "the 66 hidden features of target"),
    ],
)
def test_sizes_that_a_mesh_does_not_divide_are_named(changed, model, word):
    target = meshed.pair("gpt")[0]
    config = target.pretrained.config._replace(**changed)
    other = target._replace(pretrained=target.pretrained._replace(config=config))
    mesh.check(target, model)
    with pytest.raises(ValueError, match=word):
        mesh.check(other, model)
    rounded = target.pretrained._replace(dtype="int8")
    with pytest.raises(ValueError, match="int8 lies on one device"):
        mesh.check(target._replace(pretrained=rounded), model)


def test_rows_that_a_mesh_does_not_divide_are_refused():
    with (
        mesh.layout(mesh.Layout(data=3)),
        pytest.raises(ValueError, match="1, 2, 4, 8"),
    ):
        mesh.check_rows(8)
