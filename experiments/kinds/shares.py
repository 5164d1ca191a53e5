"""Means over groups of tokens, with 95 % intervals by a bootstrap over texts.

Tokens of one text resemble each other, so whole texts are drawn again (Efron &
Tibshirani 1993, An Introduction to the Bootstrap, chapter 8). A mean is a ratio of
totals: every token at which a draft was tested has the same weight, whatever text it is
in. Axes: M tokens, N texts, K labels, R resamples, 4 sums.
"""

from collections.abc import Sequence

import numpy as np

from experiments.kinds.tested_drafts import Tokens

RESAMPLES, SEED = 2000, 0
INTERVAL = (2.5, 97.5)  # per cent
MEANS = ("alpha", "expected", "kept")
EXPECTED = 1 + MEANS.index("expected")


def cells(labels: Sequence[str | None], order: Sequence[str], tokens: Tokens) -> list:
    """Returns the numbers of the tokens of each label, as JSON holds them.

    A value is None where there is none, and an interval is None where fewer than two
    texts have the label.

    Args:
        labels: the labels of each token [M], None for one that is left out.
        order: all labels in the order in which they are listed; labels without tokens
            are not listed.

    Returns:
        label: the label of the cell.
        count: the number of its tokens.
        texts: the number of texts that have such tokens.
        share: the share of the labelled tokens.
        alpha, expected, kept: [mean, low, high].
        more: `expected` less that of all other labels, [mean, low, high].
    """
    sums = totals(labels, order, tokens)
    # As many texts, drawn with replacement: [R, K, 4].
    count, rng = len(sums), np.random.default_rng(SEED)
    times = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    whole, drawn = sums.sum(0), np.einsum("rn,nks->rks", times, sums)
    listed = []
    for k in np.flatnonzero(whole[:, 0]):
        texts = int((sums[:, k, 0] > 0).sum())
        cell = {"count": int(whole[k, 0]), "texts": texts}
        cell["share"] = float(whole[k, 0] / whole[:, 0].sum())
        for at, name in enumerate(MEANS, start=1):
            cell[name] = interval(mean(whole, k, at), mean(drawn, k, at), texts)
        further = interval(
            excess_over_others(whole, k), excess_over_others(drawn, k), texts
        )
        listed.append(cell | {"more": further, "label": order[k]})
    return listed


def totals(labels: Sequence[str | None], order: Sequence[str], tokens: Tokens):
    number = {label: k for k, label in enumerate(order)}
    unknown = set(labels) - {None, *number}
    if unknown:
        raise ValueError(f"no place for {sorted(unknown)}: add them to the order")
    inside = np.array([label is not None for label in labels], bool)
    k = np.array([number[label] for label in labels if label is not None], int)
    texts, owner = np.unique(tokens.sequence, return_inverse=True)
    each = np.stack([np.ones(len(owner)), *(getattr(tokens, name) for name in MEANS)])
    sums = np.zeros((len(texts), len(order), 4))
    np.add.at(sums, (owner[inside], k), each.T[inside])
    return sums


def mean(sums: np.ndarray, k: int, at: int) -> np.ndarray:
    """Returns the mean for one label, from sums [..., K, 4]; nan where it has no
    tokens.
    """
    with np.errstate(invalid="ignore"):
        return sums[..., k, at] / sums[..., k, 0]


def excess_over_others(sums: np.ndarray, k: int) -> np.ndarray:
    """Returns the mean of `expected` for one label minus that for all other labels
    together."""
    others, at = sums.sum(-2, keepdims=True) - sums[..., k : k + 1, :], EXPECTED
    return mean(sums, k, at) - mean(others, 0, at)


def interval(value: np.ndarray, drawn: np.ndarray, texts: int) -> list[float | None]:
    if np.isnan(value):
        return [None, None, None]
    drawn = drawn[~np.isnan(drawn)]
    ends = np.percentile(drawn, INTERVAL).tolist() if texts > 1 else [None, None]
    return [float(value), *ends]
