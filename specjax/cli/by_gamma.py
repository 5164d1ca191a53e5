"""The measurement of a pair's speed by gamma: `specjax measure`.

It measures the seconds of whole texts, the costs that explain them (c, v and the
overhead), and alpha by four estimators."""

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np
from jax import Array

from specjax import finite
from specjax.cli import report as pages
from specjax.cli.saving import Saving, print_line, record
from specjax.measure import costs, forecast, jsonl, rows, scoring, verdict, walltime
from specjax.measure.pairs import ONE_GAMMA
from specjax.measure.texts import (
    Protocol,
    Text,
    speculate,
    standardized,
    write,
)
from specjax.measure.verdict import format_interval
from specjax.measure.walltime import WalltimeSetting
from specjax.prompts import Prompts
from specjax.runtime import console
from specjax.runtime.console import Parser
from specjax.types import Law
from specjax.verifiers import guarantees


def measure(
    parser: Parser,
    flags: argparse.Namespace,
    saving: Saving,
    *,
    pair: costs.Pair,
    prompts: Prompts,
    setting: WalltimeSetting,
) -> int:
    """Measures, saves and prints; returns 1 if the record could not be saved, else
    0."""
    forecast.announce(pair, prompts, setting)
    start = time.monotonic()

    def make_record(row: dict) -> dict:
        seconds = time.monotonic() - start
        return record(flags, row["draft"], row, seconds, inputs=saving.inputs)

    def save_rounds(row: dict) -> None:
        saving.keep(make_record(row))
        if not sys.stderr.isatty():  # where there are no bars
            done = f"{row['rounds']} of {setting.rounds} rounds are timed"
            print(done, file=sys.stderr, flush=True)

    try:
        text, scores = score_texts(pair, prompts, setting)
        print("Compiling, then timing in turns", file=sys.stderr, flush=True)
        row = walltime.measure(
            pair.target,
            pair.draft,
            prompts,
            setting,
            kernels=pair.kernels,
            so_far=save_rounds,
        )
        save_rounds(row)
        gamma, count = row["best_gamma"], len(text.start)
        with console.announce(f"Estimating alpha at gamma = {gamma}"):
            row["estimates"] = estimates(
                pair, prompts, setting, count=count, scores=scores, gamma=gamma
            )
    except FloatingPointError as error:
        parser.error(str(error))
    whole = make_record(row)
    saved = saving.append_all(flags, [whole])
    if flags.json:
        console.print_json(whole | verdict.summary(row))
    else:
        report(row)
    saving.tell_where(flags, saved)
    return int(not (saved and write_page(flags, whole)))


def check_rows(flags: argparse.Namespace) -> None:
    """Raises ValueError, before anything is measured, for a row of --out that the page
    of --report cannot show."""
    shows = flags.report is not None and flags.out is not None
    if shows and jsonl.read(Path(flags.out)):
        rows.read(Path(flags.out))


def write_page(flags: argparse.Namespace, record: dict) -> bool:
    """Returns False if a page was asked for and could not be written, else True.

    The page shows all rows of --out."""
    if flags.report is None:
        return True
    try:
        before = {} if flags.out is None else rows.read(Path(flags.out))
        pages.write(flags.report, before | {record["row"]: record})
    except (OSError, ValueError) as error:
        print(f"no page was written: {error}", file=sys.stderr)
        return False
    print_line(flags, f"drawn in {ascii(str(flags.report))[1:-1]}")
    return True


def score_texts(
    pair: costs.Pair, prompts: Prompts, setting: WalltimeSetting
) -> tuple[Text, scoring.Scores | None]:
    """Returns texts of the target alone, and the draft's scores at each token of them.

    The scores are None for a draft without probabilities."""
    target, draft = both = pair.target, pair.draft
    kernels = finite.guard_kernels(pair.kernels)
    with console.announce("Writing texts by the target alone"):
        text = write(target, prompts, protocol(setting, 0), kernels)
    finite.check(text.rows())
    if draft.law is None:
        return text, None

    def tops(p: Law, q: Law, written: Array) -> tuple[Array, Array]:
        return p.top, q.top

    temperature, filters = setting.decode.temperature, setting.decode.truncation()
    with console.announce("Scoring them by both models"):
        *tops_of, sequence = scoring.positions(both, text, temperature, tops, **filters)
    for side, top in zip(("target", "draft"), tops_of, strict=True):
        lost = np.flatnonzero(~np.isfinite(top))
        if lost.size:
            row = sequence[lost[0]]
            token = lost[0] - np.flatnonzero(sequence == row)[0]
            raise finite.error(int(row), int(token), side)
    with console.announce("Estimating alpha from the scores"):
        if setting.decode.rule not in scoring.BY_RATIO:
            return text, None
        return text, scoring.score(target, draft, text, temperature, **filters)


