"""Every table and figure, reduced, into results/quick: `python -m experiments.quick`.

Alpha is measured on 2,000 tokens of the target instead of 10,000: minutes on two cores.
"""

from experiments.reproduce import ROOT, reproduce

if __name__ == "__main__":
    reproduce(ROOT / "results" / "quick", ["TOKENS = 2000"])
