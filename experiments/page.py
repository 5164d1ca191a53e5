"""All results on one page: `python -m experiments.page [DIR]` writes DIR/index.html.

The page needs nothing but itself: no script, no font, no image by address. It holds
what the records, the figures and the certificate of the folder say, the catalogue's
words and nothing else, so the same folder always gives the same bytes.
"""

import argparse
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

from experiments import catalogue, markup, records, tables
from experiments.claims import VERDICTS, claims
from experiments.hypertext import NONE, grid, inline, plain, prose
from experiments.line import Table
from experiments.walltime_claims import interval, label

STYLE = Path(__file__).with_name("page.css")
PAPER = "https://arxiv.org/abs/2211.17192"
OURS = tables.HEAD.index("ours")
WIDE = 480  # points; a wider figure keeps its letters and scrolls on its own

INTRODUCTION = (
    "What the records of specjax say of speculative decoding, beside what <cite>"
    f'<a href="{PAPER}">Leviathan, Kalman and Matias (2023)</a></cite> published. A'
    " number in a column <em>ours</em> was measured or computed by the command named"
    " with its table; a published number is that of the paper's models on the paper's"
    " hardware, there to compare shapes. What has no record says <em>not run</em>."
)
SUMMARY = "What was measured: the best gamma of each pair, temperature and batch"
MEASURED = (
    "The baseline is the same target decoding alone. c: one drafted token over one"
    " target token (Definition 3.7). v: gamma + 1 positions over one. overhead: the"
    " rest of a step, over one target token. EXP: Theorem 3.8. Exact prediction: from"
    " c, v, overhead and the acceptances as they came. EMP: measured."
)
SUMMARY_HEAD = ["draft, temperature, batch", "target", "best gamma", "alpha", "c", "v"]
SUMMARY_HEAD += ["overhead", "EXP", "exact prediction", "EMP [interval]"]
SUMMARY_HEAD += ["EMP / prediction - 1", "hardware", "state"]
EMP = SUMMARY_HEAD.index("EMP [interval]")
CLAIMS_HEAD = ["claim", "verdict", "ours", "what the paper says", "where"]
PROVENANCE_HEAD = ["folder", "records", "stale", "commit", "date", "device", "numbers"]
PROVENANCE_HEAD += ["versions"]


def stale(record: dict) -> str:
    if records.stale(record):
        return "STALE: made by other sources"
    return "ok, recorded earlier" if "earlier" in record else "ok"


def shown(x: float | None) -> str:
    return NONE if x is None else markup.number(x)


def best(record: dict) -> list[str]:
    """The line of one record of folder table2, in the columns of SUMMARY_HEAD."""
    m = record["measured"]
    names = ("alpha", "best_c", "best_v", "best_overhead", "best_exp", "best_predicted")
    predicted = m["best_predicted"]
    residual = predicted and f"{100 * (m['best_speedup'] / predicted - 1):+.1f} %"
    return [
        *(label(m), m["target"], str(m["best_gamma"]), *(shown(m[k]) for k in names)),
        interval(m["best_speedup"], m["best_speedup_ci"]),
        residual or NONE,
        *(records.device(record), stale(record)),
    ]


def summary(found: tables.Records) -> str:
    measured = found.get("table2", {})
    lines = [line for table in catalogue.tables() for line in table.lines]
    known = [line.row for line in lines if line.folder == "table2"]
    rows = [
        best(measured[row]) if row in measured else absent(row)
        for row in dict.fromkeys([*known, *measured])
    ]
    if not rows:
        return "<p>Not run: there is no record of folder <code>table2</code>.</p>\n"
    return grid("summary-table", SUMMARY, SUMMARY_HEAD, rows) + f"<p>{MEASURED}</p>\n"


def absent(row: str) -> list[str]:
    """The line of a row that has no record."""
    cells = [NONE] * len(SUMMARY_HEAD)
    cells[0], cells[EMP], cells[-1] = row, "not run", "not run"
    return cells


def verdicts(found: tables.Records) -> str:
    """The claims, a line for each piece of evidence; names what is stale."""
    rows = [
        [c.name, c.verdict, c.evidence.replace("; ", "\n"), c.statement, c.where]
        for c in claims(found)
    ]
    counts = [f"{sum(v == row[1] for row in rows)} {v}" for v in VERDICTS]
    text = grid("claims-table", ", ".join(counts), CLAIMS_HEAD, rows)
    old = sorted(
        name for name, made in found.items() if any(map(records.stale, made.values()))
    )
    if old:
        said = f"Stale, made by other sources than today's: {', '.join(old)}."
        text += f'<p class="warning">{said}</p>\n'
    return text


def lines_of(table: Table, found: tables.Records) -> str:
    """Every line of a table; those that need what is not here are folded."""
    rows = [filled(row) for row in tables.rows(table, found)]
    apart = [row for row in rows if row[-1].startswith("not run here")]
    here = [row for row in rows if row not in apart]
    text = grid(f"rows-{table.name}", table.title, tables.HEAD, here) if here else ""
    if apart:
        title = f"{table.title}: {len(apart)} lines that were not run here"
        inner = grid(f"rows-{table.name}-elsewhere", title, tables.HEAD, apart)
        summary = f"<summary>{len(apart)} lines not run here</summary>"
        text += f"<details>{summary}\n{inner}</details>\n"
    for number, (title, head, rows) in enumerate(tables.wider(table, found)):
        cells = [[text or NONE for text in row] for row in rows]
        text += grid(f"{table.name}-wider-{number}", title, head, cells)
    return text


