"""Tasks from files of the user's own, for decoders, read by the target's own tokenizer.

A task is a file of JSON lines, plain, .gz or .xz, given by its path. `summaries`:
articles or dialogues to summarize. `sentence`: one text, which is its own name.
"""

from collections.abc import Sequence
from pathlib import Path

from experiments.tasks import Task, files
from specjax.pretrained import Pretrained
from specjax.prompts import Prompts
from specjax.tokenizers import Tokenizer

SUMMARY = "\n\nSummary:"  # 0-shot, as Wagner et al. (2024), Section 4.1


def summaries(
    name: str, target: Pretrained, *, length: int = 900, count: int | None = None
) -> Task:
    """Returns articles, each followed by a request for a summary, from lines with
    `article` and `summary`.

    Args:
        name: the file.
        length: the most tokens of a prompt; a longer article loses its end.
        count: the number of lines to read.

    Raises:
        ValueError: the file is absent or holds something else, or the length is not
            positive.
    """
    if length < 32 or (count is not None and count < 1):
        raise ValueError(
            f"need a length of 32 or more, and lines; got {length}, {count}"
        )
    lines = list(files.jsonl(existing_path(name), ("article", "summary")))[:count]
    model = reader(target)
    tokens = [fit_length(line.texts[0], model.tokenizer, length) for line in lines]
    references = [line.texts[1] for line in lines]
    return Task(Prompts(tokens, None, model.ends), references, (Path(name),))


def fit_length(article: str, tokenizer: Tokenizer, length: int) -> list[int]:
    """Returns the ids of an article and `SUMMARY`, at most `length` of them."""
    ids = tokenizer.encode(article + SUMMARY)
    cut, room = tokenizer.encode(article), length - len(tokenizer.encode(SUMMARY))
    while len(ids) > length:
        ids = tokenizer.encode(tokenizer.decode(cut[:room]) + SUMMARY)
        room -= max(1, len(ids) - length)
    return ids


def sentence(name: str, target: Pretrained) -> Task:
    return Task(prompts([name], target), [], ())


def prompts(texts: Sequence[str], target: Pretrained) -> Prompts:
    """Returns texts to continue. Raises ValueError for a target without a tokenizer."""
    model = reader(target)
    return Prompts(list(map(model.tokenizer.encode, texts)), None, model.ends)


def reader(target: Pretrained) -> Pretrained:
    """Returns the target. Raises ValueError for a model that cannot continue text."""
    if not isinstance(target, Pretrained):
        raise ValueError(f"{target.name} only drafts: name a model as the target")
    if target.encodes:
        raise ValueError(f"{target.name} has an encoder: name a decoder")
    return target


def existing_path(name: str) -> Path:
    """Returns the path. Raises ValueError where there is no file."""
    if not Path(name).is_file():
        raise ValueError(
            f"no file {name}: put one there, or name yours with --gin.TASK=\"'FILE'\""
        )
    return Path(name)
