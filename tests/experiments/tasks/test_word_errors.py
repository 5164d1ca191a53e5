"""Words are counted as Whisper's evaluation counts them, with an honest interval."""

import numpy as np
import pytest

pytest.importorskip("jiwer")
pytest.importorskip("whisper_normalizer")

from experiments.tasks import word_errors


def test_one_word_of_each_kind_is_an_error():
    result = word_errors.score(
        ["the cat sat", "on the red mat", "and slept"],
        ["the dog sat", "on the mat", "and so slept"],
    )
    assert (result.errors, result.words, result.recordings) == (3, 9, 3)
    assert result.rate == pytest.approx(1 / 3)
    assert 0.25 <= result.low <= result.rate <= result.high <= 0.5


def test_spelling_case_and_points_are_forgiven_and_invented_words_count():
    said = "Mr. Brown's colour isn't gray, it cost twenty dollars!"
    heard = "mister brown's color is not grey it cost $20"
    assert word_errors.score([said], [heard]).errors == 0
    plain = word_errors.score(["Eins, ZWEI!"], ["eins zwei"], language="de")
    assert (plain.errors, plain.words) == (0, 2)
    result = word_errors.score(["", "red mat"], ["thanks for watching", "red mat"])
    assert (result.errors, result.words, result.rate) == (3, 2, 1.5)
    assert word_errors.score(["red"], [""]).rate == 1


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(100):
        words = rng.integers(5, 30, 60)
        counts = np.stack([rng.binomial(words, 0.2), words], 1)
        low, high = word_errors.interval(counts, trial)
        covered += low <= 0.2 <= high
    assert 87 <= covered <= 99  # 95 % of a hundred, three standard errors


def test_what_cannot_be_scored_is_told():
    with pytest.raises(ValueError, match="1 references and 2 transcripts"):
        word_errors.score(["a"], ["a", "b"])
    for nothing in ([], [""], ["[music]"]):
        with pytest.raises(ValueError, match="no words"):
            word_errors.score(nothing, nothing)
