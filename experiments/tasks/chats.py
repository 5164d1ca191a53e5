"""Tasks put to a chat model by its own template: what is asked, and an answer begun.

A task is a file of JSON lines, plain, .gz or .xz, by its path. How it is asked has the
fields of a line in braces, as "Sum this up: {article}".
"""

from itertools import islice
from pathlib import Path
from string import Formatter

from experiments.tasks import Task, files, texts
from specjax import prompts
from specjax.checkpoints import Pretrained


def asked(
    name: str,
    target: Pretrained,
    ask: str,
    begun: str = "",
    reference: str = "",
    longest: int | None = None,
    count: int | None = None,
) -> Task:
    """What the user asks in each line, and how the answer begins.

    name: the file. ask: with the fields of a line in braces. begun: the same of the
    answer, which the target goes on with. reference: the field that a person wrote for
    each; empty where nobody did. longest: no prompt of more tokens, None for any.
    count: so many of those, the first. Raises ValueError for a file that is absent or
    holds something else, a target without a chat template, or where nothing is left.
    """
    model = texts.reader(target)
    named = [*fields(ask), *fields(begun), reference]
    wanted = list(dict.fromkeys(filter(None, named)))

    def read(line: dict[str, str]) -> list[int]:
        message = {"role": "user", "content": ask.format(**line)}
        (ids,) = prompts.from_list([{"messages": [message]}], model).tokens
        # Tokens join the white space at its end with what follows.
        more = begun.format(**line).rstrip()
        return [*ids, *model.tokenizer.encode(more)] if begun else ids

    lines = (
        dict(zip(wanted, line.texts, strict=True))
        for line in files.jsonl(texts.there(name), wanted)
    )
    every = ((read(line), line.get(reference, "")) for line in lines)
    fitting = (it for it in every if longest is None or len(it[0]) <= longest)
    chosen = list(islice(fitting, count))
    if not chosen:
        raise ValueError(f"{name} has no prompt of {longest} tokens or fewer")
    tokens, references = map(list, zip(*chosen, strict=True))
    listed = references if reference else []
    return Task(prompts.Prompts(tokens, None, model.ends), listed, (Path(name),))


def fields(template: str) -> list[str]:
    """The names in the braces of a template."""
    return [name for _, name, _, _ in Formatter().parse(template) if name]
