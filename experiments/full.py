"""Every table and figure at full size, into results: `python -m experiments.full`."""

from experiments.reproduce import ROOT, reproduce

if __name__ == "__main__":
    reproduce(ROOT / "results")
