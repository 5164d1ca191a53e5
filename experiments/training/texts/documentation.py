"""Documentation strings, which every machine has: summaries, and passages of prose.

The body of a documentation string, without its first line, is an article, and the first
line is its summary. They come from Python's standard library and the packages that the
experiments use. Passages, long enough to decode for a while, come from the library and
from `packages`: consecutive sentences of one file, as many as needed, from paragraphs
that are prose and not signatures, tables or sections; each sentence is read once. A
file's side, train, valid or test, is `corpus.choose_split` of its path.
"""

import ast
import importlib.util
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from experiments.training.texts import corpus, packages

PACKAGES = ("numpy", "scipy", "matplotlib", "jax", "flax", "optax")
LONGEST = 1200  # characters of a body that are read
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
END = re.compile(r"(?<=[.!?]) (?=[A-Z])")
PLAIN = frozenset(" .,;:'\"()`-")
SECTION = re.compile(
    r"-{3}|={3}|::|>>>|^[A-Z]\w+( \w+)?:|^(Parameters|Returns|Notes)\b"
)


def pairs(split: str) -> list[tuple[str, str]]:
    """Returns (body, first line) of the documentation strings of one split, each body
    once, in the order of the files: those of the standard library, then of each
    installed package.
    """
    files, summaries = [*corpus.library(split)], {}
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            files += corpus.modules(Path(spec.origin).parent, split)
    for text in (text for path in files for text in strings(path)):
        summary, _, body = text.strip().partition("\n\n")
        body, summary = body.strip(), " ".join(summary.split())
        if len(body) > LONGEST:
            body = body[:LONGEST].rpartition(" ")[0]
        if is_useful_pair(body, summary):
            summaries.setdefault(body, summary)
    return list(summaries.items())


def strings(path: Path) -> Iterator[str]:
    """Yields every documentation string of a file; a file that does not parse has
    none.
    """
    try:
        tree = ast.parse(path.read_text("utf-8", errors="ignore"))
    except (SyntaxError, ValueError):
        return
    nodes = (node for node in ast.walk(tree) if isinstance(node, DOCUMENTED))
    yield from filter(None, map(ast.get_docstring, nodes))


def is_useful_pair(body: str, summary: str) -> bool:
    """Returns whether both texts are sentences of some length, not signatures or
    tables.
    """
    return (
        len(body.split()) >= 15
        and 3 <= len(summary.split()) <= 30
        and summary.endswith(".")
        and summary[0].isupper()
        and "(" not in summary.split()[0]
    )


def read(side: str, apart: Collection[str] = ()) -> list[list[str]]:
    """Returns the sentences of one split by file, except those that are in `apart`."""
    files, seen, by_file = [*corpus.library(side)], set(apart), []
    for name in packages.NAMES:
        files += packages.files(packages.find_licensed(name)[0], side)
    for path in files:
        every = (sentence for text in strings(path) for sentence in sentences(text))
        fresh = [text for text in dict.fromkeys(every) if text not in seen]
        seen |= set(fresh)
        by_file += [fresh] if fresh else []
    return by_file


def sentences(text: str) -> list[str]:
    """Returns the sentences in a documentation string's paragraphs of prose, each as
    one line.
    """
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    return [s for p in paragraphs if is_prose(p) for s in END.split(p) if " " in s]


def is_prose(paragraph: str) -> bool:
    """Returns whether a paragraph is whole sentences, nearly all letters, and no
    heading.
    """
    if len(paragraph.split()) < 6 or SECTION.search(paragraph):
        return False
    plain = sum(sign.isalpha() or sign in PLAIN for sign in paragraph)
    whole = paragraph[0].isupper() and paragraph[-1] in ".!?"
    return whole and plain > 0.97 * len(paragraph)


def passages(
    sentences_by_file: list[list[str]],
    length: Callable[[str], int],
    *,
    least: int,
    most: int,
) -> list[str]:
    """Returns passages of consecutive sentences of one file, with `least` to `most` in
    total by `length`.
    """
    whole = []
    for file in sentences_by_file:
        part, size = [], 0
        for sentence in file:
            part, size = [*part, sentence], size + length(sentence)
            if size >= least:
                whole += [" ".join(part)] if size <= most else []
                part, size = [], 0
    return whole
