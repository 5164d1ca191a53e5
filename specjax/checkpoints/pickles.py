"""Tensors in pickles of PyTorch.

A pickle may run code as it is read. PyTorch reads one that holds only tensors and makes
nothing else of it (`weights_only=True`); it is imported here where such a file is
named, and nowhere else.
"""

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specjax.checkpoints.archive import Archive, Index


def load(file: Path, instead: str) -> Any:
    """Returns the object in a pickle, which is made of tensors and plain containers.

    Args:
      file: the pickle.
      instead: what a user may do where it cannot be read, for messages.

    Raises:
      ValueError: there is no PyTorch, or the file holds anything else or is damaged.
    """
    try:
        import torch
    except ImportError:
        raise ValueError(
            f"{file} is a pickle, which PyTorch alone reads safely: pip install torch,"
            f" or {instead}"
        ) from None
    try:
        mapped = zipfile.is_zipfile(file)
        return torch.load(file, "cpu", weights_only=True, mmap=mapped)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{file} is a pickle that is cut short or holds more than tensors"
            f" ({reason}): copy it again, or {instead}"
        ) from None


def open_tensors(tensors: Mapping[str, Any], file: Path) -> Archive:
    """Returns the archive of tensors by their names, as `load` returned them. Raises
    ValueError for a value that is not a tensor."""
    import torch

    loose = [n for n, x in tensors.items() if not isinstance(x, torch.Tensor)]
    if loose:
        raise ValueError(f"{file}: {loose[0]} is not a tensor: copy the file again")
    arrays = {
        name: jax.ShapeDtypeStruct(x.shape, str(x.dtype).removeprefix("torch."))
        for name, x in tensors.items()
    }

    def read(name: str, index: Index) -> np.ndarray:
        part = tensors[name][index]
        wide = arrays[name].dtype.name == "bfloat16"  # not in NumPy
        return (part.float() if wide else part).numpy()

    return Archive(arrays, read, str(file))
