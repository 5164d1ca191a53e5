"""A target whose hidden states a head can copy, and heads that copy them.

The state of a token is that of the token before it times `step`, an orthogonal matrix,
and its own embedding, whose entries are 1 and -1. So every state depends on the whole
text, and a state from the wrong slot gives another law. Each head here computes these
states exactly, by weights that are written down; its readout may be another than the
target's, so that some of what it drafts is rejected.
Axes: B rows, T tokens, D features, V vocabulary.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax.drafters import eagle, eagle3, heads, medusa
from specjax.models import llama
from specjax.models.norms import Norm
from specjax.models.tree_mask import first_slot, parent_indices
from specjax.types import Hidden, Model

V, D, PORTION = 11, 16, 9
SAID = np.array([0, 2, 3, 5, 6, 7, 10])  # by a head with a reduced vocabulary
TAPS = 3  # the state itself is the second
KINDS = "medusa", "blockwise", "eagle", "eagle3", "eagle3_reduced"


def build() -> Model:
    """Returns the target, whose parameters `weights` returns."""

    def init(params, prompt, slots):
        del params
        return jnp.zeros((prompt.length.size, slots, D))

    def apply(params, tokens, start, cache, branches=None):
        batch, count = tokens.shape
        if cache is None:
            cache = jnp.zeros((batch, count, D))
        rows = jnp.arange(batch)
        for i in range(count):
            before = start + i - 1
            if branches is not None:
                before = first_slot(branches, start) + parent_indices(branches)[:, i]
            last = jnp.where((before < 0)[:, None], 0, cache[rows, before])
            read = jnp.where(before < 0, 1.0, params["reads"])[:, None]
            own = last @ params["step"] + read * params["embedding"][tokens[:, i]]
            cache = cache.at[rows, start + i].set(own)
        return cache[rows[:, None], start[:, None] + jnp.arange(count)], cache

    def hidden(states):
        others = jnp.roll(states, 1, axis=-1), jnp.roll(states, 2, axis=-1)
        return Hidden(states, (others[0], states, others[1]))

    def keep(cache, start, path):
        rows = jnp.arange(len(cache))[:, None]
        slots = start[:, None] + jnp.arange(path.shape[1])
        return cache.at[rows, slots].set(cache[rows, start[:, None] + path])

    return Model(init, apply, readout, V, portion=PORTION, keep=keep, hidden=hidden)


def readout(params, states):
    """Returns logits [..., V] from states [..., D]."""
    return Norm(None, None, "rms", 1e-6)(states) @ params["readout"]


def weights(kind: str) -> dict[str, Any]:
    """Returns the target's parameters for a head of a kind.

    Heads that say several tokens from one state can copy a target alone whose states do
    not depend on tokens after the first; EAGLE-3's residual stream, one whose `step` is
    the identity.
    """
    rng = np.random.default_rng(7)
    step, _ = np.linalg.qr(rng.normal(size=(D, D)))
    if kind.startswith("eagle3"):
        step = np.eye(D)
    tree = {
        "embedding": rng.choice([-1.0, 1.0], size=(V, D)),
        "readout": 1.5 * rng.normal(size=(D, V)),
        "step": step,
        "reads": float(kind.startswith("eagle")),
    }
    return jax.tree.map(jnp.float32, tree)


class Copy(NamedTuple):
    """A head that copies the target's states, with its parameters.

    model: the head. params: with those of the target. said: the ids that it says.
    """

    model: Model
    params: Any
    said: np.ndarray


def copy(kind: str, other: float = 0.0) -> Copy:
    """Returns the head of a kind. other: how far its readout is from the target's."""
    target = weights(kind)
    noise = np.random.default_rng(8).normal(size=(D, V))
    table = target["readout"] + jnp.float32(other * noise)
    own, said = {**target, "readout": table}, np.arange(V)
    layer = llama.Config(V, D, 4, 1, 1, 1, D, biased=True)
    power = [jnp.linalg.matrix_power(target["step"], i + 1) for i in range(5)]
    eye = jnp.eye(D)
    if kind == "medusa":
        medusa_config = medusa.Config(V, D, 5, layers=0)
        head = {"kernel": jnp.zeros((5, 0, D, D)), "bias": jnp.zeros((5, 0, D))}
        head["readout"] = jnp.stack([each @ table for each in power])
        return Copy(medusa.head(medusa_config), heads.with_target(head, own), said)
    if kind == "blockwise":
        medusa_config = medusa.Config(V, D, 5, mlp_dim=2 * D)
        moves = jnp.stack([each - eye for each in power], axis=1)  # [D, K, D]
        head = {
            "in": jnp.concatenate([moves, -moves], axis=-1),
            "in_bias": jnp.zeros((5, 2 * D)),
            "out": jnp.tile(jnp.concatenate([eye, -eye]), (5, 1, 1)),
            "out_bias": jnp.zeros((5, D)),
        }
        model = medusa.head(medusa_config, readout)
        return Copy(model, heads.with_target(head, own), said)
    if kind == "eagle":
        config = eagle.Config(layer)
        head = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), eagle.abstract_params(config)
        )
        head["join"]["kernel"] = jnp.concatenate([eye, target["step"]])
        model = eagle.head(config, readout)
        return Copy(model, heads.with_target(head, own), said)
    said = SAID if kind == "eagle3_reduced" else said
    few = said.size if said.size < V else None
    config3 = eagle3.Config(layer, D, tuple(range(TAPS)), few)
    head = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), eagle3.abstract_params(config3)
    )
    for name in ("embedding_norm", "state_norm", "norm"):
        head[name]["scale"] = jnp.ones(D)
    head["join"]["kernel"] = jnp.concatenate([0 * eye, eye, 0 * eye])
    head["readout"] = table[:, said]
    # Each token attends to itself alone: scores fall with the angle between positions.
    attention = head["layer"]["attention"]
    for name in ("query", "key"):
        attention[name]["bias"] = jnp.zeros(D).at[0].set(150.0)
    attention["value"]["kernel"] = jnp.concatenate([eye, 0 * eye])
    attention["out"]["kernel"] = eye
    offsets = said - np.arange(said.size) if few else None
    return Copy(
        eagle3.head(config3), eagle3.parameters(config3, head, own, offsets), said
    )


def law(kind: str, head: Copy, text: list[int]) -> np.ndarray:
    """Returns the law [V] after a text, of a head that copies, in float64."""
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), weights(kind))
    state = np.zeros(D)
    for place, token in enumerate(text):
        reads = 1.0 if place == 0 else params["reads"]
        state = state @ params["step"] + reads * params["embedding"][token]
    table = np.asarray(head.params["target"]["readout"], np.float64)
    logits = state / np.sqrt((state**2).mean()) @ table
    z = np.full(V, -np.inf)
    z[head.said] = logits[head.said]
    z = np.exp(z - z.max())
    return z / z.sum()
