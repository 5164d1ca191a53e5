"""What a table shows beside its lines: tables of columns, made of the same records."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial

from experiments import catalogue
from experiments.records.markup import interval, number, number_or_blank, uncertain
from experiments.records.table import Line, Records, published
from experiments.report import kernels, walltime
from experiments.report.columns import (
    Columns,
    Grid,
    Item,
    ends,
    erring,
    grid,
    measured,
    plain,
    some,
)
from specjax.measure.texts import standardized


def of(name: str, records: Records) -> list[Grid]:
    """The tables of columns beside the lines of a table; none of a name unknown."""
    return DETAILS[name](records) if name in DETAILS else []


# Table 3: the four estimates side by side.


def estimate(*path: str) -> Callable[[Item], str]:
    """A value and its error, of an estimate that is found along a path of names."""

    def cell(it: Item) -> str:
        for name in path:
            it = it[name]
        return uncertain(it["value"], it["se"])

    return cell


ESTIMATORS: Columns = {
    "what": "{what}",
    "alpha (Rao-Blackwell)": estimate("estimates", "rao_blackwell"),
    "alpha (counts)": estimate("estimates", "counts"),
    "alpha (implied)": estimate("estimates", "implied_alpha"),
    "Chen's r": estimate("estimates", "chen_r"),
    "gamma": "{protocol[gamma]}",
    "tokens per call": "{tokens_per_call:.3f}",
    "output": "{exactness}, {draft_regime}",
}


def estimators(records: Records) -> list[Grid]:
    items = [
        records[line.folder][line.row]["measured"] | {"what": line.what}
        for line in catalogue.named("table3").lines
        if line.row in records.get(line.folder, {})
    ]
    items = [it for it in items if "estimates" in it]
    return some(grid("The four estimators, ± one standard error", ESTIMATORS, items))


# Table 5: the speeds of Appendix A.5, and decoding with lenience.

SPEEDS = (
    "Hypothetical: the speed by Theorem 3.8 at the paper's c and v = 1; Table 4 has"
    " what was measured"
)
RUNS = "Decoding runs with lenience l, ± one standard error"
LENIENT: Columns = {
    "what": "{what}",
    "l": "{lenience:g}",
    "alpha (the target's text)": erring("alpha"),
    "alpha (its own text)": estimate("alpha_own_text"),
    "accepted of tested": estimate("counts"),
    "tokens per call": "{tokens_per_call:.3f}",
    "drift (total variation)": erring("tv"),
    "log p(output), nats a token": estimate("log_p"),
}
HYPOTHETICAL: Columns = {
    "what": "{what}",
    "l": "{l:g}",
    "alpha": "{alpha}",
    "gamma": "{implied_gamma}",
    "speed if c were the paper's": "{implied_speed}",
    "printed in A.5 (T5-XXL)": "{printed}",
}


def lenience(records: Records) -> list[Grid]:
    speeds = grid(SPEEDS, HYPOTHETICAL, hypothetical(records))
    return [speeds, *some(grid(RUNS, LENIENT, lenient_runs(records)))]


def hypothetical(records: Records) -> Iterator[dict]:
    """For each l of the rows of which A.5 prints a speed, what Theorem 3.8 would give
    if a draft cost what the paper's does. None is measured."""
    table = "leviathan2023/table5_lenience"
    levels = published(f"{table}/lenience")
    hot = published(f"{table}/improvement_t5_small_c_0.015")
    cold = published(f"{table}/temperature_0/improvement")
    names = "alpha", "implied_gamma", "implied_speed"
    rows = [x for x in catalogue.named("table5").lines if x.quantity == "alpha_l1"]
    for heat, speeds in ((1, hot), (0, cold)):
        for line in (x for x in rows if x.row.endswith(f"small_t{heat}")):
            own = measured(records, line.folder).get(line.row)
            for level, speed in zip(levels, speeds, strict=True):
                it = {name: "not run" for name in names}
                if own:
                    it = {name: number(own[f"{name}_l{level:g}"]) for name in names}
                what = line.what.removesuffix(", l = 1: alpha")
                beside = f"{speed:.1f}" if line.row.startswith("ende") else ""
                yield it | {"what": what, "l": level, "printed": beside}


