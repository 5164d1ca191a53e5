"""What a definition says, without what it is called, where it stands and its comments.

The normal form of a definition is a list of words. A name that stands for another
definition of the repository is a `Place`, so that whoever reads the list may put there
what it says; a name from elsewhere is its full dotted name, whatever its alias.
Docstrings, comments and annotations are left out: an annotation computes nothing, and
an object that comes in as an argument was made by code that is reached itself. So is
what an error says; and what a function calls its own variables, arguments excepted.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from experiments.records import modules
from experiments.records.modules import Module

SKIPPED = {"annotation", "returns", "type_comment", "ctx", "kind", "type_params"}


class Place(NamedTuple):
    """A definition by its module and its name; name "": the module as a value; a name
    that begins with "!": an effect of importing it."""

    module: str
    name: str


class Tree:
    """The definitions below a folder; each is read once.

    apart: modules whose definitions say nothing; see `fingerprint.APART`. hashes: of
    the definitions that were asked for so far.
    """

    def __init__(self, root: Path, apart: tuple[str, ...] = ()):
        self.root, self.apart = root, apart
        self._modules: dict[str, Module | None] = {}
        self._words: dict[Place, list[str | Place]] = {}
        self.hashes: dict[Place, str] = {}

    def module(self, name: str) -> Module | None:
        if name not in self._modules:
            self._modules[name] = modules.parse(self.root, name)
        return self._modules[name]

    def words(self, place: Place) -> list[str | Place]:
        """The normal form of a definition."""
        if place not in self._words:
            self._words[place] = list(self._read(place))
        return self._words[place]

    def places(self, place: Place) -> list[Place]:
        """The definitions that one refers to."""
        return [word for word in self.words(place) if isinstance(word, Place)]

    def everything(self, module: str) -> list[Place]:
        """All definitions of a module, without its effects."""
        return [Place(module, name) for name in self.module(module).definitions]

    def effects(self, module: str) -> list[Place]:
        """What importing a module does, and importing the packages around it."""
        parts = module.split(".")
        above = [".".join(parts[:i]) for i in range(1, len(parts) + 1)]
        named = [name for name in above if name not in self.apart]
        return [
            Place(name, f"!{i}")
            for name in named
            for i in range(len(self.module(name).effects))
        ]

    def resolve(self, dotted: str) -> tuple[Place | str, list[str]]:
        """What a dotted name stands for, and the attributes of it that are left.

        A name from elsewhere is given back whole. Raises ValueError for a module of
        the repository that is not there, or that has no such name.
        """
        parts = dotted.split(".")
        if parts[0] not in modules.PACKAGES:
            return dotted, []
        name, rest = parts[0], parts[1:]
        while rest:
            module = self.module(name)
            if module is None:
                raise ValueError(f"no module {name} in {self.root}")
            head, *after = rest
            if head in module.definitions:
                return Place(name, head), after
            target = module.imports.get(head)
            if target and target != f"{name}.{head}":
                return self.resolve(".".join([target, *after]))
            if self.module(f"{name}.{head}") is None:
                if head.startswith("__"):
                    break
                raise ValueError(f"{name} has no {head}")
            name, rest = f"{name}.{head}", after
        if self.module(name) is None:
            raise ValueError(f"no module {name} in {self.root}")
        return Place(name, ""), rest

    def _read(self, place: Place) -> Iterator[str | Place]:
        module = self.module(place.module)
        if place.module in self.apart:
            yield "apart"
        elif not place.name:
            yield from self._interface(place.module)
        else:
            nodes = module.definitions.get(place.name, [])
            if place.name.startswith("!"):
                nodes = [module.effects[int(place.name[1:])]]
            if any(map(says_where, nodes)):
                nodes = []  # a file counts by what is in it
            yield "definition"
            for node in nodes:
                yield from _Reader(self, module).read(node, top=True)

    def _interface(self, module: str) -> Iterator[str | Place]:
        """A module as a value, whose holder asks for names: the definitions that no
        other definition of it uses, with their names."""
        left = sorted(self.everything(module))
        used = {to for place in left for to in self.places(place) if to != place}
        outer = [place for place in left if place not in used]
        while left:
            for place in outer or left[:1]:  # the first of a circle
                yield from (place.name, place)
            inside = set(outer or left[:1])
            waiting = list(inside)
            while waiting:
                new = {to for to in self.places(waiting.pop()) if to in left} - inside
                inside |= new
                waiting += new
            left, outer = [place for place in left if place not in inside], []


def says_where(node: ast.AST) -> bool:
    """Whether a constant is a path beside its file: what lies there is an input."""
    if not isinstance(node, ast.expr):
        return False
    names = (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
    return "__file__" in names


class Local(int):
    """A variable of a function, by the order in which its scope binds them."""


def locals_of(nodes: list) -> dict[str, Local]:
    return {name: Local(i) for i, name in enumerate(modules.stored(nodes))}


class ClassScope(dict):
    """The names of a class's body, which its functions do not see."""


