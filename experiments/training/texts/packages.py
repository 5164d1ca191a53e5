"""Training text from permissively licensed packages: the functions of those that are
installed.

Documents are those of `corpus`, of packages that specjax and its experiments use. A
package whose licence is not permissive is refused, even if it is in the list. Versions
differ between machines: `Package` records which were read.
"""

import re
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from experiments.training.texts import corpus

# Distributions; those that hold copies of the standard library's own code are left out.
NAMES = """
absl-py anyio asttokens attrs babel beautifulsoup4 build click cloudpickle
contourpy cycler etils executing filelock flax fonttools fsspec gin-config
httpx2 huggingface_hub ipykernel ipython jax jedi Jinja2 joblib jsonschema
jupyter_client jupyter_core markdown-it-py matplotlib myst-parser nbclient
nbformat nltk numpy opt_einsum optax orbax-checkpoint packaging parso pexpect
pillow pluggy prompt_toolkit psutil pyparsing pytest python-dateutil pyzmq
referencing requests rich rouge_score sacrebleu safetensors scipy
sortedcontainers soupsieve Sphinx tokenizers tornado traitlets treescope urllib3
""".split()
PERMISSIVE = re.compile(
    r"\b(MIT|0?BSD|Apache|Python Software Foundation|PSF|ISC|HPND)\b", re.IGNORECASE
)
RESTRICTIVE = re.compile(r"GPL|GNU|MPL|Mozilla|EPL|CDDL|AFL|proprietary", re.IGNORECASE)
SKIPPED = corpus.SKIPPED | {"testing", "_vendor", "_vendored", "vendor"}


class Package(NamedTuple):
    """A package that was read; `documents` counts those of all splits."""

    name: str
    version: str
    licence: str
    documents: int


def read(split: str, apart: list[str]) -> tuple[list[str], list[Package]]:
    """Returns the documents of one split that repeat none of those in `apart`, and
    their packages.

    Raises:
        ValueError: a package's licence is not permissive.
    """
    known, seen, about = long_lines(apart), set(apart), []
    documents: list[str] = []
    for name in NAMES:
        distribution, licence = find_licensed(name)
        before = len(documents)
        for path in files(distribution, split):
            for text in corpus.extract_documents(
                path.read_text("utf-8", errors="ignore")
            ):
                if text not in seen and not repeats(text, known):
                    seen.add(text)
                    documents.append(text)
        fresh = len(documents) - before
        about.append(Package(name, distribution.version, licence, fresh))
    return documents, about


def find_licensed(name: str) -> tuple[metadata.Distribution, str]:
    """Returns the distribution of a name, with its licence. Raises ValueError as `read`
    does."""
    distribution = metadata.distribution(name)
    return distribution, permissive_licence(name, distribution.metadata)


def permissive_licence(name: str, distribution) -> str:
    """Returns the licence in a distribution's metadata, if it is permissive."""
    classifiers = distribution.get_all("Classifier") or []
    named = [c.split(" :: ")[-1] for c in classifiers if c.startswith("License ::")]
    first = (distribution.get("License") or "").strip().split("\n")[0]
    licence = distribution.get("License-Expression") or ", ".join(named) or first
    if RESTRICTIVE.search(licence) or not PERMISSIVE.search(licence):
        raise ValueError(f"{name} is licensed {licence!r}: take it off the list")
    return licence


def files(distribution: metadata.Distribution, split: str) -> list[Path]:
    """Returns the modules of one split, in order; a file's split follows from the hash
    of its path.
    """
    python = (path for path in distribution.files or [] if path.suffix == ".py")
    kept = (path.as_posix() for path in python if not SKIPPED.intersection(path.parts))
    sides = [path for path in sorted(kept) if corpus.choose_split(path) == split]
    places = [Path(str(distribution.locate_file(path))) for path in sides]
    return [path for path in places if path.is_file()]


def long_lines(texts: list[str]) -> set[str]:
    """Returns the longer lines of texts, by which they can be recognized."""
    lines = (line.strip() for text in texts for line in text.split("\n"))
    return {line for line in lines if len(line) >= 24}


def repeats(text: str, known: set[str]) -> bool:
    """Returns whether half of a text's longer lines are among those of held-out
    texts."""
    lines = [line for line in map(str.strip, text.split("\n")) if len(line) >= 24]
    return bool(lines) and sum(line in known for line in lines) > len(lines) / 2
