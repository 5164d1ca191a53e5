"""What a small T5 learns before all else: to copy, of ids that are drawn at random.

Text can be guessed without being read; a small model then does not learn to read it for
very long. Of random ids nothing can be guessed.
"""

from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from experiments.training import forward, pairs
from experiments.training.pairs import PairRows
from experiments.training.pipeline import Data, Stage
from specjax.models import t5

HELD_OUT = 2  # batches


def first(stage: Stage) -> Any:
    """The weights that a stage of copying begins with."""
    return inclined(forward.fresh(stage.config)(jax.random.key(stage.recipe.seed)))


def data(stage: Stage) -> Data:
    """Ids of a stage's model."""
    pieces = stage.config.pieces or stage.config.vocab
    size = stage.recipe.batch, stage.recipe.length

    def batch(seed: tuple[int, ...]) -> PairRows:
        return drawn(seed, pieces, size)

    held_out = {"held_out": [batch((1, i)) for i in range(HELD_OUT)]}
    return Data(batch, held_out, pairs.cross_entropy)


def inclined(params: Any) -> Any:
    """The same weights, but that a token asks the input for tokens like itself, and
    says what it reads there: queries begin as keys, the readout as the embedding."""
    flat = flatten_dict(params)
    embedding = flat["token_embedder", "embedding"]
    flat["decoder", "logits_dense", "kernel"] = embedding.T / embedding.shape[1] ** 0.5
    for path in flat:
        if path[2:] == ("encoder_decoder_attention", "query", "kernel"):
            key = flat[*path[:3], "key", "kernel"]
            flat[path] = key * flat[path].std() / key.std()
    return unflatten_dict(flat)


def drawn(seed: tuple[int, ...], pieces: int, size: tuple[int, int]) -> PairRows:
    """Rows of random ids, small ones more often, as frequent pieces are; each its own
    target. size: how many rows, and their ids."""
    rng = np.random.default_rng(seed)
    logs = rng.uniform(np.log(t5.END + 1), np.log(pieces), size)
    rows = [[*map(int, ids), t5.END] for ids in np.exp(logs)]
    return pairs.pad([(row, row) for row in rows], *2 * (size[1] + 1,))
