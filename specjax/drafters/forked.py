"""Two drafters in one tree: a chain drawn by a model, and a copy of earlier text.

From the last committed token two paths lead on: a chain that a model draws, and a copy
of what followed the last tokens where they occurred before. Each node carries the law
that it was drawn from; a copied node has none, because it is certain. A rule tries the
copy after it has rejected the drawn token (several drafters in one tree: Miao et al.
2024, https://arxiv.org/abs/2305.09781, Section 3). Axes: B rows, D tokens drawn, C
tokens copied, G = D + C nodes.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from specjax import probs
from specjax.drafters import copying, tree
from specjax.trees import ROOT
from specjax.types import Draft, Drafter, Model, Request, State


def build(model: Model, nodes: int, copied: int, longest: int = 3) -> Drafter:
    """Returns a drafter of a chain of `nodes - copied` tokens and a copy of the rest.

    longest: see `copying.build`. Raises ValueError for no copy or one longer than the
    chain, and like `tree.build`.
    """
    drawn = nodes - copied
    if not 1 <= copied <= drawn:
        raise ValueError(
            f"{copied} of {nodes} nodes are copied: copy at least one, and no more than"
            " are drawn"
        )
    chain = tree.build(model, tuple(range(ROOT, drawn - 1)))
    copies = copying.build(copied, longest)
    copy_parents = [ROOT, *range(drawn, nodes - 1)]
    parent = jnp.array([*range(ROOT, drawn - 1), *copy_parents], jnp.int32)

    def draft(key: Array, params: Any, request: Request, state: State) -> tuple:
        own, cache = chain.draft(key, params, request, state)
        copy = copies.draft(key, (), request, state)[0]
        tokens = jnp.concatenate([own.tokens, copy.tokens], axis=1)
        more = jnp.minimum(state.budget - drawn, copy.num)
        num = jnp.where(own.num == drawn, drawn + more, own.num)

        def repeat_last(leaf: Array) -> Array:
            rest = [(0, 0)] * (leaf.ndim - 2)
            return jnp.pad(leaf, [(0, 0), (0, copied), *rest], mode="edge")

        assert own.law is not None  # as of a model's draft
        law = jax.tree.map(repeat_last, probs.per_row(own.law))
        law = probs.with_shared(law, own.law.logits)
        law = probs.mask_certain(law, jnp.arange(nodes) >= drawn)
        return Draft(tokens, num, law, jnp.broadcast_to(parent, tokens.shape)), cache

    return chain._replace(draft=draft, gamma=nodes, siblings="own", depth=drawn)
