"""The lesson's files: a page for each simulation, and its data as JSON beside it.

A page loads nothing from a network: its script, its style and its data are part of it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from experiments.records.table import Records
from experiments.report import site
from experiments.report.html import render
from experiments.report.lesson import export, heads


class Page(NamedTuple):
    """A page of the lesson.

    Attributes:
        name: the name of its file.
        summary: a line about it.
        data: a function from records to the data of its script and its words.
    """

    name: str
    title: str
    summary: str
    data: Callable[[Records], dict]


PAGES = (
    Page(
        "clock",
        "One call checks many tokens",
        "What a call reads, how a draft fills it, and what it takes in milliseconds.",
        export.clock_data,
    ),
    Page(
        "steps",
        "Draft, check, keep, add",
        "A recorded text writes itself, phase by phase.",
        export.steps,
    ),
    Page(
        "images",
        "Pixels as tokens",
        "Digits drawn pixel by pixel: nothing in the method is about words.",
        export.images,
    ),
    Page(
        "hand",
        "p and q by hand",
        "Move two distributions: what is kept, what is rejected, what comes out.",
        lambda results: export.two_laws_data(),
    ),
    Page(
        "samples",
        "Count the tokens",
        "Draw tokens by the right rule, and by five that are almost right.",
        lambda results: export.samples(),
    ),
    Page(
        "speed",
        "What a draft costs",
        "When a draft makes decoding faster, and when it makes it slower.",
        export.speed,
    ),
    Page(
        "tasks",
        "Speed by task",
        "What speeds up and what does not, beside the published numbers.",
        export.tasks,
    ),
    Page(
        "decoder",
        "A decoder, rule by rule",
        "Two real models, five rules, and the probabilities behind each decision.",
        lambda results: export.decoder(),
    ),
    Page(
        "methods",
        "Who drafts, and what is promised",
        "Methods since 2018, by what each guarantees, and what heads and drafts give.",
        lambda results: export.methods() | heads.rank_rows(results),
    ),
)


def texts(results: Records, docs: str | None = None) -> dict[str, str]:
    """Returns every file of the lesson by its name.

    Args:
        docs: the path to the documentation, if there is any.
    """
    shown = {
        "title": "Speculative decoding in nine simulations",
        "pages": PAGES,
        "docs": docs,
    }
    files = {"index.html": render("lesson/index", **shown)}
    for number, page in enumerate(PAGES, 1):
        data = page.data(results)
        own = shown | {"title": page.title, "number": number, "data": data}
        files[f"{page.name}.html"] = render(f"lesson/{page.name}", **own)
        files[f"{page.name}.json"] = json.dumps(data, indent=1) + "\n"
    return files


def write(folder: Path, results: Records) -> None:
    """Writes the lesson into the folder `lesson` of a results folder."""
    there, built = folder / "lesson", (site.DOCS / "index.html").is_file()
    there.mkdir(exist_ok=True)
    docs = site.to_docs(folder) if built else None
    for name, text in texts(results, docs).items():
        (there / name).write_text(text, "utf-8")
