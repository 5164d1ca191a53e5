"""The small table at the beginning of README.md: `python -m
experiments.report.headline`.

It stands between two comments and is made of the records in results; the rest of the
file stays as it is. Its rows are pairs on their own tasks. In the first both models are
published ones; speculation makes the last one slower.
"""

from experiments import catalogue
from experiments.records import records
from experiments.records.table import Records
from experiments.report import laws, runs, spec_bench, tables, typeset
from experiments.report.columns import grid
from experiments.report.html import environment
from experiments.report.typeset import Notes

README = catalogue.ROOT / "README.md"
BEGIN, END = "<!-- headline: rendered from results -->\n", "<!-- headline ends -->\n"
At = tuple[str, str | int]  # folder and row; of Spec-Bench, the temperature
SPEED = "best_speedup", "best_speedup_ci"
CODER = "Qwen2.5-Coder-1.5B + 0.5B"
# Folder and row -> the pair and what it writes.
ROWS: dict[At, tuple[str, str]] = {
    ("real_pair", 0): (CODER, "code and word problems (Spec-Bench)"),
    ("spec_bench", 1): ("SmolLM2-135M + a small draft", "answers (Spec-Bench)"),
    ("table2", "small_t0_b1"): ("code_target + code_small", "Python"),
    ("table2", "ende_small_t0"): ("t5_target + t5_small", "German, from English"),
    ("table2", "small_t0_b32"): (
        "code_target + code_small",
        "Python, 32 texts at a time",
    ),
}


def table(results: Records) -> str:
    """Returns the table with a line for each of ROWS that was measured, and the notes
    below it."""
    shown = "".join(
        f"{typeset.grid_markdown(panel)}\n"
        for each in grid("headline", items(results))
        for panel in typeset.fit(each, Notes())
    )
    notes = note(results, headline_records(results)).splitlines()
    below = (typeset.wrap(line.removeprefix("* "), "* ") for line in notes)
    return "\n".join([shown, *below]) + "\n"


def headline_records(results: Records) -> dict[At, dict]:
    """Returns the record of each of ROWS that has one: of a pair with several runs, the
    one whose speed is the median."""
    every = runs.all_records(results)
    found = {at: find_record(results, *at) for at in ROWS}
    return {
        at: runs.median_record(every, record)
        for at, record in found.items()
        if record is not None
    }


def items(results: Records) -> list[dict]:
    """Returns the lines of the table, each with the spread over all runs of its
    pair."""
    every = runs.all_records(results)
    return [
        best_numbers(at, record["measured"])
        | {"spread": runs.spread(every, record), "memory": memory(results, at)}
        for at, record in headline_records(results).items()
    ]


def memory(results: Records, at: At) -> str:
    """Returns the MiB that decoding holds with the draft at its best gamma and, in
    brackets, with the target alone, by the row's latest record; "" if that has none."""
    record = find_record(results, *at)
    sizes = record and record["measured"].get("memory_mb")
    if not sizes:
        return ""
    it = record["measured"]
    at_best = it["gamma"].index(it["best_gamma"]) if "best_gamma" in it else -1
    return f"{sizes[at_best]:,.0f} ({sizes[0]:,.0f})"


def find_record(results: Records, folder: str, row: str | int) -> dict | None:
    """Returns the record of a row; for Spec-Bench, a record of all tasks at a
    temperature.
    """
    if isinstance(row, int):
        return spec_bench.combine_tasks(results, row, folder)
    return results.get(folder, {}).get(row)


def best_numbers(at: At, it: dict) -> dict:
    """Returns the numbers of a row at its best gamma."""
    pair, writes = ROWS[at]
    speed = interval(it["best_speedup"], it["best_speedup_ci"])
    calls = it.get("best_tokens_per_call", it.get("tokens_per_call"))
    alpha = f"{it['alpha']:.2f} ± {it['alpha_se']:.2f}"
    rule = it.get("rule", "token")
    alpha += "" if rule == "token" else f", by {rule}"
    own = {"writes": writes, "pair": pair, "ours": speed, "calls": f"{calls:.2f}"}
    return it | own | {"kept": alpha}


def interval(x: float, ends: tuple[float, float]) -> str:
    return f"{x:.2f} [{', '.join(f'{end:.2f}' for end in ends)}]"


def note(results: Records, found: dict[At, dict], site: bool = False) -> str:
    """Returns the notes on the machine, the published numbers and the models.

    Args:
        site: the notes stand beside the table of the site, which has the chip's row
            itself.
    """
    if not found:
        return "* Nothing was measured yet."
    several = [*found.values()]
    days = sorted(record["provenance"]["date"][:10] for record in several)
    chip = results.get("chip", {}).get("ende_small_t0")
    short = results.get(spec_bench.CODER, {}).get("walltime_t0")
    named = {"device": "", "gain": ""}
    if chip:
        gain = interval(*map(chip["measured"].get, ("speedup", "speedup_ci")))
        named = {"device": chip["provenance"]["device"]["kind"], "gain": gain}
    whole = [it["measured"] for (_, row), it in found.items() if isinstance(row, int)]
    return (
        environment()
        .get_template("headline.md")
        .render(
            site=site,
            devices=" and ".join(sorted(set(map(records.device, several)))),
            days=" to ".join(dict.fromkeys((days[0], days[-1]))),
            short=short and interval(*map(short["measured"].get, SPEED)),
            questions=[it["questions"] for it in whole],
            paper=catalogue.published_numbers("table2", "ende_small_t0"),
            chip=chip and named,
            counted=count(results),
        )
    )


def count(results: Records) -> dict[str, int]:
    """Returns how many numbers the tables name, how many of them were not run, and how
    many are older than the code that measures them."""
    lines = [
        line
        for table in catalogue.tables()
        for line in table.lines
        if line.folder not in laws.FOLDERS
    ]
    run = [line for line in lines if line.row in results.get(line.folder, {})]
    older = {
        (folder, row)
        for folder, rows in results.items()
        for row, record in rows.items()
        if records.is_older(record)
    }
    return {
        "all": len(lines),
        "missing": len(lines) - len(run),
        "older": sum((line.folder, line.row) in older for line in run),
    }


def render_text(text: str, results: Records) -> str:
    """Returns the text of README.md with its table replaced by one of these records."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(results)}\n{END}{after}"


def main() -> None:
    text = README.read_text("utf-8")
    results = tables.collect(catalogue.ROOT / "results")
    README.write_text(render_text(text, results), "utf-8")
    print(f"rendered the table of {README}")


if __name__ == "__main__":
    main()
