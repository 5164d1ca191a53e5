"""Small folders of Hugging Face, written by specjax, and ways to change them."""

import json
from pathlib import Path

import jax
import numpy as np
from safetensors.numpy import load_file, save_file

from specjax import checkpoints
from specjax.checkpoints import archive
from specjax.checkpoints.archive import Archive
from specjax.models import families, gpt, llama, t5, whisper
from tests.support import tiny, tiny_llama

T5 = t5.Config(37, 15, 23, 1, 3, 3, 5)
GPT2 = gpt.Config(31, 12, 19, 2, 3, positions=16, learned=True, tied=True)
WHISPER = whisper.Config(31, 12, 19, 1, 2, 3, bands=5, frames=14, positions=16)
LLAMA = llama.Config(37, 12, 10, 3, 2, 1, 6)
LOCAL = LLAMA._replace(window=5)
CONFIGS = {
    "v1_1": T5,
    "v1_0": T5._replace(gated=False, tied=True, encoder_layers=2, decoder_layers=1),
    "v1_0_untied": T5._replace(gated=False, scaled=True),
    "umt5": T5._replace(own_bias=True, gate="silu"),
    "gpt2": GPT2,
    "gpt2_untied": GPT2._replace(tied=False),
    "whisper": WHISPER,
    "llama": LLAMA,
    "llama_tied": LLAMA._replace(tied=True),
    "llama3": tiny_llama.LLAMA,
    "mistral": LOCAL._replace(style="mistral", local=(0, 1, 2)),
    "qwen2": LOCAL._replace(style="qwen2", biased=True, local=(1,)),
    "qwen3": tiny_llama.QWEN3,
    "gemma": LLAMA._replace(style="gemma", tied=True, positions=9),
    "gemma2": tiny_llama.GEMMA2._replace(scale=0.5),
    "gemma3": tiny_llama.GEMMA3,
}
NEAR_4GB = 4_000_000_000


def random_params(config):
    """Returns fresh weights, in which norms and biases are random too."""
    shapes = families.of(config).abstract_params(config)
    return tiny.draw_params(shapes, 0, lambda name, noise: noise)


def write_folder(folder: Path, name: str = "v1_1", most: int = NEAR_4GB) -> Path:
    config = CONFIGS[name]
    checkpoints.save(folder / name, (config, random_params(config)), most)
    return folder / name


def rewrite(folder: Path, change) -> None:
    """Replaces a folder's arrays by what `change` makes of them."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, {"format": "pt"})


def reconfigure(folder: Path, name: str = "config.json", /, **fields) -> None:
    """Sets fields of a JSON file; `...` removes a field."""
    file = folder / name
    whole = json.loads(file.read_text()) | fields
    kept = {name: value for name, value in whole.items() if value is not ...}
    file.write_text(json.dumps(kept))


def nudge(array: np.ndarray) -> np.ndarray:
    """Returns an array that differs by one floating-point step in its last number."""
    other = array.copy()
    other[-1, -1] = np.nextafter(other[-1, -1], np.float32(9))
    return other


def open_arrays(arrays: dict[str, np.ndarray], read=None) -> Archive:
    """Returns stored arrays as an open file has them, and notes what is read."""
    shapes = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in arrays.items()}
    return Archive(shapes, read or (lambda name, index: arrays[name][index]), "here")


def assert_same(tree, other) -> None:
    jax.tree.map(np.testing.assert_array_equal, tree, other)


def read_nothing(monkeypatch) -> None:
    """Makes a test fail when any parameter is made."""

    def refuse(*_):
        raise AssertionError("a parameter was read before all was checked")

    monkeypatch.setattr(archive, "_read_onto_devices", refuse)
