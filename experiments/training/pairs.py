"""What encoder-decoders learn from: pairs of token lists, batched by length.

Axes: B rows, I input tokens, T target tokens, V vocabulary.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.training import forward
from specjax.models import t5

Pair = tuple[Sequence[int], Sequence[int]]  # both end with the end id


class PairRows(NamedTuple):
    """inputs [B, I] with length [B]; tokens [B, T] from the start id on; labels [B, T],
    the same one step later; weight [B, T], 0 at padding."""

    inputs: np.ndarray
    length: np.ndarray
    tokens: np.ndarray
    labels: np.ndarray
    weight: np.ndarray


class Bucket(NamedTuple):
    """Pairs of up to I and T tokens, `rows` of which are a batch. share: of steps."""

    pairs: list[Pair]
    inputs: int
    targets: int
    rows: int
    share: float


def buckets(
    pairs: list[Pair], sizes: Sequence[tuple[int, int]], tokens: int, share: float
) -> list[Bucket]:
    """Each pair goes to the first of `sizes` (I, T) that holds it; one that none holds
    is left out. A batch has about `tokens` tokens, paddings included.

    share: of all steps for these pairs, divided so that every pair is seen as often.
    """
    held = [[] for _ in sizes]
    for pair in pairs:
        for place, (inputs, targets) in enumerate(sizes):
            if len(pair[0]) <= inputs and len(pair[1]) <= targets:
                held[place].append(pair)
                break
    chosen = [(group, *size) for group, size in zip(held, sizes, strict=True) if group]
    rows = [max(8, tokens // (size[1] + size[2]) // 8 * 8) for size in chosen]
    steps = np.array([len(it[0]) / r for it, r in zip(chosen, rows, strict=True)])
    shares = share * steps / steps.sum()
    return [
        Bucket(*it, r, float(s)) for it, r, s in zip(chosen, rows, shares, strict=True)
    ]


def sampler(buckets: Sequence[Bucket]) -> Callable[[tuple[int, ...]], PairRows]:
    """The batch of a seed: a bucket by its share, then rows of it."""
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
    """The sha256 of pairs in their order."""
    whole = hashlib.sha256()
    for source, target in pairs:
        ids = len(source), len(target), *source, *target
        whole.update(np.array(ids, np.int32).tobytes())
    return whole.hexdigest()


def cross_entropy(config: t5.Config) -> Callable:
    """Mean nats a target token: (params, rows) -> scalar."""

    def loss(params, rows: PairRows) -> Array:
        inputs = t5.Inputs(rows.inputs, rows.length)
        logits = forward.logits(config, params, rows.tokens, inputs)
        each = optax.softmax_cross_entropy_with_integer_labels(logits, rows.labels)
        return jnp.sum(each * rows.weight) / rows.weight.sum()

    return loss
