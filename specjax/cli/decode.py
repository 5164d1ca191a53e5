"""Decodes a file of prompts in blocks, by workers: `specjax decode PROMPTS --out DIR`.

A block of prompts is a task: a worker reads it, and writes its texts to DIR/blocks once
all are done. A worker that dies is begun again. This process alone joins the blocks to
DIR/texts.jsonl, in the order of the prompts. Text i depends on the seed and on i, not
on blocks or workers. Stopped at any moment, the same command goes on; where lines of
PROMPTS are mended, blocks without them keep their texts.
"""

import argparse
import contextlib
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specjax import drafts, native, pretrained, prompts, text
from specjax.cli import blocks, content, workers
from specjax.cli import flags as shared
from specjax.cli.blocks import Block
from specjax.cli.texts_folder import (
    TEXTS,
    Setting,
    before,
    blocks_of,
    finish,
    is_joined,
    missing,
    prepare,
)
from specjax.inputs import bucket
from specjax.measure.row import own_files
from specjax.pretrained import Pretrained
from specjax.prompts import questions
from specjax.prompts.lines import parse
from specjax.runtime import console, locks
from specjax.runtime.progress import Bar
from specjax.text import programs, streaming

WRONG = ValueError, OSError, FloatingPointError  # what a person can mend
LARGEST, SHARE = 1024, 8  # prompts of a block, blocks of a worker, where nobody says


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), decodes; 1 if a block has no texts."""
    parser = make_parser()
    chosen = parser.parse_args(argv)
    document = console.document(chosen.json, lambda: written(parser, chosen))
    return int(bool(document["failed"]))


def written(parser: console.Parser, chosen: argparse.Namespace) -> dict:
    """Prints how each block ends; what --json tells. decoded: of the texts, those that
    were not there before. failed: what went wrong, by block."""
    begun, setting = time.monotonic(), asked(chosen)
    with contextlib.ExitStack() as stack:
        with parser.refusing():
            workers.check(chosen)
            model, files = made_of(setting)
            count = blocks.check(setting.prompts, model, setting.tokens)
            setting = setting._replace(content=content.read(files))
            setting = sized(setting, count, chosen.workers)
            stack.enter_context(locks.alone(setting.folder))
            prepare(setting)
            launcher = workers.launched(chosen, setting.folder / "workers")
        found = joined(parser, chosen, setting, launcher)
    return found | {"seconds": time.monotonic() - begun}


def joined(
    parser: console.Parser,
    chosen: argparse.Namespace,
    setting: Setting,
    launcher: Any,
) -> dict:
    """Decodes the blocks that have no texts, joins all, and returns what `written`
    does."""
    every = [*blocks_of(setting)]
    counts = [each.count for each in every]
    path, decoded, lacking, failed = setting.folder / TEXTS, 0, 0, {}

    def begin(block: Block) -> Any:
        return workers.submit(launcher, work, setting, block)

    if is_joined(setting, every):
        print(f"texts: {path}, as before")
    else:
        with console.stops(lambda: "the same command goes on from here"):
            tasks, how = [*missing(setting)], (chosen.workers, chosen.attempts, str)
            bar = Bar("blocks", len(every), "", len(every) - len(tasks), True)
            ends = contextlib.closing(workers.finished(begin, tasks, *how))
            with bar, ends as every_end:
                bar.tell()
                for block, end in every_end:
                    said = end.said or f"{block.count} texts by {end.host}"
                    with bar.above():
                        print(f"{block}: {said}", flush=True)
                    if end.said:
                        failed[str(block)] = end.said
                        lacking += block.count
                    else:
                        decoded += block.count
                        bar.to(bar.done + 1)
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
    }


def made_of(setting: Setting) -> tuple[Pretrained, tuple[Path, ...]]:
    """Returns the target without its weights, and all files that texts depend on.
    Raises ValueError for names of what is not there."""
    with native.products(native.XLA):  # any other asks for the workers' device
        target, draft = drafts.check(setting.target, setting.draft, setting.dtype)
    own = own_files(setting.rule, setting.policy)
    return target, (*pretrained.files_of(target), *draft, *own)


def make_parser() -> console.Parser:
    about = __doc__.split("\n")[0]
    parser = console.Parser(prog="specjax decode", description=about)
    add = parser.add_argument
    of_file = f"JSON lines: {shared.PROMPT}"
    add("prompts", type=Path, metavar="PROMPTS.jsonl", help=of_file)
    of_out = "a folder that all workers see"
    add("--out", dest="folder", type=Path, required=True, metavar="DIR", help=of_out)
    of_block = f"prompts of a task; default: for about {SHARE} tasks a worker, at least"
    of_block += f" --batch and at most {LARGEST}"
    add("--block", type=console.count, help=of_block)
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


def sized(setting: Setting, count: int, at_once: int) -> Setting:
    """The setting with a size of blocks: the one that the folder has, else by how many
    prompts there are and are worked on at once."""
    if setting.block is not None:
        return setting
    size = min(LARGEST, max(setting.batch, -(-count // (SHARE * at_once))))
    return setting._replace(block=before(setting.folder).get("block", size))


def work(
    setting: Setting, block: Block, decode: Callable | None = None
) -> tuple[int, str, str]:
    """What a worker does: exit code, what went wrong, the machine. decode: as
    `decoded`, which is meant where there is none."""
    host = socket.gethostname()
    try:
        if not blocks.texts_of(setting.folder, block).exists():
            if setting.content.digests:
                content.check(setting.content, made_of(setting)[1])
            lines = blocks.lines(setting.prompts, block)
            texts = (decode or decoded)(setting, block.first, lines)
            blocks.keep(setting.folder, block, [*map(named, lines, texts)])
    except Exception as error:
        why = console.no_backend(error)
        if why is None and not isinstance(error, WRONG):
            raise
        return 2, why or str(error), host
    return 0, "", host


def named(line: tuple[int, bytes], row: dict[str, Any]) -> dict[str, Any]:
    """A text behind the names that its prompt has."""
    fields = parse(line[1])
    return {name: fields[name] for name in questions.IDS if name in fields} | row


def decoded(setting: Setting, first: int, lines: list[tuple[int, bytes]]) -> list[dict]:
    """The texts of prompts, the first of which is the `first` of its file. tokens: how
    many ids it has; ended: whether by an end of the model's, not by the limit. Prompts
    of one `bucket` are decoded together, always `batch` of them: a program's shape then
    says nothing of a prompt's mates, nor does its rounding."""
    sides = shared.pair((setting.target, setting.draft), setting.dtype)
    target, draft = programs.opened(sides[0].pretrained, sides[1])
    where = [f"{setting.prompts}, line {line}" for line, _ in lines]
    both = zip(where, lines, strict=True)
    fields = [prompts.located(at, parse, raw) for at, (_, raw) in both]
    read = prompts.gather(where, fields, target)
    most = None if read.inputs else programs.room((target, draft), setting.tokens)
    alike, texts = defaultdict(list), {}
    for i, ids in enumerate(read.inputs or read.tokens):
        alike[bucket(len(ids), most)].append((i, ids))
    names = "gamma", "temperature", "top_k", "top_p", "min_p", "rule", "policy"
    how = programs.Asked(**{name: getattr(setting, name) for name in names})
    how = how._replace(new_tokens=setting.tokens, kernels=setting.kernels)
    for rows in alike.values():
        for at in range(0, len(rows), setting.batch):
            some = rows[at : at + setting.batch]
            full = [some[k % len(some)] for k in range(setting.batch)]
            places = tuple(first + i for i, _ in full)
            each = how._replace(seed=setting.seed, places=places)
            asked_for = [{"tokens": ids} for _, ids in full]
            ready = programs.prepared(target, draft, asked_for, each)
            done = text.run(*ready)
            for k, (i, _) in enumerate(some):
                row = {"text": done.texts[k], "tokens": len(done.ids[k])}
                texts[i] = row | {"ended": done.ended[k] == streaming.END}
    return [texts[i] for i in range(len(lines))]
