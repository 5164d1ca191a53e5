"""Renders records: `python -m experiments.tables [DIR]`.

Every table of the catalogue becomes DIR/<table>.md, .csv and .tex, a figure also .svg,
and DIR/README.md says which command makes which. Nothing is read but the records and
the catalogue, so a rendered file can be checked by rendering it again.
"""

import argparse
from collections import Counter
from pathlib import Path

from experiments import (
    catalogue,
    catalogue_conformance,
    catalogue_kernels,
    catalogue_kernels_aot,
    catalogue_lenience,
    catalogue_microscope,
    catalogue_wagner,
    markup,
    records,
    walltime_tables,
)
from experiments.kernel_bench_words import FAILED, SKIPPED
from experiments.line import Line, Table
from experiments.rivals import table as rivals
from specjax.bench import jsonl

HEAD = ["what", "published (paper's model)", "ours", "standard error", "n"]
HEAD += ["hardware", "date", "state"]
FOUR = ["counts", "implied_alpha", "chen_r"]
FOUR_HEAD = ["what", "alpha (Rao-Blackwell)", "alpha (counts)", "alpha (implied)"]
FOUR_HEAD += ["Chen's r", "gamma", "tokens per call", "output"]

Records = dict[str, dict[str, dict]]  # folder -> row -> its latest record


def collect(folder: Path, earlier: Path | None = None) -> Records:
    """The latest record of each row of each file.

    earlier: a folder whose records stand in for rows that this one has not, marked.
    """
    files = sorted(folder.glob("*.jsonl"))
    found = {path.stem: records.latest(jsonl.read(path)) for path in files}
    for name, made in collect(earlier).items() if earlier else ():
        marked = {row: {**record, "earlier": True} for row, record in made.items()}
        found[name] = marked | found.get(name, {})
    return found


def cells(line: Line, found: Records) -> list[str]:
    """One line in the columns of HEAD; ours stays empty unless it was measured."""
    published = "" if line.published is None else f"{line.published:.{line.decimals}f}"
    record = found.get(line.folder, {}).get(line.row)
    if record is None:
        needs = f"not run here: needs {line.needs}" if line.needs else "not run"
        return [line.what, published, "", "", "", "", "", needs]
    measured, made = record["measured"], record["provenance"]
    error = measured.get(line.error)
    count = measured.get("tokens")
    return [
        line.what if line.needs is None else f"{line.what}{used(measured)}",
        published,
        markup.number(value(measured, line.quantity)),
        "" if error is None else markup.number(error),
        "" if count is None else str(count),
        records.device(record),
        made["date"][:10],
        state(line, record),
    ]


def used(measured: dict) -> str:
    """Which checkpoints a row of the paper's sizes was measured with."""
    found = (measured.get(side) for side in ("target", "draft"))
    sides = [side for side in found if isinstance(side, str)]  # others are sizes
    return f" [{' with '.join(sides)}]" if sides else ""


def value(measured: dict, quantity: str) -> float | None:
    """A number of a record; "key@a" is the point of curve `key` at alpha = a."""
    name, _, point = quantity.partition("@")
    if not point:
        return measured[name]
    return measured[name][measured["alpha"].index(float(point))]


def state(line: Line, record: dict) -> str:
    """`ok`, or what is wrong: older than its sources, failed, not what the paper
    printed; or that another run measured it."""
    if records.stale(record):
        return "STALE: made by other sources"
    if value(record["measured"], line.quantity) in (FAILED, SKIPPED):
        return value(record["measured"], line.quantity)
    if line.exact:
        off = abs(value(record["measured"], line.quantity) - line.published)
        if off > 0.5 * 10**-line.decimals + 1e-9:
            return "DIFFERS from the paper's rounding"
    return "ok, recorded earlier" if "earlier" in record else "ok"


def rows(table: Table, found: Records) -> list[list[str]]:
    return [cells(line, found) for line in table.lines]


def estimators(table: Table, found: Records) -> list[list[str]]:
    """The four estimates side by side, for the rows that have them."""
    lines = []
    for line in table.lines:
        record = found.get(line.folder, {}).get(line.row)
        if record is None or "estimates" not in record["measured"]:
            continue
        it = record["measured"]
        four = [it["estimates"][name] for name in ["rao_blackwell", *FOUR]]
        both = [
            f"{markup.number(one['value'])} ± {markup.number(one['se'])}"
            for one in four
        ]
        gamma, calls = it["protocol"]["gamma"], f"{it['tokens_per_call']:.3f}"
        law = f"{it['exactness']}, {it['draft_regime']}"
        lines.append([line.what, *both, str(gamma), calls, law])
    return lines


