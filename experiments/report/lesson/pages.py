"""The lesson's files: a page for each simulation, and beside it its data as JSON.

A page loads nothing from a network: its script, its style and its data are part of it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from experiments.records.table import Records
from experiments.report import site
from experiments.report.html import render
from experiments.report.lesson import export


class Page(NamedTuple):
    """A page of the lesson.

    Attributes:
        name: of its file.
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
        "One clock",
        "Scoring token by token and all at once, in measured milliseconds.",
        export.clock,
    ),
    Page(
        "steps",
        "Draft, score, keep, add",
        "Recorded texts of real models, an iteration at a time.",
        export.steps,
    ),
    Page(
        "images",
        "Pixels as tokens",
        "Recorded images of digits, a call of the target at a time.",
        export.images,
    ),
    Page(
        "hand",
        "p and q by hand",
        "What is kept of a draft, what is thrown away and what gives it back.",
        lambda results: export.hand(),
    ),
    Page(
        "samples",
        "Count the tokens",
        "The right rule and five wrong ones, and how far from p each is.",
        lambda results: export.samples(),
    ),
    Page(
        "speed",
        "What a draft costs",
        "How often a draft is kept, how long it is and what it costs, against speed.",
        export.speed,
    ),
    Page(
        "tasks",
        "Speed by task",
        "Our rows by what is written, beside the published ones, each with its label.",
        export.tasks,
    ),
    Page(
        "decoder",
        "A decoder, rule by rule",
        "Two real models and every rule of chains, with what both said at each place.",
        lambda results: export.decoder(),
    ),
    Page(
        "methods",
        "Who drafts, and what is promised",
        "Methods from 2018 on, by what each guarantees of the text.",
        lambda results: export.methods(),
    ),
)


def texts(results: Records, docs: str | None = None) -> dict[str, str]:
    """Returns every file of the lesson by its name.

    Args:
        docs: the path to the documentation, if there is any.
    """
    shown = {"title": "Nine simulations", "pages": PAGES, "docs": docs}
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
