"""What a small T5 learns before all else: to copy, of ids that are drawn at random.

Text can be guessed without being read; a small model then does not learn to read it for
very long. Of random ids nothing can be guessed.
"""

from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from experiments.training import loop, pairs
from experiments.training.pairs import PairRows
from specjax.models import t5

RECIPE = loop.Recipe(
    800, 200, batch=24, length=48, rate=2e-2, warmup=100, optimizer="scaled"
)
HELD_OUT = 2  # batches


def learnt(folder: Path, config: t5.Config) -> Any:
    """Weights that copy."""
    task = pairs.task(config, pairs.cross_entropy(config))
    begin = task.init
    task = task._replace(init=lambda key: inclined(begin(key)))

    def batch(seed: tuple[int, ...]) -> PairRows:
        return drawn(seed, config.pieces or config.vocab)

    held_out = [batch((1, i)) for i in range(HELD_OUT)]
    return loop.train(folder, task, batch, held_out, RECIPE)


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


def drawn(seed: tuple[int, ...], pieces: int) -> PairRows:
    """Rows of random ids, small ones more often, as frequent pieces are; each its own
    target."""
    rng = np.random.default_rng(seed)
    size = RECIPE.batch, RECIPE.length
    logs = rng.uniform(np.log(t5.END + 1), np.log(pieces), size)
    rows = [[*map(int, ids), t5.END] for ids in np.exp(logs)]
    return pairs.pad([(row, row) for row in rows], *2 * (RECIPE.length + 1,))
