"""Rows in gin files: found, parsed and built, and nothing that a person wrote unread.

A file includes what its rows are made of and sets macros; `grid` says how it has more
than one row. An include is looked for in the current folder, in the folders that are
named, and where this package keeps its own `gin_configs`. gin is imported in this
folder only, and only to parse.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from specjax.configs import fields, grid, unread
from specjax.configs.unread import Bound, ConfigError
from specjax.measure.row import TableRow
from specjax.runtime import mesh

PACKAGE = Path(__file__).resolve().parents[1]
# Installed, the files are in the package; in a checkout, beside it.
HOME = PACKAGE if (PACKAGE / "gin_configs").is_dir() else PACKAGE.parent


class RowFile(NamedTuple):
    """What a row is read from, in this order. path: its file, whose folder names its
    table. over: other files, such as another family of checkpoints. bindings: NAME =
    VALUE, of a macro or a parameter. search: folders in which includes are looked for,
    after the current one. row: its name; None stands for every row of the file."""

    path: Path
    over: tuple[str, ...] = ()
    bindings: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    row: str | None = None

    @property
    def table(self) -> str:
        return self.path.resolve().parent.name

    def __str__(self) -> str:
        one = self.row in (None, self.path.stem)
        return str(self.path) if one else f"{self.path}:{self.row}"


class Built(NamedTuple):
    """A row that is ready to be measured, and its operative config. own: names that its
    own file or a binding sets. typed: the bindings."""

    table: str
    name: str
    row: TableRow
    config: str
    own: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()


def rows(file: RowFile) -> list[RowFile]:
    """The rows that a file stands for, in its order."""
    _, names = grid.read(imported(), file.path)
    if file.row is not None:
        grid.refuse_unknown(file.row, names)
        return [file]
    return [file._replace(row=name) for name in names]


def every(chosen: Iterable[RowFile]) -> list[RowFile]:
    """The rows of several files."""
    found, homes = [], {}
    for file in chosen:
        try:
            found += rows(file)
        except (ConfigError, OSError) as error:
            raise ConfigError(f"{file.path}: {error}") from error
    for file in found:
        home = homes.setdefault((file.table, file.row), file.path)
        if home.resolve() != file.path.resolve():
            raise ConfigError(
                f"{file.path}: row {file.row} is in {home} too: rename one"
            )
    return found


def build(file: RowFile) -> Built:
    """Parses a row and builds what it names: weights are read, nothing is measured."""
    gin = imported()
    typed = [x for text in file.bindings for x in unread.statements(gin, text, text)]
    name, own = parse(gin, file)
    with searched(gin, file.search):
        unread.refuse(gin, own, unread.unreferenced(gin))
        with in_one_line(Exception):
            gin.parse_config(list(file.bindings))
        unused = unread.unreferenced(gin)
        unread.refuse(gin, typed, unused)
        # A parameter that was typed may stand in the place of a macro of the row.
        own = [bound for bound in own if str(bound) not in unused] + typed
        fields.check(gin)
        if not any(key[1].endswith("row.TableRow") for key in gin.config._CONFIG):
            raise ConfigError("it measures nothing: include one of gin_configs/runs/")
        with in_one_line(ValueError, OSError, RuntimeError), placed(gin):
            gin.finalize()
            row = gin.get_configurable(TableRow)()
    unasked = [str(bound) for bound in own if not unread.read(gin, bound)]
    unread.refuse(gin, own, unasked)
    config, names = gin.operative_config_str(), tuple(map(str, own))
    return Built(file.table, name, row, config, names, file.bindings)


def placed(gin) -> contextlib.AbstractContextManager:
    """Where a row's weights are read: on its mesh, if there are devices enough; a
    record of it may be kept, and who measures it is told."""
    set_to = (x.value for x in fields.fields(gin) if x.parameter == "mesh")
    text = next((x for x in set_to if isinstance(x, str)), "")
    return mesh.using(text if mesh.has_devices(text) else "")


def read(file: RowFile) -> tuple[str, tuple[str, ...]]:
    """What a row's files set, as gin prints it, and the names that its own sets."""
    gin = imported()
    _, own = parse(gin, file)
    with searched(gin, file.search), in_one_line(Exception):
        gin.parse_config(list(file.bindings))
    return gin.config_str(), tuple(map(str, own))


def parse(gin, file: RowFile) -> tuple[str, list[Bound]]:
    """Reads a row's files into gin; its name, and what its own file sets for it."""
    path = file.path.resolve()
    common, names = grid.read(gin, path)
    name = file.row
    if name is None and len(names) > 1:
        raise ConfigError(f"it has {len(names)} rows: name one, {file.path}:ROW")
    name = name or next(iter(names))
    grid.refuse_unknown(name, names)
    gin.clear_config()
    with searched(gin, file.search), in_one_line(Exception):
        gin.parse_config_file(str(path))
        grid.choose(gin, name)
        for other in file.over:
            gin.parse_config_file(other)
    return name, common + names[name]


def imported():
    """gin. Raises ConfigError where it is not installed."""
    try:
        import gin
    except ImportError:
        wanted = "gin is not installed: pip install 'specjax[gin]'"
        raise ConfigError(wanted) from None
    return gin


@contextlib.contextmanager
def searched(gin, folders: Sequence[str]) -> Iterator[None]:
    """Includes are files, looked for here, in the folders, and among the package's."""
    prefixes, readers = gin.config._LOCATION_PREFIXES, gin.config._FILE_READERS
    before = list(prefixes), list(readers)
    prefixes[:] = ["", *folders, str(HOME)]
    readers[:] = [(unread.reader(), os.path.isfile)]  # none inside Python packages
    try:
        yield
    finally:
        prefixes[:], readers[:] = before


@contextlib.contextmanager
def in_one_line(*kinds: type[Exception]) -> Iterator[None]:
    """What gin says over many lines, and what an import lacks, as a ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(" ".join(str(error).split())) from error
    except ModuleNotFoundError as error:
        # gin says it again, without the exception's own `name`.
        missing = re.search(r"No module named '([\w.]+)", str(error))[1]
        advice = f"it needs {missing}, which is not installed"
        if missing.startswith("experiments") and find_spec("experiments") is None:
            advice = "it needs `experiments`, which only a checkout of specjax has"
        raise ConfigError(advice) from error
    except SyntaxError as error:
        raise ConfigError(f"{error.filename}, line {error.lineno}: {error}") from error
    except kinds as error:
        message = str(error).partition("\n  In call to configurable")[0]
        if unset := re.search(r"No bindings specified for '(.+)/gin.macro'", message):
            message = f"nothing sets {unset[1]}, which is read by %{unset[1]}"
        raise ConfigError(" ".join(message.split())) from error
