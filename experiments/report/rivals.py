"""The tables of real weights on many engines: a table for each row of the bench, a line
for each engine.
"""

from collections.abc import Iterator

from experiments.records.markup import interval
from experiments.report import names
from experiments.report.columns import Item, grid
from experiments.report.typeset import Grid

TITLES = {
    "b1": "{model} on questions, one text at a time",
    "prefill": "{model}, a prompt of {prefill:,} tokens alone",
}
REASONS = {"tie": "rounding", "int8": "rounded weights", "difference": "not explained"}
REASONS |= {"window": "hears zeros or silence behind the end"}
FEW = 4  # times, of which no interval is drawn
BATCH = "{model} on questions, {batch} texts at once"


def is_real(it: Item) -> bool:
    return "beside" in it


def grids(rows: dict[str, Item]) -> list[Grid]:
    """Returns the tables of the rows that have real weights."""
    found = []
    for row, it in rows.items():
        if is_real(it):
            name = "listeners" if "word_errors" in it else "rivals"
            found += grid(name, lines(it), title=title(row, it))
    return found


def title(row: str, it: Item) -> str:
    model = names.model(it["setting"]["model"])
    if "word_errors" in it:
        heard = f"{it['texts']} recordings, {it['heard']:.0f} s"
        return f"{model} on speech: {heard}"
    shape = TITLES.get(row.rpartition("_")[2], BATCH)
    return shape.format(**it["setting"] | {"batch": it["batch"], "model": model})


def lines(it: Item) -> Iterator[dict]:
    """Yields the engines in the order of their times, then those that could not run."""
    times = {k.removeprefix("ms_"): x for k, x in it.items() if k.startswith("ms_")}
    best = min((x for k, x in times.items() if k.startswith("specjax")), default=None)
    for name, ms in sorted(times.items(), key=lambda pair: pair[1]):
        over = f"over_{name}"
        like = interval(it[over], it[f"{over}_ci"]) if over in it else ""
        yield {
            "engine": name,
            "ms": f"{ms:.4g}",
            "rate": f"{1e3 / ms:.4g}",
            "beside": it["beside"].get(name, ""),
            "like": like,
            "best": "" if best is None else f"{ms / best:.3g}",
            "memory": memory(it, name),
            **agreement(it, name),
            "why": "",
        }
    blank = dict.fromkeys(
        "ms rate beside like best memory same start explained wer".split(), ""
    )
    for name, why in it["refusals"].items():
        yield blank | {"engine": name, "why": why}


def few_times(it: Item) -> list[str]:
    """Returns the names of the intervals and the errors of ratios for which there are
    too few times."""
    if "beside" not in it:
        return []
    times = it["seconds"].items()
    few = [name for name, each in times if len(each) * len(each[0]) < FEW]
    both = [f"over_{name}{end}" for name in few for end in ("_ci", "_se")]
    return [name for name in both if name in it]


def memory(it: Item, name: str) -> str:
    """Returns the largest resident memory of an engine's process in MiB."""
    peak = it.get("peak_mb", {}).get(name)
    return "" if peak is None else f"{peak:.0f}"


def agreement(it: Item, name: str) -> dict[str, str]:
    """Returns how many texts equal ours in float32, and why the others differ."""
    found = dict.fromkeys(("same", "start", "explained", "wer"), "")
    if name in it.get("same_texts", {}):
        found["same"] = f"{it['same_texts'][name]} of {it['texts']}"
    if name in it.get("same_prefix", {}):
        found["start"] = f"{it['same_prefix'][name]:.0%}"
    found["explained"] = it.get("explained", {}).get(name, "")
    if name in it.get("word_errors", {}):
        errors = it["word_errors"][name]
        found["wer"] = f"{errors['rate']:.1%} ({errors['errors']} of {errors['words']})"
        apart = [x for x in it["differences"] if x["engine"] == name]
        found["explained"] = "; ".join(
            f"{x['theirs'].strip()} for {x['ours'].strip()}, {x['margin']:.2g}"
            f" ({REASONS[x['kind']]})"
            for x in apart
        )
    return found