def lenient_runs(records: Records) -> Iterator[dict]:
    for it in measured(records, "table5").values():
        what = f"{it['target']} with {it['draft']}"
        what += f", T = {it['protocol']['temperature']:g}"
        for run in it["runs"]:
            at, own = f"_l{run['lenience']:g}", {"what": what}
            for name in ("alpha", "tv"):
                own |= {name: it[name + at], f"{name}_se": it[f"{name}{at}_se"]}
            yield run | own


# Acceptance by kind of token.

KINDS = {
    "kind": "By kind of token",
    "block": "By place in the block of drafts, from 1 on",
    "place": "By place in the text, in tokens from 0 on",
    "characters": "By length of the token, in characters",
    "word": "By length of the word that the token belongs to, in characters",
    "piece": "By place in the word",
}
# What is said to be accepted more than other tokens.
EASY = ("function word", "punctuation", "keyword", "operator", "bracket or separator")


def spread(key: str, sign: str = "") -> Callable[[Item], str]:
    """0.41 [0.35, 0.47]; without what is None."""

    def written(it: Item) -> str:
        value, *both = (None if x is None else f"{x:{sign}.3f}" for x in it[key])
        if value is None:
            return "none"
        return value if None in both else f"{value} [{', '.join(both)}]"

    return written


def more_or_less(it: Item) -> str:
    """Whether an interval of a difference lies above 0, below it, or neither."""
    _, low, high = it["more"]
    if low is None:
        return "too few texts"
    return "yes" if low > 0 else "no, less" if high < 0 else "not seen"


VERDICTS: Columns = {
    "pair and task": "{what}",
    "tokens": "{label}",
    "more than others [95 %]": spread("more", "+"),
    "verdict": more_or_less,
}
SHARES: Columns = {
    "pair and task": "{what}",
    "tokens": "{label}",
    "share": "{share:.3f}",
    "alpha [95 %]": spread("alpha"),
    "expected [95 %]": spread("expected"),
    "kept": lambda it: number(it["kept"][0]),
    "more than others [95 %]": spread("more", "+"),
    "n": "{count}",
    "texts": "{texts}",
}


def kinds(records: Records) -> list[Grid]:
    """A table for each way to sort tokens: of the rows of the table in its order, then
    of one's own, of whatever folder."""
    labels = {
        (line.folder, line.row): line.what.rpartition(": ")[0]
        for line in catalogue.named("kinds").lines
    }
    found = {
        (folder, row): record["measured"]
        for folder, rows in records.items()
        for row, record in rows.items()
        if "groups" in record["measured"]
    }
    if not found:
        return []
    order = [it for it in labels if it in found]
    order += [it for it in found if it not in labels]

    def cells(group: str) -> list[dict]:
        return [
            cell | {"what": labels.get(it) or pair_and_task(found[it])}
            for it in order
            for cell in found[it]["groups"][group]
        ]

    easy = [cell for cell in cells("kind") if cell["label"] in EASY]
    told = grid("Are they accepted more than other tokens?", VERDICTS, easy)
    return [told, *(grid(title, SHARES, cells(key)) for key, title in KINDS.items())]


def pair_and_task(it: Item) -> str:
    protocol = it["protocol"]
    pair = f"{it['target']} with {it['draft']}"
    return f"{pair}, {protocol['task']}, {standardized(protocol)}"


# Laws that are enumerated, and what rounding does.


def certificate(records: Records) -> list[Grid]:
    """Every case, by rule."""
    each = measured(records, "certificate").values()
    cases = [case for it in each for case in it["cases"]]

    def cell(key: str) -> Callable[[Item], str]:
        return lambda it: x if isinstance(x := it.get(key), str) else number_or_blank(x)

    columns = {key: cell(key) for case in cases for key in case}
    title = f"The law of the verifiers' output, enumerated: {len(cases)} cases"
    return some(grid(title, columns, cases))


def forbidden(it: Item) -> str:
    """How often a call emits an id that the target cannot draw."""
    if it["impossible"]:
        return number(it["impossible"])
    return "at u = 0" if it["at_zero"] else "never"


CONFORMANCE: Columns = {
    "rule": "{name}",
    "source": "{source}",
    "version": "{version}",
    "pair of models": "{fixture}",
    "law": "{class}",
    "TV, first token": plain("tv_first"),
    "TV, three tokens": plain("tv"),
    "largest difference": plain("largest"),
    "tokens a call": plain("tokens"),
    "tokens of Algorithm 1": plain("algorithm_1"),
    "an id of p = 0": forbidden,
}


