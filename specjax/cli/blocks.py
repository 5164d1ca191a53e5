"""A file of prompts cut into blocks, and the texts of blocks put together again.

A block is found by where it begins, so that nobody holds the file. Its texts are a file
of their own, which is there whole or not at all, and named by what its lines hold: of
prompts that are changed the other blocks keep theirs.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from specjax import prompts
from specjax.pretrained import Pretrained
from specjax.prompts import lines as prompt_lines
from specjax.prompts import located, text_files
from specjax.runtime import progress
from specjax.runtime.writing import whole


class Block(NamedTuple):
    """offset: the byte at which its first line begins. line: that line's number in the
    file, from 1. first: how many prompts are before it. count: its own. digest: of
    their lines. how: a digest of what its texts are decoded by."""

    number: int
    offset: int
    line: int
    first: int
    count: int
    digest: str
    how: str = ""

    def __str__(self) -> str:
        return f"block {self.number}"


def cut(path: Path, size: int, how: str = "") -> Iterator[Block]:
    """The blocks of a file of prompts, one a line, `size` each but the last. how: what
    their texts are decoded by. Raises ValueError for a file without any, and for a
    packed one, which has no offsets."""
    if not path.exists():
        raise ValueError(text_files.NO_FILE.format(path))
    number = 0
    with path.open("rb") as file:
        if text_files.is_packed(file.read(16)) or path.suffix in text_files.SUFFIXES:
            raise ValueError(
                f"{path} is packed: unpack it, as blocks begin at an offset"
            )
        file.seek(0)
        prompts = prompts_of(file)
        while some := [*itertools.islice(prompts, size)]:
            (offset, line, _), digest = some[0], digest_of(text for *_, text in some)
            yield Block(number, offset, line, number * size, len(some), digest, how)
            number += 1
    if not number:
        raise ValueError(f'{path} has no line: write {{"prompt": text}}, one a line')


def prompts_of(file: Iterable[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """(offset, number, line) of each line that is not empty, numbers from 1."""
    offset = 0
    for number, line in enumerate(file, 1):
        if text_files.bare(line):
            yield offset, number, line
        offset += len(line)


def digest_of(lines: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(line.strip() + b"\n" for line in lines)).hexdigest()


def check(path: Path, model: Pretrained, new_tokens: int) -> int:
    """Returns how many prompts a file has, once each is found to be one that the model
    can go on with by so many tokens. Raises ValueError as `cut`, and for a line that is
    none, with its number and what to do."""
    next(cut(path, 1))
    prompts.check_reads(model)
    with path.open("rb") as file:
        lines = progress.track(prompts_of(file), "prompts checked")
        return sum(
            check_line(f"{path}, line {n}", x, model, new_tokens) for _, n, x in lines
        )


def check_line(where: str, line: bytes, model: Pretrained, new_tokens: int) -> bool:
    """Returns True. Raises ValueError as `check`."""
    located(where, prompt_lines.check, line)
    read = prompts.gather([where], [prompt_lines.parse(line)], model)
    length, most = len(read.tokens[0]), model.model.slots
    if most is not None and length + new_tokens > most:
        raise ValueError(
            f"{where}: the prompt has {length} tokens, --tokens asks for {new_tokens}"
            f" more, and {model.name} knows {most} positions: shorten the one or lower"
            " the other"
        )
    return True


def lines(path: Path, block: Block) -> list[tuple[int, bytes]]:
    """The prompts of a block, each with the number of its line in the file. Raises
    ValueError where they are others than when the file was cut."""
    with path.open("rb") as file:
        file.seek(block.offset)
        some = itertools.islice(prompts_of(file), block.count)
        found = [(block.line + number - 1, line) for _, number, line in some]
    if len(found) < block.count:
        raise ValueError(f"{path} ends before {block} does: was it changed?")
    if digest_of(line for _, line in found) != block.digest:
        raise ValueError(f"{path} was changed meanwhile: begin the same command again")
    return found


def texts_of(folder: Path, block: Block) -> Path:
    """Where the texts of a block are, once they are: named by its lines, and by what
    they are decoded by."""
    named = block.digest[:16], *filter(None, [block.how[:16]])
    return folder / "blocks" / f"{block.number}.{'.'.join(named)}.jsonl"


def keep(folder: Path, block: Block, texts: Sequence[dict]) -> None:
    """Writes the texts of a block. Two workers that have the same one do no harm."""
    rows = enumerate(texts, block.first)
    written = [json.dumps({"index": i} | text) + "\n" for i, text in rows]
    whole(texts_of(folder, block), written)


def part(path: Path, folder: Path, every: Iterable[Block], before: list[str]) -> None:
    """Takes joined texts apart again, those of blocks whose lines are as `before`, the
    digests of the blocks that were joined."""
    with path.open(encoding="utf-8") as file:
        for block, digest in zip(every, before, strict=False):
            rows = [*itertools.islice(file, block.count)]
            if digest == block.digest:
                whole(texts_of(folder, block), rows)


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