class _Reader:
    """Reads one definition of a module."""

    def __init__(self, tree: Tree, module: Module):
        self.tree, self.module = tree, module

    def read(self, node, scopes: tuple = (), top=False) -> Iterator[str | Place]:
        """The words of a node; scopes: the local names around it, innermost last."""
        if isinstance(node, list):
            yield "["
            for item in node:
                if not (isinstance(item, ast.stmt) and modules.is_idle(item)):
                    yield from self.read(item, scopes)
            yield "]"
        elif not isinstance(node, ast.AST):
            yield repr(node)
        elif isinstance(node, ast.Name | ast.Attribute):
            yield from self.name(node, scopes)
        elif isinstance(node, modules.NESTED):
            if not top and hasattr(node, "name"):
                yield from self.bound(node.name, scopes)
            yield from self.nested(node, scopes)
        elif isinstance(node, ast.Raise):
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            yield "raise"
            yield from self.read(error, scopes)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield from self.bound(node.name, scopes)
            yield from self.fields(node, scopes, skip=("name",))
        elif isinstance(node, ast.AnnAssign):
            yield from self.read(ast.Assign([node.target], node.value), scopes)
        elif isinstance(node, modules.LISTS):
            yield from self.read(node.generators[0].iter, scopes)
            targets = [generator.target for generator in node.generators]
            yield from self.fields(node, (*scopes, locals_of(targets)))
        else:
            yield from self.fields(node, scopes)

    def fields(self, node: ast.AST, scopes: tuple, skip=()) -> Iterator[str | Place]:
        yield type(node).__name__
        for name, value in ast.iter_fields(node):
            if name not in SKIPPED and name not in skip:
                yield from self.read(value, scopes)

    def nested(self, node, scopes: tuple) -> Iterator[str | Place]:
        """A function or a class: what is computed outside of it, then its body."""
        yield from self.fields(node, scopes, skip=("name", "body"))
        body = node.body if isinstance(node.body, list) else [node.body]
        if isinstance(node, ast.ClassDef):
            inner = dict.fromkeys(modules.stored(body))
            inner |= modules.imported(body, self.module.package)
            yield from self.class_body(body, (*scopes, ClassScope(inner)))
            return
        every = (n.arg for n in ast.walk(node.args) if isinstance(n, ast.arg))
        inner = locals_of(body) | dict.fromkeys(every)
        inner |= modules.imported(body, self.module.package)
        seen = (scope for scope in scopes if not isinstance(scope, ClassScope))
        yield from self.read(body, (*seen, inner))

    def class_body(self, body: list, scopes: tuple) -> Iterator[str | Place]:
        """A field without a value is one too."""
        for item in body:
            if isinstance(item, ast.AnnAssign):
                yield from ("field", ast.unparse(item.target))
                yield from self.read(item.value, scopes)
            else:
                yield from self.read([item], scopes)

    def name(self, node: ast.expr, scopes: tuple) -> Iterator[str | Place]:
        """A name with its attributes, as far as it stands for a definition."""
        chain = []
        while isinstance(node, ast.Attribute):
            chain.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            yield "attribute"
            yield from self.read(node, scopes)
            yield from chain
            return
        scope = next((scope for scope in reversed(scopes) if node.id in scope), None)
        if scope is not None and isinstance(scope[node.id], Local):
            yield from (*self.bound(node.id, scopes), *chain)
            return
        dotted = self.outer(node.id) if scope is None else scope[node.id]
        if isinstance(scope, ClassScope) and isinstance(node.ctx, ast.Load):
            dotted = dotted or self.outer(node.id)  # before the class has such a name
        if dotted is None:
            yield from ("name", ".".join([node.id, *chain]))
            return
        target, rest = self.tree.resolve(".".join([dotted, *chain]))
        yield from (target, *rest)

    def bound(self, name: str, scopes: tuple) -> Iterator[str]:
        """A name in its scope: of a variable, which scope it is and which of its."""
        for depth, scope in reversed([*enumerate(scopes)]):
            if name in scope:
                local = isinstance(scope[name], Local)
                yield f"variable {depth} {scope[name]}" if local else f"name {name}"
                return
        yield f"name {name}"

    def outer(self, name: str) -> str | None:
        """What a name of the module stands for; None for one that Python gives."""
        if name in self.module.definitions:
            return f"{self.module.name}.{name}"
        return self.module.imports.get(name)
