"""Who may import whom, read from the import lines; the architecture in one table.

A folder is a room, and a module at the top of a package one of its own. `types` knows
nobody; models, drafters and verifiers do not know each other; kernels know the types
alone: what crosses a border is an argument. Of the library one module may name the
kernels, the one that chooses them. And what may not be a thing's name.
"""

import ast
import itertools
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("specjax", "pallas_kernels", "experiments", "tests")

# A room and the rooms that it may import from; a room may import from itself. A name
# stands for all that begins with it; the longest that fits a module is its room.
PURE = ("specjax.types", "specjax.probs", "specjax.keys")
STEP = (
    *PURE,
    "specjax.portions",
    "specjax.step",
    "specjax.inputs",
    "specjax.finite",
    "specjax.generate",
)
PARTS = ("specjax.models", "specjax.drafters", "specjax.verifiers", "specjax.policies")
LOADED = ("specjax.types", "specjax.models", "specjax.checkpoints", "specjax.zoo")
LOADED += ("specjax.tokenizers",)
LIBRARY = (*STEP, *PARTS, *LOADED, "specjax.theory", "specjax.native", "specjax.own")
TEXT = (*LIBRARY, "specjax.pretrained", "specjax.bench", "specjax.drafts")
RECORDS = ("experiments.records", "specjax.bench")
CHOICE = ("specjax.commands.kernels",)  # of what reads logits
ROWS = (*LIBRARY, *RECORDS, *CHOICE, "specjax.drafts", "experiments.tasks")
ROOMS = {
    "specjax.types": (),
    "specjax.truncation": (),
    "specjax.probs": ("specjax.types", "specjax.truncation"),
    "specjax.keys": ("specjax.types",),
    "specjax.console": (),
    "specjax.own": (),
    "specjax.jax_flags": (),
    "specjax.policies": ("specjax.types", "specjax.own"),
    "specjax.theory": (),
    "specjax.native": (),
    "specjax.portions": ("specjax.types",),
    "specjax.models": (*PURE, "specjax.native", "specjax.portions"),
    "specjax.verifiers": (*PURE, "specjax.own"),
    "specjax.drafters": (*PURE, "specjax.portions"),
    "specjax.step": (
        *PURE,
        "specjax.portions",
        "specjax.drafters.nothing",
        "specjax.verifiers.token",
    ),
    "specjax.inputs": (*PURE, "specjax.jax_flags", "specjax.step"),
    "specjax.finite": ("specjax.types",),
    "specjax.generate": (
        *PURE,
        "specjax.portions",
        "specjax.step",
        "specjax.inputs",
        "specjax.finite",
    ),
    "specjax.tokenizers": (),
    "specjax.speech": ("specjax.types", "specjax.tokenizers"),
    "specjax.zoo": (
        *PURE,
        "specjax.models",
        "specjax.drafters.ngram",
        "specjax.tokenizers",
    ),
    "specjax.checkpoints": (
        *PURE,
        "specjax.models",
        "specjax.zoo",
        "specjax.native",
        "specjax.jax_flags",
    ),
    "specjax.pretrained": LOADED,
    "specjax.bench": (*LIBRARY, "specjax.pretrained", "specjax.console"),
    "specjax.drafts": (*LIBRARY, "specjax.pretrained", "specjax.bench", "specjax.own"),
    "specjax.prompts": ("specjax.bench", "specjax.models", "specjax.pretrained"),
    "specjax.text": (*TEXT, *CHOICE, "specjax.prompts"),
    "specjax.listening": (
        *TEXT,
        *CHOICE,
        "specjax.commands.flags",
        "specjax.console",
        "specjax.prompts",
        "specjax.speech",
    ),
    "specjax.exactness": (*LIBRARY, "specjax.bench", "specjax.console"),
    "specjax.commands": (
        *TEXT,
        "specjax.prompts",
        "specjax.exactness",
        "specjax.console",
        "specjax.listening",
    ),
    "specjax.commands.kernels": ("specjax", "pallas_kernels"),
    "specjax": ("specjax",),
    "pallas_kernels": ("specjax.types",),
    "experiments.records": ("specjax.bench", "specjax.commands.configs"),
    "experiments.tasks": (*LIBRARY, *RECORDS, "specjax.pretrained", "specjax.console"),
    "experiments.leviathan": (*ROWS, "specjax.commands"),
    "experiments.wagner": (*ROWS, "experiments.leviathan"),
    "experiments.kinds": (*ROWS, "specjax.commands", "experiments.leviathan"),
    "experiments.chen": (
        *ROWS,
        "experiments.leviathan",
        "experiments.wagner",
        "specjax.text",
    ),
    "experiments.listening": (
        *ROWS,
        "experiments.leviathan",
        "experiments.wagner",
        "specjax.commands.demo",
        "specjax.listening",
        "specjax.speech",
    ),
    "experiments.exactness": (*ROWS, "specjax.exactness"),
    "experiments.paper_size": ROWS,
    "experiments.aot": (*ROWS, "pallas_kernels"),
    "experiments.kernels": (
        *ROWS,
        "pallas_kernels",
        "experiments.aot",
        "experiments.paper_size",
    ),
    "experiments.engines": ROWS,
    "experiments.training": (*ROWS, "specjax.speech", "specjax.console"),
    "experiments": ("specjax", "experiments"),
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
    "specjax.checkpoints.huggingface": ("huggingface_hub",),
    "specjax.checkpoints.openai_whisper": ("torch",),
    "specjax.tokenizers.huggingface": ("tokenizers",),
    "specjax.tokenizers.chat": ("jinja2",),
    "specjax.speech.audio": ("soundfile", "soxr"),
    "specjax.commands.configs": ("gin",),
    "experiments.tasks.paper": ("tensorflow", "tensorflow_datasets", "seqio"),
    "experiments.engines": ("torch", "seqio"),
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
        ("specjax.commands.audit", "from experiments import run"),
        ("specjax.commands.audit", "import pallas_kernels"),
        ("specjax.checkpoints.t5x.native", "import torch.nn"),
        ("specjax.checkpoints.t5x", "from tensorflow import io"),
        ("specjax.checkpoints.t5x", "import jinja2"),
        ("specjax.bench.row", "import pandas as pd"),
        ("specjax.commands.demo", "from pallas_kernels import wiring"),
        ("specjax.bench.walltime", "def later():\n    import pallas_kernels"),
        ("pallas_kernels.fuse", "from specjax import probs"),
        ("experiments.training.loop", "import gin"),
        ("experiments.run", "import gin"),
        ("specjax.bench.row", "from experiments.report import page"),
        ("experiments.leviathan.lenience", "from experiments import wagner"),
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
        ("specjax.commands.audit", "from specjax import generate"),
        (
            "specjax.verifiers.token",
            "import jax.numpy as jnp\nfrom specjax import keys",
        ),
        ("specjax.commands.configs", "def imported():\n    import gin"),
        ("experiments.kernels.bench", "from pallas_kernels import fuse"),
        ("pallas_kernels.fuse", "from specjax.types import Law"),
        ("specjax.commands.kernels", "from pallas_kernels import wiring"),
    ],
)
def test_the_check_lets_pass(module, source):
    assert not offences(source, module)
