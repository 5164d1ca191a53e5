"""The small table that opens README.md: `python -m experiments.report.headline`.

It stands between two comments and is made of the records in results; the rest of the
file stays as it is. It has a pair on each of its own tasks, and the code pair on
HumanEval.
"""

from experiments import catalogue
from experiments.records import markup, records
from experiments.records.table import Records
from experiments.report import spec_bench, tables
from experiments.report.columns import Item, grid
from experiments.report.html import environment
from specjax.measure import baseline
from specjax.theory import closed_forms

README = catalogue.ROOT / "README.md"
BEGIN, END = "<!-- headline: rendered from results -->\n", "<!-- headline ends -->\n"
# Folder and row -> what it writes, and the pair where the record has no name for it.
ROWS = {
    ("spec_bench", 0): (
        "answers (Spec-Bench)",
        "SmolLM2-135M + copying_else:smollm2_draft,least=2",
    ),
    ("spec_bench", 1): ("answers (Spec-Bench)", "SmolLM2-135M + smollm2_draft"),
    ("table2", "small_t0_b1"): ("Python", None),
    ("table2", "ende_small_t0"): ("German, from English", None),
    ("chen_data", "humaneval_code_greedy"): ("HumanEval", None),
}
BY_XLA = ("small_t0_b1_xla",)  # the code pair's row again


def table(results: Records) -> str:
    """Returns a line for each of ROWS that was measured, and the note below."""
    shown = "".join(markup.markdown(*it[1:]) for it in grid("headline", items(results)))
    return f"{shown}\n{note(results, headline_records(results))}\n"


def headline_records(results: Records) -> dict[tuple, dict]:
    """Returns the records of ROWS that there are."""
    of_rows = ((at, record_of(results, *at)) for at in ROWS)
    return {at: record for at, record in of_rows if record is not None}


def items(results: Records) -> list[dict]:
    """Returns the lines of the table, each with the spread over all runs of its
    pair.
    """
    return [
        line_of(at, record["measured"]) | {"spread": spread(results, record)}
        for at, record in headline_records(results).items()
    ]


def spread(results: Records, record: dict) -> str:
    """Returns the lowest and the highest speed of all records of a pair, and the number
    of records.

    They have the same models, task, temperature, rule and policy at batch 1, each at
    its best gamma. They differ in the machine, the day and the texts.
    """
    it = record["measured"]
    every = [each for rows in results.values() for each in rows.values()]
    speeds = [speed_of(each["measured"]) for each in every if same_setup(each, record)]
    speeds = sorted(speeds or [speed_of(it)])
    if len(speeds) == 1:
        return "1 run"
    return f"{speeds[0]:.2f} to {speeds[-1]:.2f} in {len(speeds)} runs"


def same_setup(record: dict, other: dict) -> bool:
    """Returns whether two records timed the same pair in the same way."""
    if speed_of(record["measured"]) is None:
        return False
    products = (each["provenance"].get("products") for each in (record, other))
    return len(set(products)) == 1 and way_of(record) == way_of(other)


def way_of(record: dict) -> tuple:
    """Returns what was decoded and how, without gamma, machine, day and number of
    texts.
    """
    it = record["measured"]
    models = str(it.get("target")), str(it.get("draft"))
    rule, policy = it.get("rule", "token"), it.get("policy", "none")
    task, batch = it.get("task") or it.get("group"), it.get("batch", 1)
    return *models, task, it.get("temperature"), rule, policy, batch


def speed_of(it: Item) -> float | None:
    return it.get("best_speedup", it.get("speed"))


def record_of(results: Records, folder: str, row: str | int) -> dict | None:
    """Returns the record of a row; for Spec-Bench, the record of all tasks at a
    temperature.
    """
    if folder == spec_bench.FOLDER:
        return spec_bench.whole(results, row)
    return results.get(folder, {}).get(row)


