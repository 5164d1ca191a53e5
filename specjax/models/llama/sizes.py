"""What decoders of Llama's kind differ by: a table of styles, and the sizes of each.

A style is what all models of a family have alike; a config names one and adds what its
checkpoints differ by.
"""

from typing import NamedTuple


class Style(NamedTuple):
    """What a family has alike.

    gate: what a gate passes through, "silu" or "gelu" (its approximation by a tanh).
    offset: norms multiply by 1 + their scale. after: attention and feed-forward are
    normalised once more before they are added. normed: queries and keys are normalised,
    each head by itself. scaled: embeddings are multiplied by sqrt(E).
    """

    gate: str = "silu"
    offset: bool = False
    after: bool = False
    normed: bool = False
    scaled: bool = False


STYLES = {
    "llama": Style(),  # Llama 1 to 3.3, Sheared-LLaMA; Touvron et al. 2023
    "mistral": Style(),  # Jiang et al. 2023
    "qwen2": Style(),  # Qwen 1.5, 2 and 2.5; Yang et al. 2024
    "qwen3": Style(normed=True),
    "gemma": Style(gate="gelu", offset=True, scaled=True),
    "gemma2": Style(gate="gelu", offset=True, after=True, scaled=True),
    "gemma3": Style(gate="gelu", offset=True, after=True, normed=True, scaled=True),
}


class Stretch(NamedTuple):
    """Llama 3.1's rotary positions beyond the `original` length: wavelengths of more
    than original / low are `factor` times as long, of less than original / high as they
    were, and between them in between."""

    factor: float
    low: float
    high: float
    original: int


class Rotation(NamedTuple):
    """Rotary positions (Su et al. 2021). slower: positions are divided by it. stretch:
    None as they are."""

    base: float = 10_000.0
    slower: float = 1.0
    stretch: Stretch | None = None


class Config(NamedTuple):
    """Sizes. `dtype` is that of activations and cache; logits are always float32.

    heads, of which key_heads have keys and values of their own. style: of `STYLES`.
    tied: the embedding is the readout. biased: queries, keys and values have biases;
    out_biased, mlp_biased: so has the product after attention, and the feed-forward.
    eps: of norms. positions: how many it was trained for, None if nothing says.
    local: numbers of the layers that see the last `window` tokens alone; they turn by
    `local_rotation`, None is `rotation`. scale: of scores, None is 1 / sqrt of the
    head's width. score_cap, logit_cap: c of c tanh(x / c), None for none.
    """

    vocab: int
    dim: int
    mlp_dim: int
    num_layers: int
    num_heads: int
    key_heads: int
    head_width: int
    style: str = "llama"
    dtype: str = "float32"
    tied: bool = False
    biased: bool = False
    out_biased: bool = False
    mlp_biased: bool = False
    eps: float = 1e-6
    positions: int | None = None
    rotation: Rotation = Rotation()
    local_rotation: Rotation | None = None
    window: int | None = None
    local: tuple[int, ...] = ()
    scale: float | None = None
    score_cap: float | None = None
    logit_cap: float | None = None
