"""Tables with columns that are shown beside the lines of a table, made from the same
records.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial

from experiments import catalogue
from experiments.records.markup import (
    number,
    number_or_blank,
    number_with_error,
)
from experiments.records.table import Records, published_value
from experiments.report import kernels, predicted, spec_bench, trees, walltime
from experiments.report.bench import bench
from experiments.report.columns import (
    Item,
    grid,
    grid_of_file,
    numbers_by_row,
    part,
    table,
)
from experiments.report.methods import chen, speech, wagner
from experiments.report.typeset import Grid
from specjax.measure.texts import standardized


def detail_tables(name: str, records: Records) -> list[Grid]:
    """Returns the tables with columns that belong to the lines of a table; [] for an
    unknown name.
    """
    return DETAILS[name](records) if name in DETAILS else []


def long_tables(name: str, records: Records) -> dict[str, Grid]:
    """Returns the tables that are too long for a page, by the endings of their file
    names."""
    return LONG[name](records) if name in LONG else {}


def flatten_estimates(estimates: dict[str, dict]) -> dict:
    """Returns the value and the error of each estimate, under flat names."""
    values = {name: it["value"] for name, it in estimates.items()}
    return values | {f"{name}_se": it["se"] for name, it in estimates.items()}


def estimators(records: Records) -> list[Grid]:
    """Returns the four estimates of Table 3 side by side, for drafts that have a
    law.
    """
    items = [
        records[line.folder][line.row]["measured"] | {"what": line.what}
        for line in catalogue.find_table("table3").lines
        if line.row in records.get(line.folder, {}) and line.quantity == "alpha"
    ]
    items = [it | flatten_estimates(it.get("estimates", {})) for it in items]
    return grid("estimators", [it for it in items if "rao_blackwell" in it])


def lenience(records: Records) -> list[Grid]:
    """Returns the speeds of Appendix A.5 for Table 5, and the runs with lenience."""
    speeds = grid("hypothetical", hypothetical(records))
    return [*speeds, *grid("lenient", lenient_runs(records))]


def hypothetical(records: Records) -> Iterator[dict]:
    """Yields, for each l at which Appendix A.5 prints a speed, the speed by Theorem 3.8
    if a draft cost as much as the paper's.

    None of these speeds is measured.
    """
    paper = "leviathan2023/table5_lenience"
    levels = published_value(f"{paper}/lenience")
    hot = published_value(f"{paper}/improvement_t5_small_c_0.015")
    cold = published_value(f"{paper}/temperature_0/improvement")
    names = "alpha", "implied_gamma", "implied_speed"
    rows = [x for x in catalogue.find_table("table5").lines if x.quantity == "alpha_l1"]
    for heat, speeds in ((1, hot), (0, cold)):
        for line in (x for x in rows if x.row.endswith(f"small_t{heat}")):
            own = numbers_by_row(records, line.folder).get(line.row)
            for level, speed in zip(levels, speeds, strict=True):
                if own is None:
                    continue  # the printed speed stands beside ours
                ours = {x: own[f"{x}_l{level:g}"] for x in names}
                what = line.what.removesuffix(", l = 1: alpha")
                beside = f"{speed:.1f}" if line.row.startswith("ende") else ""
                yield ours | {"what": what, "l": level, "printed": beside}


def lenient_runs(records: Records) -> Iterator[dict]:
    """Yields the numbers of each run with lenience."""
    for it in numbers_by_row(records, "table5").values():
        what = f"{it['target']} with {it['draft']}"
        what += f", T = {it['protocol']['temperature']:g}"
        for run in it["runs"]:
            names = "counts", "alpha_own_text", "log_p"
            own = (
                run
                | flatten_estimates({name: run[name] for name in names})
                | {"what": what}
            )
            for name in ("alpha", "tv"):
                at = f"{name}_l{run['lenience']:g}"
                own |= {name: it[at], f"{name}_se": it[f"{at}_se"]}
            yield own


KINDS = {
    "kind": "By kind of token",
    "block": "By place in the block of drafts, from 1 on",
    "place": "By place in the text, in tokens from 0 on",
    "characters": "By length of the token, in characters",
    "word": "By length of the word that the token belongs to, in characters",
    "piece": "By place in the word",
}
LEAST = 20  # tokens of a group; the numbers of fewer are in a file alone
MORE = "Are these tokens accepted more often? Expected, less that of all others [95 %]"
# What is said to be accepted more than other tokens.
EASY = ("function word", "punctuation", "keyword", "operator", "bracket or separator")


def spread(numbers: list[float | None], sign: str = "") -> str:
    """Returns several numbers as text, such as 0.41 [0.35, 0.47]; None is left out."""
    value, *both = (None if x is None else f"{x:{sign}.3f}" for x in numbers)
    if value is None:
        return "none"
    return value if None in both else f"{value} [{', '.join(both)}]"


def more_or_less(it: Item) -> str:
    """Returns in words whether the interval of a difference lies above 0, below it, or
    contains it.
    """
    _, low, high = it["more"]
    if low is None:
        return "too few texts"
    return "yes" if low > 0 else "no, less" if high < 0 else "not seen"


def kinds(records: Records) -> list[Grid]:
    """Returns a table for each way to group tokens, with a line for each pair: first
    whether easy tokens are accepted more often, then mean beta of every group of at
    least LEAST tokens.
    """
    shown = {
        key: [cell for cell in group_cells(records, key) if cell["count"] >= LEAST]
        for key in KINDS
    }
    easy = [cell for cell in shown["kind"] if cell["label"] in EASY]
    grids = group_table(MORE, easy, "more")
    for key, title in KINDS.items():
        grids += group_table(f"{title}: mean beta [95 %]", shown[key], "alpha")
    return grids


def group_table(title: str, cells: list[dict], key: str) -> list[Grid]:
    """Returns a table with a line for each pair, and a column for each group of tokens.

    Args:
        key: the number that it shows.
    """
    labels = list(dict.fromkeys(cell["label"] for cell in cells))
    pairs = list(dict.fromkeys(cell["what"] for cell in cells))
    there = {(cell["what"], cell["label"]): cell[key] for cell in cells}
    lines = [[x, *(there.get((x, label), "") for label in labels)] for x in pairs]
    return [Grid(title, ["pair and task", *labels], lines)] if lines else []


def long_kinds(records: Records) -> dict[str, Grid]:
    """Returns every number of each group of tokens, on a line each."""
    found = {}
    for key, title in KINDS.items():
        for it in grid("shares", group_cells(records, key), title=title):
            found[key] = it
    return found


def group_cells(records: Records, group: str) -> list[dict]:
    """Returns the numbers of the groups of tokens: first for the rows of the catalogue
    in their order, then for custom rows of any folder.
    """
    labels = {
        (line.folder, line.row): line.what.rpartition(": ")[0]
        for line in catalogue.find_table("kinds").lines
    }
    found = {
        (folder, row): record["measured"]
        for folder, rows in records.items()
        for row, record in rows.items()
        if "groups" in record["measured"]
    }
    order = [it for it in labels if it in found]
    order += [it for it in found if it not in labels]
    return [
        cell
        | {"what": labels.get(it) or pair_and_task(found[it])}
        | {name: spread(cell[name]) for name in ("alpha", "expected")}
        | {"more": spread(cell["more"], "+"), "verdict": more_or_less(cell)}
        | {"kept": number(cell["kept"][0])}
        for it in order
        for cell in found[it]["groups"][group]
    ]


def pair_and_task(it: Item) -> str:
    protocol = it["protocol"]
    pair = f"{it['target']} with {it['draft']}"
    return f"{pair}, {protocol['task']}, {standardized(protocol)}"


def certificate(records: Records) -> list[Grid]:
    """Returns every case of the certificates, by rule."""
    each = numbers_by_row(records, "certificate").values()
    cases = [case for it in each for case in it["cases"]]
    columns = {key: f"{{{key}}}" for case in cases for key in case}
    title = f"The law of the verifiers' output, enumerated: {len(cases)} cases"
    items = [{key: number_or_blank(case.get(key)) for key in columns} for case in cases]
    return table(title, columns, items)


def pairs(records: Records) -> list[Grid]:
    """Returns every pair of a rule and a draft; for broken pairs the total variation
    that was found.
    """
    items, p_values = [], [0.0]
    for row in numbers_by_row(records, "pairs").values():
        setting = {key: row[key] for key in ("draft", "gamma", "policy")}
        for pair in row["pairs"]:
            faults = dict.fromkeys(("shared", "argmax", "reused", "stale"), "")
            faults |= {it["name"]: number(it["tv"]) for it in pair["faults"]}
            p_values += [it["p_value"] for it in pair["faults"]]
            items.append(setting | pair | faults)
    titled = {"count": str(len(items)), "broken": number(max(p_values))}
    return grid("pairs", items, **titled)


def impossible_frequency(it: Item) -> str:
    """Returns how often a call emits an id that the target cannot draw."""
    if it["impossible"]:
        return number(it["impossible"])
    return "at u = 0" if it["at_zero"] else "never"


def conformance(records: Records) -> list[Grid]:
    rules = numbers_by_row(records, "conformance").get("rules", {"rules": []})["rules"]
    return grid(
        "conformance", [it | {"forbidden": impossible_frequency(it)} for it in rules]
    )


def microscope(records: Records) -> list[Grid]:
    """Returns the effects of rounding, by gamma."""
    items = []
    for record in records.get("microscope", {}).values():
        it, dtype = record["measured"], record["provenance"]["dtype"]
        what = f"{it['target']} with {it['draft']}, {dtype}"
        for gamma in it["gamma"]:
            items.append(part(it, f"g{gamma}") | {"what": what, "gamma": gamma})
    return grid("microscope", items)


SPELLED = {"mosaic_gpu": "Mosaic GPU", "mosaic_tpu": "Mosaic TPU", "triton": "Triton"}
SPELLED |= {"onepass": "one-pass XLA", "reference": "reference"}
SPELLED |= {"auto": "what is chosen", "nothing": "from raw logits"}
SPELLED |= {"draft": "the draft's law known", "both": "both laws known"}
SPELLED |= {"draw": "a draw of the draft loop"}


def compiled_programs(records: Records) -> list[Grid]:
    """Returns every compiled program for every device, with the properties of its
    kernels."""
    devices = {
        line.row: line.what.partition(",")[0]
        for line in catalogue.find_table("kernels_aot").lines
    }
    rows = numbers_by_row(records, "kernels_aot")
    items = [
        program
        | {"device": name}
        | {key: SPELLED[program[key]] for key in ("asked", "ran", "known")}
        for row, name in devices.items()
        for program in rows.get(row, {"programs": []})["programs"]
    ]
    return grid("compiled", items)


def fits(records: Records) -> list[Grid]:
    """Returns every pair at each batch and cache that fits or was compiled; a second
    table compares the prediction of one GPU with the measurement on it.
    """
    cells = [it for it in fit_cells(records) if it["fits"] == "yes" or "compiled" in it]
    return grid("fits", cells) + grid("fits_check", against_one_gpu(records))


def long_fits(records: Records) -> dict[str, Grid]:
    """Returns every pair at every batch and cache."""
    grids = grid("fits", fit_cells(records))
    return {"all": grids[0]} if grids else {}


def fit_cells(records: Records) -> Iterator[dict]:
    """Yields the predicted memory of every pair at every batch and cache, and the
    compiled one where it was compiled."""
    lines = catalogue.find_table("fits").lines
    names = {line.row: line.what.partition(": ")[0] for line in lines}
    for row, measurement in numbers_by_row(records, "fits").items():
        for cell in measurement["cells"]:
            forecast, got = cell["predicted"], cell.get("compiled", {})
            total, found = forecast["bytes"]["total"], got.get("sent", {}).get("bytes")
            fits = got.get("fits", forecast["fits"])
            it = {"what": names.get(row, row), "batch": cell["batch"], "more": ""}
            it |= {"cache": f"{cell['slots']:,}", "fits": "yes" if fits else "no"}
            it |= {"gb": total / 1e9, "largest": forecast["largest_batch"]}
            it["sent"] = forecast["sent"]["bytes"] / 1e6
            if got:
                it |= {"compiled": got["bytes"] / 1e9, "found": found and found / 1e6}
                it["more"] = f"{got['bytes'] / total - 1:+.1%}"
            if fits:
                it |= {x: forecast[x] for x in ("alone_ms", "spec_ms", "speed")}
            yield it


def against_one_gpu(records: Records) -> Iterator[dict]:
    """Yields the predicted and measured times of T5-XXL with T5-small on one H100
    (`chip`).
    """
    plan = numbers_by_row(records, "fits").get("h100_one_t5")
    ran = numbers_by_row(records, "chip").get("ende_small_t0_h100")
    if plan and ran:
        forecast, gamma = plan["cells"][0]["predicted"], ran["gamma"]
        drafted = ran["c"] * ran["target_ms"] * gamma
        for what, ours, theirs in (
            ("T5-XXL alone, ms a token", forecast["alone_ms"], ran["token_ms"]),
            (f"{gamma} drafted tokens of T5-small, ms", forecast["draft_ms"], drafted),
            ("times as fast by speculation", forecast["speed"], ran["speedup"]),
        ):
            ratio = ours / theirs
            yield {"what": what, "ours": ours, "measured": theirs, "ratio": ratio}


def chip_steps(records: Records) -> list[Grid]:
    """Returns predictions beside measurements, the steps of every row, the kernels of a
    token, and XLA's messages about its graphs.
    """
    rows = numbers_by_row(records, "chip_steps")
    steps = [
        {"error": "", "checksum": None} | it | {"row": row}
        for row, it in rows.items()
        if it.get("part") == "steps"
    ]
    return [
        *predicted.details(records),
        *grid("chip_steps", steps),
        *grid("token_kernels", rows.get("token", {}).get("listed", [])),
        *grid("chip_messages", rows.get("updates", {}).get("messages", [])),
    ]


KNOWING = {  # policies that know more than a decoder can
    "hindsight": "renewal in hindsight",
    "chances": "renewal with the true acceptance probabilities",
}


def policies(records: Records) -> list[Grid]:
    """Returns every fixed length and policy of a row, and the gain that more knowledge
    would give.
    """
    lines, grids = catalogue.find_table("policies").lines, []
    costs = [line.quantity for line in lines if line.quantity.endswith("_cost")]
    others = [name for name in dict.fromkeys(costs) if name != "best_fixed_cost"]
    numbers = "tokens_per_call", "drafted", "cost", "cost_se", "regret", "closed"
    for row, it in numbers_by_row(records, "policies").items():
        if "slope" not in it:  # it was timed
            continue
        lengths = [
            key for key in it if key.startswith("gamma_") and key.endswith("_cost")
        ]
        lengths.sort(key=lambda key: (len(key), key))
        names = [key.removesuffix("_cost") for key in [*lengths, *others]]
        items = [
            {"who": KNOWING.get(name, name.replace("_", " "))}
            | {x: it[f"{name}_{x}"] for x in numbers}
            for name in names
        ]
        what = next(line.what for line in lines if line.row == row).partition(":")[0]
        titled = {key: it[key] for key in ("c", "slope", "sequences")}
        grids += grid("policies", items, what=what, **titled)
    return grids


def beams(records: Records) -> dict[str, Grid]:
    """Returns the calls and times of each row of beam search at each of its widths."""
    lines = catalogue.find_table("beams").lines
    labels = {(line.folder, line.row): line.what for line in lines}
    items = []
    for (folder, row), what in labels.items():
        it = numbers_by_row(records, folder).get(row, {"widths": ()})
        same = {"what": what.rpartition(": ")[0], "texts": it.get("texts")}
        for width in it["widths"]:
            items.append(same | {"width": width} | part(it, f"{width}"))
    return grid_of_file("widths", "beams", items)


def load(records: Records) -> list[Grid]:
    """Returns the costs of the parts of a server's step, and the answers under
    simulated loads."""
    grids = []
    for it in numbers_by_row(records, "load").values():
        what = f"{it['target']} with {it['draft']}, T = {it['temperature']:g}"
        grids += grid("load_batches", it["by_batch"], what=what)
        grids += grid("load_rates", it["loads"], what=what)
    return grids


RULES = {  # of the question when to stop
    "gamma": "the best gamma",
    "q": "threshold on q(x)",
    "max q": "threshold on max q",
    "entropy": "threshold on the entropy of q",
    "q product": "threshold on the product of q(x)",
    "head": "threshold on the head",
    "head product": "threshold on the product of the head",
    "renewal head": "renewal with the head",
    "renewal chances": KNOWING["chances"],
}
HEADS = {  # of points as records have them, and what a page shows instead
    "alpha": "mean beta",
    "its number": "parameter",
    "the frontier's": "tokens a call of the frontier",
    "times as fast": "speedup",
    "of the gap closed": "share of the gap from best gamma to oracle",
}


def questions(name: str, records: Records) -> list[Grid]:
    """Returns a question with what was written down before anything was measured, the
    verdict for each row, and every point that it is based on."""
    called = {
        line.row: line.what.rpartition(": ")[0]
        for line in catalogue.find_table(name).lines
        if line.folder == "open_questions"
    }
    there = numbers_by_row(records, "open_questions")
    found = {what: there[row] for row, what in called.items() if row in there}
    asked = {it["asked"]: it for it in found.values()}
    said = [
        {"what": what} | split_verdict(each)
        for what, it in found.items()
        for each in it["verdict"]
    ]
    before = [
        {"part": part, "text": it[key]} for it in asked.values() for part, key in ASKED
    ]
    grids = [*grid("asked", before), *grid("verdicts", said)]
    for what, it in found.items():
        names = dict.fromkeys(key for point in it["points"] for key in point)
        head = sorted((x for x in names if not x.endswith("_se")), key="rule".__ne__)
        lines = [[point_text(point, key) for key in head] for point in it["points"]]
        shown = [HEADS.get(key, key) for key in head]
        grids += [Grid(what, shown, lines)] if lines else []
    return grids


ASKED = [  # how a page shows the parts of a question
    ("question", "asked"),
    ("given up if", "dropped_if"),
    ("predicted before measuring", "expected"),
]


def split_verdict(text: str) -> dict[str, str]:
    """Returns the parts of a verdict as `experiments.questions.verdict` writes it: the
    word, what was tested, the number and its bound."""
    word, _, test = text.partition(": ")
    number = re.search(r" (-?[\d.]+%(?: ± [\d.]+%)?) ([<>=] -?[\d.]+%)$", test)
    if number is None:
        return {"said": word, "test": test, "number": "", "bound": ""}
    value, bound = number.groups()
    tested = test.removesuffix(number[0])
    return {"said": word, "test": tested, "number": value, "bound": bound}


def point_text(point: Item, key: str) -> str:
    """Returns a value of a point with its error; a rule in words."""
    if key == "rule":
        rule = str(point[key])
        return RULES.get(rule, rule.replace(" 1 steps", " 1 step"))
    error = point.get(f"{key}_se")
    if error is None:
        return number_or_blank(point[key])
    return number_with_error(point[key], error)


ANSWERED = "optimal_stopping", "lenience_frontier", "draft_transform"
ANSWERED += "invariance", "hierarchy", "speculative_execution"
DETAILS: dict[str, Callable[[Records], list[Grid]]] = {
    "spec_bench": spec_bench.details,
    "table2": partial(walltime.pair_lines, "table2"),
    "table3": estimators,
    "table4": walltime.paper_tables,
    "table5": lenience,
    "kinds": kinds,
    "certificate": certificate,
    "pairs": pairs,
    "conformance": conformance,
    "microscope": microscope,
    "kernels": kernels.details,
    "kernels_aot": compiled_programs,
    "fits": fits,
    "chip_steps": chip_steps,
    "policies": policies,
    "trees": trees.details,
    "load": load,
    "today": walltime.current_pairs,
    "bench": bench,
    **{name: partial(questions, name) for name in ANSWERED},
}
# What has several lines a pair or repeats numbers of a page, in files of its own.
LONG: dict[str, Callable[[Records], dict[str, Grid]]] = {
    "table4": walltime.long_tables,
    "kinds": long_kinds,
    "fits": long_fits,
    "beams": beams,
    "wagner_text": partial(wagner, "wagner_text"),
    "wagner_scale": partial(wagner, "wagner_scale"),
    "chen": chen,
    "speech": speech,
}
