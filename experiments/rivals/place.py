"""What every comparison is made on: the weights, the inputs, and our own texts.

Axes: N texts, I input tokens, T new tokens.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.rivals import agreement, ours, weights
from specjax.checkpoints import Pretrained


class EngineSetting(NamedTuple):
    """size: of `weights.SIZES`. gamma: of every engine that drafts; Theorem 3.8's best
    for the alpha and the share of bytes that the draft of "small" has (.78, .29).
    texts: of `inputs` tokens each, a batch of all of them or one after another.
    rounds: of programs in turns, `pause` seconds before each."""

    size: str = "small"
    gamma: int = 3
    inputs: int = 32
    new_tokens: int = 64
    texts: int = 8
    rounds: int = 9
    pause: float = 0.5
    threads: int = 2
    seed: int = 0


class Place(NamedTuple):
    """The setting, its folders, and what the encoder reads, [N, I]."""

    setting: EngineSetting
    target: Path
    draft: Path
    inputs: np.ndarray

    @property
    def vocab(self) -> int:
        return weights.SIZES[self.setting.size].target.config.vocab


def place(setting: EngineSetting, folder: Path) -> Place:
    """Writes the weights into an empty folder. Raises ValueError for what cannot be."""
    if setting.size not in weights.SIZES:
        known = ", ".join(weights.SIZES)
        raise ValueError(f"size must be one of {known}; got {setting.size!r}")
    low = min(setting.gamma, setting.inputs, setting.texts, setting.threads)
    if low < 1 or setting.rounds < 2 or setting.new_tokens < 2:
        raise ValueError(
            "gamma, inputs, texts and threads must be at least 1, rounds and new_tokens"
            f" at least 2; got {setting}"
        )
    pair = weights.SIZES[setting.size]
    paths = weights.write(pair, folder, setting.seed)
    count, length, vocab = setting.texts, setting.inputs, pair.target.config.vocab
    return Place(setting, *paths, weights.prompts(count, length, vocab, setting.seed))


class Reference(NamedTuple):
    """Our own model, its greedy texts [N, T], and their log-likelihoods [N, T]."""

    model: Pretrained
    texts: np.ndarray
    law: np.ndarray


def reference(where: Place) -> Reference:
    model = ours.load(where.target, where.vocab)
    length = where.setting.new_tokens
    written = ours.decoder(model, where.inputs, length, len(where.inputs))()
    texts = ours.texts(written, length)
    return Reference(model, texts, ours.likelihood(model, where.inputs, texts))


def compare(where: Place, own: Reference, engine: str, texts: np.ndarray) -> int:
    """`agreement.check_texts`, with every token's law only where it is needed."""
    if texts.shape == own.texts.shape and (texts == own.texts).all():
        return len(texts)
    law = ours.law(own.model, where.inputs, own.texts)
    return agreement.check_texts(engine, texts, own.texts, law)
