"""Who may import whom, read from the import lines; the architecture in one table.

`types` knows nobody, models, drafters and verifiers do not know each other, and the
kernels and the library do not know each other: what crosses a border is an argument.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("specjax", "pallas_kernels", "experiments", "tests")

# A room and the rooms that it may import from. Every module is in the first room that
# its name begins with; a room may always import from itself.
PURE = ("specjax.types", "specjax.probs", "specjax.theory", "specjax.estimate")
PURE += ("specjax.keys",)
ROOMS = {
    "specjax.types": (),
    "specjax.probs": PURE,
    "specjax.theory": PURE,
    "specjax.estimate": PURE,
    "specjax.keys": PURE,
    "specjax.losses": PURE,
    "specjax.predict": PURE,
    "specjax.models": PURE,
    "specjax.checkpoints": (*PURE, "specjax.models", "specjax.zoo"),
    "specjax.verifiers": PURE,
    "specjax.drafters": PURE,
    "specjax.step": (*PURE, "specjax.verifiers"),
    "specjax.generate": (
        *PURE,
        "specjax.step",
        "specjax.verifiers",
        "specjax.drafters.nothing",
    ),
    "specjax": ("specjax",),
    "pallas_kernels": (),
    "experiments": ("specjax", "pallas_kernels"),
    "tests": PACKAGES,
}
# Packages from elsewhere that stay out of a package, and the files that may have them.
FOREIGN = ("gin", "tensorflow", "torch", "seqio")
BARRED = {
    "specjax": FOREIGN,
    "pallas_kernels": FOREIGN,
    "experiments": ("gin", "tensorflow", "tensorflow_datasets", "seqio"),
    "tests": ("torch", "tensorflow"),
}
ALLOWED = {("experiments.run", "gin"), ("tests", "gin")}
ALLOWED |= {("experiments.tasks.paper", far) for far in ("tensorflow", "seqio")}
ALLOWED |= {("experiments.tasks.paper", "tensorflow_datasets")}
ALLOWED |= {("experiments.rivals", far) for far in ("torch", "seqio")}


def within(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


def room_of(name: str) -> str:
    return next(room for room in ROOMS if within(name, room))


def imports(source: str, module: str) -> set[str]:
    """The modules that a source names, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")[: -node.level]
                base = ".".join([*above, base] if base else above)
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def offences(source: str, module: str) -> list[str]:
    """What `module` imports though it may not."""
    package, room = module.split(".")[0], room_of(module)
    found = []
    for name in sorted(imports(source, module)):
        if name.split(".")[0] in PACKAGES:
            allowed = within(name, room) or any(within(name, r) for r in ROOMS[room])
        else:
            barred = [far for far in BARRED[package] if within(name, far)]
            allowed = all(
                any(within(module, near) and far == other for near, other in ALLOWED)
                for far in barred
            )
        if not allowed:
            found.append(f"{module} imports {name}")
    return found


def modules() -> dict[str, Path]:
    """Every Python file of the repository's packages, by its dotted name."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    names = [path.relative_to(ROOT).with_suffix("").parts for path in files]
    joined = [".".join(part for part in name if part != "__init__") for name in names]
    return dict(zip(joined, files, strict=True))


def test_everyone_keeps_to_their_room():
    found = [
        offence
        for module, path in modules().items()
        for offence in offences(path.read_text(), module)
    ]
    assert not found, "\n".join(found)
    assert {"specjax.step", "specjax.drafters", "experiments.train"} <= set(modules())


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
        ("specjax.audit", "from experiments import train"),
        ("specjax.audit", "import pallas_kernels"),
        ("specjax.checkpoints.t5x", "import torch.nn"),
        ("specjax.checkpoints.t5x", "from tensorflow import io"),
        ("pallas_kernels.verify", "from specjax.types import Law"),
        ("experiments.train", "import gin"),
        ("experiments.train", "from tests import tiny"),
        ("experiments.tasks.files", "import seqio"),
        ("experiments.train", "import tensorflow_datasets as tfds"),
    ],
)
def test_the_check_notices(module, source):
    assert offences(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("specjax.drafters.copying", "from specjax.drafters.rollout import rollout"),
        ("specjax.drafters.copying", "from . import nothing"),
        ("specjax.audit", "from specjax import generate"),
        (
            "specjax.verifiers.token",
            "import jax.numpy as jnp\nfrom specjax import keys",
        ),
        ("experiments.run", "import gin"),
        ("experiments.alpha", "from pallas_kernels import verify"),
    ],
)
def test_the_check_lets_pass(module, source):
    assert not offences(source, module)
