"""Measures on your own prompts how fast a pair decodes, and why: `specjax measure`.

It prints, and appends to a file that `specjax compare` reads: alpha by four estimators;
c and v, timed separately, and the overhead; the measured speed at every gamma beside
the one predicted from other texts; and the best gamma, chosen on those other texts.
While it runs, FILE.PID.partial beside that file has the rounds that are done."""

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from specjax import fused, inputs, native
from specjax.checkpoints import Pretrained
from specjax.cli import by_category, by_gamma
from specjax.cli import flags as shared
from specjax.cli import report as pages
from specjax.cli.saving import Saving
from specjax.drafts.placement import place_pair
from specjax.drafts.source import DraftSource, pair_files
from specjax.measure import costs, forecast, specdec, walltime
from specjax.measure.provenance import digest
from specjax.measure.provenance import inputs as inputs_of
from specjax.measure.row import own_files, versions
from specjax.measure.texts import width
from specjax.pretrained import use_tokenizer
from specjax.prompts import Prompts, questions
from specjax.prompts.questions import Chosen
from specjax.runtime import console, hosts, mesh
from specjax.runtime.console import Parser

# The defaults of how much is measured. texts: for batches of one.
Effort = dict[str, Any]
BRIEF: Effort = dict(gammas=(0, 3, 6), tokens=64, texts=8, rounds=2)
THOROUGH: Effort = dict(gammas=(0, 1, 2, 3, 5, 8), tokens=96, texts=16, rounds=5)
QUESTIONS_GAMMA = 5  # for --by and --specdec, which measure one gamma


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), measures and prints.

    Returns 1 if the measurement could not be saved, else 0."""
    parser = make_parser()
    flags = parser.parse_args(argv)
    with parser.report_errors():
        flags = with_defaults(flags)
    saving = Saving(flags.out)
    with console.handle_stops(saving.left), native.products(flags.products):
        return run(parser, flags, saving)


def run(parser: Parser, flags: argparse.Namespace, saving: Saving) -> int:
    """Joins the other processes, prepares the measurement and runs it."""
    with contextlib.ExitStack() as stack:
        with parser.report_errors():
            stack.enter_context(hosts.join(flags.distributed))
        with parser.report_errors():
            hosts.check_agreement(lambda: shared_settings(flags))
            stack.enter_context(mesh.using(flags.mesh))
        if not hosts.is_first():
            saving.path = flags.out = flags.report = None
        measure = by_category.measure if is_benchmark(flags) else by_gamma.measure
        pair, prompts, setting = prepare(parser, flags, saving)
        return measure(
            parser, flags, saving, pair=pair, prompts=prompts, setting=setting
        )


def shared_settings(flags: argparse.Namespace) -> dict:
    """Returns the settings on which processes that measure together must agree."""
    own = "distributed", "out", "report", "specdec", "data"
    chosen = {f"--{k}": v for k, v in vars(flags).items() if k not in own}
    return versions() | chosen | {"the content of --data": digest(Path(flags.data))}


def prepare(
    parser: Parser, flags: argparse.Namespace, saving: Saving
) -> tuple[costs.Pair, Prompts, walltime.WalltimeSetting]:
    """Returns the pair, prompts and settings after all checks.

    A failed check ends the command with one line."""
    with parser.report_errors():
        if flags.specdec is not None and hosts.is_first():
            specdec.prepare(flags.specdec)
        saving.prepare()
        pages.prepare(flags.report)
        by_gamma.check_rows(flags)
        pair = shared.load_pair((flags.target, flags.draft), flags.dtype, flags.cache)
        chosen = Chosen(flags.per_category, flags.longest)
        chosen = chosen._replace(unique=is_benchmark(flags), by=flags.by)
        read = dict(chosen=chosen, answer=flags.tokens)
        (target, draft), prompts = shared.read_case(flags, pair, **read)
        if flags.specdec is not None:
            specdec.find_tokenizer(use_tokenizer(target, flags.tokenizer))
        own = own_files(flags.rule, flags.policy)
        files = [*pair_files(target, draft), *own, Path(flags.data)]
        saving.inputs = inputs_of(files)
        setting = make_setting(flags)
        check(target, draft, prompts, setting)
        kernels = fused.for_setting(target, draft, setting)
        for batch in (setting.batch, by_gamma.protocol(setting, 0).batch):
            mesh.check_rows(batch)
        target, draft = place_pair(target, draft)
        pair = walltime.prepare(target, draft, prompts, setting, kernels=kernels)
        forecast.check(pair, prompts, setting)
    if prompts.left_out:
        why = f"more than --longest {flags.longest} tokens"
        print(f"left out: {prompts.left_out} prompts of {why}", file=sys.stderr)
    print(fused.line(kernels.record), file=sys.stderr)
    print(f"products: {native.in_use()}", file=sys.stderr)
    return pair, prompts, setting


def make_parser() -> Parser:
    parser = Parser(prog="specjax measure", description=__doc__.split("\n")[0])
    add = parser.add_argument
    shared.add(parser, *shared.PAIR)
    shared.add(parser, "data", required=True)
    of_longest = "leave out longer prompts, and print how many; default: keep all"
    add("--longest", type=console.count, metavar="TOKENS", help=of_longest)
    of_each = "read this many questions of each category, the first by id; default: all"
    add("--per-category", type=console.count, metavar="N", help=of_each)
    of_by = "decode every prompt without and with a draft, and report each of these"
    of_by += " groups of --data"
    add("--by", choices=questions.GROUPS, help=of_by)
    of_folder = "also write the results as the files of specdec_bench and Spec-Bench"
    add("--specdec", type=Path, metavar="FOLDER", help=of_folder)
    shared.add(parser, "tokenizer", "dtype", "cache", "temperature")
    shared.add_filters(parser)
    shared.add(parser, "batch", "mesh")
    hosts.add(parser)
    of_gammas = (
        f"numbers of drafted tokens to try; 0 is added{effort_in_words('gammas')}"
    )
    shared.add(parser, "gammas", help=of_gammas)
    of_tokens = f"new tokens of every text{effort_in_words('tokens')}"
    shared.add(parser, "tokens", help=of_tokens)
    of_ends = "stop texts at an end token; default: continue to --tokens"
    add("--ends", action="store_true", help=of_ends)
    shared.add(parser, "kernels", "products")
    of_texts = f"texts to measure{effort_in_words('texts')}, or two batches"
    shared.add(parser, "texts", help=of_texts)
    of_rounds = f"how often each text is timed{effort_in_words('rounds')}"
    add("--rounds", type=console.count, help=of_rounds)
    of_thorough = "use larger defaults, for smaller errors: more gammas, texts, rounds;"
    of_thorough += " default: brief"
    add("--thorough", action="store_true", help=of_thorough)
    shared.add(parser, "seed")
    add("--name", help="the name of the written row; default: the draft's name")
    of_out = "a .jsonl file to append to, checked before measuring; default: nothing"
    of_out += " is saved"
    add("--out", metavar="FILE", help=of_out)
    of_report = (
        "an .html page of the measurement; with --out, of all rows in that file;"
    )
    of_report += " needs matplotlib, pip install 'specjax[plots]'"
    add("--report", type=Path, metavar="FILE", help=of_report)
    add("--json", action="store_true", help="print the record, and no tables")
    return parser


def effort_in_words(name: str) -> str:
    """Returns the defaults of a flag for each --effort, for its help."""
    values = (effort[name] for effort in (BRIEF, THOROUGH))
    brief, thorough = (" ".join(map(str, np.atleast_1d(value))) for value in values)
    return f"; default {brief}, or {thorough} with --thorough"


def with_defaults(flags: argparse.Namespace) -> argparse.Namespace:
    """Returns the flags, with defaults for those that were left out.

    Raises ValueError for flags that exclude each other."""
    if is_benchmark(flags):
        flags.gammas = flags.gammas or [QUESTIONS_GAMMA]
        if len({*flags.gammas} - {0}) != 1 or flags.texts or flags.batch > 1:
            raise ValueError(
                "--by and --specdec decode every prompt of --data, one at a time, with"
                " one gamma: write one, as in --gammas 5, and leave --texts and --batch"
                " out"
            )
        if flags.report is not None:
            raise ValueError(
                "--report draws several gammas, and --by has one: leave --report out"
            )
    effort = THOROUGH if flags.thorough else BRIEF
    for name in ("gammas", "tokens", "rounds"):
        if getattr(flags, name) is None:
            setattr(flags, name, effort[name])
    if flags.texts is None:
        flags.texts = max(effort["texts"] // flags.batch, 2) * flags.batch  # never 0
    return flags


def make_setting(flags: argparse.Namespace) -> walltime.WalltimeSetting:
    batch = flags.batch
    others = batch * max(2, -(-4 // batch))  # one batch alone has no standard error
    return walltime.WalltimeSetting(
        shared.read_config(flags, new_tokens=flags.tokens),
        batch=batch,
        gammas=tuple(sorted({0, *flags.gammas})),
        texts=flags.texts,
        others=others,
        rounds=flags.rounds,
        ends=flags.ends or is_benchmark(flags),
    )


def is_benchmark(flags: argparse.Namespace) -> bool:
    """Returns whether single questions are measured, and not whole texts."""
    return flags.by is not None or flags.specdec is not None


def check(
    target: Pretrained,
    draft: DraftSource,
    prompts: Prompts,
    setting: walltime.WalltimeSetting,
) -> None:
    """Raises ValueError for a pair, a setting or texts that cannot be decoded."""
    walltime.check(target, draft, setting)
    most = max(setting.gammas)
    longest = width(prompts) + setting.decode.new_tokens
    pair = walltime.prepare(target, draft, prompts, setting)
    positions = [x.slots for x in (target.model, pair.drafter(most)) if x.slots]
    if longest > min(positions, default=longest):  # alpha compares both models' tokens
        raise ValueError(
            f"the pair has {min(positions)} positions: with the longest prompt,"
            f" --tokens can be at most {min(positions) - width(prompts)}"
        )
    first = walltime.first_batch(prompts, setting)
    inputs.check(pair.decoder(most), pair.slots, pair.params(most), *first)
