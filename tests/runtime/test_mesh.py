"""A mesh of devices writes the same texts, and distributions stay on their devices.

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
    ("compare_texts", "gpt", "data=4,model=2"),
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
    """There are greedy and sampled rows, each of which keeps another number of drafted
    tokens."""
    found = run_on_mesh("compare_texts", family, *layouts)
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
    """Laws, thresholds, siblings and draws are combined from partial sums and from one
    block; chains need nothing from other rows."""
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
    """4 requests are recorded at each length, with the keys of the draft and those of
    the rule, which has one more than G."""
    assert run_on_mesh("find_draw_problems", "data=4,model=2,draft=2", family) == [
        [],
        keys,
    ]


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
    """Three windows are decoded, so that one more row fills the batch."""
    one, other = run_on_mesh("compare_transcripts", draft, "", layout)
    assert one == other and len(one) == 3


@SLOW
def test_training_ends_as_on_one_device():
    """There are two kinds of optimizers: one whose moments lie as the weights do, and
    one with other moments."""
    for one, other in run_on_mesh("compare_training", "", "data=2,model=2"):
        assert one["losses"] == pytest.approx(other["losses"], abs=2e-4)
        assert one["weights"] == pytest.approx(other["weights"], abs=1e-5)
        assert one["share"] == 1 and 0.5 < other["share"] < 0.75


def test_kernels_give_the_tokens_of_the_reference():
    """This is tested for whole rows, for ids that are divided over devices, and for
    drafts that each device draws."""
    plain, rows, ids = run_on_mesh("kernels", "", "data=8", "data=4,model=2")
    assert rows[1:] == ids[1:] == plain[1:]
    for record, *_ in (rows, ids):
        assert {record[name] for name in ("verify", "draw", "baseline")} == {"triton"}


def test_a_law_over_two_devices_is_certified_and_a_wrong_sum_is_not():
    """The law is summed by the partitioner, and by a kernel in which devices exchange
    sums over their ids."""
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
    """Among equal values the first is taken, also where the number of parts does not
    divide the ids."""
    values = np.random.default_rng(0).integers(0, 9, (2, 3, 37)).astype(np.float32)
    values[0, 0] = -np.inf
    wanted, four = jax.lax.top_k(values, 5), SimpleNamespace(empty=False, size=4)
    with mock.patch.object(jax.sharding, "get_abstract_mesh", lambda: four):
        found = probs.largest(values, 5)
    jax.tree.map(np.testing.assert_array_equal, [*found], [*wanted])


def test_a_draft_that_is_no_model_is_whole_on_every_device():
    """Where its matrices would not be divided, none are wanted."""
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
    """One size that the mesh does not divide is enough."""
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
