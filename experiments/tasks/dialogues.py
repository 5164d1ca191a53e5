"""The user's own dialogues, for a decoder: half of each to continue, or all of it to
summarize.

A file has a line for each dialogue, {"article": turns, "summary": text}, as DialogSum
and SAMSum are published; it must not contain data that a model was trained on. A text
is the dialogue, SUMMARY and the summary. Dialogues whose prompt is longer than LONGEST
ids are left out.
"""

import json
import lzma
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from experiments.tasks import Task
from specjax.checkpoints import Pretrained
from specjax.prompts import Prompts

SUMMARY = "\n\nSummary:"  # between a dialogue and its summary
LONGEST = 192
COUNT = 128  # dialogues, the first that fit
WANTED = 'a line a dialogue, {"article": turns, "summary": text}, .jsonl or .jsonl.xz'


def beginnings(name: str, target: Pretrained) -> Task:
    """Returns the first half of the turns of each dialogue, which the target
    continues."""
    return _task(Path(name), target, first_half)


def summaries(name: str, target: Pretrained) -> Task:
    """Returns all turns of each dialogue, followed by the word before a summary; the
    references are those of the file.

    Args and Raises are those of `beginnings`.
    """
    return _task(Path(name), target, summary_prompt)


def first_half(dialogue: str) -> str:
    """Returns the first half of a dialogue's turns, rounded up, with the line break
    after the last of them."""
    turns = dialogue.split("\n")
    return "\n".join(turns[: -(-len(turns) // 2)]) + "\n"


def summary_prompt(dialogue: str) -> str:
    """Returns the prompt of a summary."""
    return dialogue + SUMMARY


def read(file: Path) -> Iterator[tuple[str, str]]:
    if not file.is_file():
        raise ValueError(f"no file {file}: name one that has {WANTED}")
    opened = lzma.open if file.suffix == ".xz" else open
    with opened(file, "rt", encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            try:
                both = (json.loads(line)[name] for name in ("article", "summary"))
                pair = tuple(it.replace("\r\n", "\n").strip() for it in both)
            except (ValueError, TypeError, KeyError, AttributeError):
                raise ValueError(f"{file}, line {number}: write {WANTED}") from None
            yield pair


def _task(path: Path, target: Pretrained, prompt_of: Callable[[str], str]) -> Task:
    encode = target.tokenizer.encode
    every = ((encode(prompt_of(text)), summary) for text, summary in read(path))
    chosen = list(islice((it for it in every if len(it[0]) <= LONGEST), COUNT))
    if not chosen:
        raise ValueError(
            f"{path} has no dialogue of at most {LONGEST} ids: name another"
        )
    tokens, references = map(list, zip(*chosen, strict=True))
    return Task(Prompts(tokens, None, target.ends), references, (path,))
