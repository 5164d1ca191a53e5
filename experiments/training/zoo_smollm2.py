"""Trains a draft for SmolLM2-135M-Instruct on that model's own answers: hours on a CPU.

    specjax fetch smollm2
    python -m experiments.training.zoo_smollm2 --data FOLDER

FOLDER holds the questions, as `texts.questions` reads them. Stages, each resumable and
skipped when done: what the target answers, with its law at every token; which ids the
draft says; the draft, which begins as layers of its target and learns from the answers.
`--write K/N` does no more than every N-th batch of answers, from the K-th on: N such
processes write side by side. What comes out of `runs/smollm2` is copied into the
package with its recipe and its curves.
"""

from pathlib import Path

from experiments.training import pipeline
from experiments.training.drafts import asked, fetched
from experiments.training.drafts.answers import Plan
from experiments.training.drafts.written import Written
from experiments.training.texts import questions
from specjax import checkpoints, zoo
from specjax.checkpoints import Pretrained

TARGET, DRAFT = "smollm2", "smollm2_draft"


def main() -> None:
    recipe = pipeline.read("smollm2")
    parser = pipeline.parser(__doc__, "runs/smollm2", recipe)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--batches", type=int, default=recipe["asked"]["batches"])
    parser.add_argument("--write", metavar="K/N")
    parser.add_argument("--export", type=Path, default=zoo.FOLDER)
    options = parser.parse_args()
    recipe = pipeline.chosen(options, recipe)
    recipe["asked"]["batches"] = options.batches
    try:
        target = checkpoints.load(TARGET)
        target = target._replace(tokenizer_file=target.files[0])
        part = tuple(map(int, options.write.split("/"))) if options.write else (0, 1)
        batches = answered(target, options.data, options.runs, recipe, part)
        if not options.write:
            train(target, batches, options.runs, options.export, recipe)
    except ValueError as error:
        parser.error(str(error))


def answered(
    target: Pretrained, data: Path, runs: Path, recipe: dict, part: tuple = (0, 1)
) -> list[Written]:
    """What the target answers, batch by batch."""
    plan = Plan(**recipe["answers"])
    ours = ("held_out", "first")
    sizes = {k: v for k, v in recipe["asked"].items() if k not in ours}
    asking = asked.Asking(plan=plan, **sizes)
    return asked.write(target, questions.read(data), asking, runs / "answers", part)


def train(
    target: Pretrained, batches: list[Written], runs: Path, export: Path, recipe: dict
) -> None:
    """The draft, into `export`. The first batches are held out; its ids are the most
    frequent ones of `first` batches, from which it learns before it does from all."""
    apart, first = (recipe["asked"][name] for name in ("held_out", "first"))
    parts = {"first": batches[apart:first], "answers": batches[apart:]}
    path = export / f"{DRAFT}.safetensors"
    fetched.train(target, batches[:apart], parts, runs, path, recipe)


if __name__ == "__main__":
    main()
