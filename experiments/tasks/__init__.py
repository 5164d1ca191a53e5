"""The texts that models continue, translate, summarize or correct.

- `code`: the beginnings in `prompts.jsonl`.
- `unconditional`: the start token alone.
- `openings`: the start token and one of 128 frequent pieces of any tokenizer made here,
  for argmax decoding, which continues one prompt in one way only.
- `ende`, `docs`, `correct`: inputs for the bundled T5 family: English sentences to
  translate, documentation strings to summarize, and prose with errors to be corrected.
- `digits`: the ten classes of images, see `experiments.tasks.digits`.
- `joined`: the sentences, which are unrelated, as many at a time as make a text that is
  long enough to time.

All were written for this project, so that acceptance is measured on the same text
everywhere. Any other name is a file of `experiments.tasks.examples`, as
`experiments.tasks.prepare` writes it from the paper's tasks or from the user's own.
"""

import json
from pathlib import Path
from typing import NamedTuple

from experiments.tasks import digits, examples
from specjax import zoo
from specjax.checkpoints import Pretrained
from specjax.models import t5
from specjax.prompts import Prompts

DATA = Path(__file__).with_name("data")
PROMPTS = DATA / "prompts.jsonl"
TRANSLATE = "translate English to German: "
LEAST = 64  # tokens of a joined reference
CODE_TOKENIZER, T5_TOKENIZER = zoo.FOLDER / "tokenizer.model", zoo.FOLDER / "t5.model"


class Task(NamedTuple):
    """The prompts of a task.

    Attributes:
        references: the human text for each, empty if there is none.
        files: the files that the prompts depend on.
        lines: from 0, the line of the file that each prompt is of; None if they are
            of its first lines, in order.
    """

    prompts: Prompts
    references: list[str]
    files: tuple[Path, ...]
    lines: tuple[int, ...] | None = None


def read(name: str) -> Task:
    if name in TASKS:
        return TASKS[name]()
    if name.endswith(".npz"):
        data, _ = examples.read(Path(name))
        return Task(encoder_prompts(data.inputs), data.references, (Path(name),))
    known = ", ".join(TASKS)
    raise ValueError(f"no task {name!r}: choose one of {known} or a prepared .npz file")


def of(name: str, target: Pretrained) -> Task:
    """Reads a task. The target is not used; other readers of tasks need it."""
    del target
    return read(name)


def distinct(name: str) -> Prompts:
    """Returns every prompt of a task once. Raises ValueError as `read` does."""
    return read(name).prompts


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def decoder_task(prompts: list[list[int]], *files: Path) -> Task:
    return Task(Prompts(prompts), [], (*files, CODE_TOKENIZER))


def _code() -> Task:
    encode = zoo.tokenizer().encode
    return decoder_task([encode(line["prompt"]) for line in lines(PROMPTS)], PROMPTS)


def _t5_task(file: str, prefix: str, longest: int) -> Task:
    texts, encode = lines(DATA / file), zoo.tokenizer("t5").encode
    inputs = [encode(prefix + line["source"]) for line in texts]
    # The family was trained on inputs of up to this length.
    inputs = [
        ids if len(ids) <= longest else [*ids[: longest - 1], t5.END] for ids in inputs
    ]
    references = [line["target"] for line in texts]
    return Task(encoder_prompts(inputs), references, (DATA / file, T5_TOKENIZER))


def _pairs_of_sentences() -> Task:
    path, encode = DATA / "sentences.jsonl", zoo.tokenizer("t5").encode
    texts, group = [], []
    for line in lines(path):
        group.append((line["source"], line["target"]))
        source, target = map(" ".join, zip(*group, strict=True))
        if len(encode(target)) > LEAST:
            texts.append((encode(TRANSLATE + source), target))
            group = []
    inputs, references = map(list, zip(*texts, strict=True))
    return Task(encoder_prompts(inputs), references, (path, T5_TOKENIZER))


def encoder_prompts(inputs: list[list[int]]) -> Prompts:
    """Returns prompts for an encoder-decoder: its text begins with the padding id."""
    return Prompts([[t5.PAD]] * len(inputs), inputs, (t5.END,))


def _digits() -> Task:
    prompts = [digits.prompt(digit) for digit in range(digits.CLASSES)]
    return Task(Prompts(prompts, ends=()), [], ())


TASKS = {
    "code": _code,
    "unconditional": lambda: decoder_task([[zoo.START]]),
    # After the special and the 256 byte pieces come the merges, most frequent first.
    "openings": lambda: decoder_task([[zoo.START, 261 + i] for i in range(128)]),
    "digits": _digits,
    "ende": lambda: _t5_task("sentences.jsonl", TRANSLATE, 64),
    "joined": _pairs_of_sentences,
    "docs": lambda: _t5_task("summaries.jsonl", "summarize: ", 128),
    "correct": lambda: _t5_task("corrections.jsonl", "correct: ", 144),
}
