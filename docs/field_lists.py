"""Lists of arguments and fields for the API pages.

A docstring may describe arguments or fields in paragraphs, `gamma: tokens drafted.
tokens: those that were written.`, or in sections of Google's style, which Sphinx shows
as lists. Here such paragraphs become sections, so that every page shows a list.
"""

import dataclasses
import inspect
import itertools
import re
from collections.abc import Iterator, Sequence

SECTION = re.compile(r"\s*(Args|Attributes|Returns|Raises|Yields):$")
LISTED = re.compile(r"\s*(Args|Attributes):$")


def names_of(thing: object) -> list[str]:
    """Returns the names of what a docstring may describe: fields of a class, or
    parameters of a function."""
    if inspect.isclass(thing):
        fields = getattr(thing, "_fields", None)
        if fields is None and dataclasses.is_dataclass(thing):
            fields = [field.name for field in dataclasses.fields(thing)]
        return list(fields or ())
    try:
        return list(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        return []


def to_sections(lines: Sequence[str], names: Sequence[str], title: str) -> list[str]:
    """Returns the lines of a docstring with its paragraphs of names as a section.

    Args:
      lines: a docstring, without the indent of its code.
      names: the arguments or fields that it may describe.
      title: "Args" or "Attributes".
    """
    first = (i for i, line in enumerate(lines) if SECTION.match(line))
    until = next(first, len(lines))
    if not names or any(map(LISTED.match, lines)):
        return list(lines)
    one = "|".join(re.escape(name) for name in names)
    begins = re.compile(rf"(?:^|(?<=[.;)]) )((?:{one})(?:, (?:{one}))*): ")
    kept, items = [], []
    for paragraph in paragraphs(lines[:until]):
        text = " ".join(line.strip() for line in paragraph)
        if not begins.match(text) or paragraph[0][:1].isspace():
            kept += [*paragraph, ""]
            continue
        starts = [match.start() for match in begins.finditer(text)] + [len(text)]
        for begin, end in itertools.pairwise(starts):
            items.append(text[begin:end].strip())
    if not items:
        return list(lines)
    listed = [f"{title}:", *(f"  {item}" for item in items), ""]
    return [*kept, *listed, *lines[until:]]


def paragraphs(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yields the paragraphs of a docstring."""
    found: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            found.append(line)
        elif found:
            yield found
            found = []


def split_names(lines: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns the lines with one entry of a section a name.

    Of `calls, tokens: what both are` Sphinx would take the first name for a type. All
    names but the first refer to it.
    """
    one = "|".join(re.escape(name) for name in names)
    several = re.compile(rf"(\s+)((?:{one})(?:, (?:{one}))+): (.*)")
    found: list[str] = []
    others: list[str] = []
    depth = 0
    for line in [*lines, ""]:
        if others and len(line) - len(line.lstrip()) <= depth:
            found, others = found + others, []
        if names and (match := several.fullmatch(line)):
            indent, together, text = match.groups()
            first, *rest = together.split(", ")
            line, depth = f"{indent}{first}: {text}", len(indent)
            others = [f"{indent}{name}: see `{first}`." for name in rest]
        found.append(line)
    return found[:-1]


def process(app, what, name, thing, options, lines: list[str]) -> None:
    """Changes the lines of a docstring, as Sphinx asks (autodoc-process-docstring)."""
    title = "Attributes" if inspect.isclass(thing) else "Args"
    names = names_of(thing)
    lines[:] = split_names(to_sections(lines, names, title), names)
