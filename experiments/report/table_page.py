"""The pages behind the first one: one a table, one of the claims, one of the origin."""

from collections.abc import Iterable
from html import escape
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from experiments.records import records
from experiments.records.table import Records, Table
from experiments.report import details, tables
from experiments.report.claims.claims import VERDICTS, Claim, claims
from experiments.report.html import (
    NONE,
    document,
    drawing,
    filled,
    grid,
    prose,
    section,
)

OURS = tables.HEAD.index("ours")
BACK = '<p><a href="index.html">All results</a></p>\n'
CLAIMS_HEAD = ["claim", "verdict", "ours", "what the paper says", "where"]
PROVENANCE_HEAD = ["folder", "records", "with a note", "commit", "date", "device"]
PROVENANCE_HEAD += ["numbers", "versions"]
JUDGED = (
    "A comparison decides if it is larger than its error, at 95 % over all comparisons"
    " of a claim together. One in which a precondition of the claim fails (calls of the"
    " target whose time grows with their tokens, a draft that is too slow) is told with"
    " the numbers that show it, and does not decide. Where that works against the"
    ' claim, and the claim comes out all the same, it counts, with an "although".'
)


def pages(folder: Path, results: Records) -> dict[str, str]:
    """Every page but the first, by the name of its file."""
    own = {
        f"{table.name}.html": page_of(table, results, folder)
        for table in tables.every(results)
    }
    verdicts = document("Claims", f"{BACK}<p>{JUDGED}</p>\n", every_claim(results))
    origins = document("Where the numbers come from", BACK, provenance(results))
    return {**own, "claims.html": verdicts, "provenance.html": origins}


def page_of(table: Table, results: Records, folder: Path) -> str:
    """A table's own page: its drawing, its lines, and what is wider than a line."""
    kinds = ["md", "csv", "tex", *["svg"] * tables.is_figure(table)]
    name = quote(table.name)
    files = " ".join(f'<a href="{name}.{kind}">{kind}</a>' for kind in kinds)
    head = (
        f"{BACK}<p>{prose(table.note)}</p>\n"
        f"<p><code>{escape(table.command)}</code> ({files})</p>\n"
    )
    return document(table.title, head, figure(table, folder) + lines_of(table, results))


def figure(table: Table, folder: Path) -> str:
    if not tables.is_figure(table):
        return ""
    path = folder / f"{table.name}.svg"
    if not path.exists():
        return f"<p>{prose(table.title)}: not drawn.</p>\n"
    return drawing(table.name, path.read_text("utf-8"), table.title)


def lines_of(table: Table, results: Records) -> str:
    """Every line of a table; those that need what is not here are folded."""
    rows = [known(row) for row in tables.rows(table, results)]
    apart = [row for row in rows if row[-1].startswith("not run here")]
    here = [row for row in rows if row not in apart]
    text = grid(f"rows-{table.name}", table.title, tables.HEAD, here) if here else ""
    if apart:
        title = f"{table.title}: {len(apart)} lines that were not run here"
        inner = grid(f"rows-{table.name}-elsewhere", title, tables.HEAD, apart)
        summary = f"<summary>{len(apart)} lines not run here</summary>"
        text += f"<details>{summary}\n{inner}</details>\n"
    for number, (title, head, lines) in enumerate(details.of(table.name, results)):
        text += grid(f"{table.name}-wider-{number}", title, head, filled(lines))
    return text


def known(row: list[str]) -> list[str]:
    """No cell is blank: ours says that it was not run, others have nothing to say."""
    cells = [text or NONE for text in row]
    if row[-1].startswith("not run"):
        cells[OURS] = "not run"
    return cells


def every_claim(results: Records) -> str:
    """A table a paper, a line for each comparison."""
    return "".join(
        section(f"claims-{at}", paper, verdicts(f"claims-table-{at}", list(several)))
        for at, (paper, several) in enumerate(by_paper(results))
    )


def by_paper(results: Records) -> Iterable[tuple[str, Iterable[Claim]]]:
    return groupby(claims(results), key=lambda claim: claim.paper)


def verdicts(name: str, several: list[Claim]) -> str:
    rows = [
        [
            claim.name,
            claim.outcome.verdict,
            "\n".join([claim.outcome.short, *claim.outcome.evidence]),
            claim.statement,
            claim.where,
        ]
        for claim in several
    ]
    return grid(name, tally(several), CLAIMS_HEAD, rows)


def tally(several: Iterable[Claim]) -> str:
    """How many claims have which verdict."""
    each = [claim.outcome.verdict for claim in several]
    return ", ".join(f"{each.count(it)} {it}" for it in VERDICTS if it in each)


def provenance(results: Records) -> str:
    """What made the records of each folder."""
    rows = []
    for name, group in sorted(results.items()):
        several = [record for record in group.values() if record.get("kind") != "law"]
        noted = sum(bool(records.notes(record)) for record in several)
        if several:
            rows.append([name, str(len(several)), str(noted), *origin(several)])
    if not rows:
        return "<p>Not run: there is no record in this folder.</p>\n"
    caption = "What made the records of each folder"
    return grid("provenance-table", caption, PROVENANCE_HEAD, rows)


def origin(several: list[dict]) -> list[str]:
    """Commit, date, device, numbers and versions: each distinct value on a line."""
    group = [record["provenance"] for record in several]
    commits = [
        (it["commit"] or "none")[:10] + " with changes" * bool(it.get("dirty"))
        for it in group
    ]
    versions = [
        ", ".join(
            f"{name} {v or '(version unknown)'}" for name, v in sorted(it.items())
        )
        for it in (each["versions"] for each in group)
    ]
    dates = [it["date"][:10] for it in group]
    numbers = [it["dtype"] or NONE for it in group]
    devices = map(records.device, several)
    return [*map(distinct, (commits, dates, devices, numbers, versions))]


def distinct(values: Iterable[str]) -> str:
    return "\n".join(sorted(set(values)))
