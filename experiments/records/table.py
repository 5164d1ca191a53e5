"""Tables as data: what the lines of each are, read from files called lines.json.

A file holds tables by name; each has blocks, and a block makes a line of every one of
its rows (of a folder of gin_configs) and every quantity that their records have. What
several blocks share stands under "shared" and is meant by its name.
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
    """One number of a record, beside the one that was published for it. quantity: its
    key in `measured`; "key@0.8" is a curve's value at alpha 0.8. error: the key of its
    standard error, where that is not the quantity's and `_se`. decimals: of the
    published number; exact: ours must round to it. needs: what is missing where no
    record is. goal: "at least 2.5", where we set ourselves one."""

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


class Table(NamedTuple):
    """`note`: what a reader must know to compare; `command`: what makes it; `page`: the
    Markdown file that it stands in, where that has another's name."""

    name: str
    title: str
    note: str
    command: str
    lines: list[Line]
    page: str


def read(paths: list[Path]) -> list[Table]:
    """The tables of several files, in their order; they share what is shared."""
    files = [json.loads(path.read_text("utf-8")) for path in paths]
    shared = {k: v for file in files for k, v in file.pop("shared", {}).items()}
    return [
        Table(
            name,
            it["title"],
            " ".join(it["note"]),
            command(it["command"]),
            [line for block in it["blocks"] for line in lines_of(block, shared)],
            it.get("page", name),
        )
        for file in files
        for name, it in file.items()
    ]


def lines_of(block: dict, shared: dict) -> Iterator[Line]:
    """The lines of a block: for each row, [name, what it is, `of`] or fewer of them,
    those of its parts, or of itself. `of` is what published numbers are of, or a path
    of `published` for each quantity. A part has `lines`, what each quantity is called,
    for every choice of the names in its `each`. Braces name a choice: in "what" as it
    is called, elsewhere by its key."""

    def named(value):
        return shared.get(value, value) if isinstance(value, str) else value

    for row in named(block["rows"]):
        name, label, of = [*row, *[row[0], None][len(row) - 1 :]]
        for part in named(block.get("parts", [block])):
            it = block | part
            axes = {k: named(axis) for k, axis in part.get("each", {}).items()}
            for keys in itertools.product(*axes.values()):
                keys = dict(zip(axes, keys, strict=True))
                called = {
                    k: axes[k][v] if isinstance(axes[k], dict) else v
                    for k, v in keys.items()
                }
                for quantity, spec in named(part["lines"]).items():
                    spec = spec if isinstance(spec, dict) else {"what": spec}
                    what = spec["what"].format(**called)
                    template = it.get("what", "{row}: {what}")
                    quantity = quantity.format(**keys)
                    error = spec.get("error")
                    yield Line(
                        it["folder"],
                        it.get("row", "{row}").format(row=name),
                        template.format(row=label, what=what, **called),
                        quantity,
                        printed(spec, it.get("published"), of, quantity, keys),
                        error and error.format(**keys),
                        spec.get("decimals", 2),
                        it.get("exact", False),
                        named(it.get("needs")),
                        spec.get("goal"),
                    )


def printed(
    spec: dict, table: str | None, of: str | dict | None, quantity: str, keys: dict
) -> float | None:
    """The published number of a line, if there is one."""
    if isinstance(of, dict):
        path = of.get(quantity)
    else:
        path = of and spec.get("published")
        path = path and path.format(of=of, **keys)
    if not path:
        return None
    value = published(f"{table}/{path}" if table else path)
    times = spec.get("times", 1)
    return value if times == 1 else round(times * value, 6)


@cache
def papers() -> dict:
    return json.loads(PUBLISHED.read_text("utf-8"))


def published(path: str) -> float:
    """A number of published_values.json: PAPER/TABLE/cells of a row/column. Exactly one
    row has the cells, between spaces, or KeyError is raised; a list is entered by a
    position and all else by a key."""
    at = papers()
    for step in path.split("/"):
        if isinstance(at, list):
            at = at[int(step)]
        elif step in at or "rows" not in at:
            at = at[step]
        else:
            cells = [value_of(word) for word in step.split(" ")]
            rows = [row for row in at["rows"] if all(cell in row for cell in cells)]
            if len(rows) != 1:
                raise KeyError(f"{path}: {len(rows)} rows have {step!r}")
            at = dict(zip(at["columns"], rows[0], strict=True))
    return at


def value_of(word: str) -> str | float | None:
    """A cell as it is written in a path: a number, null, or the word itself."""
    try:
        return json.loads(word)
    except json.JSONDecodeError:
        return word


def rows_of(key: str) -> list[dict]:
    """A table of Leviathan et al. (2023), a dict a row."""
    table = papers()["leviathan2023"][key]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def command(folder: str) -> str:
    """What measures a folder's rows; any other command is itself."""
    if " " in folder:
        return folder
    return f"python -m experiments.run gin_configs/{folder}/*.gin"
