"""Rows in gin files: found, parsed and built, with an error for any unused setting.

A file includes the parts of its rows and sets macros; `grid` describes files of several
rows. An included file is looked for in the current folder, in the folders that are
given, and in the folder of this package's own `gin_configs`. gin is imported in this
folder only, and only to parse."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from specjax.configs import fields, grid, unread
from specjax.configs.unread import Binding, ConfigError
from specjax.measure.row import TableRow
from specjax.runtime import mesh

PACKAGE = Path(__file__).resolve().parents[1]
# Installed, the files are in the package; in a checkout, beside it.
HOME = PACKAGE if (PACKAGE / "gin_configs").is_dir() else PACKAGE.parent


class RowFile(NamedTuple):
    """The sources of a row, in the order in which they are read.

    path: its file, whose folder names its table. over: other files, such as another
    family of checkpoints. bindings: NAME = VALUE, of a macro or a parameter. search:
    folders to search for included files, after the current one. row: its name; None
    stands for every row of the file."""

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


class BuiltRow(NamedTuple):
    """A row that can be measured, and its operative config.

    own: the names that its own file or a binding sets. bindings: those of its
    `RowFile`."""

    table: str
    name: str
    row: TableRow
    config: str
    own: tuple[str, ...] = ()
    bindings: tuple[str, ...] = ()


def rows(file: RowFile) -> list[RowFile]:
    """Returns the rows of a file, in its order."""
    _, names = grid.read(import_gin(), file.path)
    if file.row is not None:
        grid.refuse_unknown(file.row, names)
        return [file]
    return [file._replace(row=name) for name in names]


def all_rows(chosen: Iterable[RowFile]) -> list[RowFile]:
    """Returns the rows of several files. Raises ConfigError for a row that occurs
    twice."""
    found: list[RowFile] = []
    homes: dict[tuple, Path] = {}
    for file in chosen:
        try:
            found += rows(file)
        except (ConfigError, OSError) as error:
            raise ConfigError(f"{file.path}: {error}") from error
    for file in found:
        home = homes.setdefault((file.table, file.row), file.path)
        if home.resolve() != file.path.resolve():
            raise ConfigError(
                f"{file.path}: row {file.row} is in {home} too: rename one of them"
            )
    return found


def build(file: RowFile) -> BuiltRow:
    """Parses a row and builds its objects: weights are read, nothing is measured."""
    gin = import_gin()
    typed = [x for text in file.bindings for x in unread.statements(gin, text, text)]
    name, own = parse(gin, file)
    with search_folders(gin, file.search):
        unread.refuse_unread(gin, own, unread.unused_macros(gin))
        with one_line_errors(Exception):
            gin.parse_config(list(file.bindings))
        unused = unread.unused_macros(gin)
        unread.refuse_unread(gin, typed, unused)
        # A binding of a parameter may replace a macro of the row.
        own = [each for each in own if str(each) not in unused] + typed
        fields.check(gin)
        if not any(key[1].endswith("row.TableRow") for key in gin.config._CONFIG):
            raise ConfigError(
                "it has no measurement: include one of the files in gin_configs/runs/"
            )
        with one_line_errors(ValueError, OSError, RuntimeError), row_mesh(gin):
            gin.finalize()
            row = gin.get_configurable(TableRow)()
    ignored = [str(each) for each in own if not unread.is_read(gin, each)]
    unread.refuse_unread(gin, own, ignored)
    config, names = gin.operative_config_str(), tuple(map(str, own))
    return BuiltRow(file.table, name, row, config, names, file.bindings)


def row_mesh(gin: Any) -> contextlib.AbstractContextManager:
    """Returns the context in which the weights of a row are read.

    It is the row's mesh if there are devices enough. Otherwise the weights are read
    without one: the row may have a valid record, and measuring it reports the error."""
    set_to = (x.value for x in fields.fields(gin) if x.parameter == "mesh")
    text = next((x for x in set_to if isinstance(x, str)), "")
    return mesh.using(text if mesh.has_devices(text) else "")


def read(file: RowFile) -> tuple[str, tuple[str, ...]]:
    """Returns the settings of a row's files, as gin prints them, and the names that its
    own file sets."""
    gin = import_gin()
    _, own = parse(gin, file)
    with search_folders(gin, file.search), one_line_errors(Exception):
        gin.parse_config(list(file.bindings))
    return gin.config_str(), tuple(map(str, own))


def read_rows(file: RowFile) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Returns what `read` returns for each row of a file, by the row's name; the file
    is parsed once."""
    gin, path, found = import_gin(), file.path.resolve(), {}
    common, names = grid.read(gin, path)
    gin.clear_config()
    with search_folders(gin, file.search), one_line_errors(Exception):
        gin.parse_config_file(str(path))
        config = gin.config._CONFIG
        shared = {key: dict(values) for key, values in config.items()}
        for name, own in names.items():
            config.clear()
            config.update({key: dict(values) for key, values in shared.items()})
            grid.choose(gin, name)
            for other in file.over:
                gin.parse_config_file(other)
            gin.parse_config(list(file.bindings))
            found[name] = gin.config_str(), tuple(map(str, common + own))
    return found


def parse(gin: Any, file: RowFile) -> tuple[str, list[Binding]]:
    """Reads a row's files into gin; returns its name and the bindings of its own
    file."""
    path = file.path.resolve()
    common, names = grid.read(gin, path)
    name = file.row
    if name is None and len(names) > 1:
        raise ConfigError(f"it has {len(names)} rows: name one as {file.path}:ROW")
    name = name or next(iter(names))
    grid.refuse_unknown(name, names)
    gin.clear_config()
    with search_folders(gin, file.search), one_line_errors(Exception):
        gin.parse_config_file(str(path))
        grid.choose(gin, name)
        for other in file.over:
            gin.parse_config_file(other)
    return name, common + names[name]


def import_gin() -> Any:
    """Returns the module gin. Raises ConfigError where it is not installed."""
    try:
        import gin
    except ImportError:
        fix = "gin is not installed: pip install 'specjax[gin]'"
        raise ConfigError(fix) from None
    return gin


@contextlib.contextmanager
def search_folders(gin: Any, folders: Sequence[str]) -> Iterator[None]:
    """Lets gin look for included files here, in `folders`, and in the folder of the
    package."""
    prefixes, readers = gin.config._LOCATION_PREFIXES, gin.config._FILE_READERS
    before = list(prefixes), list(readers)
    prefixes[:] = ["", *folders, str(HOME)]
    readers[:] = [(unread.make_reader(), os.path.isfile)]  # none inside Python packages
    try:
        yield
    finally:
        prefixes[:], readers[:] = before


@contextlib.contextmanager
def one_line_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turns errors of gin, which span many lines, and failed imports into a
    ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(" ".join(str(error).split())) from error
    except ModuleNotFoundError as error:
        # gin says it again, without the exception's own `name`.
        match = re.search(r"No module named '([\w.]+)", str(error))
        missing = match[1] if match else str(error.name)
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
