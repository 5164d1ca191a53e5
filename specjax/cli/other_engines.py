"""Explains why greedy texts of another engine differ: `specjax microscope --texts
FILE`.

It prints a line per text, which says where the text differs from ours and whether
rounding explains it, and then the share of all tokens that is explained."""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from specjax import drafts
from specjax.cli.saving import Saving, record
from specjax.exactness.other_engines import Finding, OtherText, explain, read
from specjax.measure import provenance
from specjax.pretrained import Pretrained, files_of, use_tokenizer
from specjax.runtime import console, progress
from specjax.runtime.console import Parser

UNREAD = "draft rule policy data gammas tokens batch mesh kernels".split()
CAUSES = "Likely causes: another chat template or special tokens, other weights,"
CAUSES += " quantisation or dtype\n(try --dtype bfloat16), penalties or other sampling."


def count_or_file(value: str) -> int | Path:
    """Parses the value of --texts: a number of texts, or a file of them."""
    return console.count(value) if value.lstrip("+-").isdecimal() else Path(value)


def run(parser: Parser, flags: argparse.Namespace) -> int:
    """Explains, prints and saves; returns 0 unless a record could not be saved."""
    saving, saved = Saving(flags.out), []
    with parser.report_errors():
        for name in UNREAD:
            if getattr(flags, name) != parser.get_default(name):
                raise ValueError(
                    "texts of another engine are compared with the target alone: leave"
                    f" --{name} out"
                )
        saving.prepare()

    def explain_dtypes() -> dict:
        records = []
        for dtype in flags.dtype or ["float32"]:
            records.append(explain_dtype(parser, flags, dtype))
            saved.append(saving.append(records[-1]))
        return {"records": records}

    console.print_document(flags.json, explain_dtypes)
    return int(not all(saved))


def explain_dtype(parser: Parser, flags: argparse.Namespace, dtype: str) -> dict:
    """Explains the texts in one dtype, prints the lines, and returns the record."""
    start = time.monotonic()
    with parser.report_errors():
        target = drafts.load_target(flags.target, dtype)
        model = use_tokenizer(target, flags.tokenizer)
        prompts, others = read(flags.texts, model)
    print(f"{target.name}, {dtype}, {jax.devices()[0].device_kind}, T = 0")
    found = explain(target, prompts, others)
    found = [*progress.track(found, "texts", len(others))]
    name = token_formatter(model)
    for text, finding in zip(others, found, strict=True):
        print(line(text, finding, name=name, ends=prompts.ends))
    row = numbers(others, found)
    print(summary(row), end="\n\n")
    name, row = f"{flags.texts.stem}, {dtype}", {"target": target.name, **row}
    seconds = time.monotonic() - start
    inputs = provenance.inputs((*files_of(target), flags.texts))
    return record(flags, name, row, seconds, "other_engines", dtype, inputs=inputs)


def token_formatter(model: Pretrained) -> Callable[[int], str]:
    """Returns a function that formats an id: as text where there is a tokenizer."""
    try:
        piece = model.tokenizer.piece
    except ValueError:
        return str
    return lambda i: f"{piece(i)!r} ({i})"


def line(
    text: OtherText,
    found: Finding,
    *,
    name: Callable[[int], str],
    ends: Sequence[int],
) -> str:
    """Returns the verdict on a text, in words."""
    count, doubt = len(text.ids), f"\n  but {text.doubt}" if text.doubt else ""
    if found.kind == "same":
        over = text.ids[-1] in ends or found.ours in ends
        end = "to the end" if over else "and ours goes on: it ended earlier, or was cut"
        return f"line {text.line}: the same, {count} tokens {end}{doubt}"
    theirs = f"theirs {name(found.theirs)} {found.best - found.gap:.6g}"
    ours = f"ours {name(found.ours)} {found.best:.6g}"
    gap, eps = f"gap {found.gap:.2g}", f"2 eps {2 * found.eps:.2g}"
    verdict = f"a difference: {gap}, beyond rounding ({eps})"
    if found.kind == "tie":
        verdict = f"a tie within rounding ({gap}, {eps})"
    ended = "; it ended earlier" if found.theirs in ends else ""
    ended = "; it ended later" if found.ours in ends else ended
    return (
        f"line {text.line}: token {found.place}, {theirs}, {ours}: {verdict}{ended};"
        f" {found.explained} of {count} tokens explained{doubt}"
    )


def numbers(others: Sequence[OtherText], found: Sequence[Finding]) -> dict:
    """Returns the numbers of a record; None for a number that JSON lacks."""
    kinds, each = Counter(text.kind for text in found), []
    for text, finding in zip(others, found, strict=True):
        about = {"line": text.line, "tokens": len(text.ids), "doubt": text.doubt}
        each.append(about | console.to_plain(finding))
    tokens, explained = (sum(x[name] for x in each) for name in ("tokens", "explained"))
    kinds = {kind: kinds[kind] for kind in ("same", "tie", "difference")}
    counts = {"texts": len(each), **kinds, "tokens": tokens, "explained": explained}
    return {**counts, "explained_share": explained / tokens, "each": each}


def summary(row: dict) -> str:
    """Returns the summary of all texts of a file."""
    share, tokens = f"{row['explained_share']:.2%}", row["tokens"]
    counts = f"{row['same']} the same, {row['tie']} leave ours at a tie within rounding"
    lines = f"explained: {share} of {tokens} tokens, each behind the other's own before"
    lines += f"\n{row['texts']} texts: {counts}, {row['difference']} beyond it"
    return f"{lines}\n{CAUSES}" if row["difference"] else lines