def conformance(records: Records) -> list[Grid]:
    title = "Rule by rule, with sources and versions"
    rows = measured(records, "conformance")
    return [grid(title, CONFORMANCE, rows["rules"]["rules"])] if rows else []


MICROSCOPE: Columns = {
    "what": "{what}",
    "gamma": "{gamma}",
    "same shape": "{matched_percent:.0f} %",
    "one token": "{identical_percent:.0f} %",
    "explained": "{explained}",
    "unexplained": "{unexplained}",
    "eps, largest": "{eps_max:.1e}",
    "eps, mean": "{eps_mean:.1e}",
    "flips: at most": plain("flips_bound"),
    "expected": plain("flips_expected"),
    "observed": plain("flips_observed"),
    "total variation at T = 1": "{tv_max:.1e}",
    "at most": "{tv_bound:.1e}",
}


def microscope(records: Records) -> list[Grid]:
    items = []
    for record in records.get("microscope", {}).values():
        it, dtype = record["measured"], record["provenance"]["dtype"]
        what = f"{it['target']} with {it['draft']}, {dtype}"
        for gamma in it["gamma"]:
            end = f"_g{gamma}"
            at = {k.removesuffix(end): x for k, x in it.items() if k.endswith(end)}
            items.append(at | {"what": what, "gamma": gamma})
    return some(grid("By gamma", MICROSCOPE, items))


# What verification compiles to.

COMPILED = {
    "launches": "launches",
    "registers": "registers",
    "spilled bytes": "spills",
    "widest load, bytes": "widest_load",
    "instructions a logit": "instructions",
    "copies of logits": "copies",
    "temporary bytes": "temp_bytes",
    "VMEM bytes": "vector_memory",
}
SPELLED = {
    "mosaic_gpu": "Mosaic GPU",
    "mosaic_tpu": "Mosaic TPU",
    "triton": "Triton",
    "onepass": "one-pass XLA",
    "reference": "reference",
    "auto": "what is chosen",
    "nothing": "from raw logits",
    "draft": "the draft's law known",
    "both": "both laws known",
    "draw": "a draw of the draft loop",
}


def compiled(records: Records) -> list[Grid]:
    """Every program of every device, with all that is known of its kernels."""

    def count(key: str) -> Callable[[Item], str]:
        """Counts are whole; an empty cell was not told."""

        def cell(it: Item) -> str:
            x = it.get(key)
            return "" if x is None else f"{x:g}" if x < 1e4 else f"{x:,}"

        return cell

    def spelled(key: str) -> Callable[[Item], str]:
        return lambda it: SPELLED[it[key]]

    columns: Columns = {"device": "{device}", "implementation": spelled("asked")}
    columns |= {"ran": spelled("ran"), "known of the laws": spelled("known")}
    columns |= {"B": "{batch}", "gamma": "{gamma}", "V": "{vocab}", "dtype": "{dtype}"}
    columns |= {head: count(key) for head, key in COMPILED.items()}
    devices = {
        line.row: line.what.partition(",")[0]
        for line in catalogue.named("kernels_aot").lines
    }
    rows = measured(records, "kernels_aot")
    items = [
        program | {"device": name}
        for row, name in devices.items()
        for program in rows.get(row, {"programs": []})["programs"]
    ]
    title = "Launches, registers, spills and bytes of every program"
    return some(grid(title, columns, items))


# Wagner et al. (2024): methods side by side.

METHODS: Columns = {"method": "{method}"} | {
    head: plain(key)
    for head, key in {
        "us a step": "us",
        "tokens a call": "tokens_per_call",
        "drafts kept": "acceptance",
        "of those tested": "acceptance_tested",
        "TV from p": "tv_out_p",
        "from q": "tv_out_q",
        "bonus from p": "tv_bonus_p",
        "ROUGE-1": "rouge1",
    }.items()
}
METHODS["guarantee"] = "{guarantee}"


def of_method(it: Item, method: str) -> dict:
    """What was measured of one method, under names without it."""
    end = f"_{method}"
    return {k.removesuffix(end): x for k, x in it.items() if k.endswith(end)}


def spelled(method: str) -> str:
    """sigmoid_1e4_top50: sigmoid, +-1e4, top-k 50."""
    plainly = method.removesuffix("_top50")
    words = plainly.replace("sigmoid_", "sigmoid, +-").replace("_half", ", float16")
    words = "control that keeps every draft" if plainly == "always" else words
    return f"{words}, top-k 50" if plainly != method else words


