"""The subjects of claims: the rows of the records on which a claim is tested.

A subject holds the numbers of a row, or of a part or a pair of rows, with a `label`.
`beside` marks a subject that is shown but that the claim is not about, such as another
batch. K is gamma, r the number of tokens decoded in a call over K + 1 (Chen et al.,
2023).
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from experiments import catalogue
from experiments.records.table import Records
from experiments.report import trees
from experiments.report.columns import numbers_by_row, part
from experiments.report.walltime import XLA, draft_label
from specjax.theory import closed_forms

DRAFTS = ("unigram", "bigram", "small", "base", "large")  # of table3, by capacity
FAMILIES = {"gpt": 3, "ende": 5, "docs": 5}  # how many of them each has
TRIVIAL = ("unigram", "bigram")
# By the lesson page's own order, whose per cents are of no pair that it names.
WORDS = ("function word", "other word"), ("other word", "name")


def find(what: str | dict, records: Records) -> Iterable[dict]:
    """Returns the subjects that a function of this module finds, or rows of a folder.

    Args:
        what: the name of the function; or `folder`, one or several, with one of `rows`
            (the label of each), `pairs` (of each label two rows, of which
            `beside_each_other` makes one subject) and `label` (of every row). Rows
            without the number `has` are left out; `beside` is as for a subject.
    """
    if isinstance(what, str):
        return globals()[what](records)
    folder, number = what["folder"], what.get("has")
    every = numbers_by_row(records, *([folder] if isinstance(folder, str) else folder))
    rows = {row: it for row, it in every.items() if number is None or number in it}
    beside = {"beside": what.get("beside", False)}
    if "rows" in what:
        named = what["rows"].items()
        return [rows[x] | beside | {"label": label} for x, label in named if x in rows]
    if "pairs" in what:
        return [
            combine_rows(label, rows[more], rows[less]) | beside
            for label, (more, less) in what["pairs"].items()
            if more in rows and less in rows
        ]
    label = what["label"].format_map
    several = [it | beside | {"label": label(it)} for it in rows.values()]
    return sorted(several, key=lambda it: it["label"])


def combine_rows(label: str, more: dict, less: dict) -> dict:
    """Returns two rows as one subject: the whole rows, and each of their numbers as
    `more_NAME` and `less_NAME`."""
    both = {"label": label, "more": more, "less": less}
    both |= {f"more_{name}": x for name, x in more.items()}
    return both | {f"less_{name}": x for name, x in less.items()}


def table1(records: Records) -> list[dict]:
    """Returns each number of Table 1, if every row has a record."""
    lines, rows = (
        catalogue.find_table("table1").lines,
        numbers_by_row(records, "table1"),
    )
    if any(line.row not in rows for line in lines):
        return []
    return [
        {"label": x.what, "ours": rows[x.row][x.quantity], "published": x.published}
        for x in lines
    ]


def table2(records: Records) -> list[dict]:
    """Returns the rows by batch, draft and temperature; batch 1 is decisive, as in the
    paper.

    A row with XLA's products repeats one of these and is left out.
    """
    rows = numbers_by_row(records, "table2").items()
    every = [it for row, it in rows if not row.endswith(XLA)]
    every.sort(key=lambda it: (it["batch"], draft_label(it), it["temperature"]))
    label = "{}, T = {temperature:g}, batch {batch}".format
    return [
        it | {"label": label(draft_label(it), **it), "beside": it["batch"] != 1}
        for it in every
    ]


def costs(it: dict) -> list[float]:
    return [c for c in it["c"] if c is not None]


def rows_with_c(records: Records) -> list[dict]:
    """Returns the rows of table2 that have a c."""
    return [it for it in table2(records) if costs(it)]


def ngrams(records: Records) -> list[dict]:
    return [it for it in rows_with_c(records) if it["draft"] in TRIVIAL]


def rows_with_gain(records: Records) -> list[dict]:
    return [it for it in table2(records) if it["best_gamma"]]


def rows_beside_chen(records: Records) -> list[dict]:
    """Returns the rows of table2 whose best gamma drafts, to be shown beside Chen's."""
    return [it | {"beside": True} for it in rows_with_c(records) if it["best_gamma"]]


