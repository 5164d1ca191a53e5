"""A pair of target and draft on the mesh in use.

The target's matrices are split over the mesh's axis `model`. Those of a draft are split
too where the layout says `draft`; otherwise every device has a whole copy of them, and
of the draft's caches. What a head has of its target's matrices lies as the target has
it.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import flax.linen as nn
import jax
from jax.sharding import PartitionSpec

from specjax.checkpoints import Pretrained, sharding
from specjax.drafts.source import DraftSource, Recipe, recipe
from specjax.runtime import mesh
from specjax.types import Drafter

D = TypeVar("D", DraftSource, DraftSource | None)


def place_pair(target: Pretrained, draft: D) -> tuple[Pretrained, D]:
    """Returns both with their parameters on the mesh in use, if there is one.

    Args:
      target: the model whose matrices are split.
      draft: what drafts; None for a target alone.

    Raises:
      ValueError: the mesh does not divide one of them; before any is moved.
    """
    layout = mesh.layout.value
    if layout is None:
        return target, draft
    sharding.check(target, devices=layout.model)
    if draft is None:
        return split(target), None
    if draft.params is target.params:  # an early exit has its target's
        placed = split(target)
        return placed, draft._replace(params=placed.params)
    if layout.draft == 1:
        placed = split(target)
        return placed, replicate(draft, target.params, placed.params)
    model = weights(draft)
    sharding.check(model, devices=layout.model)
    return split(target), draft._replace(params=split(model).params)


def weights(draft: DraftSource) -> Pretrained:
    """Returns the model whose weights draft. Raises ValueError where there is none."""
    if draft.pretrained is None:
        devices = mesh.layout.value.draft
        raise ValueError(
            f"{draft.name} is not a model to split: leave draft={devices} out"
        )
    return draft.pretrained._replace(name=draft.name, params=draft.params)


def split(model: Pretrained) -> Pretrained:
    """Returns the model with its matrices split over the mesh in use."""
    config = model.required_config
    return model._replace(params=sharding.split(model.params, config))


def replicate(draft: DraftSource, of_target: Any, placed: Any) -> DraftSource:
    """Returns the draft with its parameters and caches replicated on every device along
    `model`.

    Args:
      draft: what drafts.
      of_target: the parameters of its target. A head has some of these arrays.
      placed: the same on the mesh, of which the head then has those.
    """
    both = zip(*map(jax.tree.leaves, (of_target, placed)), strict=True)
    shared = {id(leaf): on_mesh for leaf, on_mesh in both}

    def put(leaf: Any) -> Any:
        found = shared.get(id(leaf))
        return mesh.put(leaf, PartitionSpec()) if found is None else found

    params = jax.tree.map(put, draft.params)
    law = draft.law and split_rows_only(draft.law)
    return draft._replace(params=params, factory=whole_factory(draft.factory), law=law)


def whole_factory(factory: Recipe) -> Recipe:
    """Returns a recipe of the same drafter with caches that are not split."""
    return recipe(_replicated_factory, factory=factory)


def _replicated_factory(gamma: int, draw: Callable, factory: Recipe) -> Drafter:
    return replicated_drafter(factory(gamma=gamma, draw=draw))


def replicated_drafter(drafter: Drafter) -> Drafter:
    """Returns the same drafter with caches that are not split."""
    return drafter._replace(
        init=split_rows_only(drafter.init),
        draft=split_rows_only(drafter.draft),
        observe=drafter.observe and split_rows_only(drafter.observe),
    )


def split_rows_only(function: Any) -> Any:
    """Returns the same function, traced so that only rows are split over the mesh."""

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with nn.logical_axis_rules([*mesh.ROWS.items()]):
            return function(*arguments)

    return run
