"""Who proposes tokens; one file each, with a `build` that returns a `types.Drafter`."""

from specjax.drafters import (
    autoregressive,
    copying,
    early_exit,
    ngram,
    nothing,
    random,
    rollout,
    tree,
)

__all__ = [
    "autoregressive",
    "copying",
    "early_exit",
    "ngram",
    "nothing",
    "random",
    "rollout",
    "tree",
]
