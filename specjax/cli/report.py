"""A page of measurements: `--report FILE.html` of measure and compare.

The file is self-contained: a verdict per row, the two drawings, the numbers, and the
records to download. Axes: K values of gamma."""

import base64
import html
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from specjax.measure.verdict import COSTS, costs, verdict, warnings
from specjax.runtime import writing

COLORS = ("#1f77b4", "#d9661f", "#2a9d5c", "#9157b5", "#c23b5a", "#7f6a3d")
GRAY = "#808080"  # read on light and on dark
HEAD = ("gamma", "c", "v", "overhead", "tokens a call", "predicted", "measured", "95 %")
SPEED = """<h2>Speed by gamma</h2>
<p>Speed of whole texts, the target alone = 1, with 95 % intervals; dashed: predicted
from texts that were not timed.</p>
"""
COST = """<h2>What a token costs</h2>
<p>Cost of the parts of a step divided by its tokens, in calls of the target on one
token; without a draft a token costs 1. Where a bar is below 1, drafting pays.</p>
"""
PAGE = Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: auto;
  padding: 1rem; }
svg { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
td, th { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid $gray; }
.verdict { font-size: 1.15rem; }
.doubt { border-left: 4px solid #d9661f; padding-left: .7rem; }
</style></head><body>
<h1>$title</h1>
$body
<p><a download="records.jsonl" href="data:application/jsonl;base64,$records">These
records as JSON lines</a></p>
</body></html>
""")


def prepare(path: Path | None) -> None:
    """Raises ValueError, before anything is measured, where no page can be written."""
    if path is None:
        return
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        fix = "--report needs matplotlib: pip install 'specjax[plots]'"
        raise ValueError(fix) from None
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"--report {path}: name a file in a folder that exists")


def write(path: Path, records: Mapping[str, dict]) -> None:
    """Writes the page of records of `specjax measure`, by row, each with speeds by
    gamma.

    Raises ValueError where none of them has speeds by gamma, OSError for a full disk.
    """
    measured = {
        name: each["measured"]
        for name, each in records.items()
        if "best_speedup_ci" in each["measured"]
        and isinstance(each["measured"].get("gamma"), list)
    }
    if not measured:
        raise ValueError("no row has speeds by gamma: only those can be drawn")
    rows = {name: records[name] for name in measured}
    lines = "".join(json.dumps(each) + "\n" for each in rows.values())
    body = [section(name, each) for name, each in rows.items()]
    body += [
        SPEED,
        render_svg(draw_speeds, measured),
        COST,
        render_svg(draw_costs, measured),
    ]
    page = PAGE.substitute(
        title=html.escape(f"specjax: {', '.join(rows)}"),
        gray=GRAY,
        body="\n".join(body),
        records=base64.b64encode(lines.encode()).decode(),
    )
    writing.write_whole(path, page.encode("utf-8", "backslashreplace"))


def section(name: str, record: dict) -> str:
    """Returns a row in words and numbers."""
    row, origin = record["measured"], record["provenance"]
    device = origin["device"]["kind"]
    setting = f"T = {row['temperature']:g}, batch {row['batch']}, {row['texts']} texts"
    parts = [
        f"<h2>{html.escape(name)}</h2>",
        f'<p class="verdict">{html.escape(verdict(row))}</p>',
        *(f'<p class="doubt">{html.escape(each)}</p>' for each in warnings(row)),
        f"<p>{html.escape(row['target'])} with {html.escape(row['draft'])}, {setting},"
        f" on {html.escape(device)}, {origin['date'][:10]}</p>",
        table(row),
    ]
    return "\n".join(parts)


def table(row: dict) -> str:
    """Returns a table with one line per gamma."""
    lines = [format_cells("th", HEAD)]
    for at, gamma in enumerate(row["gamma"]):
        names = "c", "v", "overhead", "tokens_per_call", "predicted", "speedup"
        values = [row[name][at] for name in names]
        values[2] = values[2] if gamma else None  # of a call of the target alone
        shown = ["" if x is None else f"{x:.3g}" for x in values]
        ends = row["speedup_ci"][at]
        interval = "" if ends is None else "{:.2f} to {:.2f}".format(*ends)
        lines.append(format_cells("td", (str(gamma), *shown, interval)))
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def format_cells(tag: str, cells: tuple[str, ...]) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"


def render_svg(draw: Any, measured: Mapping[str, dict]) -> str:
    """Returns an SVG of what `draw` puts on axes, with its words as text."""
    import matplotlib
    from matplotlib.figure import Figure

    gray = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style: dict[Any, Any] = dict.fromkeys((*gray, "text.color"), GRAY)
    style |= {"svg.fonttype": "none", "svg.hashsalt": "specjax"}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(9, 4), layout="constrained")
        draw(figure.subplots(), measured)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return re.sub(r"^.*?(?=<svg)", "", out.getvalue(), flags=re.DOTALL)


def draw_speeds(axes: Any, measured: Mapping[str, dict]) -> None:
    for at, (name, row) in enumerate(measured.items()):
        color, speeds = COLORS[at % len(COLORS)], row["speedup"]
        pairs = [*zip(speeds, row["speedup_ci"], strict=True)]
        reach = [
            [0.0 if ends is None else max(x - ends[0], 0.0) for x, ends in pairs],
            [0.0 if ends is None else max(ends[1] - x, 0.0) for x, ends in pairs],
        ]
        places = [gamma + 0.06 * at for gamma in row["gamma"]]
        style = dict(color=color, marker="o", capsize=3, label=name)
        axes.errorbar(places, speeds, yerr=reach, **style)
        predicted = [float("nan") if x is None else x for x in row["predicted"]]
        axes.plot(places, predicted, color=color, linestyle="dashed", linewidth=1)
    axes.axhline(1, color=GRAY, linewidth=1)
    axes.set(xlabel="gamma", ylabel="times as fast as the target alone", ylim=(0, None))
    axes.legend(frameon=False)


def draw_costs(axes: Any, measured: Mapping[str, dict]) -> None:
    many = len(measured)
    gammas = sorted({gamma for row in measured.values() for gamma in row["gamma"]})
    for at, (name, row) in enumerate(measured.items()):
        for i, gamma in enumerate(row["gamma"]):
            place = gammas.index(gamma) + (at - (many - 1) / 2) * 0.8 / many
            bottom, per = 0.0, row["tokens_per_call"][i]
            for part, (kind, calls) in enumerate(costs(row, i).items()):
                words = COSTS[kind] if at == i == 0 else None
                height = max(calls, 0.0) / per
                style = dict(color=COLORS[part], label=words, width=0.7 / many)
                axes.bar(place, height, bottom=bottom, **style)
                bottom += height
            if many > 1:
                where = dict(ha="center", va="bottom", rotation=90, fontsize=7)
                axes.text(place, bottom, f" {name}", **where)
    axes.axhline(1, color=GRAY, linewidth=1)
    axes.set_xticks(range(len(gammas)), [str(gamma) for gamma in gammas])
    axes.set(xlabel="gamma", ylabel="calls of the target on one token")
    axes.margins(y=0.2)
    axes.legend(frameon=False)
