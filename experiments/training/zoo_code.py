"""Trains the bundled code models again, in hours on a CPU.

    python -m experiments.training.zoo_code

Stages, each resumable and skipped when done: the tokenizer; a small target, on the
standard library; the target, on more text, grown from it; what it writes; the draft,
distilled on that; the bigram table. What comes out of `runs/zoo` is copied into the
package with its recipe and its curves.
"""

import json
import shutil
from pathlib import Path

from experiments.training import beginnings, language, pipeline, tokenizer
from experiments.training.beginnings import Continued
from experiments.training.drafts import written
from experiments.training.texts import code, corpus
from specjax import checkpoints, zoo
from specjax.checkpoints import Pretrained
from specjax.drafters import ngram
from specjax.drafters.ngram import NGram


def main() -> None:
    """Runs every stage, then exports."""
    recipe = pipeline.read("code")
    parser = pipeline.parser(__doc__, "runs/zoo", recipe)
    parser.add_argument("--export", type=Path, default=zoo.FOLDER)
    options = parser.parse_args()
    train(options.runs, options.export, pipeline.chosen(options, recipe))


def train(runs: Path, export: Path, recipe: dict) -> None:
    """Everything, into `export`; what it was made from goes into `runs`."""
    runs.mkdir(parents=True, exist_ok=True)
    library, path = corpus.stdlib("train").documents, runs / "tokenizer.model"
    large, draft = (pipeline.config(recipe, name) for name in ("large", "draft"))
    pieces = tokenizer.keep(path, lambda: tokenizer.train(library, large.vocab))
    shutil.copy(path, export / "tokenizer.model")
    text, coded = code.load(runs / "text.npz", pieces), language.encode(pieces, library)
    first, *target = pipeline.stages(recipe, "seed") + pipeline.stages(recipe, "target")
    data = of_target(pieces, coded, text, recipe["held_out"])
    params = pipeline.run(runs, [first, *target], data)
    path = export / "code_target.safetensors"
    zoo.save(path, large, params, bits=8)
    lessons = read(runs / "drafts", checkpoints.load(path), text, recipe)
    data, stages = {"lessons": written.data(lessons)}, pipeline.stages(recipe, "drafts")
    params = pipeline.run(runs, stages, data)
    zoo.save(export / "code_small.safetensors", draft, params, bits=8)
    zoo.save_ngrams(export / "bigram.safetensors", bigram(coded, large.vocab, recipe))
    about = json.loads((runs / "text.json").read_text())
    alphas = written.accepted(draft, params, lessons.held_out)
    pipeline.save(export / "recipes.json", runs, recipe, text=about, held_out=alphas)


def of_target(
    pieces, coded: list[list[int]], text: code.Text, counts: dict[str, int]
) -> pipeline.Texts:
    """The library alone, for the first weights, and all of the text. counts: batches
    that are measured on."""
    valid = language.encode(pieces, corpus.stdlib("valid").documents)
    few = {"held_out": (language.stream(valid), counts["held_out"])}
    fixed = {name: (getattr(text, name), count) for name, count in counts.items()}
    library = language.data(language.stream(coded), few)
    return {"library": library, "text": language.data(text.train, fixed)}


def read(runs: Path, target: Pretrained, text: code.Text, recipe: dict):
    """What the target, as it is stored, wrote and read."""
    plan = Continued(**recipe["written"])
    return beginnings.lessons(runs, target, text.train, text.held_out, plan)


def bigram(coded: list[list[int]], vocab: int, recipe: dict) -> NGram:
    """Its weight is the best of 0.5, 0.65, 0.75, 0.8, 0.85, 0.9 on held-out text."""
    return ngram.fit(coded, vocab, 2, **recipe["bigram"])


if __name__ == "__main__":
    main()
