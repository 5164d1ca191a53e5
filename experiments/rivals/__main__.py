"""Measures specjax beside other engines: `python -m experiments.rivals [--rows NAME
...]`

Each finished row is appended to OUT/bench.jsonl; a row that is there already, with the
same settings and the same sources, is kept unless `--again`. All engines run in this
process, on the same few cores.
"""

import sys
import tempfile
import time
from pathlib import Path

from experiments.rivals import bench, comparisons
from experiments.rivals.comparisons import EngineSetting
from specjax import native
from specjax.measure import provenance

EXTRA = ("torch", "transformers", "ctranslate2")


def main(arguments: list[str] | None = None) -> None:
    flags = bench.flags(__package__)
    flags.add_argument("--rows", nargs="*", metavar="NAME", help="all by default")
    usual = EngineSetting()._asdict()
    for name, value in usual.items():
        flags.add_argument(f"--{name}", type=type(value), default=value)
    chosen = flags.parse_args(arguments)
    setting = EngineSetting(*(getattr(chosen, name) for name in usual))
    bench.begin(setting.threads)
    try:
        provenance.check_clean(chosen.out)
        run(setting, chosen.out, chosen.rows, chosen.again)
    except ValueError as error:
        sys.exit(f"error: {error}")
    except ImportError as error:
        if error.name not in EXTRA:
            raise
        sys.exit(f"error: {error}: pip install '.[engines]'")


def run(
    setting: EngineSetting, out: Path, wanted: list[str] | None, again: bool
) -> None:
    """Measures the wanted rows, None for all, and prints the goals.

    Raises:
        ValueError: a row is unknown, or engines disagree.
    """
    versions = bench.package_versions(EXTRA)
    with tempfile.TemporaryDirectory() as folder:
        known = comparisons.rows(comparisons.write_weights(setting, Path(folder)))
        unknown = set(wanted or ()) - known.keys()
        if unknown:
            raise ValueError(
                f"no row {', '.join(sorted(unknown))}; known are {', '.join(known)}"
            )
        for name in wanted or known:
            row = f"{setting.size}_{name}"
            if not again and bench.is_recorded(
                out, [row], setting=setting, measurement=known[name]
            ):
                print(f"bench/{row}: kept", flush=True)
                continue
            begun = time.monotonic()
            with native.products(native.XLA if row.endswith("_xla") else native.THIN):
                measured = known[name].run()
                origin = known[name], setting, time.monotonic() - begun
                bench.add_record(out, row, measured, origin=origin, versions=versions)
            print(f"bench/{row}: measured", flush=True)
    bench.show(out)


if __name__ == "__main__":
    main()
