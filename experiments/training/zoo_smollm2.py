"""Trains a draft for SmolLM2-135M-Instruct on that model's own answers: hours on a CPU.

    specjax fetch smollm2
    python -m experiments.training.zoo_smollm2 --data FOLDER

FOLDER holds GSM8K's training half (Cobbe et al. 2021, MIT), Tatoeba's sentences (CC BY
2.0) and SciTLDR's abstracts (Cachola et al. 2020, Apache 2.0). Models that learn from
them may all be bundled, as with documentation strings. Further questions are written by
the model itself where a conversation's template expects the user's message (Xu et al.
2024, "Magpie"). The stages, each resumable and skipped when done, are the target's
answers, with its law at every token; the ids of the draft; the draft, which begins as
layers of its target and learns from the answers. `--write K/N` only writes every N-th
batch of answers, from the K-th on: N such processes write side by side. The results in
`runs/smollm2` are copied into the package with their recipe and curves.
"""

import hashlib
import json
from pathlib import Path

from experiments.training import pipeline
from experiments.training.drafts import answers, reduced_vocab
from experiments.training.texts import documentation
from experiments.training.texts.tasks import read_lines
from specjax import checkpoints
from specjax.checkpoints import Pretrained
from specjax.training.written import Written

TARGET, DRAFT = "smollm2", "smollm2_draft"
GSM8K = "prompts/gsm8k.train.jsonl.xz"
PAIRS = "ende/train"
ABSTRACTS = "summarization/scitldr_a.train.jsonl.xz"
TATOEBA = "tatoeba_anki2018"
SHORT = 30  # characters, fewer than which are no sentence to translate


def main() -> None:
    flags = {
        "--data": pipeline.FOLDER_OF,
        "--batches": dict(type=int),
        "--write": dict(metavar="K/N"),
        **pipeline.EXPORT,
    }
    options, recipe = pipeline.parse_flags(__doc__, "smollm2", "runs/smollm2", flags)
    if options.batches is not None:
        recipe["asked"]["batches"] = options.batches
    target = checkpoints.load(TARGET)
    target = target._replace(tokenizer_file=target.files[0])
    part = tuple(map(int, options.write.split("/"))) if options.write else (0, 1)
    batches = write_answers(target, options.data, options.runs, recipe, part)
    if not options.write:
        train(target, batches, options.runs, options.export, recipe)


def write_answers(
    target: Pretrained, data: Path, runs: Path, recipe: dict, part: tuple[int, int]
) -> list[Written]:
    """Returns the target's answers, batch by batch."""
    plan = answers.Plan(**recipe["answers"])
    ours = ("held_out", "first")
    sizes = {k: v for k, v in recipe["asked"].items() if k not in ours}
    asking = answers.QuestionSetting(plan=plan, **sizes)
    return answers.write(
        target, questions(data), setting=asking, folder=runs / "answers", part=part
    )


def train(
    target: Pretrained, batches: list[Written], runs: Path, export: Path, recipe: dict
) -> None:
    """Trains the draft into `export`.

    The first batches are held out. The draft's ids are the most frequent ones of the
    `first` batches, from which it learns before it learns from all.
    """
    apart, first = (recipe["asked"][name] for name in ("held_out", "first"))
    parts = {"first": batches[apart:first], "answers": batches[apart:]}
    path = export / f"{DRAFT}.safetensors"
    reduced_vocab.train(
        target,
        held_out=batches[:apart],
        parts=parts,
        runs=runs,
        path=path,
        recipe=recipe,
    )


def questions(folder: Path) -> dict[str, list[str]]:
    """Returns questions by kind, in an order that depends only on their texts.

    Args:
        folder: it holds `GSM8K`, the three files of `PAIRS` and `ABSTRACTS`.

    Raises:
        ValueError: a file is missing.
    """
    try:
        sums, papers = (
            map(json.loads, read_lines(folder / x)) for x in (GSM8K, ABSTRACTS)
        )
        german, source = (read_lines(folder / f"{PAIRS}.{x}.xz") for x in ("de", "src"))
    except FileNotFoundError as error:
        raise ValueError(
            f"{error.filename} is not there: name the folder that holds {GSM8K}"
        ) from None
    pairs = zip(german, source, strict=True)
    whole = [text for text, of in pairs if of == TATOEBA and len(text) >= SHORT]
    strings = documentation.pairs("train")
    asked = {
        "maths": [line["prompt"] for line in sums],
        "translation": [f"Translate German to English: {text}" for text in whole],
        "summary": [f"Summarize: {line['article']}" for line in papers],
        # What they say in short, or what they are about.
        "documentation": [f"Summarize: {' '.join(body.split())}" for body, _ in strings]
        + [f"Explain in your own words: {summary}" for _, summary in strings],
    }
    return {
        name: sorted(set(texts), key=lambda it: hashlib.sha256(it.encode()).digest())
        for name, texts in asked.items()
    }


if __name__ == "__main__":
    pipeline.command(main)
