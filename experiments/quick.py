"""Every table and figure, reduced, into results/quick: `python -m experiments.quick`.

Alpha is measured on 2,000 tokens of the target instead of 10,000, walltime on a quarter
of the texts, fewer gammas and half of the rows: five minutes on two cores.
"""

from experiments.reproduce import ROOT, reproduce

REDUCED = ["TOKENS = 2000", "TEXTS = 8", "GAMMAS = (0, 1, 3, 7)", "ROUNDS = 2"]
WITHOUT = ["table2/small_t1_b8", "table2/bigram_t0_b1", "table2/bigram_t1_b1"]
WITHOUT += ["table5/gpt_unigram_t1", "table5/gpt_bigram_t1", "table5/gpt_small_t0"]
WITHOUT += ["operations/small_g1", "operations/small_g5", "operations/small_g7"]

if __name__ == "__main__":
    reproduce(ROOT / "results" / "quick", REDUCED, WITHOUT)
