"""The answer on one page, DIR/index.html: `python -m experiments.report.page [DIR]`.

What was run, every speed with its interval, one text step by step, one recording to
listen to, and what became of the papers' claims; behind it a page per table. A page
needs nothing but itself: no script, no font, no image and no sound by address. It holds
what the records and the drawings of the folder say, laws as they are computed now, the
bundled recording and the catalogue's words.
"""

import argparse
from collections import Counter
from collections.abc import Iterable
from html import escape
from pathlib import Path
from urllib.parse import quote

from experiments.records import records
from experiments.records.table import Records
from experiments.report import laws, recording, table_page, tables
from experiments.report.claims import claims
from experiments.report.html import document, drawing, grid, prose, section

PAPER = "https://arxiv.org/abs/2211.17192"
ABOUT = (
    "<p>Speculative decoding as measured here, beside what <cite>"
    f'<a href="{PAPER}">Leviathan, Kalman and Matias (2023)</a></cite> and three that'
    " follow published. A published number is that of other models on other hardware,"
    " there to compare shapes, and never stands in a column <em>ours</em>.</p>\n"
)
SPEEDS = "Speed at the best gamma, measured and published (Table 2)"
TEXT = "Figure 1: one text, a line a call of the target"
CLAIMS_HEAD = ["claim", "paper", "verdict", "comparisons"]
MARGIN = 3  # devices, dates and versions that are named; more are counted


def page(folder: Path, results: Records) -> str:
    """The first page of a results folder, which may be empty."""
    drawn = figure(folder, recording.ROW, recording.CAPTION)
    heard = recording.heard(results) + drawn
    sections = {
        "run": ("What was run", run(results)),
        "speeds": ("How much faster", figure(folder, "speeds", SPEEDS)),
        "text": ("One text", figure(folder, "figure1", TEXT)),
        "recording": ("One recording", heard),
        "claims": ("What the papers claim", verdicts(results)),
        "tables": ("Every table and figure", index(results)),
    }
    main = "".join(section(name, *parts) for name, parts in sections.items())
    return document("specjax: results", ABOUT, f'<div class="answer">{main}</div>\n')


def run(results: Records) -> str:
    """Records, devices, dates and how many have a note, in a sentence."""
    rows = (record for rows in results.values() for record in rows.values())
    every = [record for record in rows if record.get("kind") != "law"]
    if not every:
        return "<p>Not run: there is no record in this folder.</p>\n"
    origins = [record["provenance"] for record in every]
    timed = [it for it in every if it["scale"] not in ("closed form", "compiled")]
    devices = listed(map(records.device, timed)) or "no device"
    dates = sorted(it["date"][:10] for it in origins)
    jax = listed(f"jax {it['versions'].get('jax', '(unknown)')}" for it in origins)
    noted = sum(bool(records.notes(record)) for record in every)
    folders = len({it["table"] for it in every})
    marked = sum("earlier" in record for record in every)
    told = [
        f"{len(every)} rows of {folders} folders, {len(timed)} of them measured on"
        f" {devices}, the others computed or compiled; {jax}; {dates[0]} to {dates[-1]}"
    ]
    told += [f"{marked} of them were recorded earlier"] if marked else []
    told += [f"{noted} of them with a note"] if noted else []
    more = '<a href="provenance.html">where each comes from</a>'
    return f"<p>{escape('; '.join(told))} ({more}).</p>\n"


def listed(values: Iterable[str]) -> str:
    """Distinct values, the most frequent first; many are counted."""
    names = [name for name, _ in Counter(values).most_common()]
    more = f" and {len(names) - MARGIN} more" if len(names) > MARGIN else ""
    return ", ".join(names[:MARGIN]) + more


def figure(folder: Path, name: str, caption: str) -> str:
    path = folder / f"{name}.svg"
    if not path.exists():
        return f"<p>{prose(caption)}: not drawn.</p>\n"
    return drawing(name, path.read_text("utf-8"), caption)


def verdicts(results: Records) -> str:
    """A line a claim; the comparisons stand on their own page."""
    several = claims.claims(results)
    rows = [
        [it.name, it.paper, it.outcome.verdict, it.outcome.short.partition("; ")[0]]
        for it in several
    ]
    text = grid("claims-table", table_page.tally(several), CLAIMS_HEAD, rows)
    every = '<a href="claims.html">Every comparison, with its numbers and errors</a>'
    return f'<div class="dense">{text}</div>\n<p>{every}</p>\n'


def index(results: Records) -> str:
    """A link to the page of every table, and how many lines it has of which state."""
    items = []
    for table in tables.every(results):
        states = Counter(
            row[-1].partition(":")[0] for row in tables.rows(table, results)
        )
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        link = f'<a href="{quote(table.name)}.html">{prose(table.title)}</a>'
        items.append(f"<li>{link}: {escape(counts)}</li>\n")
    return f"<ul>\n{''.join(items)}</ul>\n"


def texts(folder: Path, results: Records) -> dict[str, str]:
    """Every page by the name of its file; drawings are those of the folder."""
    return {"index.html": page(folder, results), **table_page.pages(folder, results)}


def render(folder: Path, results: Records) -> None:
    """Tables and figures, then the pages that hold them all."""
    tables.render(folder, results)
    for name, text in texts(folder, results).items():
        (folder / name).write_text(text, "utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.report.page")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results"))
    folder = parser.parse_args(arguments).folder
    if not folder.is_dir():
        parser.error(f"no folder {folder}: measure something first")
    render(folder, tables.collect(folder, computed=laws.computed()))
    print(f"rendered {folder / 'index.html'}")


if __name__ == "__main__":
    main()
