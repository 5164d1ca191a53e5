"""Files of text and of lines, read in one way by all that reads them.

A line ends at "\\n" and nowhere else: U+2028, U+0085 and the like stand within texts. A
"\\r" before it and a byte order mark at the start belong to no line. What gzip or xz
packed is unpacked, whatever the file is called.
"""

import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path

MARK = b"\xef\xbb\xbf"  # a byte order mark in UTF-8
# By the first bytes of a file, and by its suffix.
UNPACK: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
}
SUFFIXES = {".gz": gzip.decompress, ".xz": lzma.decompress}
PACKED = {b"\x28\xb5\x2f\xfd": "zstd -d", b"PK\x03\x04": "unzip"}
PACKED |= {b"BZh91AY&SY": "bunzip2 -k"}
NO_FILE = 'no file {}: write one with {{"prompt": text}}, one a line'


def starts(raw: bytes, table: dict) -> Callable | str | None:
    """Returns the entry of a table whose key the bytes start with, None without one."""
    return next((value for key, value in table.items() if raw.startswith(key)), None)


def is_packed(start: bytes) -> bool:
    """Whether a file that starts so is packed."""
    return bool(starts(start, UNPACK) or starts(start, PACKED))


def content(path: str | Path) -> bytes:
    """Returns a file's bytes, unpacked.

    Raises:
      ValueError: it is not there, is damaged, is packed otherwise than by gzip or xz,
        or is a table of Parquet; said with what to do.
    """
    if not Path(path).exists():
        raise ValueError(NO_FILE.format(path))
    raw, suffix = Path(path).read_bytes(), Path(path).suffix
    unpack = starts(raw, UNPACK)
    if unpack is not SUFFIXES.get(suffix, unpack):
        raise ValueError(f"{path} is no {suffix} file: name it by what it is")
    if unpack is not None:
        try:
            raw = unpack(raw)
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise ValueError(f"{path} is damaged ({error}): copy it again") from None
    if command := starts(raw, PACKED):
        raise ValueError(f"{path} is packed: {command} {path}, and name what it gives")
    if raw[:4] == b"PAR1":
        raise ValueError(
            f"{path} is a Parquet table: write its rows as JSON lines, by pandas"
            f' read_parquet(PATH).to_json("FILE.jsonl", orient="records", lines=True)'
        )
    return raw


def text(path: str | Path) -> str:
    """Returns a file's text. Raises ValueError as `content`, and for no UTF-8."""
    try:
        return content(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8: save it as UTF-8") from None


def numbered(path: str | Path) -> list[tuple[int, bytes]]:
    """Returns the lines of a file that are not empty, each behind its number from 1.
    Raises ValueError as `content`."""
    every = enumerate(map(bare, content(path).split(b"\n")), 1)
    return [(number, line) for number, line in every if line]


def bare(line: bytes) -> bytes:
    """Returns a line without spaces around it and without a byte order mark."""
    return line.strip().removeprefix(MARK).strip()
