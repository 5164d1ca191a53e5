"""Compares two files of measured rows: `specjax compare A.jsonl B.jsonl`.

The files hold records, one line of JSON each, as `specjax measure --out` and the tables
write them. The last record of each row counts, and two files of one row each are
compared whatever the rows are called. Each difference has a 95 % interval of 1.96
standard errors of B - A to each side, which assumes errors that are normal and
independent between the files; an interval [lo, hi] of a record counts as a standard
error of (hi - lo) / (2 * 1.96). Runs that share texts or random numbers are more alike
than that, and the interval is then too wide.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specjax.cli import report
from specjax.measure.provenance import settings
from specjax.measure.rows import LISTS, SINGLE, Z, error_of, read
from specjax.runtime import writing
from specjax.runtime.console import Parser, shorten

LEVEL = 0.05
RATIOS = ("speedup", "best_speedup", "target_ms")
SAME = ("target", "draft", "draft_regime", "exactness", "temperature", "batch", "gamma")
SAME += ("best_gamma", "slots", "new_tokens", "texts", "tokens", "same_greedy_texts")
SAME += ("kernels", "others", "chosen_on")
NO_SETTINGS = {"json", "name", "out", "report", "specdec"}  # but flags of measure
DRIFT = 0.05  # of the target's time, beyond twice its error: by more than noise
MADE = ("commit", "dirty", "device", "versions", "dtype", "seed", "inputs")
HEAD = ("quantity", "gamma", "A", "B", "B - A", "95 % interval", "B / A", "")

Name = tuple[str, int | None]  # a quantity and, where it depends on one, its gamma


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), compares and prints; returns 0."""
    parser = make_parser()
    flags = parser.parse_args(argv)
    with parser.report_errors():
        report.prepare(flags.report)
        a, b = read(flags.a), read(flags.b)
        document = compare(a, b, flags.row)
        document = {"a": str(flags.a), "b": str(flags.b), **document}
        whole = json.dumps(document, indent=1) + "\n"
        text = whole if flags.json else format_document(document)
        if flags.out:
            writing.write_whole(flags.out, text.encode("utf-8", "backslashreplace"))
        if flags.report:
            report.write(flags.report, select_records(a, b, flags.row))
    # Half a character, as in a path that is not UTF-8, is printed as its escape.
    print(text.encode("utf-8", "backslashreplace").decode(), end="")
    return 0


def select_records(a: dict, b: dict, name: str | None) -> dict:
    """Returns the records of both files as one page shows them; of row `name` if
    given."""
    sides = ("A", a), ("B", b)
    return {
        f"{row} ({side})": each
        for side, rows in sides
        for row, each in rows.items()
        if name in (None, row)
    }


