"""The small table that opens README.md: `python -m experiments.report.headline`.

It stands between two comments, is made of the records in results, and nothing else
in the file is touched. Beside the pairs on their own tasks stands the code pair on
HumanEval, and how much of a greedy text repeats itself, which is easy to draft.
"""

from experiments import catalogue
from experiments.records import markup, records
from experiments.records.table import Records
from experiments.report import tables
from experiments.report.walltime import products
from specjax.theory import closed_forms

README = catalogue.ROOT / "README.md"
BEGIN, END = "<!-- headline: rendered from results -->\n", "<!-- headline ends -->\n"
# Folder and row -> what is written; rows of one pair and task stand together.
ROWS = {
    ("table2", "small_t0_b1"): "Python",
    ("table2", "small_t1_b1"): "Python",
    ("chen_data", "humaneval_code_greedy"): "HumanEval",
    ("chen_data", "humaneval_code"): "HumanEval, nucleus 0.95",
    ("table2", "correct_small_t0"): "corrections",
    ("table2", "ende_small_t0"): "German",
    ("table2", "ende_small_t1"): "German",
    ("table2", "docs_small_t0"): "summaries",
}
OTHER_PRODUCTS = ("small_t0_b1_xla", "small_t1_b1_xla")  # the first rows again
HEAD = ["target + draft", "writes", "T", "gamma", "tokens a call", "alpha"]
HEAD += ["speed [95 %]"]
REPEATS = 0.01  # a share of the text that is worth a word


def table(results: Records) -> str:
    """A line for each of ROWS that was measured, and what it was measured on."""
    measured = {
        at: results[at[0]][at[1]] for at in ROWS if at[1] in results.get(at[0], {})
    }
    lines = [line(ROWS[at], record) for at, record in measured.items()]
    return f"{markup.markdown(HEAD, lines)}\n{note(results, measured)}\n"


def line(task: str, record: dict) -> list[str]:
    """A row of table2 at its best gamma, or one of Chen's at its K."""
    it = record["measured"]
    if "theoretical_speed" in it:
        speed, gamma, tokens = ("speed", "speed_interval"), "K", "tokens_per_call"
    else:
        speed, gamma = ("best_speedup", "best_speedup_ci"), "best_gamma"
        tokens = "best_tokens_per_call"
    low, high = it[speed[1]]
    return [
        f"{it['target']} + {it['draft']}",
        task,
        f"{it['temperature']:g}",
        str(it[gamma]),
        f"{it[tokens]:.2f}",
        alpha(it),
        f"{it[speed[0]]:.2f} [{low:.2f}, {high:.2f}]",
    ]


def alpha(it: dict) -> str:
    """alpha with its error, and alpha where the text does not repeat itself; where only
    calls were counted, that of Equation 1."""
    if "alpha" not in it:
        implied = closed_forms.implied_alpha(it["tokens_per_call"], it["K"])
        return f"{implied:.2f} by Equation 1"
    told = f"{it['alpha']:.3f}"
    if it["alpha_se"] is not None:
        told += f" ± {it['alpha_se']:.3f}"
    if (it.get("repeated") or 0) >= REPEATS and it["alpha_fresh"] is not None:
        told += f"; {it['alpha_fresh']:.3f} but for repeats,"
        told += f" {100 * it['repeated']:.0f} % of the text"
    return told


def note(results: Records, measured: dict[tuple[str, str], dict]) -> str:
    each = [*measured.values()]
    devices = ", ".join(sorted(set(map(records.device, each))))
    days = sorted({record["provenance"]["date"][:10] for record in each})
    when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "no day yet"
    told = (
        "Speed is that of decoding with the target alone = 1: whole texts at batch 1,"
        f" {counts(each)} of them a row, on {devices}, {when}. gamma is the fastest of"
        " those timed, on HumanEval the 4 of Chen et al. (2023). A greedy text of a"
        " small model runs in circles, which are easy to draft: a repeat is a token"
        " that ends a run of eight which its text had before. HumanEval is of another"
        " kind than the code that the pair was trained on. corrections: of prose with"
        " errors; German: several sentences at a time; summaries: of documentation"
        " strings."
    )
    return f"{told}{by_xla(results, measured)}{papers(measured)}"


def counts(records: list[dict]) -> str:
    """How many texts were timed: the least and the most of a row."""
    rows = [record["measured"] for record in records]
    each = [it["timed"] if "theoretical_speed" in it else it["texts"] for it in rows]
    return " to ".join(dict.fromkeys(map(str, (min(each), max(each))))) if each else "0"


def by_xla(results: Records, measured: dict[tuple[str, str], dict]) -> str:
    """The first rows by XLA's own products, where the others' are compiled."""
    rows = results.get("table2", {})
    speeds = [
        f"{rows[row]['measured']['best_speedup']:.2f}"
        for row in OTHER_PRODUCTS
        if row in rows
    ]
    compiled = {products(record) for record in measured.values()} == {"thin"}
    if not (speeds and compiled):
        return ""
    return (
        " Both sides multiply by products that a C++ compiler makes at first use; by"
        f" XLA's own the first rows are {' and '.join(speeds)}."
    )


def papers(measured: dict[tuple[str, str], dict]) -> str:
    """What the paper has for the tasks that two of these stand for."""
    told = []
    for at, record in measured.items():
        value = catalogue.published(*at) or {}
        if at[0] == "table2" and "best_speedup" in value:
            heat = record["measured"]["temperature"]
            numbers = f"{value['best_speedup']:g} at alpha {value['alpha']:g}"
            told.append(f"{numbers} ({ROWS[at]}, T = {heat:g})")
    if not told:
        return ""
    return (
        " The paper's speeds, of T5-XXL with T5-small on a TPU-v4, on WMT EnDe and"
        f" CNN/DM: {', '.join(told)}."
    )


def rendered(text: str, results: Records) -> str:
    """The text of README.md with the table of these records in its place."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(results)}\n{END}{after}"


def main() -> None:
    text = README.read_text("utf-8")
    results = tables.collect(catalogue.ROOT / "results")
    README.write_text(rendered(text, results), "utf-8")
    print(f"rendered the table of {README}")


if __name__ == "__main__":
    main()
