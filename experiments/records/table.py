"""Tables as data: their lines are read from files called lines.json.

A file holds tables by name. Each table has blocks, and a block makes a line for every
one of its rows (of a folder of gin_configs) and every quantity that their records have.
Values that several blocks share stand under "shared", and blocks refer to them by name.
"""

import itertools
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

Records = dict[str, dict[str, dict]]  # folder -> row -> its latest record
PUBLISHED = Path(__file__).with_name("published_values.json")


class Line(NamedTuple):
    """A number of a record, beside the number that was published for it.

    Attributes:
        quantity: its key in `measured`; "key@0.8" is a curve's value at alpha 0.8.
        error: the key of its standard error, where that is not the quantity's name and
            `_se`.
        decimals: the number of decimals of the published number.
        exact: our number must round to the published one.
        needs: what is missing where there is no record.
        goal: the goal that we set ourselves, such as "at least 2.5".
        label: what its row of a printed table is called.
        column: what its column is called; empty where a row has one number.
    """

    folder: str
    row: str
    what: str
    quantity: str
    published: float | None = None
    error: str | None = None
    decimals: int = 2
    exact: bool = False
    needs: str | None = None
    goal: str | None = None
    label: str = ""
    column: str = ""


class Table(NamedTuple):
    """A table and the lines that it has.

    Attributes:
        about: what it is about, in one plain sentence.
        note: what a reader must know to compare the numbers.
        command: the command that measures the rows.
        page: the Markdown file that it stands in, where that has another name.
    """

    name: str
    title: str
    about: str
    note: str
    command: str
    lines: list[Line]
    page: str


def read(paths: list[Path]) -> list[Table]:
    """Reads the tables of several files, in their order; names under "shared" apply to
    all files.
    """
    files = [json.loads(path.read_text("utf-8")) for path in paths]
    shared = {k: v for file in files for k, v in file.pop("shared", {}).items()}
    return [
        Table(
            name,
            it["title"],
            it["about"],
            " ".join(it["note"]),
            command(it["command"]),
            [line for block in it["blocks"] for line in read_lines(block, shared)],
            it.get("page", name),
        )
        for file in files
        for name, it in file.items()
    ]


def read_lines(block: dict, shared: dict) -> Iterator[Line]:
    """Yields the lines of a block.

    Each row is [name, label, source] or a beginning of that list. A row makes the lines
    of each of the block's parts, or of the block itself. The source is what the
    published numbers belong to, or a path in `published` for each quantity. A part has
    `lines`, the label of each quantity, which are repeated for every combination of the
    names in its `each`. Braces name such a choice: in "what" they stand for its label,
    elsewhere for its key.
    """

    def resolve(value):
        return shared.get(value, value) if isinstance(value, str) else value

    for row in resolve(block["rows"]):
        name, label, of = [*row, *[row[0], None][len(row) - 1 :]]
        for part in resolve(block.get("parts", [block])):
            it = block | part
            axes = {k: resolve(axis) for k, axis in part.get("each", {}).items()}
            for keys in itertools.product(*axes.values()):
                keys = dict(zip(axes, keys, strict=True))
                called = {
                    k: axes[k][v] if isinstance(axes[k], dict) else v
                    for k, v in keys.items()
                }
                for quantity, spec in resolve(part["lines"]).items():
                    spec = spec if isinstance(spec, dict) else {"what": spec}
                    what = spec["what"].format(**called)
                    template = it.get("what", "{row}: {what}")
                    names = printed_names(template, spec["what"], row=label, **called)
                    quantity = quantity.format(**keys)
                    error = spec.get("error")
                    yield Line(
                        it["folder"],
                        it.get("row", "{row}").format(row=name),
                        template.format(row=label, what=what, **called),
                        quantity,
                        published_number(spec, it.get("published"), of, quantity, keys),
                        error and error.format(**keys),
                        spec.get("decimals", 2),
                        it.get("exact", False),
                        resolve(it.get("needs")),
                        spec.get("goal"),
                        *names,
                    )


def printed_names(template: str, quantity: str, **called: str) -> tuple[str, str]:
    """Returns the names of the row and the column of a number in a printed table.

    Parts of a quantity's name that name a choice, such as ", width {width}", belong to
    the row.

    Args:
        template: the template of the number's whole name, in which {what} stands for
            `quantity`.
        called: the words for every name in braces.
    """
    pieces = quantity.split(", ")
    chosen = [piece for piece in pieces[1:] if "{" in piece]
    column = ", ".join(piece for piece in pieces if piece not in chosen)
    if ": " in column:  # such as "l = 1: alpha"
        before, _, column = column.rpartition(": ")
        template = template.replace("{what}", f"{before}: {{what}}")
    head, found, tail = template.partition("{what}")
    if not found:
        label = template
    elif head.endswith(": ") and not tail:
        label = head.removesuffix(": ")
    elif tail.startswith(": "):
        label, column = head + column, tail.removeprefix(": ")
    else:
        label, column = head + column, ""
    label = ", ".join(filter(None, [label, *chosen]))
    return label.format(**called), column.format(**called)


def published_number(
    spec: dict, table: str | None, of: str | dict | None, quantity: str, keys: dict
) -> float | None:
    """Returns the published number of a line, if there is one."""
    if isinstance(of, dict):
        path = of.get(quantity)
    else:
        path = of and spec.get("published")
        path = path and path.format(of=of, **keys)
    if not path:
        return None
    value = published_value(f"{table}/{path}" if table else path)
    times = spec.get("times", 1)
    return value if times == 1 else round(times * value, 6)


@cache
def published_values() -> dict:
    return json.loads(PUBLISHED.read_text("utf-8"))


def published_value(path: str) -> float:
    """Returns a number of published_values.json by its path: PAPER/TABLE/cells of a
    row/column.

    The cells of a row are separated by spaces. A step into a list is a position, every
    other step a key.

    Raises:
        KeyError: not exactly one row has the cells.
    """
    at = published_values()
    for step in path.split("/"):
        if isinstance(at, list):
            at = at[int(step)]
        elif step in at or "rows" not in at:
            at = at[step]
        else:
            cells = [parse_value(word) for word in step.split(" ")]
            rows = [row for row in at["rows"] if all(cell in row for cell in cells)]
            if len(rows) != 1:
                raise KeyError(f"{path}: {len(rows)} rows have {step!r}")
            at = dict(zip(at["columns"], rows[0], strict=True))
    return at


def parse_value(word: str) -> str | float | None:
    """Returns the value of a cell that is written in a path: a number, null, or the
    word itself.
    """
    try:
        return json.loads(word)
    except json.JSONDecodeError:
        return word


def published_rows(key: str) -> list[dict]:
    """Returns a table of Leviathan et al. (2023), as a dictionary for each row."""
    table = published_values()["leviathan2023"][key]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def command(folder: str) -> str:
    """Returns the command that measures a folder's rows; a name that is already a
    command is returned unchanged.
    """
    if " " in folder:
        return folder
    return f"python -m experiments.run gin_configs/{folder}/*.gin"
