"""What a person set and nothing reads: named, with the nearest name that there is.

Included files may set more than a row uses; its own file and the command line may not.
Files are read as UTF-8, whatever the console's encoding.
"""

import codecs
import contextlib
import difflib
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

MACRO = "gin.macro"
WRITE = "write NAME = VALUE, and a text in quotes: NAME = 'text'"


class ConfigError(ValueError):
    """A gin file or a binding that a person can mend, in one line."""


class Bound(NamedTuple):
    """A line that sets something. A macro is a `selector` in a `scope`; a parameter has
    also its own name. where: its file, or what was typed."""

    scope: str
    selector: str
    parameter: str
    where: str

    def __str__(self) -> str:
        parts = (self.selector, self.parameter)
        return scoped(self.scope, ".".join(filter(None, parts)))


def scoped(scope: str, name: str) -> str:
    return f"{scope}/{name}" if scope else name


def statements(gin, text: str, where: str) -> list[Bound]:
    """What a file or a binding sets by itself, without its includes."""
    return [bound(statement, where) for statement in parsed(gin, text, where)]


def bound(statement, where: str) -> Bound:
    return Bound(statement.scope, statement.selector, statement.arg_name or "", where)


def parsed(gin, text: str, where: str) -> list:
    """The bindings of a text as gin's parser has them, references by their names."""

    class Named(gin.config_parser.ParserDelegate):
        def configurable_reference(self, scoped_configurable_name, evaluate):
            return scoped_configurable_name

        def macro(self, macro_name):
            return macro_name

    try:
        found = list(gin.config_parser.ConfigParser(text, Named()))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        at = f", line {line}" if line and where != text else ""
        raise ConfigError(f"{where}{at}: not a binding of gin: {WRITE}") from None
    return [x for x in found if isinstance(x, gin.config_parser.BindingStatement)]


def unreferenced(gin) -> list[str]:
    """Macros that no value names: a slip of the pen, seen before weights are read."""
    values = gin.config.iterate_references(gin.config._CONFIG)
    named = {"/".join(value.scopes) for value in values if value.selector == MACRO}
    return [name for name in macros(gin) if name not in named]


def macros(gin) -> list[str]:
    return [scope for scope, selector in gin.config._CONFIG if selector == MACRO]


def parameters(gin) -> list[str]:
    return [
        scoped(scope, ".".join([*selector.split(".")[-2:], name]))
        for (scope, selector), values in gin.config._CONFIG.items()
        for name in values
        if selector != MACRO
    ]


def refuse(gin, own: Sequence[Bound], unread: Sequence[str]) -> None:
    """Raises ConfigError, with the nearest name that there is, for the first of `own`
    that is unread."""
    for bound in own:
        if str(bound) not in unread:
            continue
        every = parameters(gin) if bound.parameter else macros(gin)
        known = sorted(set(every) - set(unread))
        said = f"nothing reads {bound} ({bound.where}): {advice(str(bound), known)}"
        raise ConfigError(said)


def advice(name: str, known: Sequence[str]) -> str:
    """The nearest of the names that there are, or all of them."""
    near = difflib.get_close_matches(name, known, 1, 0.5)
    near = near or difflib.get_close_matches(name.upper(), known, 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"there is {', '.join(known)}"


def read(gin, bound: Bound) -> bool:
    """Whether the row that was built asked for what a line sets."""
    operative = gin.config._OPERATIVE_CONFIG
    if not bound.parameter:
        return (str(bound), MACRO) in operative
    last = bound.selector.rpartition(".")[2]
    return any(
        bound.parameter in values
        and selector.rpartition(".")[2] == last
        and winner(gin, scope, selector, bound.parameter) == bound.scope
        for (scope, selector), values in operative.items()
    )


def winner(gin, scope: str, selector: str, parameter: str) -> str | None:
    """The scope whose binding of a parameter is the one that a call in `scope` gets."""
    parts = scope.split("/") if scope else []
    outer = ["/".join(parts[:size]) for size in range(len(parts), -1, -1)]
    config = gin.config._CONFIG
    return next((x for x in outer if parameter in config.get((x, selector), ())), None)


UTF16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE


def text(path: str | Path) -> str:
    """What a file holds, without a mark of its byte order."""
    data = Path(path).read_bytes()
    if data.startswith(UTF16):
        raise ConfigError(f"{path} is UTF-16: save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}, is not UTF-8: save it so") from None


def reader() -> Callable:
    """path -> a context with its stream, for gin, which opens includes within it."""
    opened = []

    @contextlib.contextmanager
    def read(path: str) -> Iterator[TextIO]:
        file = Path(path).resolve()
        if file in opened:
            way = opened[opened.index(file) :]
            way = " includes ".join(each.name for each in [*way, file])
            raise ConfigError(f"{way}: files must not include each other in a circle")
        stream = io.StringIO(text(path))
        stream.name = path  # which gin says of a mistake
        opened.append(file)
        try:
            yield stream
        finally:
            opened.pop()

    return read
