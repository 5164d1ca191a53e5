"""Lines that say what kinds of tokens are accepted, where, and of what length."""

from collections.abc import Mapping

from experiments.papers.leviathan.walltime_table import LLAMA_ROWS, NEEDS_DIALOGUES
from experiments.records.markup import number
from experiments.records.table import Line, Table, command
from specjax.measure.texts import standardized

Wide = tuple[str, list[str], list[list[str]]]  # title, head, rows


PAIRS = {
    "code": "code_target with code_small, Python",
    "joined": "t5_target with t5_small, into German (joined)",
    "docs": "t5_target with t5_small, summaries (docs)",
    "correct": "t5_target with t5_small, corrections (correct)",
}
# Folder and row -> what was measured.
SHOWN = {
    ("kinds", f"{name}_t{heat}"): f"{pair}, T = {heat}"
    for name, pair in PAIRS.items()
    for heat in (0, 1)
}
SHOWN |= {("kinds_data", row): pair for row, pair in LLAMA_ROWS.items()}
NEEDS = {"kinds_data": NEEDS_DIALOGUES}
QUANTITIES = {
    "alpha": "alpha where a draft was looked at",
    "kept": "drafts kept, of those looked at",
    "alpha_everywhere": "alpha at every token",
}
# Of a record, each way to tell its tokens apart: a table.
TITLES = {
    "kind": "By kind of token",
    "block": "By place in the block of drafts, from 1 on",
    "place": "By place in the text, in tokens from 0 on",
    "characters": "By length of the token, in characters",
    "word": "By length of the word that the token belongs to, in characters",
    "piece": "By place in the word",
}
# What is said to be accepted more than other tokens.
EASY = ("function word", "punctuation", "keyword", "operator", "bracket or separator")
VERDICTS = "Are they accepted more than other tokens?"
VERDICT_HEAD = ["pair and task", "tokens", "more than others [95 %]", "verdict"]
HEAD = ["pair and task", "tokens", "share", "alpha [95 %]", "expected [95 %]"]
HEAD += ["kept", "more than others [95 %]", "n", "texts"]
NOTE = (
    "Of every drafted token that a run of Algorithm 1 looked at, told of the target's"
    " own token there, x: the draft where it was kept, else what was drawn in its"
    " place; either follows p. What a call adds after a draft that it kept whole was"
    " not looked at. alpha: the mean of sum_x min(p, q), how likely any draft is to be"
    " kept there; expected: that of min(1, q(x) / p(x)), how likely x is to be the"
    " draft, given that it is x; kept: the share that was. Over all tokens they"
    " estimate one mean, by kind they do not, and at T = 0 they are the same. More"
    " than others: expected, less that of all other tokens of the row. Every token"
    " looked at weighs the same; intervals are of 2,000 bootstrap samples of whole"
    " texts. A token is of the kind of the word that its first character, spaces"
    " apart, belongs to. Function words are a list"
    " (`experiments/kinds/function_words.py`); a name is capitalised inside a"
    " sentence, and in German all nouns are; code is read by Python's tokenize, and"
    " words, names and punctuation in it are of its strings and comments. A verdict is"
    " of one line: of twenty lines without any difference one would have one."
)


def kinds() -> Table:
    lines = [
        Line(
            folder,
            row,
            f"{pair}: {words}",
            quantity,
            error=f"{quantity}_se",
            needs=NEEDS.get(folder),
        )
        for (folder, row), pair in SHOWN.items()
        for quantity, words in QUANTITIES.items()
    ]
    title = "Acceptance by kind of token, by its place and by its length"
    return Table("kinds", title, NOTE, command("kinds"), lines)


def wider(records: Mapping[str, Mapping[str, dict]]) -> list[Wide]:
    """A table for each way to tell tokens apart, of the rows that were measured."""
    measured = measured_of(records)
    if not measured:
        return []
    rows = [
        [what, cell["label"], spread(cell["more"], sign="+"), verdict(cell["more"])]
        for what, groups in measured
        for cell in groups["kind"]
        if cell["label"] in EASY
    ]
    told = [(VERDICTS, VERDICT_HEAD, rows)]
    for group, title in TITLES.items():
        rows = [row(what, cell) for what, groups in measured for cell in groups[group]]
        told.append((title, HEAD, rows))
    return told


def measured_of(records: Mapping[str, Mapping[str, dict]]) -> list[tuple[str, dict]]:
    """What is called how, and its groups, of every row that has a record: those of the
    table in its order, then one's own, of whatever folder."""
    rows = {
        (folder, row): record["measured"]
        for folder, several in records.items()
        for row, record in several.items()
        if "groups" in record["measured"]
    }
    order = [
        *(it for it in SHOWN if it in rows),
        *(it for it in rows if it not in SHOWN),
    ]
    return [(SHOWN.get(it) or called(rows[it]), rows[it]["groups"]) for it in order]


def called(measured: Mapping) -> str:
    protocol = measured["protocol"]
    pair = f"{measured['target']} with {measured['draft']}"
    return f"{pair}, {protocol['task']}, {standardized(protocol)}"


def verdict(more: list[float | None]) -> str:
    """Whether an interval of a difference lies above 0, below it, or neither."""
    _, low, high = more
    if low is None:
        return "too few texts"
    return "yes" if low > 0 else "no, less" if high < 0 else "not seen"


def row(what: str, cell: Mapping) -> list[str]:
    """One cell of `shares.cells` in the columns of HEAD."""
    return [
        what,
        cell["label"],
        f"{cell['share']:.3f}",
        spread(cell["alpha"]),
        spread(cell["expected"]),
        number(cell["kept"][0]),
        spread(cell["more"], sign="+"),
        str(cell["count"]),
        str(cell["texts"]),
    ]


def spread(interval: list[float | None], sign: str = "") -> str:
    """0.41 [0.35, 0.47]; without what is None."""
    value, *ends = interval
    if value is None:
        return "none"
    told = f"{value:{sign}.3f}"
    if None in ends:
        return told
    return f"{told} [{', '.join(f'{x:{sign}.3f}' for x in ends)}]"
