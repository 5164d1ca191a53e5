"""Files of text and of lines, read in the same way everywhere.

A line ends at "\\n" and nowhere else: U+2028, U+0085 and the like may stand within
texts. A "\\r" before it and a byte order mark at the start are dropped. Files
compressed by gzip or xz are decompressed, whatever their name."""

import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = b"\xef\xbb\xbf"  # a byte order mark in UTF-8
# By the first bytes of a file, and by its suffix.
UNPACK: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
}
SUFFIXES = {".gz": gzip.decompress, ".xz": lzma.decompress}
OTHER_COMPRESSIONS = {b"\x28\xb5\x2f\xfd": "zstd -d", b"PK\x03\x04": "unzip"}
OTHER_COMPRESSIONS |= {b"BZh91AY&SY": "bunzip2 -k"}
NO_FILE = 'there is no file {}: write one with {{"prompt": text}}, one per line'


def find_prefix(raw: bytes, table: dict) -> Callable | str | None:
    """Returns the entry of a table whose key is a prefix of the bytes; None if no key
    is."""
    return next((value for key, value in table.items() if raw.startswith(key)), None)


def is_compressed(start: bytes) -> bool:
    """Returns whether a file with these first bytes is compressed."""
    return bool(find_prefix(start, UNPACK) or find_prefix(start, OTHER_COMPRESSIONS))


def read_bytes(path: str | Path) -> bytes:
    """Returns the bytes of a file, decompressed.

    Raises:
      ValueError: the file does not exist, is damaged, is compressed otherwise than by
        gzip or xz, or is a table of Parquet; the message names the fix.
    """
    if not Path(path).exists():
        raise ValueError(NO_FILE.format(path))
    raw, suffix = Path(path).read_bytes(), Path(path).suffix
    unpack: Any = find_prefix(raw, UNPACK)
    if unpack is not SUFFIXES.get(suffix, unpack):
        raise ValueError(
            f"{path} is not a {suffix} file: give it the suffix of its format"
        )
    if unpack is not None:
        try:
            raw = unpack(raw)
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise ValueError(f"{path} is damaged ({error}): copy it again") from None
    if command := find_prefix(raw, OTHER_COMPRESSIONS):
        raise ValueError(
            f"{path} is compressed: run {command} {path}, and name the result"
        )
    if raw[:4] == b"PAR1":
        raise ValueError(
            f"{path} is a Parquet table: write its rows as JSON lines, as by pandas"
            f' read_parquet(PATH).to_json("FILE.jsonl", orient="records", lines=True)'
        )
    return raw


def read_text(path: str | Path) -> str:
    """Returns the text of a file. Raises ValueError as `read_bytes` does, and for text
    that is not UTF-8."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8: save it as UTF-8") from None


def numbered_lines(path: str | Path) -> list[tuple[int, bytes]]:
    """Returns the lines of a file that are not empty, each after its number from 1.

    Raises ValueError as `read_bytes`."""
    every = enumerate(map(strip_line, read_bytes(path).split(b"\n")), 1)
    return [(number, line) for number, line in every if line]


def strip_line(line: bytes) -> bytes:
    """Returns a line without surrounding spaces and without a byte order mark."""
    return line.strip().removeprefix(MARK).strip()
