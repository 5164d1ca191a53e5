"""Writes a folder that can be published, SITE: `python -m experiments.report.site [DIR
[SITE]]`.

It has a front page; behind it the pages of a results folder with their numbers as
files, as `experiments.report.page` renders them, and its lesson and the documentation
where they exist already. The site is static: it can be opened from a disk or served by
GitHub Pages, and loads nothing from a network.
"""

import argparse
import os
import shutil
from pathlib import Path

from experiments import catalogue
from experiments.records.table import Records
from experiments.report import headline, laws, page, runs, table_page, tables
from experiments.report.claims import claims
from experiments.report.html import render

DOCS = catalogue.ROOT / "docs/_build"
KINDS = "*.html", "*.svg", "*.csv", "*.jsonl", "*.md"


def first_page(
    folder: Path, results: Records, parts: dict[str, bool], address: str = ""
) -> str:
    """Returns the first page.

    Args:
        parts: whether there is each of "lesson", "results" and "docs".
        address: where the project is published; empty where it is not.
    """
    return render(
        "front",
        title="specjax",
        folder=folder,
        rows=speeds(results),
        note=headline.note(results, headline.headline_records(results), site=True),
        tally=table_page.tally(claims.claims(results)),
        parts=parts,
        address=address,
    )


def speeds(results: Records) -> list[list[str]]:
    """Returns the task, T, the speed here, its spread over runs, and the published
    speed of the same task, for each row.
    """
    found = zip(
        headline.headline_records(results).values(),
        headline.items(results),
        strict=True,
    )
    rows = [
        [
            f"{it['writes']}: {it['pair']}",
            f"{it['temperature']:g}",
            it["ours"],
            it["spread"],
            published,
        ]
        for record, it in found
        for published in [published_speed(record)]
    ]
    if chip := results.get("chip", {}).get("ende_small_t0"):
        ours = headline.interval(*map(chip["measured"].get, ("speedup", "speedup_ci")))
        device = chip["provenance"]["device"]["kind"]
        what = "Sizes of T5-XXL with T5-small, random weights, acceptance simulated;"
        what += f" one {device}"
        spread = runs.spread(runs.all_records(results), chip)
        rows.append([what, "0", ours, spread, published_speed(chip)])
    return rows


def published_speed(record: dict) -> str:
    published = record["published"] or {}
    return f"{published.get('best_speedup', published.get('speedup', '')) or ''}"


def to_docs(folder: Path) -> str:
    """Returns the path from the lesson in a results folder to the built
    documentation."""
    return Path(os.path.relpath(DOCS, folder / "lesson")).as_posix()


def write(
    folder: Path, site: Path, *, results: Records, docs: Path, address: str = ""
) -> None:
    """Copies the parts that exist, and writes the front page from the same records;
    replaces an earlier site.
    """
    shutil.rmtree(site, ignore_errors=True)
    shown = site / "results"
    shown.mkdir(parents=True)
    for path in (path for kind in KINDS for path in sorted(folder.glob(kind))):
        shutil.copy(path, shown)
    if (folder / "tables").is_dir():
        shutil.copytree(folder / "tables", shown / "tables")
    made = {"results/lesson": folder / "lesson", "docs": docs}
    for name, source in made.items():
        if (source / "index.html").is_file():
            unread = shutil.ignore_patterns(".doctrees", ".buildinfo")
            shutil.copytree(source, site / name, ignore=unread)
    for path in (site / "results/lesson").glob("*.html"):
        text = path.read_text("utf-8").replace(to_docs(folder), "../../docs")
        path.write_text(text, "utf-8")
    parts = {
        name: (site / place / "index.html").is_file()
        for name, place in (("lesson", "results/lesson"), ("results", "results"))
    }
    parts["docs"] = (site / "docs/index.html").is_file()
    first = first_page(folder, results, parts, address)
    (site / "index.html").write_text(first, "utf-8")
    # GitHub Pages leaves _static of the documents out else.
    (site / ".nojekyll").touch()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.report.site")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results"))
    parser.add_argument("site", nargs="?", type=Path, default=Path("site"))
    of_address = "where the project is published, https://..."
    parser.add_argument("--address", default="", help=of_address)
    chosen = parser.parse_args(arguments)
    if not chosen.folder.is_dir():
        parser.error(f"no folder {chosen.folder}: measure something first")
    if chosen.address and not chosen.address.startswith("https://"):
        parser.error(f"--address {chosen.address}: it must begin with https://")
    if chosen.site.exists() and not (chosen.site / ".nojekyll").exists():
        parser.error(f"{chosen.site} is there and no site: name another folder")
    results = tables.collect(chosen.folder, laws=laws.compute())
    page.render(chosen.folder, results)
    write(
        chosen.folder,
        chosen.site,
        results=results,
        docs=DOCS,
        address=chosen.address,
    )
    print(f"rendered {chosen.site / 'index.html'}")


if __name__ == "__main__":
    main()
