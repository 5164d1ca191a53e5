"""Trains the bundled pair that writes images of digits again, in minutes on a CPU.

    pip install '.[experiments,images]'
    python -m experiments.training.zoo_digits

The stages, each resumable and skipped when done, are the target, on scikit-learn's
images; the images that it writes; and the draft, distilled on them. The results in
`runs/zoo_digits` are copied into the package with their recipe and curves.
"""

from pathlib import Path
from typing import Any

from experiments.tasks import digits
from experiments.training import language, pipeline
from specjax import zoo
from specjax.training import forward, loop

FILES = {"target": "digits_target.safetensors", "draft": "digits_small.safetensors"}


def main() -> None:
    name, runs = "digits", "runs/zoo_digits"
    options, recipe = pipeline.parse_flags(__doc__, name, runs, pipeline.EXPORT)
    train(options.runs, options.export, recipe)


def train(runs: Path, export: Path, recipe: dict) -> None:
    """Trains both models into `export`; intermediate results go into `runs`."""
    images = digits.load()
    read = digits.shift(images["train"])
    train, held_out = (
        language.stream(digits.documents(some)) for some in (read, images["held_out"])
    )
    fixed = {name: (held_out, count) for name, count in recipe["held_out"].items()}

    def save(side: str, config: forward.Config, params: Any) -> Path:
        zoo.save(export / FILES[side], config, params, bits=8)
        return export / FILES[side]

    alphas = language.pair(
        runs,
        recipe,
        data={"images": language.data(train, fixed)},
        sides=(train, held_out),
        export=save,
    )
    about = {name: loop.digest(some) for name, some in images.items()}
    path = export / "digits_recipes.json"
    pipeline.save(path, runs, recipe, images=about, held_out=alphas)


if __name__ == "__main__":
    pipeline.command(main)
