"""Trains the paper's GPT-like pair, 97M and 6M parameters, on news text given by path.

    python -m experiments.training.paper_pair --text train.txt.xz \
        --held_out valid.txt.xz

The text has one sentence a line, plain or .xz, as in lm1b, the paper's set. The run is
resumable: run it again after a kill. It leaves `97m.safetensors`, `6m.safetensors`,
`bigram.safetensors` and the tokenizer in the output folder, which
`gin_configs/table3_paper` measures.
"""

import argparse
import lzma
from pathlib import Path

from experiments.training import language, pipeline, tokenizer
from experiments.training.pipeline import Stage
from specjax import zoo
from specjax.drafters import ngram
from specjax.models import gpt
from specjax.training import loop

MODELS = {"97m": (gpt.PAPER_97M, 6e-4), "6m": (gpt.PAPER_6M, 2e-3)}  # and their rates
HELD_OUT = 12  # batches
TINY = {"dim": 16, "mlp_dim": 32, "num_layers": 1, "num_heads": 2}
TINY_PIECES = 400  # of a text of some hundred lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--text", type=Path, required=True)
    add("--held_out", type=Path, required=True)
    add("--out", type=Path, default=Path("runs/paper_pair"))
    add("--steps", type=int, help="instead of the recipe's, for a trial")
    add("--tiny", action="store_true", help="one narrow layer each, for a trial")
    pipeline.add_mesh(parser)
    chosen = parser.parse_args()
    out = chosen.out
    out.mkdir(parents=True, exist_ok=True)
    sentences = read_lines(chosen.text)
    vocab = TINY_PIECES if chosen.tiny else gpt.PAPER_97M.vocab
    path = out / "tokenizer.model"
    pieces = tokenizer.keep(path, lambda: tokenizer.train(sentences, vocab))
    coded = language.encode(pieces, sentences)
    table = ngram.fit(coded, gpt.PAPER_97M.vocab, 2, weight=0.75)
    zoo.save_ngrams(out / "bigram.safetensors", table)
    held_out = language.encode(pieces, read_lines(chosen.held_out))
    fixed = {"held_out": (language.stream(held_out), HELD_OUT)}
    data = {"text": language.data(language.stream(coded), fixed)}
    for name, (sizes, rate) in MODELS.items():
        # Five readings of some eight million tokens; a checkpoint is a gigabyte.
        recipe = loop.Recipe(5_000, 1_500, 64, 128, rate=rate, warmup=500)
        recipe = recipe._replace(checkpoint_every=1000)
        if chosen.tiny:
            sizes, recipe = sizes._replace(**TINY), recipe._replace(batch=4, length=32)
        if chosen.steps:
            recipe = recipe._replace(steps=chosen.steps, decay=chosen.steps // 4)
        stage = Stage(name, sizes._replace(dtype="bfloat16"), recipe, "text")
        stage = stage._replace(devices=chosen.mesh)
        zoo.save(out / f"{name}.safetensors", sizes, pipeline.run(out, [stage], data))


def read_lines(path: Path) -> list[str]:
    """Returns the non-empty lines of a text file, plain or .xz. Raises ValueError if
    there are none.
    """
    if not path.exists():
        raise ValueError(f"{path} is not there: give a text file, one sentence a line")
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        lines = [line for line in file.read().split("\n") if line]
    if not lines:
        raise ValueError(f"{path} is empty: give a text file, one sentence a line")
    return lines


if __name__ == "__main__":
    pipeline.command(main)