def page(table: Table, found: Records) -> str:
    """One table as a Markdown page."""
    text = f"# {table.title}\n\n{table.note}\n\n`{table.command}`\n\n"
    if is_figure(table):
        text += f"![{table.title}]({table.name}.svg)\n\n"
    text += markup.markdown(HEAD, rows(table, found))
    for title, head, lines in wider(table, found):
        text += f"\n## {title}\n\n" + markup.markdown(head, lines)
    return text


def wider(table: Table, found: Records) -> list[tuple[str, list, list]]:
    """Tables that say more than a number a line: title, head, rows."""
    if table.name == "table3" and (four := estimators(table, found)):
        return [("The four estimators, ± one standard error", FOUR_HEAD, four)]
    if table.name == "bench":
        return rivals.wider(found.get("bench", {}))
    if table.name == "conformance":
        return catalogue_conformance.wider(found.get("conformance", {}))
    if table.name == "kernels":
        return catalogue_kernels.wider(found.get("kernels", {}))
    if table.name == "kernels_aot":
        return catalogue_kernels_aot.wider(found.get("kernels_aot", {}))
    if table.name in ("wagner_text", "wagner_scale"):
        return catalogue_wagner.wider(found.get(table.name, {}))
    if table.name == "microscope" and "microscope" in found:
        lines = catalogue_microscope.by_gamma(found["microscope"])
        return [("By gamma", catalogue_microscope.HEAD, lines)]
    runs = catalogue_lenience.runs(found.get("table5", {}))
    if table.name == "table5" and runs:
        title = "Decoding runs with lenience l, ± one standard error"
        return [(title, catalogue_lenience.RUNS_HEAD, runs)]
    made = found.get("table2", {}) | found.get("table2_paper", {})
    if table.name == "table4" and made:
        title = "In the paper's shape, at the best gamma"
        return [(title, walltime_tables.HEAD, walltime_tables.best(made))]
    if table.name == "table2":
        return [
            (walltime_tables.title(r), walltime_tables.EVERY, lines)
            for r in made.values()
            if (lines := walltime_tables.every_gamma(r))
        ]
    return []


def is_figure(table: Table) -> bool:
    return table.name.startswith("figure")


def has_curves(table: Table) -> bool:
    return any("@" in line.quantity for line in table.lines)


def points(table: Table, found: Records) -> str:
    """All points of a figure's curves as CSV."""
    names = list(dict.fromkeys(line.quantity.partition("@")[0] for line in table.lines))
    curves = dict.fromkeys(line.row for line in table.lines)
    lines = []
    for row in curves:
        measured = found.get(table.name, {}).get(row, {}).get("measured", {"alpha": []})
        columns = [measured["alpha"], *(measured.get(name, []) for name in names)]
        for point in zip(*columns, strict=True):
            lines.append([row, *("" if x is None else f"{x:g}" for x in point)])
    return markup.comma_separated(["curve", "alpha", *names], lines)


def index(found: Records) -> str:
    """The page that leads from a table to its command and its files."""
    lines = []
    for table in catalogue.tables():
        kinds = ["md", "csv", "tex"] + ["svg"] * is_figure(table)
        files = " ".join(f"[{kind}]({table.name}.{kind})" for kind in kinds)
        states = Counter(row[-1].partition(":")[0] for row in rows(table, found))
        summary = ", ".join(f"{count} {name}" for name, count in states.items())
        lines.append([table.title, f"`{table.command}`", files, summary])
    head = ["table", "command", "files", "lines"]
    return (
        "# Results\n\nRendered from the records beside this file by"
        " `python -m experiments.page`, which also makes"
        " [one page of all](index.html). A published number is never in the column"
        f" `ours`.\n\n{markup.markdown(head, lines)}"
    )


def texts(folder: Path, earlier: Path | None = None) -> dict[str, str]:
    """Every file but the drawings, by name."""
    found, made = collect(folder, earlier), {}
    for table in catalogue.tables():
        lines = rows(table, found)
        made[f"{table.name}.md"] = page(table, found)
        made[f"{table.name}.tex"] = markup.latex(HEAD, lines)
        flat = markup.comma_separated(HEAD, lines)
        made[f"{table.name}.csv"] = points(table, found) if has_curves(table) else flat
    return made | {"README.md": index(found)}


def render(folder: Path, earlier: Path | None = None) -> None:
    """Writes the tables, and the figures where matplotlib is installed."""
    for name, text in texts(folder, earlier).items():
        (folder / name).write_text(text, "utf-8")
    try:
        from experiments import figures
    except ImportError:
        print("figures not drawn: install the extra `plots`")
        return
    for table in filter(is_figure, catalogue.tables()):
        found = collect(folder, earlier)
        figures.draw(table.name, found, folder / f"{table.name}.svg")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.tables")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results"))
    folder = parser.parse_args(arguments).folder
    if not folder.is_dir():
        parser.error(f"no folder {folder}: measure something first")
    render(folder)
    print(f"rendered {folder / 'README.md'}")


if __name__ == "__main__":
    main()