def make_parser() -> Parser:
    form = argparse.RawDescriptionHelpFormatter
    parser = Parser("specjax compare", description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("a", type=Path, metavar="A.jsonl", help="measured before")
    add("b", type=Path, metavar="B.jsonl", help="measured after")
    add("--row", metavar="NAME", help="this row alone")
    add("--json", action="store_true", help="one JSON document instead of tables")
    add("--out", type=Path, metavar="FILE", help="write what is printed to FILE too")
    of_report = "draw both, where they have speeds by gamma, on an .html page; needs"
    of_report += " matplotlib, pip install 'specjax[plots]'"
    add("--report", type=Path, metavar="FILE", help=of_report)
    return parser


def compare(a: dict, b: dict, name: str | None = None) -> dict:
    """Returns all that is printed, as a plain document; of row `name` alone if
    given."""
    shared = [(row, row) for row in a if row in b and name in (None, row)]
    if not shared and name is None and len(a) == len(b) == 1:
        shared = [(*a, *b)]
    if not shared:
        wanted = "a row" if name is None else f"the row {name!r}"
        raise ValueError(
            f"the files do not share {wanted}: A has {', '.join(a) or 'none'}; B has"
            f" {', '.join(b) or 'none'}; measure both with --name X"
        )
    rows = [compare_row(x if x == y else f"{x} | {y}", a[x], b[y]) for x, y in shared]
    paired = {name for names in shared for name in names}
    every = [comparison for row in rows for comparison in row["compared"]]
    return {
        "rows": rows,
        "only_in_a": [row for row in a if row not in {*b, *paired}],
        "only_in_b": [row for row in b if row not in {*a, *paired}],
        "comparisons": len(every),
        "marked": sum(comparison["marked"] for comparison in every),
        "expected_by_chance": round(LEVEL * len(every), 2),
    }


def compare_row(row: str, a: dict, b: dict) -> dict:
    """Compares two records of one row: values with errors, other values, and
    provenance."""
    in_a, in_b = (dict(quantities(record["measured"])) for record in (a, b))
    # Exact on both sides, as the speedup of gamma = 0 over itself: nothing to test.
    tested = [key for key in in_a if key in in_b and (in_a[key][1] or in_b[key][1])]
    single = [key for key in in_a | in_b if key not in tested and key[1] is None]
    triples = [
        (key[0], in_a.get(key, [None])[0], in_b.get(key, [None])[0]) for key in single
    ]
    names = SAME if tested else dict.fromkeys([*a["measured"], *b["measured"]])
    triples += [(name, setting(a, name), setting(b, name)) for name in names]
    return {
        "row": row,
        "compared": [compare_quantity(key, in_a[key], in_b[key]) for key in tested],
        "unequal": list_differences(triples),
        "provenance": list_differences(provenance(a["provenance"], b["provenance"])),
    }


def list_differences(triples: list[tuple]) -> list[dict]:
    """Returns the triples (name, in A, in B) that differ; None stands for absent."""
    return [{"name": name, "a": a, "b": b} for name, a, b in triples if a != b]


def compare_quantity(key: Name, a: tuple, b: tuple) -> dict:
    """Returns the comparison of one quantity in both files.

    a, b: (value, standard error). In the result `difference` is b - a, and `interval`
    its 95 % interval. `ratio` is b / a, or None for a quantity whose ratio has no
    meaning. `marked` says that the interval excludes 0."""
    delta, reach = b[0] - a[0], Z * math.hypot(a[1], b[1])
    low, high = delta - reach, delta + reach
    return {
        "quantity": key[0],
        "gamma": key[1],
        "a": a[0],
        "b": b[0],
        "difference": delta,
        "interval": (low, high),
        "ratio": b[0] / a[0] if key[0] in RATIOS and a[0] else None,
        "marked": low > 0 or high < 0,
    }


def quantities(measured: dict) -> Iterator[tuple[Name, tuple]]:
    """Yields each number that has an error: (name, gamma or None), (value, standard
    error)."""
    estimates = measured.get("estimates") or {}
    numbers = {name: (x.get("value"), x.get("se")) for name, x in estimates.items()}
    alpha = measured.get("alpha"), measured.get("alpha_se")
    # Table 3's alpha is one of the four: not to be counted twice.
    numbers = {f"estimates.{x}": numbers[x] for x in numbers if numbers[x] != alpha}
    numbers["alpha"] = alpha
    numbers |= {x: (measured.get(x), error_of(measured.get(f"{x}_ci"))) for x in SINGLE}
    for name in sorted(numbers):
        if None not in numbers[name]:
            yield (name, None), numbers[name]
    gammas = measured.get("gamma")
    if not isinstance(gammas, list):
        return
    for name in LISTS:
        values, ranges = (measured.get(key) or [] for key in (name, f"{name}_ci"))
        for gamma, *pair in zip(gammas, values, ranges, strict=False):
            if None not in pair:
                yield (name, gamma), (pair[0], error_of(pair[1]))


def setting(record: dict, name: str) -> Any:
    measured = record["measured"]
    return measured.get(name, measured.get("protocol", {}).get(name))


def provenance(a: dict, b: dict) -> list[tuple]:
    """Returns (name, in A, in B) of all that produced a record, each setting once."""
    in_a, in_b = flatten(a), flatten(b)
    triples = [(key, in_a.get(key), in_b.get(key)) for key in in_a | in_b]
    skipped = NO_SETTINGS | in_a.keys()
    in_a, in_b = (settings(x.get("config") or "") for x in (a, b))
    names = [name for name in in_a | in_b if name not in skipped]
    return triples + [(name, in_a.get(name), in_b.get(name)) for name in names]


def flatten(origin: dict) -> dict:
    """Returns the fields of MADE; {"device": {"kind": k}} becomes {"device.kind":
    k}."""
    fields: dict[str, Any] = {}
    for key in MADE:
        value = origin.get(key)
        inner = value if isinstance(value, dict) else {"": value}
        fields |= {f"{key}.{name}".strip("."): x for name, x in inner.items()}
    return fields


def format_document(document: dict) -> str:
    """Returns the document as aligned tables, row by row, followed by their meaning."""
    parts = [f"A: {document['a']}\nB: {document['b']}\n"]
    parts += [format_row(row) for row in document["rows"]]
    parts.append(summary(document))
    for side in "AB":
        names = document[f"only_in_{side.lower()}"]
        parts += [f"Only in {side}: {', '.join(names)}\n"] if names else []
    return "\n".join([*parts, format_provenance(document["rows"])])


def format_row(row: dict) -> str:
    lines = [cells(entry) for entry in row["compared"]]
    text = (
        align_columns([HEAD, *lines])
        if lines
        else "  no numbers with an error in both\n"
    )
    for entry in row["unequal"]:
        a, b = shorten_value(entry["a"]), shorten_value(entry["b"])
        text += f"  {entry['name']} differs: {a}, {b}\n"
    return f"{row['row']}\n{text}{note_target_time(row)}"


def note_target_time(row: dict) -> str:
    """Returns a warning where the target alone took another time in the two files.

    Times of the two files cannot be compared then. Otherwise it returns ""."""
    found = [x for x in row["compared"] if x["quantity"] == "target_ms"]
    other = {entry["name"] for entry in row["unequal"] + row["provenance"]}
    if not found or other & {"target", "batch", "dtype"}:
        return ""
    (low, high), ratio = found[0]["interval"], found[0]["ratio"]
    reach = high - low  # twice the half width
    if abs(found[0]["difference"]) <= reach or abs(ratio - 1) <= DRIFT:
        return ""
    return (
        f"  one target took {ratio:.2f} times as long in B: unless its code changed,"
        " the machine\n  was another or busy, and times cannot be compared\n"
    )


def cells(entry: dict) -> list[str]:
    keys = "gamma", "ratio"
    gamma, ratio = ("" if entry[key] is None else entry[key] for key in keys)
    low, high = map(format_number, entry["interval"])
    numbers = [format_number(entry[key]) for key in ("a", "b", "difference")]
    ratio = f"{ratio:.3f}" if ratio else ""
    mark = "*" if entry["marked"] else ""
    return [entry["quantity"], str(gamma), *numbers, f"[{low}, {high}]", ratio, mark]


def format_number(x: float) -> str:
    if abs(x) < 0.01:
        return f"{x:#.3g}"
    return f"{x:.4f}" if abs(x) < 10 else f"{x:.4g}"


def align_columns(lines: Sequence[Sequence[str]]) -> str:
    """Returns columns padded with spaces: names to the left, numbers to the right."""
    first, *rest = (max(map(len, column)) for column in zip(*lines, strict=True))
    padded = [[x.ljust(first), *map(str.rjust, more, rest)] for x, *more in lines]
    return "".join(f"  {'  '.join(line)}".rstrip() + "\n" for line in padded)


def shorten_value(value: object, most: int = 40) -> str:
    return shorten("none" if value is None else str(value), most)


def summary(document: dict) -> str:
    return (
        f"{document['comparisons']} comparisons, {document['marked']} marked *: the"
        " interval excludes 0.\nHad nothing changed, about"
        f" {document['expected_by_chance']:g} of them would be marked by chance, one in"
        " twenty.\n"
    )


def format_provenance(rows: Sequence[dict]) -> str:
    """Returns each difference in provenance once, with the rows that have it."""
    owners: dict[tuple, list[str]] = {}
    for row in rows:
        for entry in row["provenance"]:
            key = (
                entry["name"],
                shorten_value(entry["a"], 80),
                shorten_value(entry["b"], 80),
            )
            owners.setdefault(key, []).append(row["row"])
    text = "Provenance differs:\n" if owners else "Provenance: the same.\n"
    for (name, a, b), names in owners.items():
        where = "" if len(names) == len(rows) else f" ({', '.join(names)})"
        text += f"  {name}: {a} | {b}{where}\n"
    if any(name.startswith("device") for name, *_ in owners):
        text += "Other devices: a difference of times is then not one of the code.\n"
    return text
