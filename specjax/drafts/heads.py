"""Drafts from heads, by the folders that the heads are published in.

`head_files` has the kinds and what tells them apart; each kind that is read has a
module of its own there. A rule that is not exact and that a file recommends, such as
Medusa's typical acceptance, is named and not followed: what is written has the target's
law.
"""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specjax import zoo
from specjax.checkpoints import Config, Pretrained, huggingface
from specjax.drafters import eagle, eagle3, medusa
from specjax.drafters import heads as parts
from specjax.drafts import (
    blockwise_files,
    eagle3_files,
    eagle_files,
    head_files,
    medusa_files,
)
from specjax.drafts.models import chain_source
from specjax.drafts.source import (
    REDUCED_VOCAB,
    SAMPLED,
    DraftSource,
    Recipe,
    recipe,
)
from specjax.models import families
from specjax.types import Drafter, Model


def is_folder(name: str | Path) -> bool:
    """Returns whether a name is the folder of a head, of a supported kind or not, or
    the name of a bundled head."""
    return head_files.find_kind(_folder(str(name))) is not None


def _folder(name: str) -> Path:
    return zoo.FOLDER / name if name in zoo.HEADS else Path(name)


def find(name: str) -> Path | None:
    """Returns the folder of a head: a bundled one, one given by its path, or an
    "org/name" of the Hugging Face hub, which is downloaded; None for anything else.
    Raises ValueError where the hub has no such name or is not reached."""
    path = _folder(name)
    if not path.exists() and huggingface.HUB_ID.fullmatch(name):
        path = huggingface.download(name)
    return path if head_files.find_kind(path) is not None else None


def head_paths(path: Path) -> tuple[Path, ...]:
    """Returns the files of a head's folder. Raises ValueError as
    `head_files.find_folder` does."""
    return head_files.find_folder(path).files


def load_head(path: Path, target: Pretrained, name: str = "") -> DraftSource:
    """Returns the draft of the head in a folder, for the target that it was trained
    for.

    What it reads stands in its name, after `name` or else the folder's. An embedding
    that repeats the target's is not held twice. Raises ValueError for a head of a kind
    that is not read, one that does not say what it needs, or one of another target;
    before any weight is read.

    Warns:
      UserWarning: config.json recommends a rule that is not exact. It is not applied.
    """
    folder = head_files.find_folder(path)
    folder = folder._replace(name=name or folder.name)
    source = LOADERS[folder.kind](folder, target)
    if rules := head_files.inexact_rules(folder.fields):
        warnings.warn(
            f"{folder.path} recommends a rule that is not exact ({', '.join(rules)}),"
            " and it is not applied: tokens are accepted by the rule that you name",
            stacklevel=2,
        )
    return source._replace(files=folder.files)


def _load_eagle3(folder: head_files.Folder, target: Pretrained) -> DraftSource:
    read = eagle3_files.read(folder, target)
    params = eagle3.parameters(read.config, read.params, target.params, read.offsets)
    places = ", ".join(map(str, read.config.taps))
    name = f"{folder.name}, of states that enter layers {places}"
    return eagle3_source(name, read.config, params)


def _load_eagle(folder: head_files.Folder, target: Pretrained) -> DraftSource:
    config, own = eagle_files.read(folder, target)
    name = f"{folder.name}, of the last layer's states"
    model = recipe(_eagle, config=config, whole=target.required_config)
    params = parts.with_target(own, target.params)
    return _source(name, model, params, regime=SAMPLED)


def _load_medusa(folder: head_files.Folder, target: Pretrained) -> DraftSource:
    config, own = medusa_files.read(folder, target)
    name = f"{folder.name}, {config.heads} heads of the last layer's states"
    params = parts.with_target(own, target.params)
    source = _source(name, recipe(_medusa, config=config), params, regime=SAMPLED)
    # A chain has no more tokens than there are heads.
    return source._replace(factory=recipe(_medusa_chain, config=config))


def _load_blockwise(folder: head_files.Folder, target: Pretrained) -> DraftSource:
    config, own = blockwise_files.read(folder, target)
    name = f"{folder.name}, {config.heads} heads with the target's readout"
    model = recipe(_blockwise, config=config, whole=target.required_config)
    params = parts.with_target(own, target.params)
    source = _source(name, model, params, regime=SAMPLED)
    chain = recipe(_build_blockwise_chain, config=config, whole=target.required_config)
    return source._replace(factory=chain)


LOADERS: dict[str, Callable[[head_files.Folder, Pretrained], DraftSource]] = {
    head_files.EAGLE3: _load_eagle3,
    head_files.EAGLE: _load_eagle,
    head_files.MEDUSA: _load_medusa,
    head_files.BLOCKWISE: _load_blockwise,
}


def eagle3_source(name: str, config: eagle3.Config, params: Any) -> DraftSource:
    """Returns the draft of a head by its parameters, see `eagle3.parameters`."""
    regime = SAMPLED if config.draft_vocab is None else REDUCED_VOCAB
    source = _source(name, recipe(_eagle3, config=config), params, regime=regime)
    return source._replace(taps=config.taps)


def _source(name: str, model: Recipe, params: Any, *, regime: str) -> DraftSource:
    """Returns the draft of a head, without files. What it drafts depends on the
    target's states, so it has no law that depends on tokens alone."""
    made = Pretrained(name, None, model(), params)
    return chain_source(made, model, regime=regime)._replace(law=None)


@functools.cache
def _eagle3(config: eagle3.Config) -> Model:
    return eagle3.head(config)


@functools.cache
def _eagle(config: eagle.Config, whole: Config) -> Model:
    return eagle.head(config, families.build(whole).readout)


@functools.cache
def _medusa(config: medusa.Config) -> Model:
    return medusa.head(config)


def _medusa_chain(gamma: int, draw: Callable, config: medusa.Config) -> Drafter:
    return medusa.build(config, gamma, draw)


@functools.cache
def _blockwise(config: medusa.Config, whole: Config) -> Model:
    return medusa.head(config, families.build(whole).readout)


def _build_blockwise_chain(
    gamma: int, draw: Callable, config: medusa.Config, whole: Config
) -> Drafter:
    return medusa.build(config, gamma, draw, families.build(whole).readout)
