"""Tests one run of a pair against the target's own distributions: `specjax audit`."""

import argparse
import math

import numpy as np

from specjax import fused
from specjax.cli import flags as shared
from specjax.decode_config import record_fields, setting_type
from specjax.drafts.source import check_pair
from specjax.exactness.audit import (
    LEVEL,
    POWER,
    Audit,
    Pair,
    alarm,
    evidence,
    judge,
    run,
    total,
)
from specjax.measure.pairs import place_on_mesh
from specjax.measure.texts import Protocol, standardized
from specjax.prompts import Prompts
from specjax.runtime import console
from specjax.runtime.console import Parser
from specjax.verifiers import guarantees

tokens = console.whole_number(1, 10**9)
level = console.number(0, 1, above=True)


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), decodes and prints; 1 if the test
    fails."""
    parser = make_parser()
    flags = parser.parse_args(argv)
    with console.handle_stops(), shared.use_mesh(parser, flags.mesh):
        document = console.print_document(flags.json, lambda: audit(parser, flags))
    return int(not document["passed"])


def audit(parser: Parser, flags: argparse.Namespace) -> dict:
    """Decodes, prints the verdict, and returns the fields of --json."""
    with parser.report_errors():
        pair, prompts, protocol = make_case(flags)
        kernels = fused.for_protocol(*pair, protocol)
        steps, calls = run(pair, prompts, protocol, kernels)
        verdict = judge(total(steps), flags.level)
    guarantee = guarantees.combine(flags.rule, pair[1].name, flags.policy)
    (target, draft), dtype = pair, pair[0].dtype
    tokens_per_call = calls.tokens.sum() / calls.calls.sum()
    log_e = evidence(steps)[0]
    names = f"{target.name} with {draft.name}, {dtype}"
    print(f"{names}, {standardized(record_fields(protocol))}")
    policy = "" if flags.policy == "none" else f", policy {flags.policy}"
    print(f"rule {flags.rule} ({guarantee}), gamma {flags.gamma}{policy}")
    print(fused.line(kernels.record))
    print(f"{tokens_per_call:.3f} tokens per target call\n")
    report(verdict, log_e, flags.level)
    settings = "rule", "policy", "gamma", "temperature", "level", "seed"
    return {
        "target": target.name,
        "draft": draft.name,
        "dtype": dtype,
        **{name: getattr(flags, name) for name in settings},
        "guarantee": guarantee,
        "kernels": kernels.record,
        "tokens_per_call": tokens_per_call,
        **verdict._asdict(),
        "log10_e": log_e.max() / math.log(10),
        "alarm": alarm(log_e, flags.level),
    }


def make_parser() -> Parser:
    parser = Parser(prog="specjax audit", description=__doc__.split("\n")[0])
    add = parser.add_argument
    shared.add(parser, *shared.PAIR)
    otherwise = "; default: the start token alone"
    shared.add(parser, "data", help=shared.FLAGS["data"]["help"] + otherwise)
    shared.add(parser, "tokenizer")
    shared.add(parser, "temperature", default=1.0)
    shared.add_filters(parser)
    shared.add(parser, "dtype")
    of_gamma = "drafted tokens per step"
    add("--gamma", type=setting_type("gamma"), default=5, help=of_gamma)
    add("--tokens", type=tokens, default=40_000, help="least number of tokens to test")
    add("--length", type=console.count, default=64, help="most tokens of a text")
    shared.add(parser, "batch", default=32)
    of_level = "probability that an exact run fails"
    add("--level", type=level, default=LEVEL, help=of_level)
    shared.add(parser, "mesh", "seed", "kernels")
    console.add_json(parser)
    return parser


def make_case(flags: argparse.Namespace) -> tuple[Pair, Prompts, Protocol]:
    """Returns the pair, the prompts and the settings that the flags name.

    Raises ValueError or OSError for flags that cannot be audited."""
    pair = shared.load_pair((flags.target, flags.draft), flags.dtype)
    check_pair(*pair, with_alpha=False)
    pair[1].drafter(flags.gamma)  # which refuses a gamma that it cannot draft
    pair, prompts = shared.read_case(flags, pair)
    config = shared.read_config(flags, new_tokens=flags.length)
    setting = Protocol("", config, tokens=flags.tokens, batch=flags.batch)
    return place_on_mesh(pair, setting.batch), prompts, setting


def report(verdict: Audit, log_e: np.ndarray, level: float) -> None:
    """Prints the verdict last, and before it the evidence and what the test cannot
    detect."""
    print(f"{verdict.tokens} tokens, of which {verdict.free} were free to differ")
    print(f"impossible tokens: {verdict.impossible}")
    for name, z in verdict.z.items():
        value = "cannot vary" if z is None else f"{z:8.2f}"
        print(f"  z of {name:14}{value}")
    print(f"p-value of all: {verdict.p_value:.2g}")
    first = alarm(log_e, level)
    when = "never an alarm" if first is None else f"alarm after {first} tokens"
    print(f"largest E: 10^{log_e.max() / math.log(10):.1f}, {when}")
    leak = verdict.limits.leak
    if not verdict.free:
        print("no token was free to differ: only impossible tokens can be detected")
    elif leak is not None:
        print(f"detected with probability {POWER}: {100 * leak:.2g} % of tokens drawn")
        print("from the draft in place of the target")
    print(f"{'passed' if verdict.passed else 'FAILED'} at level {level:g}")
