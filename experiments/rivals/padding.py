"""Prompts of different lengths as one array, in the form that engines read."""

import numpy as np


def pad_left(prompts: list[list[int]], pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids and mask [B, T], where `pad` fills the front of shorter prompts and
    is masked.
    """
    ids, mask = pad_right([prompt[::-1] for prompt in prompts], pad)
    return ids[:, ::-1].copy(), mask[:, ::-1].copy()


def pad_right(prompts: list[list[int]], pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids and mask [B, T], where `pad` fills the end of shorter prompts and is
    masked."""
    ids = np.full((len(prompts), max(map(len, prompts))), pad, np.int64)
    mask = np.zeros_like(ids)
    for row, seen, prompt in zip(ids, mask, prompts, strict=True):
        row[: len(prompt)], seen[: len(prompt)] = prompt, 1
    return ids, mask