def wagner(folder: str, records: Records) -> list[Grid]:
    """Every method of every row; the rows of decoders of the same kind too."""
    kind = folder.removeprefix("wagner_")
    names = {
        line.row: line.what.partition(":")[0]
        for line in catalogue.named(folder).lines
        if line.folder == folder
    }
    rows = measured(records, folder)
    rows |= {
        row: it
        for row, it in measured(records, "wagner_data", "wagner_paper").items()
        if row.startswith("scale_") == (kind == "scale")
    }
    return [
        grid(
            f"{names.get(row, row)}, by method",
            METHODS,
            (
                of_method(it, name)
                | {"method": spelled(name), "guarantee": it["guarantees"][name]}
                for name in it["methods"]
            ),
        )
        for row, it in rows.items()
        if f"acceptance_{it['methods'][0]}" in it  # else of times alone
    ]


# Speech.


def between(key: str) -> Callable[[Item], str]:
    return lambda it: " to ".join(map(number, it[key]))


KEPT: Columns = {"drafts kept": plain("alpha")}
KEPT |= {"tokens a call": plain("tokens_per_call")}
ERRORS: Columns = {"method": "{name}", "WER, %": plain("wer")}
ERRORS |= {"95 %": between("wer_ci"), **KEPT}
ALONE: Columns = {
    "method": "{name}",
    "gamma": "{gamma}",
    "us a verification": plain("us"),
    "deviation": plain("us_sd"),
    "% less": plain("step_reduction"),
    "KiB": plain("peak_kib"),
}
TIMES: Columns = {
    "batch": "{batch}",
    "times as fast": plain("speedup"),
    "95 %": between("speedup_ci"),
    **KEPT,
    "same texts": "{same_texts} of {recordings}",
}
ORDER = ("greedy", "alone", "exact", "sigmoid", "sigmoid released", "always")


def place(name: str) -> tuple:
    """Greedy texts, then drawn ones, then those of cut laws; by rule, by scale."""
    *words, scale = name.removesuffix("_top50").split("_")
    rule = " ".join(words) if scale[:2] == "1e" else name.split("_")[0]
    at = ORDER.index(rule) if rule in ORDER else len(ORDER)
    return rule != "greedy", name.endswith("_top50"), at, scale


def speech(records: Records) -> list[Grid]:
    """Every method of every row side by side, and every batch; of all records."""
    grids = []
    for row, it in measured(records, "speech_data", "speech_paper").items():
        pair = f"{it['target']} with {it['draft']}, {row}"
        names = [key.removeprefix("wer_ci_") for key in it if key.startswith("wer_ci_")]
        if names:
            items = [
                of_method(it, name) | {"name": name.replace("_", " ")}
                for name in sorted(names, key=place)
            ]
            grids.append(grid(f"{pair}: by method", ERRORS, items))
        elif "guarantees" in it:
            items = []
            for name, gamma in itertools.product(it["guarantees"], it["gamma"]):
                at = {"name": name.replace("_", " "), "gamma": gamma}
                end = f"{name}_g{gamma}"
                at |= {"us_sd": it[f"us_{end}_sd"]} | of_method(it, end)
                items.append(at)
            grids.append(grid(f"{pair}: verification alone", ALONE, items))
        else:
            sizes = sorted(int(k[9:]) for k in it if k.startswith("speedup_b"))
            items = [
                of_method(it, f"b{n}") | {"batch": n, "recordings": it["recordings"]}
                for n in sizes
            ]
            grids.append(grid(f"{pair}: by batch", TIMES, items))
    return grids


# Chen et al. (2023), a line a row.


def worth(way: str) -> Callable[[Item], str]:
    keys = {"pass1": ["pass1"], "rouge": ["rouge1", "rouge2"]}
    return lambda it: ", ".join(
        f"{key} {number(it[f'{key}_{way}'])}" for key in keys[it["metric"]]
    )


CHEN: Columns = {
    "row": "{row}",
    "r": plain("r"),
    "theory": plain("theoretical_speed"),
    "measured [95 %]": ends("speed", "speed_interval"),
    "t_draft ms": plain("t_draft_ms"),
    "t_target ms": plain("t_target_ms"),
    "t_score ms": plain("t_score_ms"),
    "alone": worth("alone"),
    "speculative": worth("speculative"),
    "what stopped programs, alone": lambda it: ", ".join(
        f"{kind} {count}" for kind, count in it.get("why_not_alone", {}).items()
    ),
}


