"""Tasks for a chat model, in its own chat template: a question, and the beginning of an
answer.

A task is a file of JSON lines, plain, .gz or .xz, given by its path. The question has
the fields of a line in braces, as "Sum this up: {article}".
"""

import itertools
from pathlib import Path
from string import Formatter
from typing import Any

from experiments.tasks import Task, files, texts
from specjax import prompts
from specjax.checkpoints import Pretrained


def asked(
    name: str,
    target: Pretrained,
    *,
    ask: str,
    begun: str = "",
    reference: str = "",
    longest: int | None = None,
    count: int | None = None,
) -> Task:
    """Returns the prompts of a file: for each line the user's question, and the
    beginning of the answer.

    Args:
        name: the file.
        ask: the question, with the fields of a line in braces.
        begun: the beginning of the answer, in the same form, which the target
            continues.
        reference: the field with the human answer; empty where there is none.
        longest: the most tokens of a prompt, None for any.
        count: the number of prompts, the first of the file.

    Raises:
        ValueError: the file is absent or holds something else, the target has no chat
            template, or no prompt is left.
    """
    model = texts.reader(target)
    named = [*fields(ask), *fields(begun), reference]
    wanted = list(dict.fromkeys(filter(None, named)))

    def read(line: dict[str, str]) -> list[int]:
        message = {"role": "user", "content": ask.format(**line)}
        (ids,) = prompts.from_list([{"messages": [message]}], model).tokens
        beginning = encode_beginning(model.tokenizer, begun.format(**line))
        return [*ids, *beginning] if begun else ids

    lines = (
        dict(zip(wanted, line.texts, strict=True))
        for line in files.jsonl(texts.existing_path(name), wanted)
    )
    every = ((i, read(line), line.get(reference, "")) for i, line in enumerate(lines))
    fitting = (it for it in every if longest is None or len(it[1]) <= longest)
    chosen = list(itertools.islice(fitting, count))
    if not chosen:
        raise ValueError(f"{name} has no prompt of {longest} tokens or fewer")
    places, tokens, references = zip(*chosen, strict=True)
    return Task(
        prompts.Prompts(list(tokens), None, model.ends),
        list(references) if reference else [],
        (Path(name),),
        places,
    )


def encode_beginning(tokenizer: Any, text: str) -> list[int]:
    """Returns the tokens of a text that code continues: those that stay when an
    indented line follows.

    Some tokenizers join white space with what stands before it, some with what follows:
    a text that ends in white space ends in other tokens than the model was trained on.
    """
    alone, followed = (tokenizer.encode(text + line) for line in ("", "    return x"))
    if text == text.rstrip():
        return alone
    pairs = itertools.zip_longest(alone, followed)
    stay = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    return [id for id, _ in stay]


def fields(template: str) -> list[str]:
    """Returns the names in the braces of a template."""
    return [name for _, name, _, _ in Formatter().parse(template) if name]
