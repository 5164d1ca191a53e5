"""The amount of sound that the header of a file promises, and the amount that the file
has.

libsndfile reads the rest of a file that was cut off, and does not report the loss.
Chunked files (WAV, RF64, AIFF, Wave64, AU) write the size of their sound before it; an
Ogg stream marks its last page; an MP3 file has its number of bytes in its first frame,
or at least ends with a whole frame."""

import io
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

# Of bytes: what ffmpeg, sox, arecord and others write where they cannot go back.
STREAMS = range(0x7FFF0000, 0x80000001), range(0xFFFF0000, 0x100000000)
PAGE = 65_307  # bytes of an Ogg page, at most
LAST_PAGE = 4  # the bit of its flags that ends a stream
Order = Literal["big", "little"]  # of bytes


class Sound(NamedTuple):
    """The place of the sound in a file, in bytes.

    promised: its size by the container; there: the number of bytes that follow; field:
    the place of that size in the file, None where it must not be changed."""

    promised: int
    there: int
    field: int | None = None

    @property
    def lacks_size(self) -> bool:
        """Returns whether the header was never completed, though sound follows it."""
        return self.field is not None and self.promised == 0 < self.there

    @property
    def cut(self) -> bool:
        """Returns whether a file that is not a stream has less sound than its header
        promises."""
        streams = any(self.promised in sizes for sizes in STREAMS)
        return self.there < self.promised and not streams


def find(file: Path) -> Sound | None:
    """Returns the sound of a file; None for another container, or one without sound."""
    with file.open("rb") as stream:
        magic = stream.read(16)
        for begin, reader in READERS.items():
            if magic.startswith(begin):
                stream.seek(0)
                return reader(stream, file.stat().st_size)
        stream.seek(0)
        return mp3(stream, file.stat().st_size)


def riff(stream: BinaryIO, size: int) -> Sound | None:
    """Returns the sound of a WAV file: chunks with four letters and a 32-bit size."""
    stream.seek(8)
    if stream.read(4) != b"WAVE":
        return None
    for name, promised, at in chunks(stream, "little"):
        if name == b"data":
            empty = promised == 0 and is_chunks(stream, size)
            return Sound(promised, 0 if empty else size - at, at - 4)
    return None


def rf64(stream: BinaryIO, size: int) -> Sound | None:
    """Returns the sound of an RF64 file (EBU Tech 3306): a WAV file whose 64-bit sizes
    are in a chunk ds64."""
    stream.seek(12)
    long = None
    for name, promised, at in chunks(stream, "little"):
        if name == b"ds64":
            long = int.from_bytes(stream.read(16)[8:], "little")
            stream.seek(at)
        elif name == b"data":
            whole = long if promised == 0xFFFFFFFF and long is not None else promised
            return Sound(whole, size - at)
    return None


def aiff(stream: BinaryIO, size: int) -> Sound | None:
    stream.seek(12)
    for name, promised, at in chunks(stream, "big"):
        if name == b"SSND":
            return Sound(promised, size - at)
    return None


def au(stream: BinaryIO, size: int) -> Sound | None:
    head = stream.read(12)
    order: Order = "big" if head[:4] == b".snd" else "little"
    offset, promised = (int.from_bytes(head[i : i + 4], order) for i in (4, 8))
    return Sound(promised, max(0, size - offset))


