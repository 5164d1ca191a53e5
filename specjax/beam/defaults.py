"""The settings of beam search that a published model recommends for itself.

They are in generation_config.json beside the weights; older T5s have them in
config.json instead, for each task that they were trained for.
"""

from pathlib import Path
from typing import Any

from specjax.beam.settings import BeamConfig, check
from specjax.checkpoints import Pretrained, fields, huggingface

NAMES = {
    "num_beams": "width",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
}
TASKS = "task_specific_params"
# What transformers takes where a file says nothing.
OTHERWISE = {"width": 1, "length_penalty": 1.0, "early_stopping": False}


def recommended(model: Pretrained, task: str | None = None) -> dict[str, Any]:
    """Returns the width, length_penalty and early_stopping of a model's own files.

    task: one that config.json names, such as "translation_en_to_de" of a T5; None reads
    generation_config.json. What the file does not say is as in transformers. Raises
    ValueError for another task, or for settings that cannot be.
    """
    found, file = {}, None
    if model.files:
        first = model.files[0]
        folder = first if first.is_dir() else first.parent
        file = folder / (huggingface.GENERATION if task is None else huggingface.CONFIG)
        found = fields.read(file) if file.is_file() else {}
    if task is not None:
        known = found.get(TASKS) or {}
        if task not in known:
            names = ", ".join(known) or "none"
            raise ValueError(
                f"{model.name} recommends nothing for the task {task!r}: the tasks of"
                f" its config.json are {names}"
            )
        found = known[task]
    own = {ours: found.get(name) for name, ours in NAMES.items()}
    settings = {k: OTHERWISE[k] if x is None else x for k, x in own.items()}
    check_recommended(settings, file)
    return settings


def check_recommended(settings: dict[str, Any], file: Path | None) -> None:
    """Raises ValueError, naming the file, for invalid settings."""
    try:
        check(BeamConfig(**settings))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
