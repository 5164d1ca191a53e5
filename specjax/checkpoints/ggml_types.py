"""The types that GGUF's tensors are stored in, and the numbers that they stand for.

Quantised tensors are multiplied out by the gguf library (extra `gguf`).
"""

from pathlib import Path

import numpy as np

from specjax.tokenizers.gguf_file import Contents

# Types that hold numbers as they are, by numpy's name.
FLOATS = {"F32": "<f4", "F16": "<f2", "BF16": "bfloat16", "F64": "<f8"}


def check(held: Contents) -> None:
    """Raises ValueError for a tensor whose type does not stand for weights, or is
    unknown to the library."""
    from gguf import quants

    for name, tensor in held.tensors.items():
        if tensor.kind not in FLOATS and not hasattr(quants, tensor.kind):
            raise ValueError(
                f"{held.path}: {name} is stored as {tensor.kind}, which the gguf"
                " library does not multiply out: convert the model to F16, or"
                " pip install --upgrade gguf"
            )


def dtype(kind: str) -> np.dtype:
    """Returns the dtype of what `numbers` returns: float64 for doubles, else
    float32."""
    return np.dtype("float64" if kind == "F64" else "float32")


def numbers(stored: np.ndarray, kind: str) -> np.ndarray:
    """Returns the numbers that the stored bytes of a type stand for.

    Args:
      stored: [rows, bytes of a row], uint8, contiguous.
      kind: one of `FLOATS`, or a type that the library multiplies out.

    Returns:
      [rows, numbers of a row], see `dtype`.
    """
    if kind in FLOATS:
        return stored.view(FLOATS[kind]).astype(dtype(kind), copy=False)
    from gguf import quants

    # All blocks at once: the library's `dequantize` takes sixteen rows at a time.
    library = getattr(quants, kind)
    library.init_grid()
    blocks = library.dequantize_blocks(stored.reshape(-1, library.type_size))
    return blocks.reshape(len(stored), -1)


def stored_bytes(path: Path) -> np.ndarray:
    """Returns the bytes of a file, each of which is read from disk when it is
    indexed."""
    return np.asarray(np.memmap(path, np.uint8, "r"))
