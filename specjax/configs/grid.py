"""Several rows in a file: ROWS, a dict from a row's name to the macros that differ.

    ROWS = {
        'small_t0': {'DRAFT': %T5_SMALL, 'TEMPERATURE': 0.0},
        'small_t1': {'DRAFT': %T5_SMALL, 'TEMPERATURE': 1.0},
    }

What the file includes and sets beside it is every row's. A file without ROWS is one row
of its own name.
"""

import difflib
import io
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from specjax.configs import files, unread
from specjax.configs.unread import MACRO, Bound, ConfigError

NAME = "ROWS"
SHAPE = "ROWS must be {'row': {'MACRO': value}, ...}"


class Grid(NamedTuple):
    """What a file sets itself. common: for every row. rows: what each sets more."""

    common: list[Bound]
    rows: dict[str, list[Bound]]


def read(gin, path: Path) -> Grid:
    """The rows of a file, in its order. Raises ConfigError for what names none."""
    text = files.text(path)
    common, rows = [], None
    for statement in unread.parsed(gin, text, str(path)):
        if is_grid(statement):
            rows = {
                name: [Bound("", macro, "", f"{path}, row {name}") for macro in macros]
                for name, macros in statement.value.items()
                if well_formed(name, macros)
            }
        else:
            common.append(unread.bound(statement, str(path)))
    if rows is None:
        return Grid(common, {path.stem: []})
    if not rows:
        raise ConfigError(f"ROWS names no row: {SHAPE}")
    refuse_repeated(text)
    return Grid(common, rows)


def is_grid(statement) -> bool:
    """Whether a statement of gin's parser sets ROWS; a number is another macro."""
    named = (statement.scope, statement.selector, statement.arg_name) == ("", NAME, "")
    return named and isinstance(statement.value, dict)


def well_formed(name: object, macros: object) -> bool:
    """True. Raises ConfigError for a row that is not a name with a dict of macros."""
    if not isinstance(name, str) or not isinstance(macros, dict):
        raise ConfigError(f"{SHAPE}; got {name!r}: {macros!r}")
    for macro in macros:
        if not str(macro).isidentifier():
            raise ConfigError(f"row {name} sets {macro!r}: rows set macros only")
    return True


def refuse_repeated(text: str) -> None:
    """Raises ConfigError for a key that a dict of the file has twice."""
    keys, before = [], ""  # of each bracket that is open
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string in ("{", "(", "["):
            keys.append(set())
        elif token.string in ("}", ")", "]"):
            keys.pop()
        elif token.string == ":" and keys:
            if before in keys[-1]:
                raise ConfigError(f"line {token.start[0]}: {before} is there twice")
            keys[-1].add(before)
        before = token.string


def choose(gin, row: str) -> None:
    """Sets what a row sets, where its file was parsed and has ROWS."""
    config = gin.config._CONFIG
    rows = config.get((NAME, MACRO), {}).get("value")
    if isinstance(rows, dict):
        del config[NAME, MACRO]
        for macro, value in rows[row].items():
            gin.bind_parameter(f"{macro}/{MACRO}.value", value)


def refuse_unknown(row: str, known: Iterable[str]) -> None:
    """Raises ConfigError, with the nearest name, for a row that is not known."""
    known = list(known)
    if row not in known:
        near = difflib.get_close_matches(row, known, 1, 0.5)
        advice = f"did you mean {near[0]}?" if near else f"there is {', '.join(known)}"
        raise ConfigError(f"no row {row}: {advice}")
