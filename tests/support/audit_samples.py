"""Pairs of Markov chains for the audit, and texts of their exact sampler in a line of
numpy.

Axes: N sequences, V vocabulary.
"""

import functools

import numpy as np

from specjax.exactness import audit
from specjax.measure.texts import Protocol, Text
from specjax.prompts import Prompts
from tests.support import bare, tiny
from tests.support.settings import make

PROMPTS = Prompts([[0], [1, 2], [3, 1, 0]], None, ())
TASK = make(
    Protocol,
    task="tiny",
    temperature=1.0,
    tokens=24_000,
    gamma=2,
    seed=5,
    new_tokens=80,
    batch=300,
)


@functools.cache
def pair(learnt: bool = False):
    """Returns a target and a draft that shares nothing with it, or keeps two tokens in
    three of it."""
    world = tiny.tables()
    p, q = world.target_weights, world.draft_weights
    q = tiny.add_share(p, q, 2.0) if learnt else q
    target = bare.target("target", world.target, p)
    return target, bare.draft("draft", world.draft, q)


def next_token_law(player) -> np.ndarray:
    z = np.asarray(player.params, np.float64)
    p = np.exp(z - z.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def sample_texts(
    player, count: int, *, new: int, seed: int, leak: float = 0.0, draft=None
) -> Text:
    """Returns texts [N, 1 + new]: 0, then tokens of the chain; a share `leak` of the
    tokens is the draft's."""
    rng = np.random.default_rng(seed)
    p, q = next_token_law(player), next_token_law(draft or pair()[1])
    ends = np.cumsum((1 - leak) * p + leak * q, axis=-1)
    tokens = np.zeros((count, new + 1), np.int32)
    for at in range(new):
        u = rng.random((count, 1))
        tokens[:, at + 1] = (ends[tokens[:, at]][:, :-1] <= u).sum(1)
    return Text(tokens, np.full(count, 1), np.full(count, new + 1))


@functools.cache
def groups(size: int, new: int, *, seed: int, count: int, leak=0.0, learnt=False):
    """Returns a list of the steps of `count` runs, each of `size` sequences."""
    target, draft = pair(learnt)
    text = sample_texts(
        target, size * count, new=new, seed=seed, leak=leak, draft=draft
    )
    steps = audit.score((target, draft), text, 1.0)
    parts = (np.split(leaf, count) for leaf in steps)
    return [audit.Steps(*part) for part in zip(*parts, strict=True)]
