"""A mesh of devices writes the same texts, and distributions stay where they are.

What needs several devices runs in a process that has eight, see `tests.support.meshed`.
"""

import functools
import math
import re
from types import SimpleNamespace
from unittest import mock

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from specjax import probs
from specjax.checkpoints import sharding
from specjax.drafts import counts
from specjax.drafts.models import early_exit
from specjax.drafts.placement import place_pair
from specjax.runtime import mesh
from tests.support import devices, meshed

CROSSING = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
INSTRUCTION = re.compile(rf"= (.+?) (?:{CROSSING})(?:-start)?\(")


SLOW = pytest.mark.slow
# Asked for in one process; what is last replaces kernels there.
BRIEF = (
    ("compared", "gpt", "data=4,model=2"),
    ("step_text", "data=4,model=2,draft=2", "gpt"),
    ("certificates",),
    ("kernels", "", "data=8", "data=4,model=2"),
)


@functools.cache
def run_together(*asked: tuple[str, ...]) -> dict:
    words = [word for each in asked for word in ("+", *each)]
    found = devices.run_module("tests.support.meshed", *words[1:])
    return dict(zip(asked, found, strict=True))


def run_on_mesh(*words: str):
    return run_together(*(BRIEF if words in BRIEF else [words]))[words]


@pytest.mark.parametrize(
    ("family", "layouts"),
    [
        ("gpt", ["data=4,model=2"]),
        pytest.param("gpt", ["data=1,model=8,draft=8", "data=8"], marks=SLOW),
        pytest.param("llama", ["data=4,model=2,draft=2", "data=1,model=8"], marks=SLOW),
        pytest.param("t5", ["data=2,model=4,draft=4", "model=8", "data=8"], marks=SLOW),
        pytest.param("int8", ["data=4,model=2", "model=4,draft=4"], marks=SLOW),
        pytest.param("trees", ["data=4,model=2", "model=8,draft=8"], marks=SLOW),
    ],
)
def test_the_texts_are_those_of_one_device(family, layouts):
    """Greedy rows and drawn ones, of which each keeps another part of its drafts."""
    found = run_on_mesh("compared", family, *layouts)
    assert found["differ"] == []
    assert len(set(found["accepted"])) > 2


@pytest.mark.parametrize(
    ("draft", "family"),
    [
        pytest.param("", "gpt", marks=SLOW),
        (",draft=2", "gpt"),
        pytest.param("", "trees", marks=SLOW),
        pytest.param(",draft=2", "trees", marks=SLOW),
    ],
)
def test_no_law_crosses_devices(draft, family):
    """Laws, thresholds, siblings and draws are put together of partial sums, and of a
    block; and chains ask nothing of other rows."""
    shapes = INSTRUCTION.findall(
        run_on_mesh("step_text", f"data=4,model=2{draft}", family)
    )
    sizes = [
        [int(size) for size in dims.split(",") if size]
        for shape in shapes
        for dims in re.findall(r"\[([\d,]*)\]", shape)
    ]
    assert len(sizes) > 10
    rows = len(meshed.TEXTS)
    assert max(map(math.prod, sizes)) < rows // 4 * meshed.GPT_VOCAB // 2
    assert family == "trees" or rows not in (size[0] for size in sizes if size)


@SLOW
@pytest.mark.parametrize(
    ("family", "keys"), [("gpt", 4 * 4 * (2 + 3)), ("trees", 4 * 7 * (3 + 6))]
)
def test_no_key_serves_two_draws_on_a_mesh(family, keys):
    """Of 4 requests at each length: of the draft, and of the rule one more than G."""
    assert run_on_mesh("drawn", "data=4,model=2,draft=2", family) == [[], keys]


@SLOW
def test_generated_texts_are_those_of_one_device():
    one, other = run_on_mesh("texts", "", "data=2,model=2")
    assert one == other and 0 < one[1] < 1
    assert one[0] == one[2]


