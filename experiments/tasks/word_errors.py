"""The word error rate (WER) of transcripts, as papers on Whisper report it.

Words are counted by jiwer after Whisper's own normalizer (Radford et al., 2022,
Appendix C), which ignores spelling, case and punctuation.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jiwer
import numpy as np
from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

LEVEL = 0.95  # of the interval
RESAMPLES = 2000


class WordErrors(NamedTuple):
    """The word errors of transcripts.

    Attributes:
        rate: errors / words, above 1 where much was invented.
        low, high: the 95 % interval for other recordings, by drawing these again
            (percentile bootstrap).
        errors: words left out, inserted or changed.
        words: the number of words of the references.
        recordings: their number.
    """

    rate: float
    low: float
    high: float
    errors: int
    words: int
    recordings: int


def score(
    references: Sequence[str],
    transcripts: Sequence[str],
    *,
    language: str = "en",
    seed: int = 0,
) -> WordErrors:
    """Returns the word error rate over recordings, each of which is one text."""
    if len(references) != len(transcripts):
        raise ValueError(
            f"{len(references)} references and {len(transcripts)} transcripts: give one"
            " of each for every recording"
        )
    plain = EnglishTextNormalizer() if language == "en" else BasicTextNormalizer()
    pairs = zip(map(plain, references), map(plain, transcripts), strict=True)
    counts = np.array([errors(*pair) for pair in pairs]).reshape(-1, 2)
    wrong, words = (int(total) for total in counts.sum(0))
    if not words:
        raise ValueError("the references have no words to get wrong")
    low, high = interval(counts, seed)
    return WordErrors(wrong / words, low, high, wrong, words, len(counts))


def errors(reference: str, transcript: str) -> tuple[int, int]:
    """Returns the number of wrong words, and the number of words in the reference; both
    texts are normalized."""
    if not reference.split():  # jiwer refuses these
        return len(transcript.split()), 0
    it = jiwer.process_words(reference, transcript)
    return it.substitutions + it.deletions + it.insertions, len(reference.split())


def interval(counts: np.ndarray, seed: int) -> tuple[float, float]:
    """Returns the percentile bootstrap interval of a ratio of sums: counts [N, 2] of N
    recordings.

    Draws without any word of a reference are left out.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(counts), (RESAMPLES, len(counts)))
    sums = counts[drawn].sum(1)
    sums = sums[sums[:, 1] > 0]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(sums[:, 0] / sums[:, 1], (tail, 1 - tail))
    return float(low), float(high)
