"""The pages behind the first one: one for each table, one for the claims, one for the
origin of records.
"""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from experiments.records import records
from experiments.records.table import Records, Table
from experiments.report import details, printed, tables
from experiments.report.claims.claims import OUT_OF_SCOPE, VERDICTS, Claim, claims
from experiments.report.html import NONE, render


def pages(folder: Path, results: Records) -> dict[str, str]:
    """Returns every page but the first, by its file name."""
    own = {
        f"{table.name}.html": make_table_page(table, results, folder)
        for table in tables.all_tables(results)
    }
    papers = [
        (paper, tally(several), [*map(claim_lines, several)])
        for paper, group in groupby(claims(results), key=lambda claim: claim.paper)
        for several in [list(group)]
    ]
    title = "Where the numbers come from"
    return own | {
        "claims.html": render("claims", title="Claims", papers=papers),
        "provenance.html": render("provenance", title=title, lines=origins(results)),
    }


def make_table_page(table: Table, results: Records, folder: Path) -> str:
    """Returns the page of a table: its drawing, its numbers, and the text below
    them."""
    drawn = tables.is_figure(table)
    own = [(kind, f"{table.name}.{kind}") for kind in ["csv", *["svg"] * drawn]]
    lists = details.long_tables(table.name, results)
    own += [(f"csv: {end}", f"{table.name}_{end}.csv") for end in lists]
    return render(
        "table",
        title=table.title,
        key=table.name,
        folder=folder,
        files=[("md", f"{table.page}.md"), ("tex", f"tables/{table.name}.tex"), *own],
        page=printed.print_table(table, results),
    )


def claim_lines(claim: Claim) -> list[str]:
    """Returns a claim, with a line for each of its comparisons."""
    found = claim.outcome
    ours = "\n".join([found.short, *found.evidence])
    return [claim.name, found.verdict, ours, claim.statement, claim.where]


def tally(several: Iterable[Claim]) -> str:
    """Returns how many claims have each verdict."""
    each = [claim.outcome.verdict for claim in several]
    names = {OUT_OF_SCOPE: "without their precondition here"}
    return "; ".join(
        f"{each.count(it)} {names.get(it, it)}" for it in VERDICTS if it in each
    )


def origins(results: Records) -> list[list[str]]:
    """Returns the origin of the records in each folder."""
    lines = []
    for name, group in sorted(results.items()):
        several = [record for record in group.values() if record.get("kind") != "law"]
        noted = sum(bool(records.notes(record)) for record in several)
        if several:
            lines.append([name, str(len(several)), str(noted), *origin(several)])
    return lines


def origin(several: list[dict]) -> list[str]:
    """Returns commit, date, device, numbers and versions, with each distinct value on a
    line.
    """

    def cells(record: dict) -> tuple[str, ...]:
        it = record["provenance"]
        commit = (it["commit"] or "none")[:10] + " with changes" * bool(it.get("dirty"))
        named = sorted(it["versions"].items())
        versions = ", ".join(f"{name} {v or '(version unknown)'}" for name, v in named)
        device, dtype = records.device(record), it["dtype"] or NONE
        return commit, it["date"][:10], device, dtype, versions

    columns = zip(*map(cells, several), strict=True)
    return ["\n".join(sorted(set(column))) for column in columns]
