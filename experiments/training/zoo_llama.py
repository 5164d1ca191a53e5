"""Trains a pair of Llama models on the user's dialogues; a CPU is enough.

    python -m experiments.training.zoo_llama --dialogues FOLDER

FOLDER holds DialogSum (Chen et al. 2021, https://arxiv.org/abs/2105.06762) and SAMSum
(Gliwa et al. 2019, https://arxiv.org/abs/1911.12237). A text is a dialogue, then a
summary of it, so that one model can both continue and summarize a conversation.

The stages, each resumable and skipped when done, are the tokenizer; a small target; the
target, grown from it; the draft, which reads the same dialogues, then learns from the
target's texts. The licences of the dialogues are non-commercial, so that the pair is
not bundled: the results are two folders of Hugging Face, `runs/llama/target` and
`runs/llama/draft`, and their recipe in `runs/llama/recipes.json`.
"""

import shutil
from pathlib import Path
from typing import Any

from experiments.tasks import dialogues
from experiments.training import language, pipeline, tokenizer
from experiments.training.texts import corpus
from specjax import checkpoints, zoo
from specjax.models import llama

SETS = ("dialogsum", "samsum")


def main() -> None:
    flags = {"--dialogues": pipeline.FOLDER_OF, "--texts": dict(type=int)}
    options, recipe = pipeline.parse_flags(__doc__, "llama", "runs/llama", flags)
    if options.texts is not None:
        recipe["written"] |= {"greedy": options.texts, "sampled": options.texts}
    train(options.dialogues, options.runs, recipe)


def texts(folder: Path, side: str) -> list[str]:
    documents = []
    for name in SETS:
        places = [f"{name}.{side}.jsonl", f"{name}.{side}.jsonl.xz"]
        files = [folder / place for place in places if (folder / place).is_file()]
        if not files:
            raise ValueError(
                f"{folder} has neither {' nor '.join(places)}: name the folder of the"
                " dialogues"
            )
        pairs = dialogues.read(files[0])
        documents += [
            f"{dialogues.summary_prompt(text)} {summary}" for text, summary in pairs
        ]
    return documents


def train(folder: Path, runs: Path, recipe: dict) -> None:
    """Trains the pair into `runs`; intermediate results go into `runs/training`."""
    work = runs / "training"
    work.mkdir(parents=True, exist_ok=True)
    path, vocab = work / "tokenizer.model", recipe["models"]["large"]["vocab"]
    read = {side: texts(folder, side) for side in ("train", "valid")}
    pieces = tokenizer.keep(path, lambda: tokenizer.train(read["train"], vocab))
    coded = (language.encode(pieces, it) for it in read.values())
    train, valid = map(language.stream, coded)
    fixed = {name: (valid, count) for name, count in recipe["held_out"].items()}
    data = {"text": language.data(train, fixed)}

    def export(side: str, config: llama.Config, params: Any) -> Path:
        """Writes a folder of Hugging Face with its tokenizer, in place of an older
        one."""
        fresh, there = work / side / "export", runs / side
        shutil.rmtree(fresh, ignore_errors=True)
        whole = checkpoints.Pretrained(
            side,
            config,
            llama.build(config),
            params,
            start=zoo.START,
            ends=(zoo.END,),
        )
        checkpoints.save(fresh, whole)
        shutil.copy(path, fresh)
        shutil.rmtree(there, ignore_errors=True)
        return fresh.rename(there)

    alphas = language.pair(work, recipe, data=data, sides=(train, valid), export=export)
    about = {side: corpus.digest(it) for side, it in read.items()}
    made = runs / "recipes.json"
    pipeline.save(made, work, recipe, text=about, held_out=alphas)
    print(f"{runs}: " + ", ".join(f"{name} {alphas[name]:.3f}" for name in alphas))


if __name__ == "__main__":
    pipeline.command(main)