def wave64(stream: BinaryIO, size: int) -> Sound | None:
    """Returns the sound of a file in Sony's Wave64: chunks with 16 letters and a 64-bit
    size that includes their header."""
    stream.seek(40)
    while len(head := stream.read(24)) == 24:
        length, at = int.from_bytes(head[16:], "little"), stream.tell()
        if head[:4] == b"data":
            return Sound(max(0, length - 24), size - at)
        stream.seek(at + max(0, -(-length // 8) * 8 - 24))
    return None


def ogg(stream: BinaryIO, size: int) -> Sound:
    """Returns the sound of an Ogg file: one byte counts as missing unless the last page
    is whole and marked as the last.

    The rule is that of RFC 3533, Section 6."""
    stream.seek(max(0, size - 2 * PAGE))
    tail = stream.read()
    at = tail.rfind(b"OggS")
    page = tail[at:] if at >= 0 else b""
    segments = page[26] if len(page) > 26 else 0
    whole = 27 + segments + sum(page[27 : 27 + segments])
    ended = len(page) >= max(27, whole) and page[5] & LAST_PAGE
    return Sound(size + (not ended), size)


def mp3(stream: BinaryIO, size: int) -> Sound | None:
    """Returns the sound of MPEG audio, layer III, by the byte count in its first frame,
    or by its last frame.

    Without the count, the last frame must be whole. Returns None for other files, and
    for a free bit rate."""
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = 0
        if content[:3] == b"ID3":
            bits = (each << 7 * i for i, each in enumerate(reversed(content[6:10])))
            at = 10 + sum(bits)
        end = size - 128 * (content[-128:-125] == b"TAG")
        first = frame_length(content[at : at + 4])
        if first is None:
            return None
        head = content[at : at + first]
        for mark in (b"Xing", b"Info"):
            place = head.find(mark)
            if place >= 0 and head[place + 7] & 2:
                counted = place + 8 + 4 * (head[place + 7] & 1)
                promised = int.from_bytes(head[counted : counted + 4], "big")
                return Sound(promised, end - at)
        start = at
        while at < end and (length := frame_length(content[at : at + 4])):
            at += length
        return Sound(at - start, min(at, end) - start)


# kbit/s of layer III by the index of a frame's header: MPEG 1, then MPEG 2 and 2.5.
RATES = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
)
SAMPLES = (44_100, 48_000, 32_000)  # a second, of MPEG 1


def frame_length(head: bytes) -> int | None:
    """Returns the bytes of the layer III frame with this four-byte header; None for
    other bytes."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:
        return None
    version, index, rate = head[1] >> 3 & 3, head[2] >> 4, head[2] >> 2 & 3
    if version == 1 or index in (0, 15) or rate == 3:
        return None
    first = version == 3
    samples = SAMPLES[rate] >> {3: 0, 2: 1, 0: 2}[version]
    kilobits = RATES[not first][index]
    return (144 if first else 72) * 1000 * kilobits // samples + (head[2] >> 1 & 1)


READERS: dict[bytes, Callable[[BinaryIO, int], Sound | None]] = {
    b"RIFF": riff,
    b"RF64": rf64,
    b"BW64": rf64,
    b"FORM": aiff,
    b".snd": au,
    b"dns.": au,
    b"riff\x2e\x91\xcf\x11": wave64,
    b"OggS": ogg,
}


def chunks(stream: BinaryIO, order: Order) -> Iterator[tuple[bytes, int, int]]:
    """Yields the name, the size and the place of the content of each chunk, from the
    stream's position on."""
    while len(head := stream.read(8)) == 8:
        promised, at = int.from_bytes(head[4:], order), stream.tell()
        yield head[:4], promised, at
        stream.seek(at + promised + promised % 2)


def is_chunks(stream: BinaryIO, size: int) -> bool:
    """Returns whether the rest of a file consists of named chunks, and so has no
    sound."""
    while len(head := stream.read(8)) == 8 and head[:4].isascii():
        if not head[:4].decode().isprintable():
            return False
        length = int.from_bytes(head[4:], "little")
        stream.seek(length + length % 2, io.SEEK_CUR)
    return not head and stream.tell() - size in (0, 1)


def complete_header(file: Path, sound: Sound) -> mmap.mmap:
    """Returns a file whose header states how much sound it has, whatever its own header
    said."""
    with file.open("rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    least = min(sound.there, STREAMS[0].start - 1).to_bytes(4, "little")
    assert sound.field is not None
    mapped[sound.field : sound.field + 4] = least
    return mapped
