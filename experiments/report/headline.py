"""The small table that opens README.md: `python -m experiments.report.headline`.

It stands between two comments, is made of the records in results, and nothing else
in the file is touched.
"""

from experiments import catalogue
from experiments.records import markup, records
from experiments.records.table import Records
from experiments.report import tables
from experiments.report.walltime_tables import named, products

README = catalogue.ROOT / "README.md"
BEGIN, END = "<!-- headline: rendered from results -->\n", "<!-- headline ends -->\n"
ROWS = ("small_t0_b1", "small_t0_b1_xla", "small_t1_b1", "small_t1_b1_xla")
ROWS += ("correct_small_t0", "correct_small_t0_xla", "correct_copying_t0")
ROWS += ("ende_small_t0", "ende_small_t1", "docs_small_t0", "docs_small_t1")
PAPERS = ("alpha", "best_speedup")  # published quantities of a row
HEAD = ["target + draft", "T", "products", "alpha", "speed [95 %]"]
HEAD += ["the paper's alpha", "speed"]


def table(results: Records) -> str:
    """A line for each of ROWS that was measured, and what it was measured on."""
    rows = results.get("table2", {})
    several = [rows[row] for row in ROWS if row in rows]
    lines = [line(row, rows[row]) for row in ROWS if row in rows]
    devices = ", ".join(sorted(set(map(records.device, several))))
    return (
        f"{markup.markdown(HEAD, lines)}\nSpeed is that of decoding with the target"
        f" alone = 1, batch 1, at the best gamma, on {devices}; the paper's is that of"
        " T5-XXL with T5-small on a TPU-v4, on translation and on summaries. Products"
        " of a few rows are thin where a C++ compiler is found, else XLA's own; both"
        f" sides multiply by the same. correct: prose with"
        " errors, to be written clean; joined: English to"
        " German, several sentences at a time; docs: a summary of a documentation"
        " string. The paper's tasks are WMT EnDe and CNN/DM.\n"
    )


def line(row: str, record: dict) -> list[str]:
    it = record["measured"]
    papers = catalogue.published("table2", row) or {}
    low, high = it["best_speedup_ci"]
    return [
        f"{it['target']} + {named(it)}",
        f"{it['temperature']:g}",
        products(record),
        f"{it['alpha']:.3f}"
        + ("" if it["alpha_se"] is None else f" ± {it['alpha_se']:.3f}"),
        f"{it['best_speedup']:.2f} [{low:.2f}, {high:.2f}]",
        *(f"{papers[key]:g}" if key in papers else "none" for key in PAPERS),
    ]


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
