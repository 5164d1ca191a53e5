"""Decodes a file of prompts in blocks, by workers: `specjax decode PROMPTS --out DIR`.

A block of prompts is a task: a worker reads it, and writes its texts to DIR/blocks once
all are done. A worker that dies is begun again. This process alone joins the blocks to
DIR/texts.jsonl, in the order of the prompts. Text i depends on the seed and on i, not
on blocks or workers. Stopped at any moment, the same command goes on.
"""

import argparse
import json
import shutil
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from specjax import console, prompts, text
from specjax.cli import blocks, workers
from specjax.cli import flags as shared
from specjax.cli.blocks import Block
from specjax.inputs import bucket
from specjax.measure import provenance
from specjax.prompt_lines import parse

SETTING, TEXTS = "setting.json", "texts.jsonl"  # in the folder, beside blocks


class Setting(NamedTuple):
    """What is decoded, and how. prompts: their file. batch: texts decoded together. The
    rest is as of `specjax.text.generate_text`."""

    prompts: Path
    folder: Path
    block: int
    target: str
    draft: str
    dtype: str
    batch: int
    gamma: int
    temperature: float
    rule: str
    policy: str
    tokens: int
    seed: int
    kernels: str
    top_k: int | None
    top_p: float | None
    min_p: float | None


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), decodes; 1 if a block has no texts."""
    parser = make_parser()
    chosen = parser.parse_args(argv)
    with console.aside(chosen.json):
        document = written(parser, chosen)
    if chosen.json:
        console.tell(document)
    return int(bool(document["failed"]))


def written(parser: console.Parser, chosen: argparse.Namespace) -> dict:
    """Prints how each block ends; what --json tells. decoded: of the texts, those that
    were not there before. failed: what went wrong, by block."""
    begun, setting = time.monotonic(), asked(chosen)
    with parser.refusing():
        prepare(setting)
        launcher = workers.launched(chosen, setting.folder / "workers")
        counts = [each.count for each in blocks.cut(setting.prompts, setting.block)]
    path, decoded, lacking, failed = setting.folder / TEXTS, 0, 0, {}

    def begin(block: Block) -> Any:
        return launcher.submit(work, setting, block)

    if path.exists():
        print(f"texts: {path}, as before")
    else:
        with console.stops(lambda: "the same command goes on from here"):
            how = chosen.workers, chosen.attempts, str
            for block, end in workers.finished(begin, missing(setting), *how):
                said = end.said or f"{block.count} texts by {end.host}"
                print(f"{block}: {said}", flush=True)
                if end.said:
                    failed[str(block)] = end.said
                    lacking += block.count
                else:
                    decoded += block.count
            if not failed:
                with parser.refusing():
                    finish(setting)
                print(f"texts: {sum(counts)}, in {path}")
    if failed:
        print(f"without texts: {', '.join(failed)}", file=sys.stderr)
    return {
        "folder": str(setting.folder),
        "file": None if failed else str(path),
        "texts": sum(counts) - lacking,
        "decoded": decoded,
        "blocks": len(counts),
        "failed": failed,
        "seconds": time.monotonic() - begun,
    }


def make_parser() -> console.Parser:
    about = __doc__.split("\n")[0]
    parser = console.Parser(prog="specjax decode", description=about)
    add = parser.add_argument
    of_file = f"JSON lines: {shared.PROMPT}"
    add("prompts", type=Path, metavar="PROMPTS.jsonl", help=of_file)
    of_out = "a folder that all workers see"
    add("--out", dest="folder", type=Path, required=True, metavar="DIR", help=of_out)
    of_block = "prompts of a task; default %(default)s"
    add("--block", type=console.count, default=1024, help=of_block)
    shared.add(parser, *shared.PAIR)
    shared.add(parser, "batch", default=32)
    of_gamma = "drafted tokens; default %(default)s"
    add("--gamma", type=console.gamma, default=4, help=of_gamma)
    shared.add(parser, "dtype", "temperature")
    shared.add_filters(parser)
    shared.add(parser, "tokens", default=64)
    shared.add(parser, "seed", "kernels")
    workers.add(parser, "block")
    console.add_json(parser)
    return parser


def asked(chosen: argparse.Namespace) -> Setting:
    named = {k: v for k, v in vars(chosen).items() if k in Setting._fields}
    paths = {name: named[name].resolve() for name in ("prompts", "folder")}
    return Setting(**(named | paths))


def prepare(setting: Setting) -> None:
    """Makes the folder, or finds it to be of the same setting. Raises ValueError where
    it is of another."""
    digest = provenance.digest(setting.prompts)
    said = {**setting._asdict(), "prompts": digest, "folder": None}
    path = setting.folder / SETTING
    if not path.exists():
        blocks.whole(path, [json.dumps(said)])
    before = json.loads(path.read_text("utf-8"))
    differ = [f"{k} {before.get(k)!r}" for k, v in said.items() if before.get(k) != v]
    if differ:
        raise ValueError(
            f"{setting.folder} has texts of {', '.join(differ)}: name another --out, or"
            " decode as before"
        )


def missing(setting: Setting) -> Iterator[Block]:
    """The blocks that have no texts yet."""
    for block in blocks.cut(setting.prompts, setting.block):
        if not blocks.texts_of(setting.folder, block).exists():
            yield block


def finish(setting: Setting) -> int:
    """Joins the blocks; they and what workers wrote are then gone."""
    every = blocks.cut(setting.prompts, setting.block)
    count = blocks.join(setting.folder, every, setting.folder / TEXTS)
    for name in ("blocks", "workers"):
        shutil.rmtree(setting.folder / name, ignore_errors=True)
    return count


def work(
    setting: Setting, block: Block, decode: Callable | None = None
) -> tuple[int, str, str]:
    """What a worker does: exit code, what went wrong, the machine. decode: as
    `decoded`, which is meant where there is none."""
    host = socket.gethostname()
    try:
        if not blocks.texts_of(setting.folder, block).exists():
            lines = blocks.lines(setting.prompts, block)
            texts = (decode or decoded)(setting, block.first, lines)
            blocks.keep(setting.folder, block, texts)
    except (ValueError, OSError, FloatingPointError) as error:
        return 2, str(error), host
    return 0, "", host


def decoded(setting: Setting, first: int, lines: list[tuple[int, bytes]]) -> list[str]:
    """The texts of prompts, the first of which is the `first` of its file. Prompts of
    one `bucket` are decoded together, always `batch` of them: a program's shape then
    says nothing of a prompt's mates, nor does its rounding."""
    sides = shared.pair((setting.target, setting.draft), setting.dtype)
    target, draft = text.opened(sides[0].pretrained, sides[1])
    where = [f"{setting.prompts}, line {line}" for line, _ in lines]
    both = zip(where, lines, strict=True)
    fields = [prompts.located(at, parse, raw) for at, (_, raw) in both]
    read = prompts.gather(where, fields, target)
    most = None if read.inputs else text.room((target, draft), setting.tokens)
    alike, texts = defaultdict(list), {}
    for i, ids in enumerate(read.inputs or read.tokens):
        alike[bucket(len(ids), most)].append((i, ids))
    names = "gamma", "temperature", "top_k", "top_p", "min_p", "rule", "policy"
    how = text.Asked(**{name: getattr(setting, name) for name in names})
    how = how._replace(new_tokens=setting.tokens, kernels=setting.kernels)
    for rows in alike.values():
        for at in range(0, len(rows), setting.batch):
            some = rows[at : at + setting.batch]
            full = [some[k % len(some)] for k in range(setting.batch)]
            places = tuple(first + i for i, _ in full)
            each = how._replace(seed=setting.seed, places=places)
            asked_for = [{"tokens": ids} for _, ids in full]
            ready = text.prepared(target, draft, asked_for, each)
            written = text.run(*ready).texts[: len(some)]
            texts |= zip((i for i, _ in some), written, strict=True)
    return [texts[i] for i in range(len(lines))]
