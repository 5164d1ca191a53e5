"""Training text that every machine has: the functions of Python's standard library.

A document is one function (or method, dedented) with its documentation string, the head
of a class, or the documentation string of a module. The hash of a file's relative path
decides its split, so that a file never changes sides. Distributions ship different
files: `digest` identifies the text that was read.
"""

import ast
import hashlib
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path

# Not library code, or not shipped by every distribution.
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3"}
SKIPPED |= {"turtledemo", "pydoc_data", "encodings", "__pycache__"}
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def choose_split(relative_path: str) -> str:
    """Returns the split of a file: 90 % train, 5 % valid, 5 % test."""
    bucket = hashlib.sha256(relative_path.encode()).digest()[0] % 20
    return {0: "valid", 1: "test"}.get(bucket, "train")


def digest(documents: list[str]) -> str:
    """Returns the sha256 of all documents."""
    return hashlib.sha256("\0".join(documents).encode()).hexdigest()


def stdlib(split: str) -> list[str]:
    read = (path.read_text("utf-8", errors="ignore") for path in library(split))
    return [text for source in read for text in extract_documents(source)]


def library(split: str) -> Iterator[Path]:
    return modules(Path(sysconfig.get_paths()["stdlib"]), split)


def modules(root: Path, split: str) -> Iterator[Path]:
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        kept = not SKIPPED.intersection(place.parts)
        if kept and choose_split(place.as_posix()) == split:
            yield path


def extract_documents(source: str) -> list[str]:
    """Returns the documents in one source file; a file that does not parse has none."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    lines = source.expandtabs(4).split("\n")
    head = ast.get_docstring(module)
    documents = [f'"""{head}\n"""\n'] if head else []
    visit(module, lines, documents)
    return [text for text in documents if 40 <= len(text) <= 12_000]


def visit(node: ast.AST, lines: list[str], documents: list[str]) -> None:
    """Adds the functions and class heads under `node` to `documents`, only the
    outermost functions."""
    for child in getattr(node, "body", []):
        if isinstance(child, FUNCTION | ast.ClassDef):
            # Of a class, up to its first method: attributes and docstring.
            inner = [] if isinstance(child, FUNCTION) else child.body
            methods = [
                first_line(c) for c in inner if isinstance(c, FUNCTION | ast.ClassDef)
            ]
            last = min(methods) - 1 if methods else child.end_lineno
            whole = "\n".join(
                line.rstrip() for line in lines[first_line(child) - 1 : last]
            )
            documents.append(textwrap.dedent(whole).strip("\n") + "\n")
        if isinstance(child, ast.ClassDef | ast.If | ast.Try):
            visit(child, lines, documents)


def first_line(node: ast.AST) -> int:
    """Returns the first line of a node, including decorators."""
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])
