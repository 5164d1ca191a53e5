"""A file of prompts cut into blocks, and the texts of blocks put together again.

A block is found by where it begins, so that nobody holds the file. Its texts are a file
of their own, which is there whole or not at all.
"""

import json
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from specjax.prompt_lines import NO_FILE

PACKED = (".gz", ".xz")


class Block(NamedTuple):
    """offset: the byte at which its first line begins. line: that line's number in the
    file, from 1. first: how many prompts are before it. count: its own."""

    number: int
    offset: int
    line: int
    first: int
    count: int

    def __str__(self) -> str:
        return f"block {self.number}"


def cut(path: Path, size: int) -> Iterator[Block]:
    """The blocks of a file of prompts, one a line, `size` each but the last. Raises
    ValueError for a file without any, and for a packed one, which has no offsets."""
    if not path.exists():
        raise ValueError(NO_FILE.format(path))
    if path.suffix in PACKED:
        raise ValueError(f"{path} is packed: unpack it, as blocks begin at an offset")
    number = first = count = offset = 0
    begins = 0, 1
    with path.open("rb") as file:
        for line, text in enumerate(file, 1):
            if count == size:
                yield Block(number, *begins, first, count)
                number, first, count = number + 1, first + count, 0
                begins = offset, line
            count += bool(text.strip())
            offset += len(text)
    if count:
        yield Block(number, *begins, first, count)
    elif not number:
        raise ValueError(f'{path} has no line: write {{"prompt": text}}, one a line')


def lines(path: Path, block: Block) -> list[tuple[int, bytes]]:
    """The prompts of a block, each with the number of its line in the file."""
    found, number = [], block.line
    with path.open("rb") as file:
        file.seek(block.offset)
        while len(found) < block.count:
            if not (text := file.readline()):
                raise ValueError(f"{path} ends before {block} does: was it changed?")
            if text.strip():
                found.append((number, text))
            number += 1
    return found


def texts_of(folder: Path, block: Block) -> Path:
    return folder / "blocks" / f"{block.number}.jsonl"


def keep(folder: Path, block: Block, texts: Sequence[str]) -> None:
    """Writes the texts of a block. Two workers that have the same one do no harm."""
    rows = enumerate(texts, block.first)
    written = [json.dumps({"index": i, "text": text}) + "\n" for i, text in rows]
    whole(texts_of(folder, block), written)


def whole(path: Path, written: Iterable[str]) -> None:
    """Writes a file that is there once all of it is on the disk."""
    part = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    with part.open("w", encoding="utf-8") as file:
        file.writelines(written)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def join(folder: Path, blocks: Iterable[Block], path: Path) -> int:
    """Writes the texts of all blocks in their order, and returns how many there are.
    Raises ValueError where one is lost, or there twice."""
    count = 0

    def every() -> Iterator[str]:
        nonlocal count
        for block in blocks:
            with texts_of(folder, block).open(encoding="utf-8") as file:
                for text in file:
                    if json.loads(text)["index"] != count:
                        raise ValueError(
                            f"{file.name} has another text than that of prompt {count}:"
                            " remove it, and the same command makes it anew"
                        )
                    count += 1
                    yield text
            if count != block.first + block.count:
                raise ValueError(
                    f"{file.name} has not all texts of its block: remove it, and the"
                    " same command makes it anew"
                )

    whole(path, every())
    return count
