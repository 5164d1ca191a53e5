"""Trains the bundled EAGLE-3 head of the code target again: two hours on two cores.

    python -m experiments.training.zoo_eagle3

The target writes texts after beginnings of functions that it was trained on, and the
head learns from them, by what `specjax train-draft` runs. The results in `runs/eagle3`
are copied into the package in bfloat16, with their recipe and curve beside them.
"""

import hashlib
import json
import shutil
from importlib import metadata
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file

from experiments.training import pipeline
from experiments.training.texts import corpus, packages
from specjax import pretrained, zoo
from specjax.checkpoints import Pretrained
from specjax.checkpoints.huggingface import CONFIG, WHOLE
from specjax.drafts.head_files import EMBEDDING
from specjax.training import loop, train_draft
from specjax.training.draft_kinds import Sizes
from specjax.training.heads import Objective

READ = 1200  # characters of a function
LEAST = 24  # tokens of one


def main() -> None:
    options, recipe = pipeline.parse_flags(
        __doc__, "eagle3", "runs/eagle3", pipeline.EXPORT
    )
    target = pretrained.load(recipe["target"])
    runs, made = options.runs, options.runs / "head"
    runs.mkdir(parents=True, exist_ok=True)
    prompts = runs / "prompts.jsonl"
    if not prompts.exists():
        lines = beginnings(target, **recipe["beginnings"])
        prompts.write_text("".join(json.dumps({"prompt": x}) + "\n" for x in lines))
    setting = train_draft.Setting(
        kind="eagle3",
        out=made,
        runs=runs,
        sizes=Sizes(turns=recipe["turns"], vocab=recipe["vocab"]),
        objective=Objective(recipe["loss"], recipe["decay"]),
        recipe=loop.Recipe(**recipe["stages"]["training"]["recipe"]),
        generate=prompts,
        devices=options.mesh,
        **recipe["written"],
    )
    if not made.exists():
        train_draft.train(target, setting)
    (name,) = zoo.HEADS
    pack_head(made, options.export / name)
    digest = hashlib.sha256(prompts.read_bytes()).hexdigest()
    path = options.export / f"{name}.json"
    pipeline.save(path, runs, recipe, prompts=digest)


def beginnings(target: Pretrained, count: int, least: int, most: int) -> list[str]:
    """Returns beginnings of `least` to `most` tokens of functions, from the standard
    library and the installed packages that the target learnt from."""
    texts = corpus.stdlib("train")
    for name in packages.NAMES:
        try:
            distribution, _ = packages.find_licensed(name)
        except metadata.PackageNotFoundError:
            continue
        for path in packages.files(distribution, "train"):
            texts += corpus.extract_documents(path.read_text("utf-8", errors="ignore"))
    texts, rng = sorted(set(texts)), np.random.default_rng(0)
    rng.shuffle(texts)
    found: dict[str, None] = {}
    for text in texts:
        ids = target.tokenizer.encode(text[:READ])
        if len(ids) < LEAST:
            continue
        size = min(int(rng.integers(least, most + 1)), len(ids) * 2 // 3)
        begin = target.tokenizer.decode(ids[:size]).rstrip(" ")
        if begin.strip():
            found[begin] = None
        if len(found) == count:
            break
    return [*found]


def pack_head(made: Path, out: Path) -> None:
    """Writes the folder of a head again, with weights in bfloat16, and without the
    embedding of its target, which is bundled too."""
    out.mkdir(exist_ok=True)
    shutil.copy(made / CONFIG, out / CONFIG)
    arrays = load_file(made / WHOLE)
    arrays.pop(EMBEDDING, None)
    few = {
        name: x.astype(ml_dtypes.bfloat16) if x.dtype == np.float32 else x
        for name, x in arrays.items()
    }
    save_file(few, out / WHOLE, {"format": "pt"})
    (out / WHOLE).chmod(0o644)


if __name__ == "__main__":
    pipeline.command(main)