DECIDES = {"beside": False}  # whatever the batch


def greedy_rows(records: Records) -> list[dict]:
    """Returns the rows at T = 0. A pair in `int8_dynamic` is shown beside them: its
    logits depend on how many tokens a call has."""
    whole = [
        it | DECIDES | {"count": it.get("texts", it.get("sequences"))}
        for it in table2(records) + every_alpha(records)
        if it.get("temperature", it.get("heat")) == 0
    ]
    label = "{target} with {draft}, gamma = {best_gamma}, activations in 8 bits".format
    return whole + [
        it | {"label": label(**it), "count": it["texts"], "beside": True}
        for it in numbers_by_row(records, "real_pair").values()
        if it.get("same_greedy_texts") is not None and "best_gamma" in it
    ]


def calls(records: Records) -> list[dict]:
    """Returns the tokens per call at every gamma of table2 and of table3."""
    timed = [it | {"tokens": it["tokens_per_call"]} for it in table2(records)]
    return [it | DECIDES for it in timed] + [
        it | DECIDES | {"tokens": [it["decoded_tokens"] / it["target_calls"]]}
        for it in every_alpha(records)
    ]


def chens_calls(records: Records) -> list[dict]:
    return [it | DECIDES for it in table2(records)] + [
        it | DECIDES | {"tokens_per_call": [it["tokens_per_call"]], "gamma": [it["K"]]}
        for it in chen(records)
    ]


def tokens_by_gamma(records: Records) -> Iterator[dict]:
    """Yields Equation 1 beside the tokens per call; a `group` is one row.

    Of table3 only whole calls count: Chen's r counts tokens beyond the end of a text.
    """
    for it in table2(records):
        for at in range(len(it["gamma"])):
            counted = it["predicted_tokens_per_call"][at]
            yield (
                tokens_at_gamma(it, at)
                | DECIDES
                | {"counted": counted, "group": it["label"]}
            )
    for it in every_alpha(records):
        gamma, r = it["protocol"]["gamma"], it["estimates"]["chen_r"]
        tokens, error = ((gamma + 1) * r[key] for key in ("value", "se"))
        here = {"gamma": gamma, "tokens": tokens, "tokens_se": error}
        yield it | here | {"group": it["label"]}


def tokens_at_gamma(it: dict, at: int) -> dict:
    """Returns a row of table2 with the tokens per call at one gamma, and their error.

    It is that of the calls around their expected number for these texts; infinite where
    it is not known, as for a draft without probabilities or a single batch.
    """
    tokens, luck = it["tokens_per_call"][at], it["steps_se"][at]
    error = math.inf if luck is None else tokens * luck / it["steps"][at]
    return it | {"gamma": it["gamma"][at], "tokens": tokens, "tokens_se": error}


def least_gamma(records: Records) -> list[dict]:
    """Returns the rows at the smallest gamma that drafts."""
    return [
        tokens_at_gamma(it, it["c"].index(costs(it)[0])) for it in rows_with_c(records)
    ]


def largest_gamma(records: Records) -> Iterator[dict]:
    for it in rows_with_c(records):
        last = {f"last_{key}": it[key][-1] for key in ("gamma", "c", "v")}
        last |= {"speed": it["speedup"][-1], "speed_ci": it["speedup_ci"][-1]}
        yield it | last


