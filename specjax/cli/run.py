"""Measures the rows that gin files describe: `specjax run FILE.gin[:ROW] ...`.

A file includes one of gin_configs/runs/, such as alpha.gin, walltime.gin or audit.gin,
and who takes part; it is one row, or has several in ROWS. Each finished row is written
to OUT/<folder of the file>.jsonl; one that is there already, with the same settings and
inputs, is kept, unless --again asks for it anew. Stopped at any moment, the same
command goes on.
"""

import sys
from collections.abc import Sequence

from specjax.configs import flags
from specjax.configs.run import OUT, joined, run, stopped_politely
from specjax.runtime import console, hosts


def plain(measured: dict) -> str:
    """The numbers of a row that are not lists, a line each."""
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
    with stopped_politely(), joined(parser, chosen.distributed, rows):
        for record in run(rows, chosen.out, chosen.again):
            print(plain(record["measured"]), end="")
        print(f"records: {chosen.out}")
    return 0
