"""The training data of encoder-decoders: pairs of token lists, batched by length.

First of all a small T5 learns to copy random ids. Text can be guessed without being
read, and then a small model does not learn to read it for a very long time. Random ids
cannot be guessed. Axes: B rows, I input tokens, T target tokens, V vocabulary.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array

from experiments.training.pipeline import Data, Stage
from specjax.keys import root_key
from specjax.models import t5
from specjax.training import forward

Pair = tuple[Sequence[int], Sequence[int]]  # both end with the end id


class PairRows(NamedTuple):
    """A batch of pairs.

    Attributes:
        inputs: [B, I].
        length: [B], of the inputs.
        tokens: [B, T], from the start id on.
        labels: [B, T], the same one step later.
        weight: [B, T], 0 at padding.
    """

    inputs: np.ndarray
    length: np.ndarray
    tokens: np.ndarray
    labels: np.ndarray
    weight: np.ndarray


class Bucket(NamedTuple):
    """Pairs with inputs of up to I and targets of up to T tokens.

    Attributes:
        rows: the number of pairs in a batch.
        share: the share of the training steps that use these pairs.
    """

    pairs: list[Pair]
    inputs: int
    targets: int
    rows: int
    share: float


def group_by_size(
    pairs: list[Pair], *, sizes: Sequence[tuple[int, int]], tokens: int, share: float
) -> list[Bucket]:
    """Puts each pair into the first of `sizes` (I, T) that has room for it; pairs that
    fit into none are left out.

    A batch has about `tokens` tokens, including padding.

    Args:
        share: the share of all steps for these pairs, divided so that every pair is
            seen equally often.
    """
    held = {tuple(size): [] for size in sizes}
    for pair in pairs:
        fits = (it for it in held if len(pair[0]) <= it[0] and len(pair[1]) <= it[1])
        held.get(next(fits, None), []).append(pair)
    chosen = [
        Bucket(group, *size, max(8, tokens // sum(size) // 8 * 8), 0.0)
        for size, group in held.items()
        if group
    ]
    steps = np.array([len(bucket.pairs) / bucket.rows for bucket in chosen])
    shares = (share * steps / steps.sum()).tolist()
    return [it._replace(share=s) for it, s in zip(chosen, shares, strict=True)]


def sampler(buckets: Sequence[Bucket]) -> Callable[[tuple[int, ...]], PairRows]:
    """Returns a function from a seed to a batch: a bucket chosen by its share, then
    rows of it."""
    share = np.array([bucket.share for bucket in buckets])

    def batch(seed: tuple[int, ...]) -> PairRows:
        rng = np.random.default_rng(seed)
        bucket = buckets[rng.choice(len(buckets), p=share / share.sum())]
        index = rng.integers(len(bucket.pairs), size=bucket.rows)
        pairs = [bucket.pairs[i] for i in index]
        return pad(pairs, bucket.inputs, bucket.targets)

    return batch


def pad(pairs: Sequence[Pair], inputs: int, targets: int) -> PairRows:
    read, labels = np.zeros((2, len(pairs), max(inputs, targets)), np.int32)
    for row, (source, target) in enumerate(pairs):
        read[row, : len(source)], labels[row, : len(target)] = source, target
    read, labels = read[:, :inputs], labels[:, :targets]
    tokens = np.pad(labels, ((0, 0), (1, 0)), constant_values=t5.PAD)[:, :-1]
    length = np.array([len(source) for source, _ in pairs], np.int32)
    ends = np.array([len(target) for _, target in pairs])
    weight = (np.arange(targets) < ends[:, None]).astype(np.float32)
    return PairRows(read, length, tokens, labels, weight)


def digest(pairs: list[Pair]) -> str:
    whole = hashlib.sha256()
    for source, target in pairs:
        ids = len(source), len(target), *source, *target
        whole.update(np.array(ids, np.int32).tobytes())
    return whole.hexdigest()


def cross_entropy(config: t5.Config) -> Callable:
    """Returns the mean cross-entropy in nats per target token: (params, rows) ->
    scalar."""

    def loss(params, rows: PairRows) -> Array:
        inputs = t5.Inputs(rows.inputs, rows.length)
        logits = forward.logits(config, params, rows.tokens, read=inputs)
        each = optax.softmax_cross_entropy_with_integer_labels(logits, rows.labels)
        return jnp.sum(each * rows.weight) / rows.weight.sum()

    return loss


def copying_params(stage: Stage) -> Any:
    """Returns initial weights that copy: a token attends to equal tokens of the input,
    and emits what it reads.

    Queries are keys, and the readout is the embedding.
    """
    key = root_key(stage.recipe.seed)
    flat = flatten_dict(forward.fresh(stage.config)(key))
    embedding = flat["token_embedder", "embedding"]
    flat["decoder", "logits_dense", "kernel"] = embedding.T / embedding.shape[1] ** 0.5
    for path in flat:
        if path[2:] == ("encoder_decoder_attention", "query", "kernel"):
            keys = flat[*path[:3], "key", "kernel"]
            flat[path] = keys * flat[path].std() / keys.std()
    return unflatten_dict(flat)


def copying(stage: Stage) -> Data:
    pieces = stage.config.pieces or stage.config.vocab
    size = stage.recipe.batch, stage.recipe.length
    batch = partial(random_rows, pieces=pieces, size=size)
    return Data(batch, {"held_out": [batch((1, i)) for i in range(2)]}, cross_entropy)


def random_rows(seed: tuple[int, ...], pieces: int, size: tuple[int, int]) -> PairRows:
    """Returns rows of random ids, in which small ids are more frequent, like the
    frequent pieces; each row is its own target.

    Args:
        size: the number of rows, and of their ids.
    """
    rng = np.random.default_rng(seed)
    logs = rng.uniform(np.log(t5.END + 1), np.log(pieces), size)
    rows = [[*map(int, ids), t5.END] for ids in np.exp(logs)]
    return pad([(row, row) for row in rows], *2 * (size[1] + 1,))
