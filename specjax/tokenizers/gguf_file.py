"""The header of a GGUF file: its keys, and where its tensors lie (extra `gguf`).

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3. It
is parsed here because the gguf library takes a quarter of a minute for a vocabulary of
150,000 tokens; the types of tensors and their sizes are that library's.
"""

import functools
import math
import mmap
import reprlib
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SUFFIX, MAGIC, VERSIONS = ".gguf", b"GGUF", (2, 3)
ALIGNMENT = 32  # of the tensors, where `general.alignment` does not say another
MOST_AXES = 4
# The types of values, by their number in the file.
NUMBERS = dict(enumerate(("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?")))
NUMBERS |= {10: "<u8", 11: "<i8", 12: "<f8"}
TEXT, LIST = 8, 9


class Tensor(NamedTuple):
    """The place of a tensor in its file.

    shape: a matrix is [outputs, inputs]. kind: the name of its type in ggml, such as
    Q4_K. at: its first byte. size: in bytes.
    """

    shape: tuple[int, ...]
    kind: str
    at: int
    size: int


class Contents(NamedTuple):
    """The header of a GGUF file: metadata by key, and tensors by name."""

    path: Path
    fields: dict[str, Any]
    tensors: dict[str, Tensor]


def is_gguf(path: Path) -> bool:
    """Returns whether a file is GGUF by its first bytes, or claims to be by its
    name."""
    if not path.is_file():
        return False
    if path.suffix.lower() == SUFFIX:
        return True
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def open_file(path: Path) -> Contents:
    """Reads the header of a file, and none of its weights.

    Raises:
      ValueError: the library is missing; the file is cut short, of another kind or
        another version; or it is one part of several.
    """
    state = path.stat()
    return _open(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=2)  # weights and tokenizer read the same header
def _open(path: Path, *version: int) -> Contents:
    del version
    try:
        import gguf
    except ImportError:
        raise ValueError(
            f"{path} needs the gguf library: pip install 'specjax[gguf]'"
        ) from None
    data = memoryview(b"")
    if path.stat().st_size:
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    cursor = _Cursor(data)
    try:
        _check_version(path, cursor)
        count, keys = cursor.number("<u8"), cursor.number("<u8")
        fields = {cursor.text(): cursor.value() for _ in range(keys)}
        if len(fields) < keys:
            raise _DamagedError("a key is there twice")
        tensors = _tensors(path, cursor, count=count, fields=fields, library=gguf)
    except _DamagedError as error:
        raise ValueError(
            f"{path} is not a whole GGUF file ({error}): copy or download it again"
        ) from None
    if fields.get("split.count", 0) not in (0, 1):
        raise ValueError(
            f"{path} is one of {fields['split.count']} parts: join them by"
            " `llama-gguf-split --merge FIRST WHOLE`, and name the whole"
        )
    return Contents(path, fields, tensors)


class _DamagedError(ValueError):
    """The error of bytes that do not follow the format."""


class _Cursor:
    """A reader of the format's values, one after the other."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> memoryview:
        part = self.data[self.at : self.at + size]
        if len(part) < size:
            raise _DamagedError("it ends within its header")
        self.at += size
        return part

    def number(self, form: str) -> Any:
        return np.frombuffer(self.take(np.dtype(form).itemsize), form)[0].item()

    def text(self) -> str:
        return str(self.take(self.number("<u8")), "utf-8", "replace")

    def texts(self, count: int) -> list[str]:
        """Reads `count` texts, which are most of a header: few calls are made, for
        speed."""
        data, at = self.data, self.at
        found: list[str] = []
        length = struct.Struct("<Q").unpack_from
        try:
            for _ in range(count):
                (size,) = length(data, at)
                at += 8 + size
                found.append(str(data[at - size : at], "utf-8", "replace"))
        except (struct.error, OverflowError):  # the latter of 2**63 bytes or more
            raise _DamagedError("it ends within its header") from None
        if at > len(data):
            raise _DamagedError("it ends within its header")
        self.at = at
        return found

    def value(self) -> Any:
        kind, listed = self.number("<u4"), False
        if kind == LIST:
            kind, listed = self.number("<u4"), True
        count = self.number("<u8") if listed else 1
        if kind == TEXT:
            return self.texts(count) if listed else self.text()
        if kind not in NUMBERS:
            raise _DamagedError(f"a value is of the unknown type {kind}")
        form = np.dtype(NUMBERS[kind])
        values = np.frombuffer(self.take(form.itemsize * count), form).tolist()
        return values if listed else values[0]


def _check_version(path: Path, cursor: _Cursor) -> None:
    if bytes(cursor.take(len(MAGIC))) != MAGIC:
        raise _DamagedError("it does not begin with GGUF")
    version = cursor.number("<u4")
    if version & 0xFFFF == 0:  # its bytes are in the other order
        raise ValueError(
            f"{path} is big-endian: `gguf-convert-endian FILE little` of the gguf"
            " library turns its bytes around"
        )
    if version not in VERSIONS:
        raise ValueError(
            f"{path} is of version {version} of GGUF; known are"
            f" {' and '.join(map(str, VERSIONS))}: convert the model again"
        )


def _tensors(
    path: Path,
    cursor: _Cursor,
    *,
    count: int,
    fields: dict[str, Any],
    library: Any,
) -> dict[str, Tensor]:
    described = []
    for _ in range(count):
        name, axes = cursor.text(), cursor.number("<u4")
        if axes > MOST_AXES:
            raise _DamagedError(f"{reprlib.repr(name)} has {axes} axes")
        shape = tuple(cursor.number("<u8") for _ in range(axes))[::-1]
        described.append((name, shape, cursor.number("<u4"), cursor.number("<u8")))
    alignment = fields.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise _DamagedError(f"general.alignment is {reprlib.repr(alignment)}")
    first = -(-cursor.at // alignment) * alignment
    kinds = {x.value: x for x in library.GGMLQuantizationType}
    tensors: dict[str, Tensor] = {}
    for name, shape, number, offset in described:
        if number not in kinds:
            raise ValueError(
                f"{path}: {name} is of ggml's type {number}, which this version of the"
                " gguf library does not know: pip install --upgrade gguf"
            )
        block, size = library.GGML_QUANT_SIZES[kinds[number]]
        if name in tensors or (shape[-1] if shape else 1) % block:
            raise _DamagedError(
                f"{name} is there twice, or its rows are not whole blocks"
            )
        whole = math.prod(shape) // block * size
        if first + offset + whole > len(cursor.data):
            raise _DamagedError(f"it ends before {name} does")
        tensors[name] = Tensor(shape, kinds[number].name, first + offset, whole)
    return tensors
