"""The check for settings that nothing reads, with the nearest name that exists.

Included files may set more than a row uses; its own file and the command line may not.
Files are read as UTF-8, whatever the encoding of the console."""

import codecs
import contextlib
import difflib
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

MACRO = "gin.macro"
WRITE = "write NAME = VALUE, and a text in quotes: NAME = 'text'"


class ConfigError(ValueError):
    """An error in a gin file or a binding, which the user can fix; its message is one
    line."""


class Binding(NamedTuple):
    """A line that sets a value.

    A macro is a `selector` in a `scope`; a parameter also has a name. where: its file,
    or the text of the binding."""

    scope: str
    selector: str
    parameter: str
    where: str

    def __str__(self) -> str:
        parts = (self.selector, self.parameter)
        return add_scope(self.scope, ".".join(filter(None, parts)))


def add_scope(scope: str, name: str) -> str:
    """Returns a name with its scope in front, if there is one."""
    return f"{scope}/{name}" if scope else name


def statements(gin: Any, text: str, where: str) -> list[Binding]:
    """Returns the bindings of a file or a text, without those of its included files."""
    return [
        make_binding(statement, where) for statement in parse_bindings(gin, text, where)
    ]


def make_binding(statement: Any, where: str) -> Binding:
    return Binding(statement.scope, statement.selector, statement.arg_name or "", where)


def parse_bindings(gin: Any, text: str, where: str) -> list:
    """Returns the statements of gin's parser, with references by their names."""

    class Names(gin.config_parser.ParserDelegate):
        def configurable_reference(
            self, scoped_configurable_name: Any, evaluate: Any
        ) -> Any:
            return scoped_configurable_name

        def macro(self, macro_name: Any) -> Any:
            return macro_name

    try:
        found = list(gin.config_parser.ConfigParser(text, Names()))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        at = f", line {line}" if line and where != text else ""
        raise ConfigError(f"{where}{at}: not a gin binding: {WRITE}") from None
    return [x for x in found if isinstance(x, gin.config_parser.BindingStatement)]


def unused_macros(gin: Any) -> list[str]:
    """Returns the macros that no value refers to, before any weights are read."""
    values = gin.config.iterate_references(gin.config._CONFIG)
    used = {"/".join(value.scopes) for value in values if value.selector == MACRO}
    return [name for name in macros(gin) if name not in used]


def macros(gin: Any) -> list[str]:
    """Returns the names of all macros that are set."""
    return [scope for scope, selector in gin.config._CONFIG if selector == MACRO]


def parameters(gin: Any) -> list[str]:
    """Returns the names of all parameters that are set."""
    return [
        add_scope(scope, ".".join([*selector.split(".")[-2:], name]))
        for (scope, selector), values in gin.config._CONFIG.items()
        for name in values
        if selector != MACRO
    ]


def refuse_unread(gin: Any, own: Sequence[Binding], unread: Sequence[str]) -> None:
    """Raises ConfigError, with the nearest existing name, for the first unread one of
    `own`."""
    for bound in own:
        if str(bound) not in unread:
            continue
        every = parameters(gin) if bound.parameter else macros(gin)
        known = sorted(set(every) - set(unread))
        raise ConfigError(
            f"nothing reads {bound} ({bound.where}): {suggest_name(str(bound), known)}"
        )


def suggest_name(name: str, known: Sequence[str]) -> str:
    """Returns the end of a message about an unknown name: a question with the nearest
    known one, or else a list of all of them."""
    near = difflib.get_close_matches(name, known, 1, 0.5)
    near = near or difflib.get_close_matches(name.upper(), known, 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"there is {', '.join(known)}"


def is_read(gin: Any, bound: Binding) -> bool:
    """Returns whether the row, when it was built, read the value of a binding."""
    operative = gin.config._OPERATIVE_CONFIG
    if not bound.parameter:
        return (str(bound), MACRO) in operative
    last = bound.selector.rpartition(".")[2]
    return any(
        bound.parameter in values
        and selector.rpartition(".")[2] == last
        and winning_scope(gin, scope, selector, bound.parameter) == bound.scope
        for (scope, selector), values in operative.items()
    )


def winning_scope(gin: Any, scope: str, selector: str, parameter: str) -> str | None:
    """Returns the scope whose binding of a parameter a call in `scope` uses."""
    parts = scope.split("/") if scope else []
    outer = ["/".join(parts[:size]) for size in range(len(parts), -1, -1)]
    config = gin.config._CONFIG
    return next((x for x in outer if parameter in config.get((x, selector), ())), None)


UTF16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE


def read_text(path: str | Path) -> str:
    """Returns the text of a file, without a byte order mark."""
    data = Path(path).read_bytes()
    if data.startswith(UTF16):
        raise ConfigError(f"{path} is UTF-16: save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path}, line {line}, is not UTF-8: save the file as UTF-8"
        ) from None


def make_reader() -> Callable:
    """Returns a function from a path to a context with its stream, for gin.

    gin opens included files within that context, so a circle of files is detected."""
    open_files: list[Path] = []

    @contextlib.contextmanager
    def read(path: str) -> Iterator[TextIO]:
        file = Path(path).resolve()
        if file in open_files:
            circle = [*open_files[open_files.index(file) :], file]
            names = " includes ".join(each.name for each in circle)
            raise ConfigError(f"{names}: files must not include each other in a circle")
        stream = io.StringIO(read_text(path))
        stream.name = path  # gin's error messages name it
        open_files.append(file)
        try:
            yield stream
        finally:
            open_files.pop()

    return read
