"""The measurement of a benchmark's questions: `specjax measure --by category`."""

import argparse
import time

from specjax.cli.saving import Saving, record
from specjax.measure import categories, costs, specdec, verdict
from specjax.measure.categories import ALL, ALONE, DRAFTED
from specjax.measure.texts import standardized
from specjax.measure.walltime import WalltimeSetting
from specjax.pretrained import use_tokenizer
from specjax.prompts import Prompts
from specjax.runtime import console, hosts
from specjax.runtime.console import Parser

MOST = 10  # positions that fit into a line


def measure(
    parser: Parser,
    flags: argparse.Namespace,
    saving: Saving,
    *,
    pair: costs.Pair,
    prompts: Prompts,
    setting: WalltimeSetting,
) -> int:
    """Measures, saves and prints one record for each group of questions, named "ROW,
    GROUP".

    Returns 1 if a record could not be saved, else 0."""
    start, name = time.monotonic(), pair.draft.name

    def save_turns(turns: list[categories.Turn]) -> None:
        row = categories.rows(pair, prompts, setting, turns)[ALL]
        seconds = time.monotonic() - start
        saving.keep(record(flags, name, row, seconds, inputs=saving.inputs))

    with parser.report_errors(FloatingPointError):
        turns = categories.decode(pair, prompts, setting, save_turns)
    ms = categories.call_ms(pair, prompts, setting)
    rows = categories.rows(pair, prompts, setting, turns, by=flags.by, ms=ms)
    seconds = time.monotonic() - start
    groups = {
        group: record(flags, name, row, seconds, inputs=saving.inputs)
        for group, row in rows.items()
    }
    for group, each in groups.items():
        each["row"] += f", {group}"
    saved = saving.append_all(flags, groups.values())
    if flags.json:
        console.print_json({"groups": groups})
    else:
        report(rows)
    saving.tell_where(flags, saved)
    if flags.specdec is not None and hosts.is_first():
        with parser.report_errors():
            target = use_tokenizer(pair.target, flags.tokenizer)
            reader = specdec.find_tokenizer(target)
            of_all = groups[ALL]["provenance"]
            configuration = specdec.configuration(vars(flags), of_all)
            specdec.write(flags.specdec, turns, reader.decode, configuration)
    return int(not saved)


def report(rows: dict[str, dict]) -> None:
    """Prints one line for each group of questions, the line of all questions last."""
    *_, whole = rows.values()
    print(f"{whole['target']} with {whole['draft']}, gamma = {whole['gamma']}")
    print(f"{standardized(whole)}, one text at a time, rounds: {whole['rounds']}")
    print(f"output: {verdict.law_guarantee(whole)}")
    if whole["temperature"] == 0:
        same = f"{whole['same_greedy_texts']} of {whole['texts']}"
        print(f"the same text with a draft: {same}")
    print("\n".join(["", *table(rows)]))
    print(
        "\nlength: mean accepted length, tokens per call of the target, with the bonus"
        " token;\ntok/s: of the target alone, then with a draft, means over questions"
    )
    positions = range(1, min(whole["gamma"], MOST) + 1)
    for name, title in (
        ("conditional", "share accepted of the tested tokens, by drafted position"),
        ("joint", "share of calls that accepted this many drafted tokens or more"),
    ):
        print(f"\n{title}\n{'':16}{''.join(f'{i:>7}' for i in positions)}")
        for group, row in rows.items():
            shares = [format_number(row[name][i - 1], 3) for i in positions]
            print(f"{group:16}{''.join(f'{x:>7}' for x in shares)}")
    counts = ", ".join(f"{n} of {length}" for length, n in whole["lengths"].items())
    print(f"\ncalls by length: {counts}")


def table(rows: dict[str, dict]) -> list[str]:
    """Returns a line of headings, and one line for each group."""
    form = "{:16}{:>9}{:>7}{:>8}{:>8}{:>8}{:>8}  {}"
    head = ["", "questions", "turns", "length", "tok/s", "drafted", "speedup", "95 %"]
    lines = [form.format(*head)]
    for group, row in rows.items():
        speeds = [f"{row['tokens_per_second'][name]:.1f}" for name in (ALONE, DRAFTED)]
        interval = verdict.format_interval(row["best_speedup_ci"]).strip()
        cells = [
            group,
            len(row["questions"]),
            row["texts"],
            format_number(row["tokens_per_call"]),
            *speeds,
            format_number(row["best_speedup"]),
            interval,
        ]
        lines.append(form.format(*cells))
    return lines


def format_number(x: float | None, digits: int = 2) -> str:
    return "" if x is None else f"{x:.{digits}f}"
