"""Headers of .wav files that do not say how much sound there is.

A recorder that was cut off leaves 0 there, or what it had planned; a stream has a
number that stands for none. libsndfile reads what is there of all but the first.
"""

import io
from pathlib import Path
from typing import BinaryIO, NamedTuple

# Of bytes: what ffmpeg, sox, arecord and others write where they cannot go back.
STREAMS = range(0x7FFF0000, 0x80000001), range(0xFFFF0000, 0x100000000)


class Sound(NamedTuple):
    """Where the sound of a file is, in bytes. field: the place of its size; promised:
    that size; there: how many follow it."""

    field: int
    promised: int
    there: int

    @property
    def lacks_size(self) -> bool:
        return self.promised == 0 < self.there

    @property
    def cut(self) -> bool:
        """Whether less is there than was promised, by a file that is no stream."""
        return self.there < self.promised and not any(
            self.promised in x for x in STREAMS
        )


def find(file: Path) -> Sound | None:
    """The sound of a RIFF file; None for another kind, or one without any."""
    with file.open("rb") as stream:
        if stream.read(4) != b"RIFF" or stream.read(8)[4:] != b"WAVE":
            return None
        size = file.stat().st_size
        while len(head := stream.read(8)) == 8:
            promised, at = int.from_bytes(head[4:], "little"), stream.tell()
            if head[:4] == b"data":
                empty = promised == 0 and _is_chunks(stream, size)
                return Sound(at - 4, promised, 0 if empty else size - at)
            stream.seek(at + promised + promised % 2)
    return None


def _is_chunks(stream: BinaryIO, size: int) -> bool:
    """Whether the rest of a file is chunks with names: then there was no sound."""
    while len(head := stream.read(8)) == 8 and head[:4].isascii():
        if not head[:4].decode().isprintable():
            return False
        length = int.from_bytes(head[4:], "little")
        stream.seek(length + length % 2, io.SEEK_CUR)
    return not head and stream.tell() - size in (0, 1)


class Sized(io.RawIOBase):
    """A file whose header says how much sound is there, whatever is written in it."""

    def __init__(self, file: Path, sound: Sound):
        self.stream = file.open("rb")
        least = min(sound.there, STREAMS[0].start - 1).to_bytes(4, "little")
        self.start, self.size = sound.field, least

    def readinto(self, buffer) -> int:
        at = self.stream.tell()
        count = self.stream.readinto(buffer)
        for i, byte in enumerate(self.size, start=self.start - at):
            if 0 <= i < count:
                memoryview(buffer).cast("B")[i] = byte
        return count

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        return self.stream.seek(place, whence)

    def tell(self) -> int:
        return self.stream.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self.stream.close()
        super().close()
