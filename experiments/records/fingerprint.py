"""Which definitions made a number: one hash, so that a table can say it is out of date.

It covers what the definitions say that a measurement reaches, however indirectly, and
the files that it reads. It does not cover comments, docstrings, annotations, what is
not reached, nor where anything stands or what it is called: a definition, a module or a
file that is moved or renamed leaves it as it was.
"""

import ast
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from experiments.records import contents
from experiments.records.definitions import Place, Tree

ROOT = Path(__file__).resolve().parents[2]
# Modules that change no number by themselves: some hand over the rule, the policy or
# the model of a name, which is among what a measurement says that it reaches; one holds
# what is measured.
APART = ("specjax.verifiers", "specjax.policies", "specjax.own", "specjax.bench.row")
APART += ("specjax.checkpoints",)
IMPORT = re.compile(r"^(?:from (?!__gin__)\S+ )?import .*$", re.M)
NAMED = re.compile(r"(?:@|^# Parameters for )([\w./]+)", re.M)


def of(provenance: Mapping, root: Path | None = None) -> str:
    """The sha256 of what a provenance names: `module`, `config`, `reaches`, `inputs`.

    root: of the repository's files. A definition that is not there counts as absent.
    """
    return _of(
        root or ROOT,
        tuple(sorted(set(entries(provenance)))),
        files(provenance["inputs"]),
    )


def today(provenance: Mapping) -> str:
    """The fingerprint that a record would get now.

    An input that is not here, such as the weights of another machine, counts as it was.
    """
    inputs = {
        name: here(ROOT / name) or recorded
        for name, recorded in provenance["inputs"].items()
    }
    return of({**provenance, "inputs": inputs})


def entries(provenance: Mapping) -> Iterator[str]:
    """The dotted names of the definitions that a measurement begins with.

    They are what its config names, and what it `reaches` beside. All of its module, if
    the config names nothing in there.
    """
    named = set(configured(provenance.get("config", "")))
    yield from (
        name.replace(":", ".") for name in {*named, *provenance.get("reaches", ())}
    )
    if not any(name.startswith(f"{provenance['module']}.") for name in named):
        yield provenance["module"]


def configured(config: str) -> Iterator[str]:
    """The dotted names of what an operative gin config calls."""
    names = {}
    for line in IMPORT.findall(config):
        for statement in ast.parse(line).body:
            base = getattr(statement, "module", None)
            for alias in statement.names:
                whole = f"{base}.{alias.name}" if base else alias.name
                names[alias.asname or alias.name] = whole
    for selector in NAMED.findall(config):
        head, _, rest = selector.rpartition("/")[2].partition(".")
        if head in names and rest:
            yield f"{names[head]}.{rest}"


def files(inputs: Mapping[str, str]) -> tuple[str, ...]:
    """Each input by its name and its digest, wherever it lies."""
    return tuple(sorted(f"{Path(name).name} {x}" for name, x in inputs.items()))


def inputs_of(paths: Iterable[Path]) -> dict[str, str]:
    """Digests by path within the repository, or by bare name outside of it."""
    named = {}
    for path in map(Path.resolve, paths):
        inside = path.is_relative_to(ROOT)
        named[path.relative_to(ROOT).as_posix() if inside else path.name] = digest(path)
    return named


def digest(path: Path) -> str:
    """Of all bytes; of C++ but for its comments and line breaks."""
    if path.suffix == ".cc":
        lines = (line.partition("//")[0] for line in path.read_text().splitlines())
        return hashlib.sha256(" ".join(" ".join(lines).split()).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reached(names: Iterable[str], root: Path | None = None) -> set[Place]:
    """All definitions that some dotted names lead to; a module's name is all of it.

    Raises ValueError for a name that is not there.
    """
    tree = tree_of(root or ROOT)
    return contents.reach(tree, [x for name in names for x in begun(tree, name)])


def begun(tree: Tree, name: str) -> list[Place]:
    place, _ = tree.resolve(name)
    if isinstance(place, str):
        raise ValueError(f"{name} is not of this repository")
    return [place] if place.name else tree.everything(place.module)


@functools.cache
def _of(root: Path, names: tuple[str, ...], inputs: tuple[str, ...]) -> str:
    tree, places, absent = tree_of(root), set(), []
    for name in names:
        try:
            places |= set(begun(tree, name))
        except ValueError:
            absent.append(f"no {name}")
    every = contents.reach(tree, places)
    contents.learn(tree, every, tree.hashes)
    lines = [*sorted({tree.hashes[place] for place in every}), *absent, *inputs]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@functools.cache
def here(path: Path) -> str | None:
    return digest(path) if path.is_file() else None


@functools.cache
def tree_of(root: Path) -> Tree:
    return Tree(root, APART)


def forget() -> None:
    """What was read is read again."""
    for cache in (_of, here, tree_of):
        cache.cache_clear()
