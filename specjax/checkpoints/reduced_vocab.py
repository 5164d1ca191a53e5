"""Files of drafts with a reduced vocabulary: `specjax.models.reduced_vocab`.

Such a file is one of `specjax.zoo.save` with one tensor more, `d2t`, the offsets from
the draft's own ids to the target's, as the drafts of EAGLE-3 and of speculators have
it. A Whisper's has no encoder: it takes its target's.
"""

from pathlib import Path

import numpy as np

from specjax import zoo
from specjax.checkpoints import archive, int8_weights
from specjax.models import families
from specjax.models.reduced_vocab import Reduction
from specjax.quantized import rounding

D2T = "d2t"


def find(name: str) -> Path | None:
    """Returns the file of such a draft by its name or path; None for any other name."""
    path = zoo.FOLDER / f"{name}.safetensors" if name in zoo.DRAFTS else Path(name)
    if path.suffix != ".safetensors" or not path.is_file():
        return None
    return path if D2T in archive.open_safetensors([path], str(path)).arrays else None


def load(path: Path, dtype: str) -> Reduction:
    """Reads a draft. Matrices that lie in the file in eight bits stay so beside
    float32: the same draft, in a quarter of the memory that a call reads. Raises
    ValueError as `checkpoints.load` does, and for a family that cannot draft with a
    reduced vocabulary."""
    held = archive.multiply_scales(archive.open_safetensors([path], str(path)))
    activations = int8_weights.activations(dtype)
    family, config = zoo.read_config(path, archive.metadata(path), activations)
    shapes = families.of(config).draft_params(config)
    if shapes is None:
        raise ValueError(
            f"{path} is a {family}: a draft with d2t is a tied llama or a whisper"
        )
    sources = archive.same_names(shapes).sources
    archive.check(held, sources, shapes, harmless=(D2T,))
    raw = held.unscaled or held
    stored = any(name.endswith(rounding.SCALE) for name in raw.arrays)
    kind = int8_weights.INT8 if stored and dtype == "float32" else dtype
    params = int8_weights.fill(held, sources, shapes, dtype=kind)
    d2t = np.asarray(held.read(D2T, (slice(None),)), np.int64)
    if d2t.shape != (config.vocab,):
        raise ValueError(
            f"{path}: d2t has shape {d2t.shape}, and the draft {config.vocab} ids"
        )
    return Reduction(config, params, np.arange(d2t.size) + d2t)


def save(path: Path, draft: Reduction) -> None:
    """Writes a draft that `load` reads, with its matrices in eight bits."""
    d2t = draft.ids - np.arange(draft.ids.size)
    more = {D2T: d2t.astype(np.int32)}
    zoo.save(path, draft.config, draft.params, bits=8, more=more)
