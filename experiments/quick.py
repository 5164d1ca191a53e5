"""Every table and figure, reduced, into results/quick: `python -m experiments.quick`.

CHOSEN rows are measured, smaller: alpha on 2,000 tokens of the target instead of
10,000, walltime on a quarter of the texts and at fewer gammas. All other lines are
filled from results/, and say that they were recorded earlier. Five minutes, two cores.
"""

from experiments.reproduce import ROOT, reproduce

REDUCED = ["TOKENS = 2000", "TEXTS = 8", "GAMMAS = (0, 3, 7)", "ROUNDS = 2"]
WHOLE = ("table1", "figure2", "figure3", "figure4", "conformance")
WHOLE += ("figure1", "figure5")
CHOSEN = ("certificate/token",)
CHOSEN += ("table2/small_t0_b1", "table2/ende_small_t0", "quality/ende_t5_target")
CHOSEN += ("table3/gpt_small_t0", "table3/gpt_small_t1", "table3/gpt_bigram_t1")
CHOSEN += ("table3/ende_small_t0", "table3/ende_small_t1")


def chosen(row: str) -> bool:
    return row.split("/")[0] in WHOLE or row in CHOSEN


if __name__ == "__main__":
    results = ROOT / "results"
    reproduce(results / "quick", REDUCED, chosen, earlier=results)
