"""How fast a pair decodes and why, on your own prompts: `specjax measure`.

Prints, and appends to a file that `specjax compare` reads: alpha by four estimators; c
and v, timed apart, and the overhead; the measured speed of every gamma, and the one
that other texts predict; the best gamma, chosen on those others. While it runs, a file
beside it, FILE.PID.partial, has the rounds that are done.
"""

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from specjax import (
    console,
    finite,
    fused,
    hosts,
    inputs,
    mesh,
    native,
    questions,
    sides,
)
from specjax.cli import by_category
from specjax.cli import flags as shared
from specjax.cli import report as pages
from specjax.cli.saving import Saving
from specjax.console import Parser
from specjax.measure import (
    categories,
    costs,
    forecast,
    scoring,
    specdec,
    verdict,
    walltime,
)
from specjax.measure import rows as written
from specjax.measure.pairs import ONE_GAMMA
from specjax.measure.provenance import digest
from specjax.measure.row import conditions, versions
from specjax.measure.texts import (
    Protocol,
    Text,
    speculate,
    standardized,
    truncation,
    width,
    write,
)
from specjax.prompts import Prompts
from specjax.questions import Chosen
from specjax.sides import Side
from specjax.types import Kernels, Law


class Effort(NamedTuple):
    """How much is measured, where no flag says it. texts: of batches of one."""

    gammas: tuple[int, ...]
    tokens: int
    texts: int
    rounds: int


