"""Measures specjax beside other engines: `python -m experiments.rivals [--rows NAME
...]`

Each finished row is appended to OUT/bench.jsonl; a row that is there already, with the
same settings and the same sources, is kept unless `--again`. All engines run in this
process, on the same few cores. Each call is on the disk as soon as it was measured:
after a stop the same command continues with the next one.
"""

import sys
import tempfile
import time
from pathlib import Path

from experiments.rivals import bench, comparisons, journal
from experiments.rivals.comparisons import EngineSetting
from specjax import native
from specjax.measure import provenance
from specjax.runtime import console

EXTRA = ("torch", "transformers", "ctranslate2")


# What --quick asks for where a flag does not.
QUICK = dict(texts=3, new_tokens=32, rounds=3, rows=["plain_b1", "speculative_b1"])


def main(arguments: list[str] | None = None) -> None:
    flags = bench.flags(__package__)
    flags.add_argument("--rows", nargs="*", metavar="NAME", help="all by default")
    usual = EngineSetting()._asdict()
    for name, value in usual.items():
        flags.add_argument(f"--{name}", type=type(value), default=value)
    chosen = bench.parse(flags, arguments, QUICK)
    setting = EngineSetting(*(getattr(chosen, name) for name in usual))
    bench.begin(setting.threads)
    try:
        provenance.check_clean(chosen.out)
        with console.handle_stops(bench.describe_kept_calls):
            run(setting, chosen.out, chosen.rows, chosen.again)
    except ValueError as error:
        sys.exit(f"error: {error}")


def run(
    setting: EngineSetting, out: Path, wanted: list[str] | None, again: bool
) -> None:
    """Measures the wanted rows (None means all), and prints the goals.

    Raises:
        ValueError: a row is unknown, or a row failed, once all others are measured.
    """
    versions = bench.package_versions(EXTRA)
    opened, failed = [], {}
    with tempfile.TemporaryDirectory() as folder:
        known = comparisons.rows(comparisons.write_weights(setting, Path(folder)))
        unknown = set(wanted or ()) - known.keys()
        if unknown:
            raise ValueError(
                f"no row {', '.join(sorted(unknown))}; known are {', '.join(known)}"
            )
        for name in wanted or known:
            row, (measure, origin) = f"{setting.size}_{name}", known[name]
            if not again and bench.is_recorded(
                out, [row], setting=setting, measurement=origin
            ):
                print(f"bench/{row}: kept", flush=True)
                continue
            belongs = journal.conditions(origin, setting, versions)
            kept = journal.open_journal(out, row, belongs)
            opened.append(kept)
            if kept.recorded:
                print(f"bench/{row}: measured before the stop", flush=True)
                continue
            begun = time.monotonic()
            try:
                with native.products(
                    native.XLA if row.endswith("_xla") else native.THIN
                ):
                    measured = measure(kept)
            except ValueError as error:
                failed[row] = str(error)
                print(f"bench/{row}: {error}", file=sys.stderr, flush=True)
                continue
            about = origin, setting, time.monotonic() - begun
            bench.add_record(out, row, measured, origin=about, versions=versions)
            kept.mark_recorded()
            print(f"bench/{row}: measured", flush=True)
    bench.show(out)
    if failed:
        raise ValueError(f"no record of {', '.join(failed)}; the reasons stand above")
    journal.remove_all(opened)


if __name__ == "__main__":
    main()
