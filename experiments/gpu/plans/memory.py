"""Bytes of a device in a step of speculative decoding on a mesh, in closed form.

Weights, caches, laws and scores; no other activation of a few tokens is large.
Axes: B rows, G = gamma, S slots, V vocabulary.
"""

from typing import NamedTuple

from specjax import checkpoints
from specjax.chunks import TOKENS
from specjax.mesh import Layout
from specjax.models import gpt, llama, t5

FLOAT32, BFLOAT16 = 4, 2
Config = t5.Config | gpt.Config | llama.Config


class Plan(NamedTuple):
    """A step of `batch` rows that drafts gamma. slots: of a row's caches. inputs: what
    an encoder read. layout: the mesh, see `specjax.mesh`."""

    batch: int
    slots: int
    gamma: int
    layout: Layout = Layout()
    inputs: int = 0


class Sizes(NamedTuple):
    """What a plan asks of a model. held: parameters, all of them. read: those of a call
    that decodes. layers, of which `local` see `window` tokens and keep little more;
    heads and key_heads of one, and their width. crosses: layers attend to an encoder's
    input too. dim, vocab: E and V."""

    held: int
    read: int
    layers: int
    local: int
    window: int
    heads: int
    key_heads: int
    width: int
    crosses: bool
    dim: int
    vocab: int


def sizes(config: Config) -> Sizes:
    """Of a model of this config."""
    crosses, grouped = isinstance(config, t5.Config), isinstance(config, llama.Config)
    layers = config.decoder_layers if crosses else config.num_layers
    heads = config.num_heads
    keys = config.key_heads if grouped else heads
    # Two matrices of queries' size in each attention, two of keys' in the text's own.
    attention = 2 * (1 + crosses) * heads + 2 * keys
    matrices = 3 if grouped or (crosses and config.gated) else 2
    layer = config.dim * (attention * config.head_width + matrices * config.mlp_dim)
    return Sizes(
        held=checkpoints.TABLES[type(config)].MODELS.num_params(config),
        read=layers * layer + config.dim * config.vocab,
        layers=layers,
        local=len(config.local) if grouped else 0,
        window=(grouped and config.window) or 0,
        heads=heads,
        key_heads=keys,
        width=config.head_width,
        crosses=crosses,
        dim=config.dim,
        vocab=config.vocab,
    )


def cache(model: Sizes, plan: Plan, split: int) -> int:
    """Bytes of a device's part of the caches of all its rows, split over heads."""
    slots = (model.layers - model.local) * plan.slots
    slots += model.local * min(plan.slots, model.window + TOKENS)
    slots += model.layers * plan.inputs * model.crosses
    row = 2 * BFLOAT16 * slots * model.key_heads * model.width
    return plan.batch * row // (plan.layout.data * split)


def device(target: Sizes, draft: Sizes, plan: Plan) -> dict[str, int]:
    """Bytes of one device by what they are, and their `total`. Weights and caches are
    bfloat16; laws float32, of the target's gamma + 1 tokens and of gamma drafted;
    scores of a layer at a time, with the weights that become of them."""
    data, model, split = plan.layout
    rows, tokens = plan.batch / data, plan.gamma + 1
    laws = tokens * target.vocab / model + plan.gamma * draft.vocab / split
    scores = tokens * plan.slots * target.heads / model
    parts = {
        "weights": BFLOAT16 * target.held // model,
        "draft": BFLOAT16 * draft.held // split,
        "caches": cache(target, plan, model),
        "draft_caches": cache(draft, plan, split),
        "laws": int(FLOAT32 * rows * laws),
        "scores": int((FLOAT32 + BFLOAT16) * rows * scores),
    }
    return parts | {"total": sum(parts.values())}


def largest_batch(target: Sizes, draft: Sizes, plan: Plan, memory: float) -> int:
    """The most rows whose step fits in `memory` bytes of each device, 0 if none does:
    what is not weights is so many bytes a row."""
    data = plan.layout.data
    parts = device(target, draft, plan._replace(batch=data))
    weights = parts["weights"] + parts["draft"]
    return max(0, int((memory - weights) // (parts["total"] - weights))) * data
