"""What the models are asked to continue, or to turn into something else.

`code`: the beginnings in `prompts.jsonl`. `unconditional`: the start token alone.
`openings`: the start token and one of 128 frequent pieces of any tokenizer made here,
for argmax decoding, which continues one prompt in one way only.
`ende`, `docs`, `correct`: inputs for the bundled T5 family, English sentences to
translate, documentation strings to summarize, and prose with errors to be corrected.
`joined`: the sentences, which have nothing to do with each other, as many at a time as
make a text that is long enough to time. All were written for this project, so that
acceptance is measured on the same text everywhere.

Any other name is a file of `experiments.tasks.examples`, as `experiments.tasks.prepare`
writes it of the paper's tasks or of one's own.
"""

import json
from pathlib import Path
from typing import NamedTuple

from experiments.tasks import examples
from specjax import zoo
from specjax.models import t5
from specjax.prompts import Prompts
from specjax.sides import Side

DATA = Path(__file__).with_name("data")
PROMPTS = Path(__file__).with_name("data") / "prompts.jsonl"
TRANSLATE = "translate English to German: "
LEAST = 64  # tokens of a joined reference
CODE_TOKENIZER, T5_TOKENIZER = zoo.FOLDER / "tokenizer.model", zoo.FOLDER / "t5.model"


class Task(NamedTuple):
    """prompts; references: what a person wrote for each, empty if nobody did; files:
    what the prompts depend on."""

    prompts: Prompts
    references: list[str]
    files: tuple[Path, ...]


def read(name: str) -> Task:
    """A task by its name, or by the path of a prepared file.

    Raises ValueError for a name that is no task, or a file that holds none.
    """
    if name in TASKS:
        return TASKS[name]()
    if name.endswith(".npz"):
        return _prepared(Path(name))
    known = ", ".join(TASKS)
    raise ValueError(f"no task {name!r}: choose one of {known} or a prepared .npz file")


def of(name: str, target: Side) -> Task:
    """The same for whoever asks with the target at hand, which no task here needs."""
    del target
    return read(name)


def distinct(name: str) -> Prompts:
    """Every prompt of a task once. Raises ValueError as `read`."""
    return read(name).prompts


def _code() -> Task:
    lines = PROMPTS.read_text("utf-8").splitlines()
    encode = zoo.tokenizer().encode
    prompts = Prompts([encode(json.loads(line)["prompt"]) for line in lines])
    return Task(prompts, [], (PROMPTS, CODE_TOKENIZER))


def _unconditional() -> Task:
    return Task(Prompts([[zoo.START]]), [], (CODE_TOKENIZER,))


def _openings() -> Task:
    # After the special and the 256 byte pieces come the merges, most frequent first.
    prompts = Prompts([[zoo.START, 261 + i] for i in range(128)])
    return Task(prompts, [], (CODE_TOKENIZER,))


def _own(file: str, prefix: str, longest: int) -> Task:
    path = DATA / file
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    inputs = [zoo.tokenizer("t5").encode(prefix + line["source"]) for line in lines]
    # The family was trained on inputs of up to this length.
    inputs = [
        ids if len(ids) <= longest else [*ids[: longest - 1], t5.END] for ids in inputs
    ]
    references = [line["target"] for line in lines]
    return Task(encoded(inputs), references, (path, T5_TOKENIZER))


def _joined() -> Task:
    path = DATA / "sentences.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    encode, texts, group = zoo.tokenizer("t5").encode, [], []
    for line in lines:
        group.append(line)
        source, target = (
            " ".join(x[key] for x in group) for key in ("source", "target")
        )
        if len(encode(target)) > LEAST:
            texts.append((source, target))
            group = []
    inputs = [encode(TRANSLATE + source) for source, _ in texts]
    return Task(encoded(inputs), [target for _, target in texts], (path, T5_TOKENIZER))


def encoded(inputs: list[list[int]]) -> Prompts:
    """Prompts for an encoder-decoder: its text begins with the padding id."""
    return Prompts([[t5.PAD]] * len(inputs), inputs, (t5.END,))


def _prepared(path: Path) -> Task:
    data, _ = examples.read(path)
    return Task(encoded(data.inputs), data.references, (path,))


TASKS = {
    "code": _code,
    "unconditional": _unconditional,
    "openings": _openings,
    "ende": lambda: _own("sentences.jsonl", TRANSLATE, 64),
    "joined": _joined,
    "docs": lambda: _own("summaries.jsonl", "summarize: ", 128),
    "correct": lambda: _own("corrections.jsonl", "correct: ", 144),
}
