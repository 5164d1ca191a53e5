"""Several rows in a file: ROWS, a dictionary from row names to the macros that differ.

    ROWS = {
        'small_t0': {'DRAFT': %T5_SMALL, 'TEMPERATURE': 0.0},
        'small_t1': {'DRAFT': %T5_SMALL, 'TEMPERATURE': 1.0},
    }

Everything else that the file includes or sets applies to every row. A file without
ROWS is one row that has the name of the file.
"""

import io
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from specjax.configs import unread
from specjax.configs.unread import MACRO, Binding, ConfigError

NAME = "ROWS"
SHAPE = "write ROWS = {'row': {'MACRO': value}, ...}"


def read(gin: Any, path: Path) -> tuple[list[Binding], dict[str, list[Binding]]]:
    """Returns the bindings of a file for all rows, and those of each row, in its order.

    Raises ConfigError where ROWS names no row."""
    text = unread.read_text(path)
    statements = unread.parse_bindings(gin, text, str(path))
    common = [unread.make_binding(x, str(path)) for x in statements if not is_grid(x)]
    grids = [x.value for x in statements if is_grid(x)]
    if not grids:
        return common, {path.stem: []}
    if len(grids) > 1 or not grids[0]:
        wrong = "is set twice" if len(grids) > 1 else "names no row"
        raise ConfigError(f"ROWS {wrong}: {SHAPE}")
    refuse_repeated(text)
    return common, {row: list_bindings(row, x, path) for row, x in grids[0].items()}


def is_grid(statement: Any) -> bool:
    """Returns whether a statement of gin's parser sets ROWS to a dictionary.

    Any other value of ROWS is a macro."""
    name = statement.scope, statement.selector, statement.arg_name
    return name == ("", NAME, "") and isinstance(statement.value, dict)


def list_bindings(row: object, macros: object, path: Path) -> list[Binding]:
    """Returns the bindings of a row. Raises ConfigError unless it is a dict of
    macros."""
    if not isinstance(row, str) or not isinstance(macros, dict):
        raise ConfigError(f"{row!r}: {macros!r} is not a row: {SHAPE}")
    for macro in macros:
        if not str(macro).isidentifier():
            raise ConfigError(f"row {row} sets {macro!r}: set macros only")
    return [Binding("", macro, "", f"{path}, row {row}") for macro in macros]


def refuse_repeated(text: str) -> None:
    """Raises ConfigError for a key that a dictionary of the file has twice."""
    keys: list[set[str]] = []  # of each bracket that is open
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string in ("{", "(", "["):
            keys.append(set())
        elif token.string in ("}", ")", "]"):
            keys.pop()
        elif token.string == ":" and keys:
            if before in keys[-1]:
                raise ConfigError(
                    f"line {token.start[0]}: '{before}' is set twice: remove one"
                )
            keys[-1].add(before)
        before = token.string.strip("'\"")


def choose(gin: Any, row: str) -> None:
    """Sets the macros of a row, after its file was parsed."""
    config = gin.config._CONFIG
    rows = config.get((NAME, MACRO), {}).get("value")
    if isinstance(rows, dict):
        if row not in rows:
            raise ConfigError(
                "it includes a file with ROWS: include the files which that file"
                " includes"
            )
        del config[NAME, MACRO]
        for macro, value in rows[row].items():
            gin.bind_parameter(f"{macro}/{MACRO}.value", value)


def refuse_unknown(row: str, known: Iterable[str]) -> None:
    """Raises ConfigError, with the nearest name, for a row that does not exist."""
    known = list(known)
    if row not in known:
        raise ConfigError(f"no row {row}: {unread.suggest_name(row, known)}")
