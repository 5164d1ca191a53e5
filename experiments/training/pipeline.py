"""One way to train every model: stages in order, each with the weights of the last.

A stage is a run of `experiments.training.loop`: resumable, with a bar and a curve, and
skipped when done. `recipes/NAME.json` is a recipe: models with their sizes; stages by
their folders, each with its model, what it learns from, and its `loop.Recipe`; and what
is read and written for them. Each module `zoo_NAME` follows one.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from experiments.training import forward, grow, loop, storage
from specjax import zoo
from specjax.models import families
from specjax.runtime import mesh

FOLDER = Path(__file__).with_name("recipes")
NOISE = 0.3  # between the copies of a grown model's units, see `grow.grow`
LENGTHS = ("steps", "decay")  # of a stage, which its command has flags for
EXPORT = "--export", dict(type=Path, default=zoo.FOLDER)
FOLDER_OF = dict(type=Path, required=True, metavar="FOLDER")  # of a flag


class Stage(NamedTuple):
    """One run. folder: within the runs. data: what is learnt from, by name. loss: of
    `drafts.losses`, where that is what a target wrote. devices: as of `loop.train`."""

    folder: str
    config: forward.Config
    recipe: loop.Recipe
    data: str
    loss: str = ""
    devices: str = ""


class Data(NamedTuple):
    """batch: rows of a seed. held_out: batches, by what the curve calls them. loss: of
    a config, (params, rows) -> scalar. about: JSON, what else tells runs apart."""

    batch: Callable[[tuple[int, ...]], Any]
    held_out: Mapping[str, Sequence[Any]]
    loss: Callable[[forward.Config], Callable]
    about: Mapping[str, Any] = {}


Texts = Mapping[str, Callable[[Stage], Data]]


def run(runs: Path, stages: Sequence[Stage], texts: Texts, first: Any = None) -> Any:
    """The weights after every stage, from `first` on or, if that is None, from fresh.
    Weights on the host stay there beside those that are trained.

    texts: what a stage learns from, by the names of `Stage.data`. Between stages of
    other sizes the model grows. Raises ValueError as `loop.train`.
    """
    params, before = first, stages[0].config
    for stage in stages:
        config = stage.config
        # They fit whichever type a model computes in.
        if params is not None and before != config._replace(dtype=before.dtype):
            params = grow.grow(before, params, config, NOISE)

        def init(key: jax.Array, config=config, first=params) -> Any:
            if first is None:
                return forward.fresh(config)(key)
            return jax.tree.map(lambda leaf: leaf.copy(), first)

        data = texts[stage.data](stage)
        # As a file has them, which knows no tuples.
        sizes = json.loads(json.dumps({**config._asdict(), **data.about}))
        how = data.loss(config), config, data.batch, data.held_out
        task = loop.Task(sizes, init, *how)
        params = loop.train(runs / stage.folder, task, stage.recipe, stage.devices)
        before = config
    return params


def read(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text())


def stages(recipe: dict, *folders: str) -> list[Stage]:
    """Those of a recipe whose folder begins so, in order; all if none is named."""
    return [
        Stage(
            name,
            config(recipe, stage["model"]),
            loop.Recipe(**stage["recipe"]),
            stage["data"],
            stage.get("loss", ""),
            recipe.get("mesh", ""),
        )
        for name, stage in recipe["stages"].items()
        if name.startswith(folders or "")
    ]


def config(recipe: dict, model: str) -> forward.Config:
    sizes = dict(recipe["models"][model])
    return families.by_name(sizes.pop("family")).config(**sizes)


def asked(
    doc: str, name: str, runs: str, *more: tuple[str, dict]
) -> tuple[argparse.Namespace, dict]:
    """The flags of a recipe's command, and the recipe with what they change: how long
    each stage is, on which mesh, and where it runs. more: further flags, as
    `add_argument` takes them."""
    recipe = read(name)
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path(runs))
    lengths = {
        f"{Path(folder).name}-{length}": (stage["recipe"], length)
        for folder, stage in recipe["stages"].items()
        for length in LENGTHS
    }
    for option, (own, length) in lengths.items():
        parser.add_argument(f"--{option}", type=int, default=own[length])
    add_mesh(parser)
    for flag, settings in more:
        parser.add_argument(flag, **settings)
    options = parser.parse_args()
    for option, (own, length) in lengths.items():
        own[length] = getattr(options, option.replace("-", "_"))
    return options, recipe | ({"mesh": options.mesh} if options.mesh else {})


def command(main: Callable[[], None]) -> None:
    """Runs a module that trains; what it is refused, such as by a mesh that does not
    divide it, is one line."""
    try:
        main()
    except ValueError as error:
        sys.exit(f"error: {error}")


def add_mesh(parser: argparse.ArgumentParser) -> None:
    """--mesh, refused where there are too few devices."""

    def usable(text: str) -> str:
        try:
            with mesh.using(text):
                return text
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    of_mesh = "devices, data=4,model=2: rows over 4, matrices over 2; default: one"
    parser.add_argument("--mesh", default="", type=usable, help=of_mesh)


def save(path: Path, runs: Path, recipe: dict, **about: Any) -> None:
    """Writes how models were made: the recipe, what was read, how good they are, and
    the curves of their stages."""
    curves = {
        folder: [json.loads(line) for line in (runs / folder / "curve.jsonl").open()]
        for folder in recipe["stages"]
        if (runs / folder).exists()
    }
    storage.write_json(path, {"recipe": recipe, **about, "curves": curves})