def line_of(at: tuple[str, str], it: dict) -> dict:
    """Returns a row of table2 at its best gamma, or one of Chen's at its K."""
    writes, pair = ROWS[at]
    ends, speed = ("best_speedup_ci", "best_speedup")
    if "speed_interval" in it:
        ends, speed = ("speed_interval", "speed")
    own = {"writes": writes, "pair": pair or f"{it['target']} + {it['draft']}"}
    own |= {"ours": interval(it[speed], it[ends]), "forecast": prediction_text(it)}
    own |= {"alone_ms": baseline.token_ms(it)}
    return it | own | {"kept": alpha(it)}


def interval(x: float, ends: tuple[float, float]) -> str:
    return f"{x:.2f} [{', '.join(f'{end:.2f}' for end in ends)}]"


def prediction_text(it: Item) -> str:
    if it.get("best_predicted") is not None:
        return interval(it["best_predicted"], it["best_predicted_ci"])
    if "speed_by_calls" not in it and "best_exp" in it:
        return f"{it['best_exp']:.2f} by Theorem 3.8"
    speed = it.get("speed_by_calls")
    if speed is None:
        c, v = (it[f"t_{part}_ms"] / it["t_target_ms"] for part in ("draft", "score"))
        speed = it["tokens_per_call"] / (it["K"] * c + v)
    return f"{speed:.2f}, computed afterwards from this run's calls"


def alpha(it: Item) -> str:
    """Returns alpha with its error; where only calls were counted, the alpha that
    Equation 1 implies.
    """
    if "alpha" in it:
        return f"{it['alpha']:.2f} ± {it['alpha_se']:.2f}"
    implied = closed_forms.implied_alpha(it["tokens_per_call"], it["K"])
    return f"{implied:.2f} by Equation 1"


def note(results: Records, found: dict[tuple, dict], site: bool = False) -> str:
    """Returns the note on the origin of the numbers, and the published numbers of the
    same row.

    Args:
        site: the note stands beside the table of the site, which has no predicted
            speeds and has the chip's row itself.
    """
    if not found:
        return "Nothing was measured yet."
    several = [*found.values()]
    real = [x["measured"] for at, x in found.items() if at[0] == spec_bench.FOLDER]
    rows = [x["measured"] for at, x in found.items() if at[0] != spec_bench.FOLDER]
    texts = [it["timed"] if "speed_interval" in it else it["texts"] for it in rows]
    measured_on = [record["provenance"]["device"] for record in several]
    days = sorted(record["provenance"]["date"][:10] for record in several)
    of_code = [it for it in rows if it.get("repeated")]
    first = (*of_code, {"repeated": 0, "alpha_fresh": 0})[0]
    table2, chip = (
        results.get("table2", {}),
        results.get("chip", {}).get("ende_small_t0"),
    )
    xla = [table2[row]["measured"]["best_speedup"] for row in BY_XLA if row in table2]
    return (
        environment()
        .get_template("headline.md")
        .render(
            site=site,
            real=(*real, None)[0],
            texts=" to ".join(
                dict.fromkeys(map(str, sorted(texts)[:: max(1, len(texts) - 1)]))
            ),
            devices=", ".join(sorted(set(map(records.device, several)))),
            days=" to ".join(dict.fromkeys((days[0], days[-1]))),
            several=len(several),
            unknown=sum("processor" not in device for device in measured_on),
            repeated=first["repeated"],
            fresh=first["alpha_fresh"],
            by_xla=" and ".join(f"{speed:.2f}" for speed in xla),
            paper=catalogue.published("table2", "ende_small_t0"),
            chip=chip
            and {"device": chip["provenance"]["device"]["kind"].split(" 80GB")[0]},
            gain=chip
            and interval(*map(chip["measured"].get, ("speedup", "speedup_ci"))),
        )
    )


def render_text(text: str, results: Records) -> str:
    """Returns the text of README.md with the table of these records in its place."""
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
