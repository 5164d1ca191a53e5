"""Trains the paper's GPT-like pair, 97M and 6M parameters, on news text given by path.

    python -m experiments.training.paper_pair --text train.txt.xz \
      --held_out valid.txt.xz

One sentence a line, plain or .xz, as in lm1b, the paper's set. Resumable: run it again
after a kill. Leaves `97m.safetensors`, `6m.safetensors`, `bigram.safetensors` and the
tokenizer in the output folder, which `gin_configs/table3_paper` measures.
"""

import argparse
import lzma
from pathlib import Path

from experiments.training import language, loop, pipeline, tokenizer
from experiments.training.pipeline import Stage
from specjax import zoo
from specjax.drafters import ngram
from specjax.models import gpt

SIZES = {"97m": gpt.PAPER_97M, "6m": gpt.PAPER_6M}
RECIPES = {
    "97m": loop.Recipe(12_000, 3_000, batch=64, length=128, rate=6e-4, warmup=500),
    "6m": loop.Recipe(12_000, 3_000, batch=64, length=128, rate=2e-3, warmup=500),
}
TINY = {"dim": 16, "mlp_dim": 32, "num_layers": 1, "num_heads": 2}
TINY_PIECES = 400  # of a text of some hundred lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--held_out", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/paper_pair"))
    parser.add_argument(
        "--steps", type=int, help="instead of the recipe's, for a trial"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="one narrow layer each, for a trial"
    )
    arguments = parser.parse_args()
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    sentences = read_lines(arguments.text)
    vocab = TINY_PIECES if arguments.tiny else gpt.PAPER_97M.vocab
    path = out / "tokenizer.model"
    pieces = tokenizer.keep(path, lambda: tokenizer.train(sentences, vocab))
    coded = language.encode(pieces, sentences)
    if not (out / "bigram.safetensors").exists():
        table = ngram.fit(coded, gpt.PAPER_97M.vocab, 2, weight=0.75)
        zoo.save_ngrams(out / "bigram.safetensors", table)
    held_out = language.encode(pieces, read_lines(arguments.held_out))
    fixed = {"held_out": (language.stream(held_out), language.HELD_OUT)}
    data = {"text": language.data(language.stream(coded), fixed)}
    for name, sizes in SIZES.items():
        recipe = RECIPES[name]
        if arguments.tiny:
            sizes, recipe = sizes._replace(**TINY), recipe._replace(batch=4, length=32)
        config = sizes._replace(dtype="bfloat16")
        if arguments.steps:
            recipe = recipe._replace(steps=arguments.steps, decay=arguments.steps // 4)
        params = pipeline.run(out, [Stage(name, config, recipe, "text")], data)
        zoo.save(out / f"{name}.safetensors", sizes, params)


def read_lines(path: Path) -> list[str]:
    """The non-empty lines of a text file, plain or .xz. Raises ValueError if none."""
    if not path.exists():
        raise ValueError(f"{path} is not there: give a text file, one sentence a line")
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        lines = [line for line in file.read().split("\n") if line]
    if not lines:
        raise ValueError(f"{path} is empty: give a text file, one sentence a line")
    return lines


if __name__ == "__main__":
    main()
