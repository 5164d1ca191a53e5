"""Measures the rows that gin files describe: `specjax run FILE.gin[:ROW] ...`.

A file includes one of gin_configs/runs/, such as alpha.gin, walltime.gin or audit.gin,
and names the models; it is one row, or has several in ROWS. Each finished row is
written to OUT/<folder of the file>.jsonl. A row that is already there with the same
settings and inputs is kept; --again measures it again. A command that was stopped
continues when it is started again."""

import sys
from collections.abc import Sequence

from specjax.configs import flags
from specjax.configs.run import OUT, handle_stops, join, run
from specjax.runtime import console, hosts


def format_numbers(measured: dict) -> str:
    """Returns the numbers of a row that are not lists, one per line."""
    single = {k: v for k, v in measured.items() if isinstance(v, str | int | float)}
    wide = max(map(len, single), default=0)
    shown = {k: f"{v:.5g}" if isinstance(v, float) else v for k, v in single.items()}
    return "".join(f"  {name:{wide}}  {value}\n" for name, value in shown.items())


def main(argv: Sequence[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), measures and prints; returns 0."""
    about = "Measures the rows that gin files describe."
    parser = console.Parser(prog="specjax run", description=about)
    flags.add(parser)
    flags.add_out(parser, OUT)
    hosts.add(parser)
    chosen, rows = flags.parse(parser, sys.argv[1:] if argv is None else argv)
    with handle_stops(), join(parser, chosen.distributed, rows):
        for record in run(rows, chosen.out, chosen.again):
            print(format_numbers(record["measured"]), end="")
        print(f"records: {chosen.out}")
    return 0
