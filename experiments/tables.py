"""Renders records: `python -m experiments.tables [DIR]`.

Every table of the catalogue becomes DIR/<table>.md, .csv and .tex, a figure also .svg,
and DIR/README.md says which command makes which. Nothing is read but the records and
the catalogue, so a rendered file can be checked by rendering it again.
"""

import argparse
from collections import Counter
from pathlib import Path

from experiments import catalogue, markup, records
from experiments.catalogue import Line, Table

HEAD = ["what", "published (paper's model)", "ours", "standard error", "n"]
HEAD += ["hardware", "date", "state"]
FOUR = ["counts", "implied_alpha", "chen_r"]

Records = dict[str, dict[str, dict]]  # folder -> row -> its latest record


def collect(folder: Path) -> Records:
    """The latest record of each row of each file."""
    files = sorted(folder.glob("*.jsonl"))
    return {path.stem: records.latest(records.read(path)) for path in files}


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
        line.what,
        published,
        number(value(measured, line.quantity)),
        "" if error is None else number(error),
        "" if count is None else str(count),
        hardware(record),
        made["date"][:10],
        state(line, record),
    ]


def value(measured: dict, quantity: str) -> float | None:
    """A number of a record; "key@a" is the point of curve `key` at alpha = a."""
    name, _, point = quantity.partition("@")
    if not point:
        return measured[name]
    return measured[name][measured["alpha"].index(float(point))]


def number(x: float | None) -> str:
    return "infinite" if x is None else f"{x:.4g}" if x >= 1 else f"{x:.4f}"


def hardware(record: dict) -> str:
    if record["scale"] == "closed form":
        return "none (closed form)"
    device = record["provenance"]["device"]
    cores = f", {device['host_cores']} cores" if device["platform"] == "cpu" else ""
    return f"{device['count']} x {device['kind']}{cores}"


def state(line: Line, record: dict) -> str:
    """`ok`, or what is wrong: older than its sources, not what the paper printed."""
    if records.stale(record):
        return "STALE: made by other sources"
    if line.exact:
        off = abs(value(record["measured"], line.quantity) - line.published)
        if off > 0.5 * 10**-line.decimals + 1e-9:
            return "DIFFERS from the paper's rounding"
    return "ok"


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
        both = [f"{number(one['value'])} ± {number(one['se'])}" for one in four]
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
    four = estimators(table, found)
    if four:
        head = ["what", "alpha (Rao-Blackwell)", "alpha (counts)", "alpha (implied)"]
        head += ["Chen's r", "gamma", "tokens per call", "output"]
        text += "\n## The four estimators, ± one standard error\n\n"
        text += markup.markdown(head, four)
    return text


def is_figure(table: Table) -> bool:
    return table.name.startswith("figure")


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
        " `python -m experiments.tables`. A published number is never in the column"
        f" `ours`.\n\n{markup.markdown(head, lines)}"
    )


def texts(folder: Path) -> dict[str, str]:
    """Every file but the drawings, by name."""
    found, made = collect(folder), {}
    for table in catalogue.tables():
        lines = rows(table, found)
        made[f"{table.name}.md"] = page(table, found)
        made[f"{table.name}.tex"] = markup.latex(HEAD, lines)
        flat = markup.comma_separated(HEAD, lines)
        made[f"{table.name}.csv"] = points(table, found) if is_figure(table) else flat
    return made | {"README.md": index(found)}


def render(folder: Path) -> None:
    """Writes the tables, and the figures where matplotlib is installed."""
    for name, text in texts(folder).items():
        (folder / name).write_text(text, "utf-8")
    try:
        from experiments import figures
    except ImportError:
        print("figures not drawn: install the extra `plots`")
        return
    found = collect(folder)
    for table in filter(is_figure, catalogue.tables()):
        curves = found.get(table.name, {})
        figures.draw(table.name, curves, folder / f"{table.name}.svg")


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
