"""Checks that two engines decode the same weights, without which a comparison of their
times is meaningless.

Axes: N texts, T new tokens.
"""

from collections.abc import Sequence

import numpy as np

# Float32 in another order: log-likelihoods of nats apart by this much are the same.
ROUNDING = 1e-3


class Disagreement(ValueError):
    """The error that two engines do not decode the same model, so that no row may
    compare them."""


def check_law(engine: str, law: np.ndarray, ours: np.ndarray) -> float:
    """Returns the largest difference between two arrays of log-likelihoods [N, T] of
    the same texts.

    Raises:
        Disagreement: it is more than rounding.
    """
    apart = float(np.abs(law - ours).max())
    if not apart <= ROUNDING:  # nor where it is not a number
        raise Disagreement(
            f"{engine} and specjax give the same text likelihoods {apart:.3g} nats"
            f" apart, more than rounding ({ROUNDING:g}): the weights or the model"
            " differ, so that times cannot be compared"
        )
    return apart


def check_texts(
    engine: str, texts: np.ndarray, *, ours: np.ndarray, law: np.ndarray
) -> int:
    """Returns how many of the texts [N, T] are equal.

    Args:
        law: log-probabilities [N, T, V] after each of `ours`.

    Raises:
        Disagreement: the first difference of a text is not a near-tie by `law`.
    """
    if texts.shape != ours.shape:
        raise Disagreement(
            f"{engine} wrote texts {texts.shape} and specjax {ours.shape}: both must"
            " write the length that was asked for"
        )
    same = (texts == ours).all(axis=1)
    for row in np.flatnonzero(~same):
        at = int((texts[row] != ours[row]).argmax())
        chosen, other = int(ours[row, at]), int(texts[row, at])
        margin = float(law[row, at, chosen] - law[row, at, other])
        if not margin <= ROUNDING:
            raise Disagreement(
                f"text {row} of {engine} has token {other} at {at} where specjax has"
                f" {chosen}, likelier by {margin:.3g} nats: no rounding, the two do not"
                " decode the same model greedily"
            )
    return int(same.sum())


def same_prefix(texts: Sequence, ours: Sequence) -> float:
    """Returns the share of our tokens before the first difference, averaged over
    texts."""

    def share(text: Sequence[int], own: Sequence[int]) -> float:
        pairs = enumerate(zip(text, own, strict=False))
        first = next((i for i, (a, b) in pairs if a != b), min(len(text), len(own)))
        return first / len(own)

    return float(np.mean([share(*both) for both in zip(texts, ours, strict=True)]))
