"""Decodes a file of prompts in blocks, by workers: `specjax decode PROMPTS --out DIR`.

Each block of prompts is a task: a worker reads it, and writes its texts to DIR/blocks
once all of them are done. A worker that dies is started again. Only this process joins
the blocks to DIR/texts.jsonl, in the order of the prompts. Text i depends on the seed
and on i, not on blocks or workers. A command that was stopped continues when it is
started again; where lines of PROMPTS were corrected, the blocks without them keep their
texts."""

import argparse
import contextlib
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specjax import constraints, drafts, native, pretrained, prompts, text
from specjax.cli import blocks, content, workers
from specjax.cli import flags as shared
from specjax.cli.blocks import Block
from specjax.cli.flags import ALONE
from specjax.cli.texts_folder import (
    TEXTS,
    Setting,
    finish,
    is_joined,
    list_blocks,
    missing_blocks,
    prepare,
    read_setting,
    remove_parts,
)
from specjax.decode_config import setting_type
from specjax.drafts.source import DraftSource
from specjax.inputs import bucket
from specjax.measure.row import own_files
from specjax.pretrained import Pretrained
from specjax.prompts import questions
from specjax.prompts.fields import parse
from specjax.runtime import console, locks
from specjax.runtime.progress import Bar
from specjax.text import programs, streaming

WRONG = ValueError, OSError, FloatingPointError  # errors that a person can fix
LARGEST, SHARE = 1024, 8  # default limits: prompts per block, blocks per worker


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), decodes; 1 if a block has no texts."""
    parser = make_parser()
    chosen = parser.parse_args(argv)
    document = console.print_document(chosen.json, lambda: run(parser, chosen))
    return int(bool(document["failed"]))


def run(parser: console.Parser, chosen: argparse.Namespace) -> dict:
    """Prints the outcome of each block, and returns the fields of --json.

    decoded: the number of texts that this run added. failed: the error of each block
    that has no texts."""
    start, setting = time.monotonic(), make_setting(chosen)
    with contextlib.ExitStack() as stack:
        with parser.report_errors():
            workers.check(chosen)
            model, files = check_models(setting)
            count = blocks.check(setting.prompts, model, setting.decode.new_tokens)
            check_form(setting, model)
            setting = setting._replace(content=content.read(files))
            setting = with_block_size(setting, count, chosen.workers)
            stack.enter_context(locks.lock_folder(setting.folder))
            prepare(setting)
            launcher = workers.make_launcher(chosen, setting.folder / "workers")
        found = decode_blocks(parser, chosen, setting, launcher)
    return found | {"seconds": time.monotonic() - start}


def decode_blocks(
    parser: console.Parser,
    chosen: argparse.Namespace,
    setting: Setting,
    launcher: Any,
) -> dict:
    """Decodes the blocks that have no texts, joins all, and returns the fields of
    `run`."""
    every = [*list_blocks(setting)]
    counts = [each.size for each in every]
    path, decoded, lacking, failed = setting.folder / TEXTS, 0, 0, {}

    def begin(block: Block) -> Any:
        return workers.submit(launcher, work, setting, block)

    if is_joined(setting, every):
        remove_parts(setting.folder)
        print(f"texts: {path}, as before")
    else:
        with console.handle_stops(lambda: "start the same command again to continue"):
            tasks = [*missing_blocks(setting)]
            done = len(every) - len(tasks)
            bar = Bar("blocks", len(every), done=done, kept=True)
            outcomes = workers.run_tasks(
                begin,
                tasks,
                workers=chosen.workers,
                attempts=chosen.attempts,
                label=str,
            )
            with bar, contextlib.closing(outcomes):
                bar.draw()
                for block, end in outcomes:
                    line = end.error or f"{block.size} texts by {end.host}"
                    with bar.paused():
                        print(f"{block}: {line}", flush=True)
                    if end.error:
                        failed[str(block)] = end.error
                        lacking += block.size
                    else:
                        decoded += block.size
                        bar.update(bar.done + 1)
            if not failed:
                with parser.report_errors():
                    finish(setting)
                print(f"texts: {sum(counts)}, in {path}")
    if failed:
        print(f"no texts of: {', '.join(failed)}", file=sys.stderr)
    return {
        "folder": str(setting.folder),
        "file": None if failed else str(path),
        "texts": sum(counts) - lacking,
        "decoded": decoded,
        "blocks": len(counts),
        "failed": failed,
    }


def check_models(setting: Setting) -> tuple[Pretrained, tuple[Path, ...]]:
    """Returns the target without its weights, and all files that the texts depend on.

    Raises ValueError for a name that does not exist."""
    with native.products(native.XLA):  # any other asks for the workers' device
        named = None if setting.draft == ALONE else setting.draft
        target, draft = drafts.check_names(setting.target, named, setting.dtype)
    own = own_files(setting.decode.rule, setting.decode.policy)
    return target, (*pretrained.files_of(target), *draft, *own)


def read_text(name: str) -> str:
    """Returns the text in a file, without a byte order mark. Raises ValueError for a
    file that is not text."""
    try:
        return Path(name).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} cannot be read: {error}") from None


def check_form(setting: Setting, target: Pretrained) -> None:
    """Raises ValueError for a form of texts that the target cannot write."""
    if setting.form is not None:
        most = setting.decode.new_tokens + setting.decode.gamma + 1
        constraints.automaton(setting.form, target, target.ends, most)


def make_parser() -> console.Parser:
    about = __doc__.split("\n")[0]
    parser = console.Parser(prog="specjax decode", description=about)
    add = parser.add_argument
    of_file = f"JSON lines: {shared.TEXT_PROMPT}"
    add("prompts", type=Path, metavar="PROMPTS.jsonl", help=of_file)
    of_out = "a folder that all workers see"
    add("--out", dest="folder", type=Path, required=True, metavar="DIR", help=of_out)
    of_block = f"prompts per task; default: about {SHARE} tasks per worker, at least"
    of_block += f" --batch and at most {LARGEST} prompts"
    add("--block", type=console.count, help=of_block)
    shared.add(parser, "target")
    shared.add(parser, "draft", help=f"{shared.DRAFTS}, or {ALONE}")
    shared.add(parser, "rule", "policy")
    shared.add(parser, "batch", default=32)
    of_gamma = "drafted tokens; default %(default)s"
    add("--gamma", type=setting_type("gamma"), default=4, help=of_gamma)
    shared.add(parser, "dtype", "temperature")
    shared.add_filters(parser)
    shared.add(parser, "tokens", default=64)
    of_form = "of every text; needs the extra constraints"
    form = parser.add_mutually_exclusive_group()
    file_text = console.flag_type(read_text)
    of_schema = f"a file with the JSON schema {of_form}"
    form.add_argument("--schema", type=file_text, metavar="FILE", help=of_schema)
    form.add_argument("--regex", help=f"the regular expression {of_form}")
    of_grammar = f"a file with the grammar {of_form}"
    form.add_argument("--grammar", type=file_text, metavar="FILE", help=of_grammar)
    shared.add(parser, "seed", "kernels")
    workers.add(parser, "block")
    console.add_json(parser)
    return parser


def make_setting(chosen: argparse.Namespace) -> Setting:
    fields = {k: v for k, v in vars(chosen).items() if k in Setting._fields}
    paths = {name: fields[name].resolve() for name in ("prompts", "folder")}
    config = shared.read_config(chosen, new_tokens=chosen.tokens)
    form = constraints.read_form(chosen.schema, chosen.regex, chosen.grammar)
    return Setting(**(fields | paths), decode=config, form=form)


def with_block_size(setting: Setting, count: int, at_once: int) -> Setting:
    """Returns the setting with a block size.

    It is the size in the folder, if there is one; otherwise it follows from the number
    of prompts and of workers."""
    if setting.block is not None:
        return setting
    size = min(LARGEST, max(setting.batch, -(-count // (SHARE * at_once))))
    return setting._replace(block=read_setting(setting.folder).get("block", size))


def work(
    setting: Setting, block: Block, decode: Callable | None = None
) -> tuple[int, str, str]:
    """Runs a worker's task: returns exit code, error message and the machine's name.

    decode: a function like `decode_lines`, which is the default."""
    host = socket.gethostname()
    try:
        if not blocks.texts_path(setting.folder, block).exists():
            if setting.content.digests:
                content.check(setting.content, check_models(setting)[1])
            lines = blocks.read_lines(setting.prompts, block)
            texts = (decode or decode_lines)(setting, block.first, lines)
            blocks.write_texts(
                setting.folder, block, [*map(with_prompt_fields, lines, texts)]
            )
    except Exception as error:
        why = console.explain_backend(error)
        if why is None and not isinstance(error, WRONG):
            raise
        return 2, why or str(error), host
    return 0, "", host


def with_prompt_fields(line: tuple[int, bytes], row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row of text preceded by the id fields of its prompt."""
    fields = parse(line[1])
    return {name: fields[name] for name in questions.IDS if name in fields} | row


