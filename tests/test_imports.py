"""Who may import whom, read from the import lines; the architecture in one table.

A folder is a room, and a module at the top of a package one of its own. `types` knows
nobody; models, drafters and verifiers do not know each other; kernels know types and
`probs` alone: what crosses a border is an argument. Of the library one module may name
the kernels, the one that chooses them. And what may not be a thing's name.
"""

import ast
import graphlib
import itertools
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("specjax", "pallas_kernels", "experiments", "tests")

# A room and the rooms that it may import from; a room may import from itself. A name
# stands for all that begins with it; the longest that fits a module is its room.
PURE = ("specjax.types", "specjax.probs", "specjax.keys")
STEP = (*PURE, "specjax.chunks", "specjax.step", "specjax.inputs", "specjax.generate")
PARTS = ("specjax.models", "specjax.drafters", "specjax.verifiers", "specjax.policies")
FILES = ("specjax.tokenizers", "specjax.zoo", "specjax.checkpoints")
LIBRARY = (*STEP, *PARTS, *FILES, "specjax.finite", "specjax.native", "specjax.theory")
NAMED = ("specjax.pretrained", "specjax.sides", "specjax.drafts", "specjax.prompts")
TEXT = (*LIBRARY, *NAMED, "specjax.fused", "specjax.plugins", "specjax.console")
RECORDS = ("experiments.records", "specjax.measure")
ROWS = (*TEXT, *RECORDS, "experiments.tasks")
LEVIATHAN = ("experiments.papers.leviathan",)
ROOMS = {
    "specjax.types": (),
    "specjax.truncation": (),
    "specjax.console": (),
    "specjax.plugins": (),
    "specjax.jax_flags": (),
    "specjax.theory": (),
    "specjax.native": (),
    "specjax.tokenizers": (),
    "specjax.probs": ("specjax.types", "specjax.truncation"),
    "specjax.keys": ("specjax.types",),
    "specjax.finite": ("specjax.types",),
    "specjax.chunks": ("specjax.types",),
    "specjax.policies": ("specjax.types", "specjax.plugins"),
    "specjax.quantized": ("specjax.native",),
    "specjax.models": (*PURE, "specjax.native", "specjax.quantized", "specjax.chunks"),
    "specjax.verifiers": (*PURE, "specjax.plugins"),
    "specjax.drafters": (*PURE, "specjax.chunks"),
    "specjax.step": (
        *PURE,
        "specjax.chunks",
        "specjax.drafters.nothing",
        "specjax.verifiers.token",
    ),
    "specjax.inputs": (*PURE, "specjax.jax_flags", "specjax.step"),
    "specjax.generate": (
        *PURE,
        "specjax.chunks",
        "specjax.step",
        "specjax.inputs",
        "specjax.finite",
    ),
    "specjax.zoo": (
        *PURE,
        "specjax.models",
        "specjax.drafters.ngram",
        "specjax.tokenizers",
        "specjax.quantized",
    ),
    "specjax.checkpoints": (
        *PURE,
        "specjax.models",
        "specjax.tokenizers",
        "specjax.zoo",
        "specjax.quantized",
        "specjax.jax_flags",
        "specjax.native.cache_folder",
    ),
    "specjax.pretrained": ("specjax.types", "specjax.models", *FILES),
    "specjax.sides": (*LIBRARY, "specjax.pretrained"),
    "specjax.drafts": (
        *LIBRARY,
        "specjax.pretrained",
        "specjax.sides",
        "specjax.plugins",
    ),
    "specjax.prompts": ("specjax.models", "specjax.pretrained", "specjax.zoo"),
    "specjax.fused": (*LIBRARY, "specjax.sides", "pallas_kernels"),
    "specjax.text": TEXT,
    "specjax.speech": (*TEXT, "specjax.text"),
    "specjax.measure": TEXT,
    "specjax.exactness": (*TEXT, "specjax.measure"),
    "specjax.configs": ("specjax.console", "specjax.measure", "specjax.native"),
    "specjax.cli": (
        *TEXT,
        "specjax.speech",
        "specjax.measure",
        "specjax.exactness",
        "specjax.configs",
    ),
    "specjax": ("specjax",),
    "pallas_kernels": ("specjax.types", "specjax.probs", "specjax.truncation"),
    "experiments": (),
    "experiments.records": ("specjax.measure", "specjax.configs"),
    "experiments.tasks": (*TEXT, "specjax.measure"),
    "experiments.papers.leviathan": ROWS,
    "experiments.papers.wagner": (*ROWS, *LEVIATHAN, "specjax.speech"),
    "experiments.papers.chen": (
        *ROWS,
        *LEVIATHAN,
        "experiments.papers.wagner",
        "specjax.text",
    ),
    "experiments.kinds": (*ROWS, *LEVIATHAN),
    "experiments.exactness": (*ROWS, "specjax.exactness"),
    "experiments.rivals": (*ROWS, "experiments.report"),
    "experiments.canary": (*ROWS, "specjax"),
    "experiments.training": (*ROWS, "specjax.speech"),
    "experiments.gpu": (*ROWS, "pallas_kernels"),
    "experiments.catalogue": ("experiments.records",),
    "experiments.run": (
        "experiments.catalogue",
        "experiments.records",
        "specjax.configs",
        "specjax.console",
    ),
    "experiments.report": (
        *RECORDS,
        "experiments.catalogue",
        "experiments.run",
        "specjax.theory",
        "specjax.configs",
        "specjax.console",
    ),
    "experiments.reproduce": ("specjax", "experiments"),
    "tests": PACKAGES,
}
# Packages from elsewhere: the only ones of `specjax`, which are where it is installed,
# and those that stay out of the others.
DECLARED = {"jax", "flax", "numpy", "scipy", "safetensors", "sentencepiece", "tqdm"}
DECLARED |= {"tensorstore", *sys.stdlib_module_names}
BARRED = {
    "pallas_kernels": ("gin", "tensorflow", "torch", "seqio"),
    "experiments": ("gin", "tensorflow", "tensorflow_datasets", "seqio"),
    "tests": ("torch", "tensorflow"),
}
# Files that may have another: extras of `specjax`, imported where they are asked for.
ALLOWED = {
    "specjax.checkpoints.gguf": ("gguf",),
    "specjax.checkpoints.huggingface": ("huggingface_hub",),
    "specjax.checkpoints.openai_whisper": ("torch",),
    "specjax.tokenizers.gguf": ("gguf",),
    "specjax.tokenizers.huggingface": ("tokenizers",),
    "specjax.tokenizers.chat": ("jinja2",),
    "specjax.speech.audio": ("soundfile", "soxr"),
    "specjax.configs": ("gin",),
    "experiments.tasks.paper": ("tensorflow", "tensorflow_datasets", "seqio"),
    "experiments.rivals": ("torch", "seqio"),
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
    assert {"specjax.step", "specjax.drafters", "experiments.training.loop"} <= {*files}
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


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("specjax.types", "from specjax import keys"),
        ("specjax.probs", "from specjax.step import finished"),
        ("specjax.verifiers.token", "import specjax.drafters.copying"),
        ("specjax.drafters.copying", "from specjax.models import gpt"),
        ("specjax.drafters.copying", "from specjax.verifiers.token import verify"),
        ("specjax.models.gpt", "from specjax.drafters import rollout"),
        ("specjax.models.gpt", "from ..drafters import rollout"),
        ("specjax.step", "from specjax.generate import build"),
        ("specjax.generate", "from specjax.drafters import autoregressive"),
        ("specjax.generate", "def later():\n    import gin"),
        ("specjax.cli.audit", "from experiments import run"),
        ("specjax.cli.audit", "import pallas_kernels"),
        ("specjax.checkpoints.t5x.native", "import torch.nn"),
        ("specjax.checkpoints.t5x", "from tensorflow import io"),
        ("specjax.checkpoints.t5x", "import jinja2"),
        ("specjax.measure.row", "import pandas as pd"),
        ("specjax.cli.demo", "from pallas_kernels import fuse"),
        ("specjax.measure.walltime", "def later():\n    import pallas_kernels"),
        ("pallas_kernels.fuse", "from specjax import generate"),
        ("experiments.training.loop", "import gin"),
        ("experiments.run", "import gin"),
        ("specjax.measure.row", "from experiments.report import page"),
        ("experiments.papers.leviathan.lenience", "from experiments import wagner"),
        ("experiments.training.loop", "from tests import tiny"),
        ("experiments.tasks.files", "import seqio"),
        ("experiments.training.loop", "import tensorflow_datasets as tfds"),
    ],
)
def test_the_check_notices(module, source):
    assert offences(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("specjax.drafters.copying", "from specjax.drafters.rollout import rollout"),
        ("specjax.drafters.copying", "from . import nothing"),
        ("specjax.cli.audit", "from specjax import generate"),
        (
            "specjax.verifiers.token",
            "import jax.numpy as jnp\nfrom specjax import keys",
        ),
        ("specjax.configs", "def imported():\n    import gin"),
        ("experiments.gpu.kernels.bench", "from pallas_kernels import fuse"),
        ("pallas_kernels.fuse", "from specjax.types import Law"),
        ("specjax.fused", "from pallas_kernels import fuse"),
    ],
)
def test_the_check_lets_pass(module, source):
    assert not offences(source, module)
