"""Closed forms of a step on a mesh of published chips: the bytes on a device, and the
least time of a step, from bytes read, FLOPs and bytes sent.

Weights, caches, laws and scores are counted; no other activation of a few tokens is
large. A call takes as long as its reads from memory, or as its products where these
take longer, and its sums over devices besides. Nothing waits in it: launches, latencies
and everything slower than the published speeds come on top, above all for a small
draft. The published numbers of chips were not measured by us. GB are 1e9 bytes. Axes: B
rows, G = gamma, S slots, V vocabulary.
"""

from typing import NamedTuple

from specjax.chunks import TOKENS
from specjax.models import families, gpt, llama, t5
from specjax.runtime.mesh import Layout
from specjax.theory.closed_forms import expected_tokens

FLOAT32, BFLOAT16 = 4, 2
Config = t5.Config | gpt.Config | llama.Config
GOOGLE = "https://docs.cloud.google.com/tpu/docs/"
NVIDIA = "NVIDIA's data sheet, SXM, without sparsity"


class Chip(NamedTuple):
    """A device.

    Attributes:
        memory: bytes that programs may have.
        bandwidth: bytes a second that it reads from memory.
        flops: a second, in bfloat16.
        link: bytes a second that it sends to others, half of the published number for
            both directions.
        slice: a slice of eight chips, as `aot` names it.
        source: the source of these numbers; a TPU's memory is the one that libtpu's
            compiler reports, in GiB.
    """

    memory: float
    bandwidth: float
    flops: float
    link: float
    slice: str
    source: str


CHIPS = {
    "v5e": Chip(15.75 * 2**30, 819e9, 197e12, 200e9, "2x4", f"{GOOGLE}v5e"),
    "v5p": Chip(95.73 * 2**30, 2765e9, 459e12, 600e9, "2x2x2", f"{GOOGLE}v5p"),
    "v6e": Chip(31.24 * 2**30, 1638e9, 918e12, 400e9, "2x4", f"{GOOGLE}v6e"),
    "h100": Chip(80e9, 3.35e12, 989e12, 450e9, "1x1x8", NVIDIA),
    "h200": Chip(141e9, 4.8e12, 989e12, 450e9, "1x1x8", NVIDIA),
}


class Plan(NamedTuple):
    """A step of `batch` rows that drafts gamma tokens.

    Attributes:
        slots: the number of slots of a row's caches.
        inputs: tokens of an encoder's input.
        layout: the mesh, see `specjax.runtime.mesh`.
    """

    batch: int
    slots: int
    gamma: int
    layout: Layout = Layout()
    inputs: int = 0


class Sizes(NamedTuple):
    """The sizes of a model that a plan needs.

    Attributes:
        held: parameters, all of them.
        read: parameters of a call that decodes.
        layers, local, window: the number of layers, of which `local` see `window`
            tokens and store little more.
        heads, key_heads, width: of a layer.
        crosses: whether layers also attend to an encoder's input.
        dim, vocab: E and V.
    """

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
    """Returns the sizes of a model of this config."""
    family = families.of(config)
    crosses, grouped = family is families.T5, family is families.LLAMA
    layers = getattr(config, family.layers)
    heads = config.num_heads
    keys = config.key_heads if grouped else heads
    # Two matrices of queries' size in each attention, two of keys' in the text's own.
    attention = 2 * (1 + crosses) * heads + 2 * keys
    matrices = 3 if grouped or (crosses and config.gated) else 2
    layer = config.dim * (attention * config.head_width + matrices * config.mlp_dim)
    return Sizes(
        held=family.num_params(config),
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
    """Returns the bytes of a device's part of the caches of all its rows, split over
    heads.
    """
    slots = (model.layers - model.local) * plan.slots
    slots += model.local * min(plan.slots, model.window + TOKENS)
    slots += model.layers * plan.inputs * model.crosses
    row = 2 * BFLOAT16 * slots * model.key_heads * model.width
    return plan.batch * row // (plan.layout.data * split)


def device(target: Sizes, draft: Sizes, plan: Plan) -> dict[str, int]:
    """Returns the bytes of one device by kind, and their `total`.

    Weights and caches are bfloat16; laws are float32, of the target's gamma + 1 tokens
    and of gamma drafted ones; scores are of a layer at a time, with the attention
    weights.
    """
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


def largest_batch(target: Sizes, draft: Sizes, *, plan: Plan, memory: float) -> int:
    """Returns the most rows with which a step fits into `memory` bytes of each device,
    0 if none does; everything but the weights grows in proportion to the rows.
    """
    data = plan.layout.data
    parts = device(target, draft, plan._replace(batch=data))
    weights = parts["weights"] + parts["draft"]
    return max(0, int((memory - weights) // (parts["total"] - weights))) * data


class Sent(NamedTuple):
    """The number of sums over devices in a call, and the bytes of their results."""

    sums: int
    bytes: int


def sent_bytes(model: Sizes, plan: Plan, *, tokens: int, split: int) -> Sent:
    """Returns the sums over devices in a call on `tokens` tokens per row: one after
    each attention and feed-forward layer, and one for the embedding; none where each
    device has the whole model.
    """
    if split == 1:
        return Sent(0, 0)
    sums = model.layers * (2 + model.crosses) + 1
    rows = plan.batch // plan.layout.data
    return Sent(sums, sums * BFLOAT16 * rows * tokens * model.dim)


def call(model: Sizes, plan: Plan, *, tokens: int, split: int, chip: Chip) -> float:
    """Returns the seconds of a call on `tokens` tokens per row, for a model split over
    `split` devices.

    All slots of a cache are read, whatever the text's length.
    """
    cached = cache(model, plan, split)
    read = BFLOAT16 * model.read / split + cached
    rows, groups = plan.batch / plan.layout.data, model.heads / model.key_heads
    products = 2 * tokens * rows * model.read / split
    products += 2 * tokens * groups * cached / BFLOAT16
    # Each device sends and gets a sum's parts, all but its own, and then the sums.
    moved = (
        2
        * (split - 1)
        / split
        * sent_bytes(model, plan, tokens=tokens, split=split).bytes
    )
    return max(read / chip.bandwidth, products / chip.flops) + moved / chip.link


def step(
    target: Sizes, draft: Sizes, *, plan: Plan, chip: Chip, alpha: float | None
) -> dict[str, float | None]:
    """Returns the predicted milliseconds of a step and of its parts.

    Each row gets one token by the target alone in `alone_ms`. A step drafts gamma
    tokens in `draft_ms` and calls the target on gamma + 1 in `score_ms`. Given alpha, a
    row gets a token by speculation in `spec_ms` (Leviathan et al. 2023, Eq. 1), and
    `speed` is the speedup.
    """
    _, model, split = plan.layout
    alone = call(target, plan, tokens=1, split=model, chip=chip)
    drafted = plan.gamma * call(draft, plan, tokens=1, split=split, chip=chip)
    scored = call(target, plan, tokens=plan.gamma + 1, split=model, chip=chip)
    times = {"alone_ms": alone, "draft_ms": drafted, "score_ms": scored}
    times = {name: 1e3 * seconds for name, seconds in times.items()}
    if alpha is None:
        return times | {"spec_ms": None, "speed": None}
    each = (drafted + scored) / expected_tokens(alpha, plan.gamma)
    return times | {"spec_ms": 1e3 * each, "speed": alone / each}
