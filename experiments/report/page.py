"""The results on one page, DIR/index.html: `python -m experiments.report.page [DIR]`.

It shows the rows that were run, every speed with its interval, one text step by step,
one recording to listen to, and the verdicts on the papers' claims; links lead to a page
for each table. A page depends on nothing else: it loads no script, font, image or sound
from an address. It is made of the records and drawings of the folder, laws as they are
computed now, the bundled recording and the words of the catalogue.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from experiments.records import records
from experiments.records.table import Records
from experiments.report import recording, table_page, tables
from experiments.report.claims import claims
from experiments.report.html import render as page_of

MARGIN = 3  # devices, dates and versions that are named; more are counted


def page(folder: Path, results: Records) -> str:
    """Returns the first page of a results folder, which may be empty."""
    several = claims.claims(results)
    return page_of(
        "index",
        title="specjax: results",
        folder=folder,
        run=run(results),
        heard=recording.transcript(results),
        absent=recording.ABSENT,
        lesson=(folder / "lesson" / "index.html").is_file(),
        tally=table_page.tally(several),
        # A line a claim; the comparisons stand on their own page.
        claims=[
            [it.name, it.paper, it.outcome.verdict, it.outcome.short.partition("; ")[0]]
            for it in several
        ],
        tables=[
            (table.name, table.title, tables.states(table, results))
            for table in tables.all_tables(results)
        ],
    )


def run(results: Records) -> dict | None:
    """Returns the number of records, their devices and dates, and how many records have
    a note.
    """
    rows = (record for rows in results.values() for record in rows.values())
    every = [record for record in rows if record.get("kind") != "law"]
    if not every:
        return None
    origins = [record["provenance"] for record in every]
    versions = (f"jax {it['versions'].get('jax', '(unknown)')}" for it in origins)
    timed = [it for it in every if it["scale"] not in ("closed form", "compiled")]
    return {
        "rows": len(every),
        "folders": len({it["table"] for it in every}),
        "timed": len(timed),
        "devices": list_distinct(map(records.device, timed), "; ") or "no device",
        "jax": list_distinct(versions),
        "dates": sorted(it["date"][:10] for it in origins),
        "earlier": sum("earlier" in record for record in every),
        "noted": sum(bool(records.notes(record)) for record in every),
    }


def list_distinct(values: Iterable[str], between: str = ", ") -> str:
    """Returns the distinct values, the most frequent first; if there are many, only
    their number.

    Args:
        between: what separates two of them.
    """
    names = [name for name, _ in Counter(values).most_common()]
    more = f" and {len(names) - MARGIN} more" if len(names) > MARGIN else ""
    return between.join(names[:MARGIN]) + more


def texts(folder: Path, results: Records) -> dict[str, str]:
    """Returns every page by its file name; the drawings are those in the folder."""
    return {"index.html": page(folder, results), **table_page.pages(folder, results)}


def render(folder: Path, results: Records) -> None:
    """Writes tables and figures, then the pages that contain them."""
    tables.render(folder, results)
    for name, text in texts(folder, results).items():
        (folder / name).write_text(text, "utf-8")


def main(arguments: list[str] | None = None) -> None:
    prog = "python -m experiments.report.page"
    tables.main(arguments, render=render, prog=prog, shown="index.html")


if __name__ == "__main__":
    main()
