"""A target trained in two stages: `small`, then `grown` from what that learned.

A token costs the small model a quarter of what it costs the grown one. Both stay at one
rate for as long as they are asked to; what is last lets it fall. Both are runs of
`experiments.training.loop`, resumable, and skipped when done.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from experiments.training import grow, loop

Recipes = Mapping[str, loop.Recipe]


class Growth(NamedTuple):
    """small, large: sizes. first: () -> the weights that the first stage begins with.
    task: sizes -> what is trained. noise: between copies, see `grow.grow`."""

    small: grow.Config
    large: grow.Config
    first: Callable[[], Any]
    task: Callable[[grow.Config], loop.Task]
    noise: float = 0.3


class Data(NamedTuple):
    """batch: of a seed. held_out: batches, by what the curve calls them."""

    batch: Callable[[tuple[int, ...]], Any]
    held_out: Mapping[str, Sequence[Any]]


def add_lengths(parser: argparse.ArgumentParser, recipes: Recipes) -> None:
    """Options of a command: how long each stage is."""
    for name, recipe in recipes.items():
        parser.add_argument(f"--{name}-steps", type=int, default=recipe.steps)
        parser.add_argument(f"--{name}-decay", type=int, default=recipe.decay)


def chosen(options: argparse.Namespace, recipes: Recipes) -> dict[str, loop.Recipe]:
    """The recipes, as long as the options say."""
    return {
        name: recipe._replace(
            steps=getattr(options, f"{name}_steps"),
            decay=getattr(options, f"{name}_decay"),
        )
        for name, recipe in recipes.items()
    }


def run(folder: Path, growth: Growth, data: Data, recipes: Recipes) -> Any:
    """Both stages. Returns the grown weights."""
    weights = stage(folder / "small", growth.small, growth.first, growth, data, recipes)
    sizes = growth.small, weights, growth.large, growth.noise
    start = partial(grow.grow, *sizes)
    return stage(folder / "grown", growth.large, start, growth, data, recipes)


def stage(
    folder: Path,
    config: grow.Config,
    start: Callable[[], Any],
    growth: Growth,
    data: Data,
    recipes: Recipes,
) -> Any:
    """One of them, named as its folder; returns its weights."""
    task = growth.task(config)._replace(init=lambda key: start())
    recipe = recipes[folder.name]
    return loop.train(folder, task, data.batch, data.held_out, recipe)
