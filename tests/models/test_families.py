"""Every part of the library asks the registry of model families, which refuses what it
does not have."""

from typing import NamedTuple

import jax
import numpy as np
import pytest

from specjax import checkpoints, zoo
from specjax.checkpoints import Pretrained, name_tables, sharding
from specjax.drafts.models import early_exit, reduced_vocab_source
from specjax.models import families, reduced_vocab
from specjax.models.reduced_vocab import Reduction
from specjax.zoo import sizes
from tests.support import checkpoint_folders, format_defaults, tiny, tiny_llama
from tests.support.model_cases import CASES, SLOTS


class Mamba(NamedTuple):
    """The sizes of a model that belongs to no family."""

    vocab: int = 8
    dim: int = 4
    num_heads: int = 1
    mlp_dim: int = 8
    num_layers: int = 2


OTHER, IDS = Mamba(), np.arange(2)
TARGET = Pretrained("other", OTHER, tiny.transformers().target, {})
LLAMA = TARGET._replace(config=tiny_llama.LLAMA)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_early_exit_has_the_first_layers(case):
    """Caches are local only for layers that are local."""
    exits, small = families.first_layers(case.config, 1), case.module.build(case.small)
    assert exits.shapes == small.shapes != case.world().target.shapes
    params, prompt = case.world().target_weights, case.prompt()
    caches = (
        jax.eval_shape(lambda model=model: model.init(params, prompt, 600 + SLOTS))
        for model in (exits, small)
    )
    assert next(caches) == next(caches)
    assert exits.portion == small.portion


def test_an_early_exit_before_a_local_layer_has_none():
    (config,) = (case.config for case in CASES if case.name == "gemma2")
    exits = families.first_layers(config._replace(local=(1,)), 1)
    assert exits.portion is None  # its caches keep all


def test_each_family_has_its_names_and_its_own_sizes():
    for family in families.FAMILIES:
        assert families.by_name(family.name) is family
        assert {family.layers, *family.divided.values()} <= {*family.config._fields}
        assert name_tables.BY_FAMILY[family.name].STACKS.keys() >= {family.layers}


def test_each_family_has_a_case_a_folder_and_the_defaults_of_its_files():
    """Without them the tests that all families share pass by one that is broken."""
    names = {family.name for family in families.FAMILIES}
    for configs in (
        [case.config for case in CASES],
        checkpoint_folders.CONFIGS.values(),
    ):
        assert {families.of(config).name for config in configs} == names
    for name in names:
        kinds = {*name_tables.BY_FAMILY[name].MODEL_TYPES}
        kinds &= format_defaults.CONFIGS.keys()
        assert kinds and kinds <= format_defaults.SIZES.keys(), name


ASKS = {
    "build": lambda: families.build(OTHER),
    "save": lambda folder: checkpoints.save(folder / "new", (OTHER, {})),
    "pieces": lambda: checkpoints.with_pieces(OTHER, 4),
    "readout": lambda: checkpoints.untie_readout(OTHER, "lm_head.weight", "it differs"),
    "sizes": lambda: sizes.metadata(OTHER),
    "ends": lambda: zoo.ends(OTHER),
    "mesh": lambda: sharding.check_sizes("m", OTHER, devices=2),
    "exit": lambda: early_exit(TARGET, 1),
    "draft": lambda: reduced_vocab_source("few", Reduction(OTHER, {}, IDS), LLAMA),
    "target": lambda: reduced_vocab_source(
        "few", Reduction(LLAMA.config, {}, IDS), TARGET
    ),
    "reduced": lambda: reduced_vocab.build(OTHER, LLAMA.config),
    "record": lambda: TARGET.family,
}


@pytest.mark.parametrize("name", ASKS)
def test_a_configuration_of_no_family_is_one_error_everywhere(name, tmp_path):
    ask = ASKS[name]
    arguments = [tmp_path] if name == "save" else []
    with pytest.raises(ValueError, match=r"Mamba is the config.*no family.*known are"):
        ask(*arguments)