def hierarchies(records: Records) -> Iterator[dict]:
    """Yields c of code_small as accelerated by a bigram, measured, beside the c_eff
    that follows from both alone."""
    timed = numbers_by_row(records, "table2")
    counted = numbers_by_row(records, "open_questions")
    for heat in (0, 1):
        names = (f"{draft}_t{heat}_b1" for draft in ("hierarchy", "small", "bigram"))
        rows = [*map(timed.get, names), counted.get(f"hierarchy_bigram_t{heat}")]
        found = [it for it in rows if it is not None]
        if len(found) < len(rows):
            continue
        whole, model, lowest, calls = found
        at = whole["gamma"].index(whole["best_gamma"])
        c_eff = closed_forms.accelerated_c(
            model["best_c"],
            alpha=calls["alpha_lower"],
            gamma=calls["gamma_lower"],
            c_lower=lowest["best_c"],
        )
        measured = {"c": whole["c"][at], "c_ci": whole["c_ci"][at]}
        yield {"label": f"T = {heat}", "c_eff": float(c_eff)} | measured


def forecasts(records: Records) -> Iterator[dict]:
    """Yields every gamma for which other texts give a prediction; a `group` is one
    row."""
    names = {"predicted": "predicted", "speed": "speedup"}
    names |= {f"{ours}_ci": f"{name}_ci" for ours, name in names.items()}
    for it in table2(records):
        for at, gamma in enumerate(it["gamma"]):
            if it["predicted"][at] is not None:
                both = {
                    "label": f"{it['label']}: gamma = {gamma}",
                    "group": it["label"],
                }
                yield both | {ours: it[name][at] for ours, name in names.items()}


def temperature_pairs(records: Records) -> list[dict]:
    """Returns the drafts of table2 that have rows at both temperatures and batch 1."""
    rows = [it for it in table2(records) if not it["beside"]]
    hot = {draft_label(it): it for it in rows if it["temperature"] == 1}
    return [
        {"label": draft, "cold": it["best_speedup"], "cold_ci": it["best_speedup_ci"]}
        | {"hot": hot[draft]["best_speedup"], "hot_ci": hot[draft]["best_speedup_ci"]}
        for draft, it in (
            (draft_label(it), it) for it in rows if it["temperature"] == 0
        )
        if draft in hot
    ]


def places() -> list[tuple[str, str, int]]:
    """Returns family, draft and temperature of every row of table3 that claims are
    about.
    """
    return [
        (family, draft, heat)
        for family, count in FAMILIES.items()
        for draft in DRAFTS[:count]
        for heat in (0, 1)
    ]


def alphas(records: Records) -> dict[tuple[str, str, int], dict]:
    """Returns the numbers of folder table3 by family, draft and temperature."""
    rows = numbers_by_row(records, "table3")
    named = {at: "{}_{}_t{}".format(*at) for at in places()}
    return {at: rows[row] for at, row in named.items() if row in rows}


def every_alpha(records: Records) -> list[dict]:
    label = "{} ({}), T = {}, folder table3".format
    return [
        it | {"label": label(draft, family, heat), "kind": draft, "heat": heat}
        for (family, draft, heat), it in alphas(records).items()
    ]


def trivial_drafts(records: Records) -> list[dict]:
    return [it for it in every_alpha(records) if it["kind"] in TRIVIAL]


def models(records: Records) -> list[dict]:
    """Returns the rows of folder table3 whose draft is a model."""
    return [it for it in every_alpha(records) if it["kind"] not in TRIVIAL]


def compare_alphas(records: Records, pairs: Iterable[tuple]) -> list[dict]:
    """Returns both measurements of folder table3 for each pair, if all are there.

    Args:
        pairs: a label, a family and twice a draft and a temperature.
    """
    at = alphas(records)
    if len(at) < len(places()):
        return []
    return [
        {"label": label, "more": at[family, *more], "less": at[family, *less]}
        for label, family, more, less in pairs
    ]


def neighbours_by_size(records: Records) -> list[dict]:
    """Returns each draft together with the next larger one."""
    pairs = (
        (f"{name}, T = {heat}: {more} above {less}", name, (more, heat), (less, heat))
        for name, count in FAMILIES.items()
        for heat in (0, 1)
        for less, more in itertools.pairwise(DRAFTS[:count])
    )
    return compare_alphas(records, pairs)


