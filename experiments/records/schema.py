"""The fields of a record, from one schema: the page that lists them.

`schema.json` is a JSON Schema; `description` and `unit` of a field are what the page
says. `python -m experiments.records.schema` writes docs/guides/records.md.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from experiments.records import markup

HERE = Path(__file__).with_name("schema.json")
PAGE = HERE.parents[2] / "docs/guides/records.md"
INTRODUCTION = """\
# A record's fields

A record is one line of a `.jsonl` file: the numbers of a measured row, and where they
come from. `specjax run`, `measure --out` and `python -m experiments.run` write records;
`results/` has those that the tables are rendered from. This page is rendered from
`experiments/records/schema.json`, a JSON Schema; tests check every record in
`results/` against it.

"""
OF_MEASURED = """\
Different tables measure different things; these fields are common. The name of every
other number says what it is, with the endings and beginnings below. The elements of a
list are in the order of another field: `speedup` and the other lists in rows of
walltime are in the order of `gamma`.

"""


@cache
def load() -> dict[str, Any]:
    """Returns the schema."""
    return json.loads(HERE.read_text("utf-8"))


def page() -> str:
    """Returns the page of all fields, in Markdown."""
    schema = load()
    measured, origin = (schema["properties"][x] for x in ("measured", "provenance"))
    text = INTRODUCTION + table(schema)
    text += "\n## measured\n\n" + OF_MEASURED + table(measured)
    text += "\n" + named_alike(measured)
    return text + "\n## provenance\n\n" + table(origin)


def table(schema: dict[str, Any]) -> str:
    rows = [[f"`{name}`", *words] for name, *words in fields(schema)]
    return markup.markdown_grid(["field", "unit", "what it is"], rows) + "\n"


def fields(schema: dict[str, Any], before: str = "") -> Iterator[list[str]]:
    """Yields the name, unit and description of each field, those of nested objects
    after their parent's, but not those within `measured` and `provenance`.
    """
    required = schema.get("required", [])
    for name, it in schema.get("properties", {}).items():
        rare = "" if name in required or not required else "; not in every record"
        yield [before + name, it.get("unit", ""), it["description"] + rare]
        if name not in ("measured", "provenance"):
            yield from fields(it, f"{before}{name}.")


def named_alike(schema: dict[str, Any]) -> str:
    """Returns the table of the beginnings and endings that names of numbers share."""
    rows = [
        [it["title"], it["description"]] for it in schema["patternProperties"].values()
    ]
    return markup.markdown_grid(["a name with", "is"], rows) + "\n"


def main() -> None:
    PAGE.write_text(page(), "utf-8")
    print(f"rendered {PAGE}")


if __name__ == "__main__":
    main()