def filled(row: list[str]) -> list[str]:
    """No cell is blank: ours says that it was not run, others have nothing to say."""
    cells = [text or NONE for text in row]
    if row[-1].startswith("not run"):
        cells[OURS] = "not run"
    return cells


def every_table(found: tables.Records) -> str:
    return "".join(
        f'<h3 id="about-{table.name}">{prose(table.title)}</h3>\n'
        f"<p>{prose(table.note)}</p>\n<p><code>{escape(table.command)}</code></p>\n"
        f"{lines_of(table, found)}"
        for table in catalogue.tables()
    )


def figures(folder: Path) -> str:
    titles = {table.name: table.title for table in catalogue.tables()}
    drawn = sorted(path.stem for path in folder.glob("figure*.svg"))
    wanted = [name for name in titles if name.startswith("figure")]
    parts = []
    for name in sorted({*drawn, *wanted}):
        title = prose(titles.get(name, name.replace("figure", "Figure ")))
        if name not in drawn:
            parts.append(f"<p>{title}: not drawn.</p>\n")
            continue
        svg = inline((folder / f"{name}.svg").read_text("utf-8"), f"{name}-drawing")
        size = float(re.search(r'viewBox="\S+ \S+ (\S+)', svg)[1])
        parts.append(
            f'<figure class="{"wide" if size > WIDE else "narrow"}">\n'
            f'<div class="scroll" tabindex="0" role="region"'
            f' aria-labelledby="{name}-drawing-is">'
            f'{svg}</div>\n<figcaption id="{name}-drawing-is">{title}</figcaption>'
            "</figure>\n"
        )
    return "".join(parts) or "<p>Not drawn: there is no figure in this folder.</p>\n"


def certificate(found: tables.Records) -> str:
    """Every case of the certificate's records."""
    several = [record["measured"] for record in found.get("certificate", {}).values()]
    cases = [case for measured in several for case in measured["cases"]]
    if not cases:
        return "<p>Not run: there is no record of the certificate.</p>\n"
    head = list(dict.fromkeys(key for case in cases for key in case))
    cells = [[plain(case.get(key)) for key in head] for case in cases]
    caption = f"The law of the verifiers' output, enumerated: {len(cases)} cases"
    return grid("certificate-table", caption, head, cells)


def provenance(found: tables.Records) -> str:
    """What made the records of each folder."""
    rows = []
    for name, made in sorted(found.items()):
        several = list(made.values())
        old = sum(map(records.stale, several))
        rows.append([name, str(len(several)), str(old), *origin(several)])
    if not rows:
        return "<p>Not run: there is no record in this folder.</p>\n"
    caption = "What made the records of each folder"
    return grid("provenance-table", caption, PROVENANCE_HEAD, rows)


def origin(several: list[dict]) -> list[str]:
    """Commit, date, device, numbers and versions: each distinct value on a line."""
    made = [record["provenance"] for record in several]
    commits = [
        (one["commit"] or "none")[:10] + " with changes" * bool(one["dirty"])
        for one in made
    ]
    versions = [
        ", ".join(f"{name} {v or 'from sources'}" for name, v in sorted(one.items()))
        for one in (record["provenance"]["versions"] for record in several)
    ]
    dates = [one["date"][:10] for one in made]
    numbers = [one["dtype"] or NONE for one in made]
    devices = map(records.device, several)
    return [*map(distinct, (commits, dates, devices, numbers, versions))]


def distinct(values: Iterable[str]) -> str:
    return "\n".join(sorted(set(values)))


def page(folder: Path, earlier: Path | None = None) -> str:
    """The page of a results folder, which may be empty."""
    found = tables.collect(folder, earlier)
    sections = {
        "summary": ("Summary", summary(found)),
        "claims": ("Claims of the paper", verdicts(found)),
        "tables": ("Tables", every_table(found)),
        "figures": ("Figures", figures(folder)),
        "certificate": ("Certificate", certificate(found)),
        "provenance": ("Provenance", provenance(found)),
    }
    body = "".join(
        f'<section id="{name}">\n<h2>{title}</h2>\n{text}</section>\n'
        for name, (title, text) in sections.items()
    )
    links = {name: f'<a href="#{name}">{sections[name][0]}</a>' for name in sections}
    links["tables"] += "<ul>" + "".join(
        f'<li><a href="#about-{table.name}">{prose(table.title)}</a></li>'
        for table in catalogue.tables()
    )
    links["tables"] += "</ul>"
    contents = "".join(f"<li>{link}</li>\n" for link in links.values())
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>specjax: results</title>\n<style>\n{STYLE.read_text('utf-8')}</style>"
        f"\n</head>\n<body>\n<header>\n<h1>specjax: results</h1>\n<p>{INTRODUCTION}</p>"
        f'\n</header>\n<nav aria-label="Contents">\n<p>Contents</p>\n<ul>\n{contents}'
        f"</ul>\n</nav>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )


def render(folder: Path, earlier: Path | None = None) -> None:
    """Tables and figures, then the page that holds them all."""
    tables.render(folder, earlier)
    (folder / "index.html").write_text(page(folder, earlier), "utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.page")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results"))
    folder = parser.parse_args(arguments).folder
    if not folder.is_dir():
        parser.error(f"no folder {folder}: measure something first")
    render(folder)
    print(f"rendered {folder / 'index.html'}")


if __name__ == "__main__":
    main()
