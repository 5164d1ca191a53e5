"""Counts tokens, and pairs of them, in the targets of a prepared task.

    python -m experiments.training.counts --data TRAIN.npz --vocab 32128 \
        --out bigram.safetensors

The tables are the n-grams that `gin_configs/drafters` names for a T5 (Leviathan et al.
2023, 3.6).
"""

import argparse
from pathlib import Path

from experiments.tasks import examples
from specjax import zoo
from specjax.drafters import ngram
from specjax.models import t5

COUNTS = {"weight": 0.75, "add": 0.1, "places": 64}  # arguments of `ngram.fit`


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--vocab", type=int, required=True)
    parser.add_argument("--order", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    targets = examples.read(chosen.data)[0].targets
    zoo.save_ngrams(chosen.out, fit(targets, chosen.vocab, chosen.order))


def fit(targets: list[list[int]], vocab: int, order: int = 2) -> ngram.NGram:
    if not any(targets):
        raise ValueError("the prepared file has no targets: prepare a split with them")
    most = max(map(max, filter(None, targets)))
    if most >= vocab:
        raise ValueError(f"a target holds id {most}: give the model's --vocab")
    return ngram.fit(([t5.PAD, *ids] for ids in targets), vocab, order, **COUNTS)


if __name__ == "__main__":
    main()
