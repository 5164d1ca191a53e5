"""Trains the bundled code models again, in hours on a CPU.

    python -m experiments.training.zoo_code

Stages, each resumable and skipped when done: the tokenizer, the target on the standard
library, texts sampled from the target, the draft distilled on them, the bigram table.
What comes out of `runs/zoo` is copied into the package with its recipe and its curve.
"""

import argparse
import json
import platform
import shutil
from pathlib import Path

import jax
import numpy as np
import sentencepiece
from tqdm import trange

from experiments.training import language, loop, tokenizer
from experiments.training.texts import corpus
from specjax import generate, zoo
from specjax.drafters import ngram
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import gpt
from specjax.types import Params

VOCAB = 8192
TARGET = gpt.Config(VOCAB, 256, 1024, 6, 4, "bfloat16")
DRAFT = gpt.Config(VOCAB, 32, 128, 2, 2)
TARGET_RECIPE = loop.Recipe(steps=2700, decay=800, rate=2e-3)
DRAFT_RECIPE = loop.Recipe(steps=900, decay=300, rate=6e-3, weight_decay=0.0)
SAMPLED_TEXTS, HELD_OUT_TEXTS = 1024, 128
EVERY = 8  # of the training documents, one in so many joins the samples
BIGRAM_WEIGHT = 0.75  # best of 0.5, 0.65, 0.75, 0.8, 0.85, 0.9 on held-out text


def main() -> None:
    """Runs every stage, then exports."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/zoo"))
    parser.add_argument("--export", type=Path, default=zoo.FOLDER)
    arguments = parser.parse_args()
    runs, export = arguments.runs, arguments.export
    runs.mkdir(parents=True, exist_ok=True)
    texts = {split: corpus.stdlib(split) for split in ("train", "valid")}
    pieces = subwords(runs / "tokenizer.model", texts["train"].documents)
    coded = {split: encode(pieces, source.documents) for split, source in texts.items()}
    target = train_target(runs, coded)
    sampled = sample_texts(runs / "samples.npz", target)
    draft = train_draft(runs, target, sampled, coded["train"][::EVERY])
    table = ngram.fit(coded["train"], VOCAB, 2, BIGRAM_WEIGHT)

    shutil.copy(runs / "tokenizer.model", export / "tokenizer.model")
    zoo.save(export / "code_9m.safetensors", TARGET, target)
    zoo.save(export / "code_05m.safetensors", DRAFT, draft)
    zoo.save_ngrams(export / "bigram.safetensors", table)
    about = {split: [len(t.documents), t.files, t.digest] for split, t in texts.items()}
    write_recipes(runs, export / "recipes.json", about, coded)


def subwords(path: Path, documents: list[str]) -> sentencepiece.SentencePieceProcessor:
    if not path.exists():
        loop.replace(path, tokenizer.train(documents, VOCAB))
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def encode(pieces, documents: list[str]) -> list[list[int]]:
    """Each document with the start token before it and the end token after it."""
    return [[zoo.START, *ids, zoo.END] for ids in pieces.encode(documents)]


def train_target(runs: Path, coded: dict):
    """The target, on the standard library's own text."""
    data, held_out = (language.stream(coded[split]) for split in ("train", "valid"))
    task = language.task(TARGET, language.next_token_loss(TARGET))
    return language.train(runs / "code_9m", task, data, held_out, TARGET_RECIPE)


def sample_texts(
    path: Path, params, batch: int = 64, length: int = 256
) -> list[list[int]]:
    """Texts that the target writes by itself at T = 1, from the start token on."""
    if not path.exists():
        run = generate.autoregressive(gpt.build(TARGET), length + 1)
        sampling = make_sampling(batch, 1.0)
        prompt = make_prompt([[zoo.START]] * batch)
        rows = []
        for i in trange((SAMPLED_TEXTS + HELD_OUT_TEXTS) // batch, desc="samples"):
            key = jax.random.key(i)
            request = make_request(key, prompt, length - 1, sampling, zoo.END)
            out = run(Params(params), prompt, request)
            rows.append(np.asarray(out.tokens[:, :length], np.uint16))
        with path.with_suffix(".partial").open("wb") as file:
            np.savez_compressed(file, tokens=np.concatenate(rows))
        path.with_suffix(".partial").replace(path)
    return [list(row[row != zoo.PAD]) for row in np.load(path)["tokens"].astype(int)]


def train_draft(runs: Path, target, sampled: list[list[int]], read: list[list[int]]):
    """The draft, distilled (forward KL) on what the target wrote and some that it read.

    Held out are other texts of the target's, as alpha is measured on such.
    """
    data = language.stream(sampled[HELD_OUT_TEXTS:] + read)
    held_out = language.stream(sampled[:HELD_OUT_TEXTS])
    task = language.task(DRAFT, language.distillation_loss(DRAFT, TARGET, target))
    return language.train(runs / "code_05m", task, data, held_out, DRAFT_RECIPE)


def write_recipes(runs: Path, path: Path, about: dict, coded: dict) -> None:
    """How the models were made, and their curves, in one file beside the weights."""
    curves = {
        name: [json.loads(line) for line in (runs / name / "curve.jsonl").open()]
        for name in ("code_9m", "code_05m")
    }
    content = {
        "text": f"functions in the library of Python {platform.python_version()}",
        "documents, files, sha256": about,
        "train_tokens": sum(map(len, coded["train"])),
        "code_9m": {"config": TARGET._asdict(), "recipe": TARGET_RECIPE._asdict()},
        "code_05m": {
            "config": DRAFT._asdict(),
            "recipe": DRAFT_RECIPE._asdict(),
            "text": f"{SAMPLED_TEXTS} texts sampled from code_9m at T = 1, and one in"
            f" {EVERY} of its training documents; forward KL to code_9m",
        },
        "bigram": {"weight": BIGRAM_WEIGHT, "add": 0.1, "places": 64},
        "curves": curves,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