def pairs_by_temperature(records: Records) -> list[dict]:
    """Returns each draft at T = 0 together with T = 1."""
    pairs = (
        (f"{draft} ({name}): T = 0 above T = 1", name, (draft, 0), (draft, 1))
        for name, draft, _ in places()[::2]
    )
    return compare_alphas(records, pairs)


def chen(records: Records) -> list[dict]:
    """Returns the rows measured with Chen's protocol: K drafted tokens per call, whole
    texts.
    """
    every = numbers_by_row(records, "chen_data", "chen_paper").values()
    rows = [it for it in every if "theoretical_speed" in it]  # not a row of walltime
    rows.sort(key=lambda it: (it["task"], it["draft"], it["temperature"]))
    label = "{draft} ({}), T = {temperature:g}, K = {K}".format
    return [
        it
        | {"label": label(Path(it["task"]).stem, **it)}
        | {"speed_ci": it["speed_interval"]}
        for it in rows
    ]


def beams(records: Records) -> Iterator[dict]:
    """Yields each row of beam search at each of its widths."""
    for row, it in sorted(numbers_by_row(records, "beams", "beams_data").items()):
        for width in it["widths"]:
            own = part(it, f"{width}")
            same = it["texts"] - own["differing"]
            about = {"label": f"{row}, width {width}", "row": row, "width": width}
            yield own | about | {"texts": it["texts"], "same_texts": same}


def wider_beams(records: Records) -> Iterator[dict]:
    """Yields each row of beam search at each width above the smallest, together with
    the smallest."""
    for _, group in itertools.groupby(beams(records), lambda it: it["row"]):
        least, *wider = group
        bound = {f"least_{name}": least[name] for name in ("share", "share_se")}
        yield from (it | bound for it in wider)


def timed_trees(records: Records) -> Iterator[dict]:
    """Yields each timed tree together with the chain of its pair, and its speed divided
    by that of the chain."""
    rows = numbers_by_row(records, *trees.FOLDERS).items()
    timed = {row: it for row, it in rows if "best_speedup" in it}
    for it in trees.compare_trees(timed):
        label = "{pair}: {tree_draft}, T = {tree_temperature:g}".format_map(it)
        yield it | {"label": label}


def speech_pairs(records: Records) -> list[dict]:
    """Returns the pairs of Whispers that share an encoder, for one recording at a
    time."""
    label = "{}: {target} with {draft}".format
    return [
        part(it, "b1") | {"recordings": it["recordings"], "label": label(row, **it)}
        for row, it in sorted(numbers_by_row(records, "speech_data").items())
        if it.get("shared_encoder") and "same_texts_b1" in it
    ]


def certificate(records: Records) -> list[dict]:
    rows = numbers_by_row(records, "certificate")
    return [rows["token"] | {"label": "cases"}] if "token" in rows else []


def lengths(records: Records) -> Iterator[dict]:
    """Yields the best gamma of Theorem 3.8 together with the 1 / (1 - alpha) of the
    page."""
    for row, it in sorted(numbers_by_row(records, "figure3").items()):
        for alpha in (0.7, 0.9):
            yield {
                "label": f"alpha = {alpha}, c = {row.rpartition('_')[2]}",
                "best_gamma": it["best_gamma"][it["alpha"].index(alpha)],
                "page": 1 / (1 - alpha),
            }


def word_kinds(records: Records) -> Iterator[dict]:
    for row, it in sorted(numbers_by_row(records, "kinds", "kinds_data").items()):
        cells = {cell["label"]: cell["expected"] for cell in it["groups"]["kind"]}
        for easy, hard in WORDS:
            if not cells.keys() >= {easy, hard}:
                continue  # in German all nouns look like names
            if None in (*cells[easy], *cells[hard]):
                continue  # of too few texts
            pair = {"label": f"{row}: {easy}s above {hard}s"}
            for name, (value, *ends) in ("easy", cells[easy]), ("hard", cells[hard]):
                pair |= {name: value, f"{name}_ci": ends}
            yield pair
