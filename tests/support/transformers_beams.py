"""Beam search as transformers does it."""

from typing import Any

import pytest

from specjax.beam.settings import BeamConfig

transformers = pytest.importorskip("transformers")

Beams = tuple[list[list[int]], list[float] | None]


def find(
    model: Any,
    config: BeamConfig,
    *,
    start: int,
    ends: tuple[int, ...],
    most: int,
    **inputs: Any,
) -> Beams:
    """Returns the new tokens of each text of one prompt, the best text first, and their
    scores; a single beam is decoded greedily and has no score.

    start: tokens before the new ones. most: new tokens. inputs: of `generate`.
    """
    made = transformers.GenerationMixin.generate(
        model,
        **inputs,
        max_new_tokens=most,
        num_beams=config.width,
        num_return_sequences=config.width,
        length_penalty=config.length_penalty,
        early_stopping=config.early_stopping,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    texts = [cut_at_end(row[start:], ends) for row in made.sequences.tolist()]
    scores = getattr(made, "sequences_scores", None)
    return texts, None if scores is None else scores.tolist()


def cut_at_end(ids: list[int], ends: tuple[int, ...]) -> list[int]:
    """Returns a text up to its end."""
    found = [i for i, each in enumerate(ids) if each in ends]
    return ids[: found[0] + 1] if found else ids