def chen(records: Records) -> list[Grid]:
    rows = measured(records, "chen_data", "chen_paper").items()
    items = [it | {"row": row} for row, it in rows if "theoretical_speed" in it]
    return some(grid("Chen et al. (2023), a line a row", CHEN, items))


# The bench: goals as they were measured, times, and what made rows comparisons.


def outcome(line: Line, record: dict | None) -> dict:
    """Met or missed if all of the interval is, on the day of the record, by its commit.
    What has changed since was not measured."""
    it = {"what": line.what, "goal": line.goal or "", "ours": "", "was": ""}
    if record is None:
        return it | {"when": "never"}
    measured, origin = record["measured"], record["provenance"]
    low, high = measured[f"{line.quantity}_ci"]
    it["ours"] = interval(measured[line.quantity], (low, high))
    both = origin["date"][:10], (origin["commit"] or "")[:7]
    it["when"] = ", ".join(filter(None, both))
    if line.goal:
        _, most, bound = line.goal.split()
        aim = float(bound)
        beyond = {x <= aim if most == "most" else x >= aim for x in (low, high)}
        state = "within the interval" if len(beyond) == 2 else "missed"
        it["was"] = "met" if beyond == {True} else state
    return it


def each(it: Item, key: str) -> str:
    said = it.get(key, {}).items()
    shown = {k: x if isinstance(x, str | int) else number(x) for k, x in said}
    return ", ".join(f"{k} {x}" for k, x in shown.items())


def same_texts(it: Item) -> str:
    same = ""
    if "same_texts" in it:
        same = f"{each(it, 'same_texts')} of {it['setting']['texts']}"
    if "int8_same_prefix" in it:
        same += f"; ctranslate2_int8 {100 * it['int8_same_prefix']:.0f} % of tokens"
    return same


GOALS: Columns = {"what": "{what}", "goal": "{goal}", "ours [95 %]": "{ours}"}
GOALS |= {"measured": "{when}", "goal was then": "{was}"}
ENGINES: Columns = {"row": "{row}", "engine": "{engine}", "ms a token": plain("ms")}
ENGINES |= {"specjax is faster by [95 %]": ends("over")}
SAME: Columns = {
    "row": "{row}",
    "same texts": same_texts,
    "nats apart at most": lambda it: ", ".join(
        f"{k} {x:.1g}" for k, x in it.get("nats_apart", {}).items()
    ),
    "alpha": plain("alpha"),
    "target calls": lambda it: each(it, "calls"),
    "refuses": lambda it: each(it, "refusals"),
}


def bench(records: Records) -> list[Grid]:
    rows, lines = measured(records, "bench"), catalogue.named("bench").lines
    if not rows:
        return []
    goals = [outcome(line, records["bench"].get(line.row)) for line in lines]
    shown = any(line.row in rows for line in lines)
    engines = [
        {"row": row, "engine": name, "ms": it[f"ms_{name}"]}
        | {"over": it.get(f"over_{name}"), "over_ci": it.get(f"over_{name}_ci")}
        for row, it in rows.items()
        for name in (key.removeprefix("ms_") for key in it if key.startswith("ms_"))
    ]
    named = [it | {"row": row} for row, it in rows.items()]
    return [
        *([grid("Goals, as they were measured", GOALS, goals)] if shown else []),
        grid("Milliseconds a token (a call)", ENGINES, engines),
        grid("Same texts, and how often drafts were kept", SAME, named),
    ]


DETAILS: dict[str, Callable[[Records], list[Grid]]] = {
    "table2": partial(walltime.every_gamma, "table2"),
    "table3": estimators,
    "table4": walltime.in_the_papers_shape,
    "table5": lenience,
    "kinds": kinds,
    "certificate": certificate,
    "conformance": conformance,
    "microscope": microscope,
    "kernels": kernels.details,
    "kernels_aot": compiled,
    "wagner_text": partial(wagner, "wagner_text"),
    "wagner_scale": partial(wagner, "wagner_scale"),
    "chen": chen,
    "today": partial(walltime.every_gamma, "today_paper"),
    "speech": speech,
    "bench": bench,
}