def estimates(
    pair: costs.Pair,
    prompts: Prompts,
    setting: WalltimeSetting,
    *,
    count: int,
    scores: scoring.Scores | None,
    gamma: int,
) -> dict:
    """Returns alpha at the best gamma by each estimator, on texts up to their ends.

    Where a policy changes gamma within a text, estimators that need one gamma are left
    out."""
    kernels = finite.guard_kernels(pair.kernels)
    calls = speculate(
        (pair.target, pair.draft), prompts, count, protocol(setting, gamma), kernels
    )
    finite.check(calls.texts)
    each = scoring.estimates(scores, calls, gamma)
    if setting.decode.policy == "none":
        return each
    return {name: estimate for name, estimate in each.items() if name not in ONE_GAMMA}


def protocol(setting: WalltimeSetting, gamma: int) -> Protocol:
    """Returns the settings of the texts that alpha is estimated on."""
    tokens = setting.texts * setting.decode.new_tokens
    config = setting.decode.replace(gamma=gamma)
    return Protocol("prompts", config, tokens=tokens, batch=min(32, setting.texts))


def report(row: dict) -> None:
    """Prints the table, then the advice that follows from it."""
    print(f"{row['target']} with {row['draft']}, {jax.devices()[0].device_kind}")
    print(f"{standardized(row)}, batch {row['batch']}, {row['texts']} texts")
    print(f"output: {verdict.law_guarantee(row)}")
    print(f"is the text the same? {same_text(row)}\n\nalpha")
    for name, estimate in row["estimates"].items():
        error = "" if estimate["se"] is None else f" ± {estimate['se']:.4f}"
        print(f"  {name:14}{estimate['value']:.4f}{error}")
    print(f"\ntarget call on one token: {row['target_ms']:.3f} ms")
    print("\n".join(table(row)))
    print(f"\n{verdict.verdict(row)}")
    if row["best_predicted"] is not None:
        predicted = (
            f"{row['best_predicted']:.2f}x{format_interval(row['best_predicted_ci'])}"
        )
        print(f"predicted: {predicted}, from {row['chosen_on']} other texts")
    for each in verdict.warnings(row):
        print(f"warning: {each}")


def table(row: dict) -> list[str]:
    """Returns a line of headings, and one line per gamma."""
    head = ["gamma", "c", "v", "overhead", "tok/call", "EXP", "predicted", "measured"]
    form = "{:>5} {:>7} {:>6} {:>8} {:>8} {:>6} {:>9} {:>8}  {}"
    lines = [form.format(*head, "95 %")]
    for at, gamma in enumerate(row["gamma"]):
        c = "" if row["c"][at] is None else f"{row['c'][at]:.4f}"
        names = "v", "overhead", "tokens_per_call", "exp", "predicted", "speedup"
        values = [row[name][at] for name in names]
        numbers = ["none" if x is None else f"{x:.2f}" for x in values]
        if not gamma:  # a call of the target and nothing else, by which all is divided
            numbers[1], numbers[-2] = "", "baseline"
        lines.append(
            form.format(gamma, c, *numbers, format_interval(row["speedup_ci"][at]))
        )
    return lines


def same_text(row: dict) -> str:
    """Returns in plain words whether the draft changes the texts."""
    guarantee, texts = row["exactness"], row["texts"]
    exact = guarantee in guarantees.EXACT
    if guarantees.is_unknown(guarantee):
        return f"unknown ({guarantee}): `specjax certify` finds out"
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
