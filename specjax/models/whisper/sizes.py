"""The sizes of a Whisper."""

from typing import NamedTuple


class Config(NamedTuple):
    """Sizes. `dtype` is that of activations and cache; logits are always float32.

    frames: of a window, twice as many as the encoder gives states. bands: of a frame.
    positions: of a text, with its prompt. joined: one buffer for the caches of all
    decoder layers, see `models.lowering`.
    """

    vocab: int
    dim: int
    mlp_dim: int
    encoder_layers: int
    decoder_layers: int
    num_heads: int
    bands: int = 80
    frames: int = 3000
    positions: int = 448
    dtype: str = "float32"
    joined: bool = False

    @property
    def head_width(self) -> int:
        return self.dim // self.num_heads

    @property
    def states(self) -> int:
        """How many vectors the encoder gives of a window."""
        return self.frames // 2
