"""Summaries that every machine has: documentation strings, their body and first line.

The body of a documentation string, without its first line, is an article; that line
is its summary. Read from Python's standard library and from the packages that the
experiments stand on. A file's side, train, valid or test, is `corpus.split_of` its
path.
"""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from experiments.training.texts import corpus

PACKAGES = ("numpy", "scipy", "matplotlib", "jax", "flax", "optax")
LONGEST = 1200  # characters of a body that are read
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def pairs(split: str) -> list[tuple[str, str]]:
    """(body, first line) of one side, each body once, in the order of the files."""
    summaries = {}
    for path in files(split):
        for text in strings(path.read_text("utf-8", errors="ignore")):
            body, summary = cut(text)
            if worth(body, summary):
                summaries.setdefault(body, summary)
    return list(summaries.items())


def files(split: str) -> Iterator[Path]:
    """Of the standard library, then of each package that is installed."""
    yield from corpus.library(split)
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            yield from corpus.modules(Path(spec.origin).parent, split)


def strings(source: str) -> Iterator[str]:
    """Every documentation string of a file; a file that does not parse has none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED):
            text = ast.get_docstring(node)
            if text:
                yield text


def cut(text: str) -> tuple[str, str]:
    """The body and the first paragraph as one line, which is the summary."""
    summary, _, body = text.strip().partition("\n\n")
    body = body.strip()
    if len(body) > LONGEST:
        body = body[:LONGEST].rpartition(" ")[0]
    return body, " ".join(summary.split())


def worth(body: str, summary: str) -> bool:
    """Sentences of some length on both sides, not signatures or tables."""
    words = len(body.split())
    return (
        words >= 15
        and 3 <= len(summary.split()) <= 30
        and summary.endswith(".")
        and summary[0].isupper()
        and "(" not in summary.split()[0]
    )