BRIEF = Effort((0, 3, 6), tokens=64, texts=8, rounds=2)
QUESTIONS_GAMMA = 5  # of --by and --specdec, which measure one
THOROUGH = Effort((0, 1, 2, 3, 5, 8), tokens=96, texts=16, rounds=5)


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), measures and prints; 1 if what was
    measured could not be saved."""
    parser = make_parser()
    flags = parser.parse_args(argv)
    with parser.refusing():
        flags = chosen_effort(flags)
    saving = Saving(None if flags.out is None else Path(flags.out))
    with console.stops(saving.left), native.products(flags.products):
        return measured(parser, flags, saving)


def measured(parser: Parser, flags: argparse.Namespace, saving: Saving) -> int:
    with contextlib.ExitStack() as stack:
        with parser.refusing():
            stack.enter_context(hosts.joined(flags.distributed))
        with parser.refusing():
            hosts.agree(lambda: agreed(flags))
            stack.enter_context(mesh.using(flags.mesh))
        if not hosts.first():
            saving.path = flags.out = flags.report = None
        if is_benchmark(flags):
            return measure_questions(parser, flags, saving)
        return measure(parser, flags, saving)


def agreed(flags: argparse.Namespace) -> dict:
    """What processes that measure together must have alike."""
    own = "distributed", "out", "report", "specdec", "data"
    chosen = {f"--{k}": v for k, v in vars(flags).items() if k not in own}
    return versions() | chosen | {"the content of --data": digest(Path(flags.data))}


def measure(parser: Parser, flags: argparse.Namespace, saving: Saving) -> int:
    pair, prompts, setting = ready(parser, flags, saving)
    target, draft, chosen = pair.target, pair.draft, pair.kernels
    forecast.announce(pair, prompts, setting)
    begun = time.monotonic()

    def so_far(row: dict) -> None:
        saving.keep(record(flags, row, time.monotonic() - begun))
        if not sys.stderr.isatty():  # where there are no bars
            done = f"{row['rounds']} of {setting.rounds} rounds are timed"
            print(done, file=sys.stderr, flush=True)

    try:
        text, scores = scored(target, draft, prompts, setting, chosen)
        print("Compiling, then timing in turns", file=sys.stderr, flush=True)
        row = walltime.measure(target, draft, prompts, setting, chosen, so_far)
        so_far(row)
        calls = (target, draft), prompts, len(text.start), setting, chosen
        with console.announced(f"Estimating alpha at gamma = {row['best_gamma']}"):
            row["estimates"] = estimates(*calls, scores, row["best_gamma"])
    except FloatingPointError as error:
        parser.error(str(error))
    made = record(flags, row, time.monotonic() - begun)
    with console.aside(flags.json):
        saved = saving.append(made)
    if flags.json:
        print(json.dumps(made | verdict.summary(row)))
    else:
        report(row)
    if saved and flags.out is not None:
        tell(flags, f"\nappended to {ascii(flags.out)[1:-1]}")
    return int(not saved) or int(not drawn(flags, made))


def drawn(flags: argparse.Namespace, made: dict) -> bool:
    """Whether the page is written, if one is wanted; all rows of --out are on it."""
    if flags.report is None:
        return True
    before = {} if flags.out is None else written.read(Path(flags.out))
    try:
        pages.write(flags.report, before | {made["row"]: made})
    except OSError as error:
        print(f"no page was written: {error}", file=sys.stderr)
        return False
    tell(flags, f"drawn in {ascii(str(flags.report))[1:-1]}")
    return True


def tell(flags: argparse.Namespace, line: str) -> None:
    """Beside what is read by programs where --json asks for that."""
    print(line, file=sys.stderr if flags.json else sys.stdout)


def ready(
    parser: Parser, flags: argparse.Namespace, saving: Saving
) -> tuple[costs.Pair, Prompts, walltime.WalltimeSetting]:
    """What is measured, checked; refused in one line where it cannot be."""
    with parser.refusing():
        saving.prepare()
        pages.prepare(flags.report)
        pair = shared.pair((flags.target, flags.draft), flags.dtype, flags.cache)
        chosen = Chosen(flags.per_category, flags.longest)
        chosen = chosen._replace(unique=is_benchmark(flags), by=flags.by)
        read = dict(chosen=chosen, new_tokens=flags.tokens)
        (target, draft), prompts = shared.read_case(flags, pair, **read)
        setting = make_setting(flags)
        check(target, draft, prompts, setting)
        kernels = fused.of_setting(target, draft, setting)
        for batch in (setting.batch, protocol(setting, 0).batch):
            mesh.check_rows(batch)
        target, draft = mesh.pair(target, draft)
        pair = walltime.prepare(target, draft, prompts, setting, kernels)
        forecast.check(pair, prompts, setting)
    if prompts.left_out:
        what = f"more than --longest {flags.longest} tokens"
        print(f"left out: {prompts.left_out} prompts of {what}", file=sys.stderr)
    print(fused.line(kernels.record), file=sys.stderr)
    print(f"products: {native.in_use()}", file=sys.stderr)
    return pair, prompts, setting


def measure_questions(parser: Parser, flags: argparse.Namespace, saving: Saving) -> int:
    """A record a group of questions, named "ROW, GROUP"."""
    with parser.refusing():
        if flags.specdec is not None and hosts.first():
            specdec.prepare(flags.specdec)
    case = ready(parser, flags, saving)
    begun = time.monotonic()

    def so_far(turns: list[categories.Turn]) -> None:
        row = categories.rows(*case, turns)[categories.ALL]
        saving.keep(record(flags, row, time.monotonic() - begun))

    with parser.refusing(FloatingPointError):
        turns = categories.decode(*case, so_far)
    ms = categories.call_ms(*case)
    rows = categories.rows(*case, turns, flags.by, ms)
    seconds, name = time.monotonic() - begun, flags.name or case[0].draft.name
    groups = {
        group: record(flags, row, seconds) | {"row": f"{name}, {group}"}
        for group, row in rows.items()
    }
    with console.aside(flags.json):
        saved = all([saving.append(made) for made in groups.values()])
    if flags.specdec is not None and hosts.first():
        reader = sides.reader(case[0].target, flags.tokenizer).tokenizer
        made = groups[categories.ALL]["provenance"]
        configuration = specdec.configuration(vars(flags), made)
        specdec.write(flags.specdec, turns, reader.decode, configuration)
    if flags.json:
        console.tell({"groups": groups})
    else:
        by_category.report(rows)
    if saved and flags.out is not None:
        tell(flags, f"\nappended to {ascii(flags.out)[1:-1]}")
    return int(not saved)


def make_parser() -> Parser:
    parser = Parser(prog="specjax measure", description=__doc__.split("\n")[0])
    add = parser.add_argument
    shared.add(parser, *shared.PAIR)
    shared.add(parser, "data", required=True)
    of_longest = "leaves out prompts of more tokens, and says how many; default: none"
    add("--longest", type=console.count, metavar="TOKENS", help=of_longest)
    of_each = "reads so many questions of each category, the first by id; default: all"
    add("--per-category", type=console.count, metavar="N", help=of_each)
    of_by = "reports each of these of --data, every prompt decoded alone and drafted"
    add("--by", choices=questions.GROUPS, help=of_by)
    of_folder = "writes that measurement as specdec_bench and Spec-Bench do, too"
    add("--specdec", type=Path, metavar="FOLDER", help=of_folder)
    shared.add(parser, "tokenizer", "dtype", "cache", "temperature")
    shared.add_filters(parser)
    shared.add(parser, "batch", "mesh")
    hosts.add(parser)
    of_gammas = f"drafted tokens; 0, the baseline, is added{effort_in_words('gammas')}"
    shared.add(parser, "gammas", help=of_gammas)
    of_tokens = f"of every text, without its prompt{effort_in_words('tokens')}"
    shared.add(parser, "tokens", help=of_tokens)
    of_ends = "texts stop at their ends, before --tokens; default: they go on"
    add("--ends", action="store_true", help=of_ends)
    shared.add(parser, "kernels", "products")
    of_texts = f"texts measured{effort_in_words('texts')}, or two batches"
    shared.add(parser, "texts", help=of_texts)
    of_rounds = f"how often each is timed{effort_in_words('rounds')}"
    add("--rounds", type=console.count, help=of_rounds)
    of_thorough = "other defaults, for smaller errors: more gammas, texts and rounds;"
    of_thorough += " default: brief"
    add("--thorough", action="store_true", help=of_thorough)
    shared.add(parser, "seed")
    add("--name", help="of the row that is written; default: the draft's")
    of_out = "a .jsonl file to append to, tried first; default: nothing is saved"
    add("--out", metavar="FILE", help=of_out)
    of_report = "an .html page of what was measured; with --out, of all rows in it;"
    of_report += " needs matplotlib, pip install 'specjax[plots]'"
    add("--report", type=Path, metavar="FILE", help=of_report)
    add("--json", action="store_true", help="print the record, and no tables")
    return parser


def effort_in_words(name: str) -> str:
    """The defaults of a flag, for its help."""
    values = (getattr(effort, name) for effort in (BRIEF, THOROUGH))
    brief, thorough = (" ".join(map(str, np.atleast_1d(value))) for value in values)
    return f"; default {brief}, or {thorough} with --thorough"


def chosen_effort(flags: argparse.Namespace) -> argparse.Namespace:
    """The flags, with defaults where a person chose none. Raises ValueError for those
    that do not go together."""
    if is_benchmark(flags):
        flags.gammas = flags.gammas or [QUESTIONS_GAMMA]
        if len({*flags.gammas} - {0}) != 1 or flags.texts or flags.batch > 1:
            raise ValueError(
                "--by and --specdec decode every prompt of --data, one at a time, with"
                " one gamma: write --gammas 5, and leave --texts and --batch out"
            )
        if flags.report is not None:
            raise ValueError(
                "--report draws several gammas; --by has one: leave it out"
            )
    effort = THOROUGH if flags.thorough else BRIEF
    for name in ("gammas", "tokens", "rounds"):
        if getattr(flags, name) is None:
            setattr(flags, name, getattr(effort, name))
    if flags.texts is None:
        flags.texts = max(effort.texts // flags.batch, 2) * flags.batch  # never 0
    return flags


def make_setting(flags: argparse.Namespace) -> walltime.WalltimeSetting:
    batch = flags.batch
    others = batch * max(2, -(-4 // batch))  # two batches: else there is no error
    gammas, heat = tuple(sorted({0, *flags.gammas})), flags.temperature
    counts = flags.tokens, flags.texts, others, flags.rounds
    sizes = heat, batch, gammas, *counts, flags.seed, flags.ends
    how = flags.rule, flags.kernels, flags.policy
    setting = walltime.WalltimeSetting(*sizes, *how, **truncation(flags))
    return setting._replace(ends=True) if is_benchmark(flags) else setting


def is_benchmark(flags: argparse.Namespace) -> bool:
    """Whether questions are measured, each of them, and not texts."""
    return flags.by is not None or flags.specdec is not None


def check(
    target: Side, draft: Side, prompts: Prompts, setting: walltime.WalltimeSetting
) -> None:
    """Raises ValueError for a pair, a setting or texts that cannot be decoded."""
    walltime.check(target, draft, setting)
    most = max(setting.gammas)
    longest = width(prompts) + setting.new_tokens
    pair = walltime.prepare(target, draft, prompts, setting)
    positions = [x.slots for x in (target.model, pair.drafter(most)) if x.slots]
    if longest > min(positions, default=longest):  # alpha is of tokens that both know
        raise ValueError(
            f"the pair knows {min(positions)} positions: with the longest prompt that"
            f" leaves --tokens {min(positions) - width(prompts)}"
        )
    first = walltime.first_batch(prompts, setting)
    inputs.check(pair.decoder(most), pair.slots, pair.params(most), *first)


def scored(
    target: Side,
    draft: Side,
    prompts: Prompts,
    setting: walltime.WalltimeSetting,
    chosen: Kernels,
) -> tuple[Text, scoring.Scores | None]:
    """Texts of the target alone, and what the draft is worth at each of their tokens;
    None of one without a law."""
    kernels = finite.guarded_kernels(chosen)
    with console.announced("Writing texts by the target alone"):
        text = write(target, prompts, protocol(setting, 0), kernels)
    finite.check(text.rows())
    if draft.law is None:
        return text, None
    pair = target, draft

    def tops(p: Law, q: Law, written: Array) -> tuple[Array, Array]:
        del written
        return p.top, q.top

    heat, filters = setting.temperature, truncation(setting)
    with console.announced("Scoring them by both models"):
        *tops_of, sequence = scoring.positions(pair, text, heat, tops, **filters)
    for side, top in zip(("target", "draft"), tops_of, strict=True):
        lost = np.flatnonzero(~np.isfinite(top))
        if lost.size:
            row = sequence[lost[0]]
            token = lost[0] - np.flatnonzero(sequence == row)[0]
            raise finite.error(int(row), int(token), side)
    with console.announced("Estimating alpha from the scores"):
        return text, scoring.score(target, draft, text, heat, **filters)


def estimates(
    pair: tuple[Side, Side],
    prompts: Prompts,
    count: int,
    setting: walltime.WalltimeSetting,
    chosen: Kernels,
    scores: scoring.Scores | None,
    gamma: int,
) -> dict:
    """alpha by the estimators at the best gamma, on texts up to their ends; by those
    alone that need no one gamma, where a policy moves it."""
    kernels = finite.guarded_kernels(chosen)
    calls = speculate(pair, prompts, count, protocol(setting, gamma), kernels)
    finite.check(calls.texts)
    each = scoring.estimates(scores, calls, gamma)
    if setting.policy == "none":
        return each
    return {name: estimate for name, estimate in each.items() if name not in ONE_GAMMA}


def protocol(setting: walltime.WalltimeSetting, gamma: int) -> Protocol:
    """How the texts are decoded that alpha is estimated on."""
    new, batch = setting.new_tokens, min(32, setting.texts)
    sizes = setting.texts * new, gamma, setting.seed, new, batch
    how = setting.rule, setting.kernels, setting.policy
    filters = truncation(setting)
    return Protocol("prompts", setting.temperature, *sizes, *how, **filters)


def report(row: dict) -> None:
    """The table, then what to do with it."""
    print(f"{row['target']} with {row['draft']}, {jax.devices()[0].device_kind}")
    print(f"{standardized(row)}, batch {row['batch']}, {row['texts']} texts")
    print(f"output: {verdict.law(row)}")
    print(f"is the text the same? {same_text(row)}\n\nalpha")
    for name, estimate in row["estimates"].items():
        error = "" if estimate["se"] is None else f" ± {estimate['se']:.4f}"
        print(f"  {name:14}{estimate['value']:.4f}{error}")
    print(f"\ntarget call on one token: {row['target_ms']:.3f} ms")
    print("\n".join(table(row)))
    print(f"\n{verdict.verdict(row)}")
    if row["best_predicted"] is not None:
        foretold = f"{row['best_predicted']:.2f}x{ends(row['best_predicted_ci'])}"
        print(f"predicted: {foretold}, of {row['chosen_on']} other texts")
    for each in verdict.warnings(row):
        print(f"warning: {each}")


def table(row: dict) -> list[str]:
    """A line a gamma, below a line of names."""
    head = "gamma", "c", "v", "overhead", "tok/call", "EXP", "predicted", "measured"
    form = "{:>5} {:>7} {:>6} {:>8} {:>8} {:>6} {:>9} {:>8}  {}"
    lines = [form.format(*head, "95 %")]
    for at, gamma in enumerate(row["gamma"]):
        c = "" if row["c"][at] is None else f"{row['c'][at]:.4f}"
        names = "v", "overhead", "tokens_per_call", "exp", "predicted", "speedup"
        numbers = [shown(row[name][at]) for name in names]
        numbers[-2] = numbers[-2] if gamma else "baseline"
        lines.append(form.format(gamma, c, *numbers, ends(row["speedup_ci"][at])))
    return lines


def ends(interval: list[float] | None) -> str:
    return "" if interval is None else " [{:.2f}, {:.2f}]".format(*interval)


def same_text(row: dict) -> str:
    """Whether a draft changes what is written, for who does not know the names."""
    guarantee, texts = row["exactness"], row["texts"]
    exact = guarantee in ("exact law", "pathwise")
    if row["temperature"] > 0 and not exact:
        return f"no: this rule writes other texts on purpose ({guarantee})"
    if row["temperature"] > 0 and guarantee == "pathwise":
        return "yes, up to rounding: a seed gives one text, with a draft or without"
    if row["temperature"] > 0:
        return (
            "not word for word, as texts are drawn; every text is as likely as\n"
            "  without a draft (`specjax audit` tests that)"
        )
    same = row["same_greedy_texts"]
    if same == texts:
        return f"yes: all {texts} texts, token for token"
    why = "rounding may decide where two tokens are nearly tied\n"
    why += "  (`specjax microscope` tells whether it is that alone)"
    why = why if exact else f"this rule may change them ({guarantee})"
    return f"{same} of {texts} texts are, token for token; {why}"


def shown(x: float | None) -> str:
    """Two decimals, where there is a number."""
    return "none" if x is None else f"{x:.2f}"


def record(flags: argparse.Namespace, row: dict, seconds: float) -> dict:
    """A row as `specjax compare` and the experiments read it."""
    provenance = {
        "commit": None,
        **conditions(flags.dtype, flags.seed, seconds),
        "config": "".join(f"{k} = {v!r}\n" for k, v in sorted(vars(flags).items())),
    }
    return {
        "row": flags.name or row["draft"],
        "table": "measure",
        "scale": "measured",
        "measured": row,
        "published": None,
        "provenance": provenance,
    }
