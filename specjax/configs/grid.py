"""Several rows in a file: ROWS, a dict from a row's name to the macros that differ.

    ROWS = {
        'small_t0': {'DRAFT': %T5_SMALL, 'TEMPERATURE': 0.0},
        'small_t1': {'DRAFT': %T5_SMALL, 'TEMPERATURE': 1.0},
    }

What the file includes and sets beside it is every row's. A file without ROWS is one row
of its own name.
"""

import io
import tokenize
from collections.abc import Iterable
from pathlib import Path

from specjax.configs import unread
from specjax.configs.unread import MACRO, Bound, ConfigError

NAME = "ROWS"
SHAPE = "write ROWS = {'row': {'MACRO': value}, ...}"


def read(gin, path: Path) -> tuple[list[Bound], dict[str, list[Bound]]]:
    """What a file sets itself for every row, and what for each more, by its rows in
    their order. Raises ConfigError for what names none."""
    text = unread.text(path)
    statements = unread.parsed(gin, text, str(path))
    common = [unread.bound(x, str(path)) for x in statements if not is_grid(x)]
    grids = [x.value for x in statements if is_grid(x)]
    if not grids:
        return common, {path.stem: []}
    if len(grids) > 1 or not grids[0]:
        wrong = "is set twice" if len(grids) > 1 else "names no row"
        raise ConfigError(f"ROWS {wrong}: {SHAPE}")
    refuse_repeated(text)
    return common, {row: bounds(row, x, path) for row, x in grids[0].items()}


def is_grid(statement) -> bool:
    """Whether a statement of gin's parser sets ROWS; a number is another macro."""
    named = (statement.scope, statement.selector, statement.arg_name) == ("", NAME, "")
    return named and isinstance(statement.value, dict)


def bounds(row: object, macros: object, path: Path) -> list[Bound]:
    """What a row sets. Raises ConfigError for what is not a dict of macros."""
    if not isinstance(row, str) or not isinstance(macros, dict):
        raise ConfigError(f"{row!r}: {macros!r} is no row: {SHAPE}")
    for macro in macros:
        if not str(macro).isidentifier():
            raise ConfigError(f"row {row} sets {macro!r}: rows set macros only")
    return [Bound("", macro, "", f"{path}, row {row}") for macro in macros]


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
                raise ConfigError(f"line {token.start[0]}: '{before}' is there twice")
            keys[-1].add(before)
        before = token.string.strip("'\"")


def choose(gin, row: str) -> None:
    """Sets what a row sets, where its file was parsed and has ROWS."""
    config = gin.config._CONFIG
    rows = config.get((NAME, MACRO), {}).get("value")
    if isinstance(rows, dict):
        if row not in rows:
            raise ConfigError(
                "it includes a file with ROWS: include what that includes"
            )
        del config[NAME, MACRO]
        for macro, value in rows[row].items():
            gin.bind_parameter(f"{macro}/{MACRO}.value", value)


def refuse_unknown(row: str, known: Iterable[str]) -> None:
    """Raises ConfigError, with the nearest name, for a row that is not known."""
    known = list(known)
    if row not in known:
        raise ConfigError(f"no row {row}: {unread.advice(row, known)}")
