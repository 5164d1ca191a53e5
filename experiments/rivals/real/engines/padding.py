"""Prompts of different lengths as one array, as engines take them."""

import numpy as np


def left(prompts: list[list[int]], pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask [B, T]; what stands before a shorter prompt is `pad`, and masked."""
    width = max(map(len, prompts))
    ids = np.full((len(prompts), width), pad, np.int64)
    mask = np.zeros_like(ids)
    for row, seen, prompt in zip(ids, mask, prompts, strict=True):
        row[width - len(prompt) :] = prompt
        seen[width - len(prompt) :] = 1
    return ids, mask
