"""The pipeline of every training: stages in order, each of which starts from the
weights of the last.

A stage is a run of `specjax.training.loop`: resumable, with a bar and a curve, and
skipped when done. `recipes/NAME.json` is a recipe: models with their sizes; stages by
their folders, each with its model, its data, and its `loop.Recipe`; and the numbers of
texts to read and write. Each module `zoo_NAME` follows one.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from experiments.training import grow
from specjax import zoo
from specjax.models import families
from specjax.runtime import mesh
from specjax.training import forward, loop, storage

FOLDER = Path(__file__).with_name("recipes")
NOISE = 0.3  # between the copies of a grown model's units, see `grow.grow`
LENGTHS = ("steps", "decay")  # of a stage, which its command has flags for
EXPORT = {"--export": dict(type=Path, default=zoo.FOLDER)}
FOLDER_OF = dict(type=Path, required=True, metavar="FOLDER")  # of a flag


class Stage(NamedTuple):
    """A stage of the training of a model.

    Attributes:
        folder: within the runs.
        data: the name of its training data.
        loss: a name in `drafts.losses`, where the data are texts of a target.
        devices: as for `loop.train`.
    """

    folder: str
    config: forward.Config
    recipe: loop.Recipe
    data: str
    loss: str = ""
    devices: str = ""


class Data(NamedTuple):
    """The data of a stage.

    Attributes:
        batch: a function from a seed to rows.
        held_out: batches, by the names of the curve.
        loss: a function from a config to (params, rows) -> scalar.
        about: JSON, which further identifies runs.
    """

    batch: Callable[[tuple[int, ...]], Any]
    held_out: Mapping[str, Sequence[Any]]
    loss: Callable[[forward.Config], Callable]
    about: Mapping[str, Any] = {}


Texts = Mapping[str, Callable[[Stage], Data]]


def run(runs: Path, stages: Sequence[Stage], texts: Texts, *, first: Any = None) -> Any:
    """Returns the weights after every stage, starting from `first` or, if that is None,
    from fresh weights.

    Between stages of different sizes the model grows. Weights on the host stay there
    beside those that are trained.

    Args:
        texts: the training data of stages, by the names of `Stage.data`.

    Raises:
        ValueError: as `loop.train`.
    """
    params, before = first, stages[0].config
    for stage in stages:
        config = stage.config
        # They fit whichever type a model computes in.
        if params is not None and before != config._replace(dtype=before.dtype):
            params = grow.grow(before, params, config, noise=NOISE)

        def init(key: jax.Array, config=config, first=params) -> Any:
            if first is None:
                return forward.fresh(config)(key)
            return jax.tree.map(lambda leaf: leaf.copy(), first)

        data = texts[stage.data](stage)
        # As a file has them, which knows no tuples.
        sizes = json.loads(json.dumps({**config._asdict(), **data.about}))
        task = loop.Task(
            sizes=sizes,
            init=init,
            loss=data.loss(config),
            config=config,
            batch=data.batch,
            held_out=data.held_out,
        )
        params = loop.train(
            runs / stage.folder, task, stage.recipe, devices=stage.devices
        )
        before = config
    return params


def read(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text())


def stages(recipe: dict, *folders: str) -> list[Stage]:
    """Returns the stages of a recipe whose folder begins with one of `folders`, in
    order; all if no folder is given.
    """
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
    """Returns the sizes of a recipe's model."""
    sizes = dict(recipe["models"][model])
    return families.by_name(sizes.pop("family")).config(**sizes)


def parse_flags(
    doc: str, name: str, runs: str, flags: Mapping[str, dict]
) -> tuple[argparse.Namespace, dict]:
    """Reads the flags of a recipe's command, and returns them with the recipe that they
    change.

    They change the length of each stage, the mesh, and where it runs.

    Args:
        doc: the text of the command, whose first line describes it.
        name: the recipe.
        runs: the folder of the results unless the flag `--runs` names one.
        flags: further flags, each with its arguments of `add_argument`.
    """
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
    for flag, settings in flags.items():
        parser.add_argument(flag, **settings)
    options = parser.parse_args()
    for option, (own, length) in lengths.items():
        own[length] = getattr(options, option.replace("-", "_"))
    return options, recipe | ({"mesh": options.mesh} if options.mesh else {})


def command(main: Callable[[], None]) -> None:
    """Runs a training module; an error, such as a mesh that cannot divide the model, is
    printed as one line.
    """
    try:
        main()
    except ValueError as error:
        sys.exit(f"error: {error}")


def add_mesh(parser: argparse.ArgumentParser) -> None:
    """Adds --mesh; a mesh for which there are too few devices is refused."""

    def is_usable(text: str) -> str:
        try:
            with mesh.using(text):
                return text
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    of_mesh = "devices, data=4,model=2: rows over 4, matrices over 2; default: one"
    parser.add_argument("--mesh", default="", type=is_usable, help=of_mesh)


def save(path: Path, runs: Path, recipe: dict, **about: Any) -> None:
    """Writes how models were made: the recipe, the data, their quality, and the curves
    of their stages.
    """
    curves = {
        folder: [json.loads(line) for line in (runs / folder / "curve.jsonl").open()]
        for folder in recipe["stages"]
        if (runs / folder).exists()
    }
    storage.write_json(path, {"recipe": recipe, **about, "curves": curves})