@pytest.mark.parametrize(
    ("draft", "layout"), [("draft", "data=2,model=2"), ("few", "data=2")]
)
@SLOW
def test_transcripts_are_those_of_one_device(draft, layout):
    """Of three windows, so that a row fills the batch up."""
    one, other = run_on_mesh("heard", draft, "", layout)
    assert one == other and len(one) == 3


@SLOW
def test_training_ends_as_on_one_device():
    """By either kind of optimiser: moments that lie where weights do, and others."""
    for one, other in run_on_mesh("trained", "", "data=2,model=2"):
        assert one["losses"] == pytest.approx(other["losses"], abs=2e-4)
        assert one["weights"] == pytest.approx(other["weights"], abs=1e-5)
        assert one["share"] == 1 and 0.5 < other["share"] < 0.75


def test_kernels_give_the_tokens_of_the_reference():
    """Of whole rows, of ids that lie over devices, and drafts that each one draws."""
    plain, rows, ids = run_on_mesh("kernels", "", "data=8", "data=4,model=2")
    assert rows[1:] == ids[1:] == plain[1:]
    for record, *_ in (rows, ids):
        assert {record[name] for name in ("verify", "draw", "baseline")} == {"triton"}


def test_a_law_over_two_devices_is_certified_and_a_wrong_sum_is_not():
    """As the partitioner sums it, and as devices tell of their ids by a kernel."""
    for (error, *_, exact), (*_, broken, passed) in run_on_mesh("certificates"):
        assert exact and error < 1e-6
        assert "law" in broken and not passed


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("data=0", "got 'data=0' in 'data=0'"),
        ("data", "got 'data'"),
        ("data=2,model=4,draft=2", "draft=4 .*or draft=1 to keep them whole"),
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
    config = target.config._replace(**changed)
    sharding.check(target, devices=model)
    with pytest.raises(ValueError, match=word):
        sharding.check(target._replace(config=config), devices=model)
    rounded = target._replace(dtype="int8_dynamic")
    with pytest.raises(ValueError, match="take int8, or a float"):
        sharding.check(rounded, devices=model)


def test_the_largest_ids_are_those_of_a_selection_in_one_part():
    """The first of equals first, of ids that parts do not divide."""
    values = np.random.default_rng(0).integers(0, 9, (2, 3, 37)).astype(np.float32)
    values[0, 0] = -np.inf
    wanted, four = jax.lax.top_k(values, 5), SimpleNamespace(empty=False, size=4)
    with mock.patch.object(jax.sharding, "get_abstract_mesh", lambda: four):
        found = probs.largest(values, 5)
    jax.tree.map(np.testing.assert_array_equal, [*found], [*wanted])


def test_a_draft_that_is_no_model_is_whole_on_every_device():
    """Where its matrices would not be split, none are asked for."""
    target, uniform = meshed.pair("gpt")[0], counts.random(meshed.GPT_VOCAB)
    with mesh.using("data=1,model=1"):
        _, draft = place_pair(target, uniform)
        assert place_pair(target, None)[1] is None
    assert draft.params.sharding.spec == PartitionSpec()
    assert place_pair(target, uniform) == (target, uniform)  # where no mesh is in use


def test_an_early_exit_has_its_targets_parameters_on_a_mesh_too():
    target = meshed.pair("gpt")[0]
    config = target.config._replace(num_layers=2)
    exits = early_exit(target._replace(config=config), 1)
    with mesh.using("data=1,model=1"):
        placed, draft = place_pair(target, exits)
    assert placed.params is not target.params and draft.params is placed.params


def test_weights_that_a_mesh_does_not_divide_are_read_whole():
    """If but one of their sizes is not divided."""
    config = meshed.pair("gpt")[0].config
    with mesh.using("data=1,model=1"), mesh.layout(mesh.Layout(model=4)):
        assert not isinstance(sharding.placement(config), NamedSharding)
        whole = sharding.placement(config._replace(num_heads=6))
    assert whole.spec == PartitionSpec()


def test_rows_that_a_mesh_does_not_divide_are_refused():
    with (
        mesh.layout(mesh.Layout(data=3)),
        pytest.raises(ValueError, match="1, 2, 4, 8"),
    ):
        mesh.check_rows(8)
