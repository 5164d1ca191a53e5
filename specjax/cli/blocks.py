"""Cuts a file of prompts into blocks, and joins the texts of the blocks.

A block is found by its byte offset, so that no process reads the whole file. The texts
of a block are a file of their own, which is complete or absent. The file is named by a
digest of the block's lines: where some prompts change, all other blocks keep their
texts."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from specjax import prompts
from specjax.pretrained import Pretrained
from specjax.prompts import at_place, text_files
from specjax.prompts import fields as prompt_fields
from specjax.runtime import progress
from specjax.runtime.writing import write_whole


class Block(NamedTuple):
    """A run of lines of a file of prompts, the work of one task.

    offset: the byte at which its first line begins. line: that line's number in the
    file, from 1. first: the number of prompts before it. size: the number of its own
    prompts. digest: the digest of their lines. how: a digest of the settings that its
    texts are decoded with."""

    number: int
    offset: int
    line: int
    first: int
    size: int
    digest: str
    how: str = ""

    def __str__(self) -> str:
        return f"block {self.number}"


def split_file(path: Path, size: int, how: str = "") -> Iterator[Block]:
    """Yields the blocks of a file of prompts, `size` prompts each but the last.

    how: a digest of the settings that their texts are decoded with. Raises ValueError
    for a file without prompts, and for a compressed one, which has no offsets."""
    if not path.exists():
        raise ValueError(text_files.NO_FILE.format(path))
    number = 0
    with path.open("rb") as file:
        if (
            text_files.is_compressed(file.read(16))
            or path.suffix in text_files.SUFFIXES
        ):
            raise ValueError(
                f"{path} is compressed: decompress it first, because blocks are read"
                " from byte offsets"
            )
        file.seek(0)
        prompts = iterate_prompts(file)
        while some := [*itertools.islice(prompts, size)]:
            (offset, line, _), digest = some[0], digest_lines(text for *_, text in some)
            yield Block(number, offset, line, number * size, len(some), digest, how)
            number += 1
    if not number:
        raise ValueError(f'{path} is empty: write {{"prompt": text}}, one per line')


def iterate_prompts(file: Iterable[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Yields (offset, number, line) of each line that is not empty, numbers from 1."""
    offset = 0
    for number, line in enumerate(file, 1):
        if text_files.strip_line(line):
            yield offset, number, line
        offset += len(line)


def digest_lines(lines: Iterable[bytes]) -> str:
    """Returns the SHA-256 of lines, without the spaces around each."""
    return hashlib.sha256(b"".join(line.strip() + b"\n" for line in lines)).hexdigest()


def check(path: Path, model: Pretrained, new_tokens: int) -> int:
    """Returns the number of prompts in a file, after a check that the model can
    continue each of them by `new_tokens` tokens.

    Raises ValueError as `split_file` does, and for the first line that fails, with its
    number and the fix."""
    next(split_file(path, 1))
    prompts.check_reads(model)
    with path.open("rb") as file:
        lines = progress.track(iterate_prompts(file), "prompts checked")
        return sum(
            check_line(f"{path}, line {number}", line, model, new_tokens)
            for _, number, line in lines
        )


def check_line(where: str, line: bytes, model: Pretrained, new_tokens: int) -> bool:
    """Returns True for a line that the model can continue. Raises ValueError as `check`
    does."""
    at_place(where, prompt_fields.check, line)
    read = prompts.gather([where], [prompt_fields.parse(line)], model)
    length, most = len(read.tokens[0]), model.model.slots
    if most is not None and length + new_tokens > most:
        raise ValueError(
            f"{where}: the prompt has {length} tokens, --tokens asks for {new_tokens}"
            f" more, and {model.name} has {most} positions: shorten the prompt or lower"
            " --tokens"
        )
    return True


def read_lines(path: Path, block: Block) -> list[tuple[int, bytes]]:
    """Returns the prompts of a block, each with the number of its line in the file.

    Raises ValueError where they differ from those that the file was cut into."""
    with path.open("rb") as file:
        file.seek(block.offset)
        some = itertools.islice(iterate_prompts(file), block.size)
        found = [(block.line + number - 1, line) for _, number, line in some]
    if len(found) < block.size:
        raise ValueError(
            f"{path} ends before {block}: it was changed during the run; start the same"
            " command again"
        )
    if digest_lines(line for _, line in found) != block.digest:
        raise ValueError(
            f"{path} was changed during the run: start the same command again"
        )
    return found


def texts_path(folder: Path, block: Block) -> Path:
    """Returns the path of the texts of a block, named by its lines and its settings."""
    digests = [block.digest[:16], *filter(None, [block.how[:16]])]
    return folder / "blocks" / f"{block.number}.{'.'.join(digests)}.jsonl"


def write_texts(folder: Path, block: Block, texts: Sequence[dict]) -> None:
    """Writes the texts of a block. Two workers that write the same block do no harm."""
    rows = enumerate(texts, block.first)
    lines = [json.dumps({"index": i} | text) + "\n" for i, text in rows]
    write_whole(texts_path(folder, block), lines)


def split(path: Path, folder: Path, every: Iterable[Block], before: list[str]) -> None:
    """Splits joined texts into blocks again, where the lines of a block have not
    changed.

    before: the digests of the blocks that were joined."""
    with path.open(encoding="utf-8") as file:
        for block, digest in zip(every, before, strict=False):
            rows = [*itertools.islice(file, block.size)]
            if digest == block.digest:
                write_whole(texts_path(folder, block), rows)


def join(folder: Path, blocks: Iterable[Block], path: Path) -> int:
    """Writes the texts of all blocks in their order, and returns how many there are.

    Raises ValueError where a text is missing or there twice."""
    count = 0

    def all_texts() -> Iterator[str]:
        nonlocal count
        for block in blocks:
            with texts_path(folder, block).open(encoding="utf-8") as file:
                for text in file:
                    if json.loads(text)["index"] != count:
                        raise ValueError(
                            f"{file.name} does not have the text of prompt {count} in"
                            " its place: remove the file, and start the same command"
                            " again"
                        )
                    count += 1
                    yield text
            if count != block.first + block.size:
                raise ValueError(
                    f"{file.name} lacks some texts of its block: remove the file, and"
                    " start the same command again"
                )

    write_whole(path, all_texts())
    return count
