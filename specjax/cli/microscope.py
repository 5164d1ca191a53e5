"""Says whether greedy texts differ only by rounding: `specjax microscope`.

It prints for every dtype and gamma what `specjax.exactness.divergence` finds: texts
compared with calls of the same shape and of one token, margins, eps, and flips. Given a
file of another engine's greedy texts, it prints where and why they differ from ours."""

import argparse
from pathlib import Path

import jax
import numpy as np

from specjax import fused
from specjax.checkpoints import Pretrained
from specjax.cli import flags as shared
from specjax.cli import other_engines
from specjax.drafts.source import DraftSource
from specjax.exactness.divergence import (
    QUANTILES,
    DivergenceSetting,
    Report,
    check,
    examine,
    failures,
)
from specjax.measure.pairs import place_on_mesh
from specjax.runtime import console
from specjax.runtime.console import Parser

gamma_value = console.whole_number(1, 1000)
PROMPTS = (
    "def add(|class Stack:\n|import os\n|def read_lines(path):\n|while True:\n"
    "|for line in file:\n|    def __repr__(self):\n|try:\n    import json\n"
    "|def is_prime(n):\n|@property\ndef name(self):\n|class Error(Exception):\n"
    "|with open(path) as file:\n|def main(argv=None):\n|async def fetch("
    "|if not isinstance(value, str):\n|def clamp(value, low, high):\n"
).split("|")


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None) and prints.

    Returns 1 where texts differ by more than rounding explains, else 0."""
    parser = make_parser()
    flags = parser.parse_args(argv)
    with console.handle_stops(lambda: "the blocks above are whole"):
        if isinstance(flags.texts, Path):
            return other_engines.run(parser, flags)
        if flags.out is not None:
            parser.error("--out is for the --texts of a file: leave it out")
        with shared.use_mesh(parser, flags.mesh):
            look = lambda: look_closely(parser, flags)  # noqa: E731
            return int(not console.print_document(flags.json, look)["passed"])


def look_closely(parser: Parser, flags: argparse.Namespace) -> dict:
    """Prints the lines of each dtype, and returns the fields of --json."""
    config = shared.read_config(flags, new_tokens=flags.tokens)
    gammas, sizes = tuple(sorted(set(flags.gammas))), (flags.texts, flags.batch)
    setting = DivergenceSetting(config, gammas, *sizes)
    strict = jax.default_backend() == "cpu"
    wrong, blocks = [], []
    for dtype in flags.dtype or shared.DTYPES:
        with parser.report_errors():
            pair = shared.load_pair((flags.target, flags.draft), dtype)
            pair, prompts = shared.read_case(flags, pair, PROMPTS)
            check(pair, prompts, setting)
            pair = place_on_mesh(pair, setting.batch)
            chosen = fused.for_setting(*pair, setting)
            report = examine(pair, prompts, setting, chosen)
        print(fused.line(chosen.record))
        blocks.append(block(pair, report))
        print("\n".join(lines(blocks[-1], setting, report.margins.size)), end="\n\n")
        of_dtype = [text for each in report.found for text in failures(each, strict)]
        wrong += [f"{dtype}, {text}" for text in of_dtype]
    if not strict:
        print("Not a CPU: texts of one shape may part, where that is explained.")
    print("\n".join(wrong) or "Nothing differs by more than rounding explains.")
    device = jax.devices()[0].device_kind
    return {"passed": not wrong, "device": device, "dtypes": blocks, "failures": wrong}


def block(pair: tuple[Pretrained, DraftSource], report: Report) -> dict:
    """Returns the fields of one dtype for --json."""
    target, draft = pair
    margins = np.quantile(report.margins, list(QUANTILES.values()))
    return {
        "dtype": target.dtype,
        "target": target.name,
        "draft": draft.name,
        "margins": dict(zip(QUANTILES, margins, strict=True)),
        "gammas": report.found,
    }


def make_parser() -> Parser:
    parser = Parser(prog="specjax microscope", description=__doc__.split("\n")[0])
    shared.add(parser, *shared.PAIR)
    otherwise = "; default: beginnings of programs"
    shared.add(parser, "data", help=shared.FLAGS["data"]["help"] + otherwise)
    shared.add(parser, "tokenizer")
    gammas, of_gammas = [1, 4, 7], "numbers of drafted tokens to try; default 1 4 7"
    shared.add(parser, "gammas", type=gamma_value, default=gammas, help=of_gammas)
    of_dtype = f"{shared.OF_DTYPE}; default: all, and float32 for the texts of a file"
    shared.add(parser, "dtype", nargs="+", default=None, help=of_dtype)
    of_texts = "number of texts, at most one for each prompt; or a file of another"
    of_texts += " engine's greedy texts, to explain where they differ: JSON lines, each"
    of_texts += ' a prompt as in --data with "text" or "ids" beside it'
    shared.add(
        parser, "texts", type=other_engines.count_or_file, default=16, help=of_texts
    )
    shared.add(parser, "tokens", default=64)
    shared.add(parser, "batch", "mesh", "kernels")
    of_out = "a .jsonl file to append the results of --texts FILE to; default: none"
    parser.add_argument("--out", metavar="FILE", help=of_out)
    console.add_json(parser)
    return parser


def lines(block: dict, setting: DivergenceSetting, tokens: int) -> list[str]:
    """Returns the printed lines of one dtype. tokens: the number of margins."""
    device, found = jax.devices()[0].device_kind, block["gammas"]
    margins = ", ".join(f"{name} {x:.2g}" for name, x in block["margins"].items())
    text = [
        f"{block['target']} with {block['draft']}, {block['dtype']}, {device}, T = 0",
        f"{found[0].matched.texts} texts of up to {setting.decode.new_tokens} tokens,"
        f" batch {setting.batch}",
        f"margin of {tokens} tokens: {margins}",
        "",
        "       equal texts        one-row calls           one full   rows bitwise",
        "gamma  matched  one-row   explained  unexplained  forward    equal",
    ]
    for gamma, matched, natural, forwards in found:
        equal = f"{matched.identical:>7}  {natural.identical:>7}"
        reasons = f"{natural.explained:>9}  {natural.unexplained:>11}"
        forward = f"{forwards.below} below" if forwards.below else "ok"
        forward = f"{forward:<9}  {matched.equal:.0%}"
        text.append(f"{gamma:>5}  {equal}   {reasons}  {forward}")
    text += [
        "",
        "       |z_AR - z_spec|      flips a token                   law at T = 1",
        "gamma  largest  mean        bound     expected  observed    moves    at most",
    ]
    for each in found:
        it = each.natural
        eps, law = f"{it.eps_max:.1e}  {it.eps_mean:.1e}", f"{it.tv_max:.1e}"
        flips = f"{it.bound:<8.2g}  {it.expected:<8.2g}  {it.observed:<8.2g}"
        text.append(f"{each.gamma:>5}  {eps}     {flips}    {law}  {it.tv_bound:.1e}")
    return text