def load_models(setting: Setting) -> tuple[Pretrained, DraftSource | None]:
    """Returns the target and the draft; None as the draft where none is named, or no
    token of one is used."""
    if setting.draft == ALONE or setting.decode.gamma == 0:
        return drafts.load_target(setting.target, setting.dtype), None
    return shared.load_pair((setting.target, setting.draft), setting.dtype)


def decode_lines(
    setting: Setting, first: int, lines: list[tuple[int, bytes]]
) -> list[dict]:
    """Returns the texts of prompts; `first` is the place of the first one in its file.

    In a row, `tokens` is the number of its ids, and `ended` says that an end token of
    the model ended it, not the limit. A model without a tokenizer writes `ids` in place
    of `text`. Prompts of one `bucket` are decoded together,
    always `batch` of them, so that the shape and rounding of a program do not depend on
    which prompts share the batch."""
    target, draft = load_models(setting)
    where = [f"{setting.prompts}, line {line}" for line, _ in lines]
    both = zip(where, lines, strict=True)
    fields = [prompts.at_place(at, parse, raw) for at, (_, raw) in both]
    read = prompts.gather(where, fields, target)
    new = setting.decode.new_tokens
    most = None if read.inputs else programs.room((target, draft), new)
    alike, texts = defaultdict(list), {}
    for i, ids in enumerate(read.inputs or read.tokens):
        alike[bucket(len(ids), most)].append((i, ids))
    for rows in alike.values():
        for at in range(0, len(rows), setting.batch):
            some = rows[at : at + setting.batch]
            full = [some[k % len(some)] for k in range(setting.batch)]
            places = tuple(first + i for i, _ in full)
            asked_for = [{"tokens": ids} for _, ids in full]
            job = programs.prepare(
                target,
                draft,
                asked_for,
                setting.decode,
                form=setting.form,
                places=places,
            )
            done = text.run(job)
            for k, (i, _) in enumerate(some):
                ids, written = done.ids[k], done.texts[k]
                row = {"ids": ids} if written is None else {"text": written}
                row |= {"tokens": len(ids), "ended": done.ended[k] == streaming.END}
                texts[i] = row
    return [texts[i] for i in range(len(lines))]
