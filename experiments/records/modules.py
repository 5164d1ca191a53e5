"""A module of this repository as source text: what it defines, imports and does.

Nothing is imported: a module is parsed. Its top-level names are definitions (functions,
classes, constants) or imports; any other statement is an effect of importing it.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("specjax", "experiments", "pallas_kernels")
NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
COMPOUND = (ast.If, ast.Try, ast.For, ast.While, ast.With, ast.Match)
LISTS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Module(NamedTuple):
    """package: whose `.` its imports mean. definitions: the statements that make each
    name. imports: what each imported name stands for, as a dotted name. effects: the
    other statements."""

    name: str
    package: str
    definitions: dict[str, list[ast.AST]]
    imports: dict[str, str]
    effects: list[ast.stmt]


def locate(root: Path, name: str) -> Path | None:
    """The file or the folder of a module; None for a name that is no module of ours."""
    if name.partition(".")[0] not in PACKAGES:
        return None
    base = root.joinpath(*name.split("."))
    places = (base / "__init__.py", base.with_name(base.name + ".py"), base)
    return next((path for path in places if path.exists()), None)


def parse(root: Path, name: str) -> Module | None:
    """A module by its dotted name; None if there is none. A folder has no statements.

    Raises ValueError for a star import, whose names no reader can tell.
    """
    path = locate(root, name)
    if path is None:
        return None
    text = path.read_text("utf-8") if path.is_file() else ""
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    body = ast.parse(text).body
    module = Module(name, package, {}, imported(body, package), [])
    for statement in body:
        if not (is_main(statement) or is_idle(statement)):
            enter(module, statement)
    return module


def enter(module: Module, statement: ast.stmt) -> None:
    """Files a top-level statement under the names that it makes or changes.

    What is neither a definition nor a change of one is an effect. A compound statement
    (`try`, `for`) is both.
    """
    pairs = list(bindings(statement))
    if not pairs and owner(statement) in module.definitions:
        pairs = [(owner(statement), statement)]
    if not pairs or isinstance(statement, COMPOUND):
        module.effects.append(statement)
    for name, node in pairs:
        if name not in module.imports:
            module.definitions.setdefault(name, []).append(node)


def bindings(statement: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """The names that a top-level statement makes, each with what it makes it of."""
    if isinstance(statement, NESTED):
        yield statement.name, statement
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from assigned(target, statement.value)
    elif isinstance(statement, ast.AnnAssign):
        yield from assigned(statement.target, statement.value)
    elif not isinstance(statement, ast.AugAssign | ast.Expr):
        yield from ((name, statement) for name in stored([statement]))


def assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    """`a, b = 1, 2` as two assignments; `a, b = f()` as places of one value."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        each = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        plain = len(each) == len(target.elts)
        plain = plain and not any(isinstance(x, ast.Starred) for x in target.elts)
        for i, part in enumerate(target.elts):
            place = ast.Subscript(value, ast.Constant(i), ast.Load())
            inner = part.value if isinstance(part, ast.Starred) else part
            yield from assigned(inner, each[i] if plain else place)


def owner(statement: ast.stmt) -> str | None:
    """Whose value a statement changes: X of `X |= ...`, `X[...] = ...`, `X.add()`."""
    node = None
    if isinstance(statement, ast.AugAssign):
        node = statement.target
    elif isinstance(statement, ast.Assign):
        node = statement.targets[0]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        node = function if isinstance(function, ast.Attribute) else None
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def is_main(statement: ast.stmt) -> bool:
    """Whether this is what only a command runs."""
    test = statement.test if isinstance(statement, ast.If) else None
    left = test.left if isinstance(test, ast.Compare) else None
    return isinstance(left, ast.Name) and left.id == "__name__"


def is_idle(node: ast.AST) -> bool:
    """Whether a statement is a docstring, an import, a bare annotation or `pass`.

    So is one that holds nothing else.
    """
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    if isinstance(node, ast.If):
        return all(map(is_idle, [*node.body, *node.orelse]))
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Pass)


def within(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every node of one scope: nested functions, classes and lists are not entered."""
    for node in nodes:
        yield node
        if isinstance(node, LISTS):
            yield from (n for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
        elif not isinstance(node, NESTED):
            yield from within(ast.iter_child_nodes(node))


def stored(nodes: Iterable[ast.AST]) -> list[str]:
    """The names that a scope binds other than by an import, as the text has them."""
    places, elsewhere = {}, set()
    for node in within(nodes):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            name = node.id
        elif isinstance(node, ast.NamedExpr):
            name = node.target.id
        elif isinstance(node, ast.MatchMapping):
            name = node.rest
        elif isinstance(node, NESTED[:3] + (ast.ExceptHandler,)):
            name = node.name
        elif isinstance(node, ast.MatchAs | ast.MatchStar):
            name = node.name
        else:
            if isinstance(node, ast.Global):
                elsewhere.update(node.names)
            continue
        at = node.lineno, node.col_offset
        places[name] = min(at, places.get(name, at))
    return sorted(places.keys() - elsewhere - {None}, key=places.get)


def imported(body: Iterable[ast.AST], package: str) -> dict[str, str]:
    """What the names that a scope imports stand for."""
    names = {}
    for node in within(body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                head = alias.name.partition(".")[0]
                names[alias.asname or head] = alias.name if alias.asname else head
        elif isinstance(node, ast.ImportFrom):
            base = origin(node, package)
            for alias in node.names:
                if alias.name == "*":
                    raise ValueError(f"{package}: name what is imported from {base}")
                names[alias.asname or alias.name] = f"{base}.{alias.name}"
    return names


def origin(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    above = package.split(".")
    above = above[: len(above) - node.level + 1]
    return ".".join([*above, node.module] if node.module else above)
