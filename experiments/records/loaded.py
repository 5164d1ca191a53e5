"""Which model a measurement loads: told by its weights, since no line of code names it.

`specjax.checkpoints` hands over the model of whatever family a file is of, so that a
new family changes no number: what is reached of it is said here.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from specjax import checkpoints
from specjax.checkpoints import archive, fields, huggingface

# How any weights become parameters.
READ = ("specjax.checkpoints.archive:fill", "specjax.checkpoints.archive:scaled")
T5X = ("checkpoint", "_METADATA")  # the first file of such a folder


def reaches(inputs: Iterable[Path]) -> tuple[str, ...]:
    """The definitions that a measurement of these inputs reaches by loading them."""
    families = sorted(set(families_of(inputs)))
    models = (checkpoints.FAMILIES[family].MODELS.__name__ for family in families)
    built = tuple(f"{module}:build" for module in models)
    return (*built, *READ) if built else ()


def families_of(paths: Iterable[Path]) -> Iterator[str]:
    """The family of each checkpoint among some files."""
    for path in paths:
        if path.name == huggingface.CONFIG:
            yield huggingface.FORMATS[fields.read(path)["model_type"]].FAMILY
        elif path.name in T5X:
            yield "t5"
        elif path.suffix == ".safetensors":
            metadata = archive.metadata(path)
            if "config" in metadata:
                yield metadata.get("family", "gpt")
