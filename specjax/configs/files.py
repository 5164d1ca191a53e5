"""The text of gin files, read as UTF-8 whatever the console's encoding."""

import codecs
import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from specjax.configs.unread import ConfigError

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
