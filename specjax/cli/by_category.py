"""Questions of a benchmark, as `specjax measure --by category` prints them."""

import argparse
import time

from specjax.cli.saving import Saving, record
from specjax.drafts import source as sides
from specjax.measure import categories, costs, specdec, verdict
from specjax.measure.categories import ALL, ALONE, DRAFTED
from specjax.measure.texts import standardized
from specjax.measure.walltime import WalltimeSetting
from specjax.prompts import Prompts
from specjax.runtime import console, hosts
from specjax.runtime.console import Parser

MOST = 10  # positions that fit into a line


def measure(
    parser: Parser,
    flags: argparse.Namespace,
    saving: Saving,
    pair: costs.Pair,
    prompts: Prompts,
    setting: WalltimeSetting,
) -> int:
    """Measures, saves and prints a record a group of questions, named "ROW, GROUP"; 1
    if what was measured could not be saved."""
    case, begun, name = (pair, prompts, setting), time.monotonic(), pair.draft.name

    def so_far(turns: list[categories.Turn]) -> None:
        row = categories.rows(*case, turns)[ALL]
        seconds = time.monotonic() - begun
        saving.keep(record(flags, name, row, seconds, inputs=saving.inputs))

    with parser.refusing(FloatingPointError):
        turns = categories.decode(*case, so_far)
    ms = categories.call_ms(*case)
    rows = categories.rows(*case, turns, flags.by, ms)
    seconds = time.monotonic() - begun
    groups = {
        group: record(flags, name, row, seconds, inputs=saving.inputs)
        for group, row in rows.items()
    }
    for group, made in groups.items():
        made["row"] += f", {group}"
    saved = saving.append_all(flags, groups.values())
    if flags.specdec is not None and hosts.first():
        reader = sides.reader(pair.target, flags.tokenizer).tokenizer
        made = specdec.configuration(vars(flags), groups[ALL]["provenance"])
        specdec.write(flags.specdec, turns, reader.decode, made)
    if flags.json:
        console.tell({"groups": groups})
    else:
        report(rows)
    saving.tell_where(flags, saved)
    return int(not saved)


def report(rows: dict[str, dict]) -> None:
    """What was measured of each group of questions, a line each, the whole last."""
    *_, whole = rows.values()
    print(f"{whole['target']} with {whole['draft']}, gamma = {whole['gamma']}")
    print(f"{standardized(whole)}, one text at a time, rounds: {whole['rounds']}")
    print(f"output: {verdict.law(whole)}")
    if whole["temperature"] == 0:
        same = f"{whole['same_greedy_texts']} of {whole['texts']}"
        print(f"the same text with a draft: {same}")
    print("\n".join(["", *table(rows)]))
    print(
        "\nlength: mean accepted length, tokens a call of the target, with its own, the"
        " bonus\ntoken; tok/s: of the target alone, then drafted, means over questions"
    )
    positions = range(1, min(whole["gamma"], MOST) + 1)
    for name, told in (
        ("conditional", "kept of the tokens decided on, by drafted position"),
        ("joint", "calls that kept so many drafted tokens, or more"),
    ):
        print(f"\n{told}\n{'':16}{''.join(f'{i:>7}' for i in positions)}")
        for group, row in rows.items():
            shares = [shown(row[name][i - 1], 3) for i in positions]
            print(f"{group:16}{''.join(f'{x:>7}' for x in shares)}")
    counts = ", ".join(f"{n} of {length}" for length, n in whole["lengths"].items())
    print(f"\ncalls by length: {counts}")


def table(rows: dict[str, dict]) -> list[str]:
    """A line a group, below a line of names."""
    form = "{:16}{:>9}{:>7}{:>8}{:>8}{:>8}{:>8}  {}"
    head = "questions", "turns", "length", "tok/s", "drafted", "speedup", "95 %"
    lines = [form.format("", *head)]
    for group, row in rows.items():
        speeds = [f"{row['tokens_per_second'][name]:.1f}" for name in (ALONE, DRAFTED)]
        ends = verdict.ends(row["best_speedup_ci"]).strip()
        numbers = len(row["questions"]), row["texts"], shown(row["tokens_per_call"])
        lines.append(
            form.format(group, *numbers, *speeds, shown(row["best_speedup"]), ends)
        )
    return lines


def shown(x: float | None, digits: int = 2) -> str:
    return "" if x is None else f"{x:.{digits}f}"
