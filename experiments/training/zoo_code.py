"""Trains the bundled code models again, in hours on a CPU.

    python -m experiments.training.zoo_code

The stages, each resumable and skipped when done, are the tokenizer; a small target, on
the standard library; the target, grown from it, on more text; the texts that it writes;
the draft, distilled on them; the bigram table. The results in `runs/zoo` are copied
into the package with their recipe and curves.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from experiments.training import language, pipeline, tokenizer
from experiments.training.texts import code, corpus
from specjax import zoo
from specjax.drafters import ngram
from specjax.training import forward

FILES = {"target": "code_target.safetensors", "draft": "code_small.safetensors"}


def main() -> None:
    options, recipe = pipeline.parse_flags(__doc__, "code", "runs/zoo", pipeline.EXPORT)
    train(options.runs, options.export, recipe)


def train(runs: Path, export: Path, recipe: dict) -> None:
    """Trains everything into `export`; intermediate results go into `runs`."""
    runs.mkdir(parents=True, exist_ok=True)
    library, valid = (corpus.stdlib(side) for side in ("train", "valid"))
    path, vocab = runs / "tokenizer.model", recipe["models"]["large"]["vocab"]
    pieces = tokenizer.keep(path, lambda: tokenizer.train(library, vocab))
    shutil.copy(path, export / "tokenizer.model")
    text, coded = code.load(runs / "text.npz", pieces), language.encode(pieces, library)
    apart = language.stream(language.encode(pieces, valid))
    # The library alone, for the first weights, and all of the text.
    few = {"held_out": (apart, recipe["held_out"]["held_out"])}
    fixed = {name: (getattr(text, name), n) for name, n in recipe["held_out"].items()}
    data = {"library": language.data(language.stream(coded), few)}
    data["text"] = language.data(text.train, fixed)

    def save(side: str, config: forward.Config, params: Any) -> Path:
        zoo.save(export / FILES[side], config, params, bits=8)
        return export / FILES[side]

    alphas = language.pair(
        runs, recipe, data=data, sides=(text.train, text.held_out), export=save
    )
    # Its weight is the best of 0.5, 0.65, 0.75, 0.8, 0.85, 0.9 on held-out text.
    bigram = ngram.fit(coded, vocab, 2, **recipe["bigram"])
    zoo.save_ngrams(export / "bigram.safetensors", bigram)
    about = json.loads((runs / "text.json").read_text())
    pipeline.save(export / "recipes.json", runs, recipe, text=about, held_out=alphas)


if __name__ == "__main__":
    pipeline.command(main)
