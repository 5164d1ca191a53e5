"""How the records of the bench are shown, and the goals that they are held to."""

from typing import NamedTuple

from experiments.records.markup import number
from experiments.records.table import Line, Table
from experiments.rivals import t5x

COMMAND = "python -m experiments.rivals"
HEAD = ["what", "goal", "ours [95 %]", "measured", "goal was then"]
TIMES_HEAD = ["row", "engine", "ms a token", "specjax is faster by [95 %]"]
SAME_HEAD = ["row", "same texts", "nats apart at most", "alpha", "target calls"]
SAME_HEAD += ["refuses"]


class Goal(NamedTuple):
    """A ratio in the record of `row`; most: it is met below the value, not above."""

    row: str
    quantity: str
    what: str
    value: float | None = None
    most: bool = False


GOALS = [
    Goal("small_plain_b1", "over_huggingface", "greedy, over transformers", 2.5),
    Goal("small_plain_b1", "over_ctranslate2", "greedy, over CTranslate2 float32", 1.5),
    Goal("small_plain_b1", "over_ctranslate2_int8", "greedy, over CTranslate2 int8"),
    Goal(
        "small_speculative_b1",
        "over_huggingface",
        "speculative, over assisted generation of transformers",
        4.5,
    ),
    Goal(
        "small_speculative_b1",
        "over_specjax_plain",
        "speculative, over our own greedy decoding",
        1.4,
    ),
    Goal(
        "small_speculative_b1_xla",
        "over_huggingface",
        "the same by XLA's products, over assisted generation of transformers",
    ),
    Goal(
        "small_speculative_b1_xla",
        "over_specjax_plain",
        "the same by XLA's products, over our own greedy decoding",
    ),
    Goal(
        "small_speculative_b1",
        "huggingface_over_plain",
        "transformers' assisted generation, over its own greedy decoding",
    ),
    Goal("small_plain_b8", "over_huggingface", "greedy, batch 8, over transformers"),
    Goal("small_plain_b8", "over_ctranslate2", "greedy, batch 8, over CTranslate2"),
    Goal(
        "small_speculative_b8",
        "over_specjax_plain",
        "speculative, batch 8, over our own greedy decoding",
    ),
    Goal("small_target_call_b1", "v", "v(3) = t_p(4) / t_p(1)", 1.5, most=True),
    Goal("small_target_call_b1", "v_readout", "the same of the readout alone"),
    Goal("small_target_call_b1", "share_1", "share of the readout in t_p(1)"),
    Goal("small_target_call_b1", "share_4", "share of the readout in t_p(4)"),
    Goal("small_t5x_b1", "over_t5x", "greedy, over T5X"),
    Goal("small_t5x_b8", "over_t5x", "greedy, batch 8, over T5X"),
]


def bench() -> Table:
    """The ratios as lines of the catalogue."""
    lines = []
    for goal in GOALS:
        needs = t5x.NEEDS if "t5x" in goal.row else None
        error = f"{goal.quantity}_se"
        line = Line("bench", goal.row, goal.what, goal.quantity, error=error)
        lines.append(line._replace(needs=needs))
    title = "Bench: how many times as fast as others, on the same weights and machine"
    note = (
        "T5 v1.0 at T5-small's sizes (60.5M) and a draft of 11.9M, float32 on two"
        " cores, 64 new tokens after 32 of input, programs run in turns; batch 1 unless"
        " said. The weights are made, not trained (`experiments/rivals/weights.py`):"
        " embeddings on a circle that both models count along, random kernels, and a"
        " share of the draft's ids exchanged, which sets alpha. A row is measured only"
        " if the engines in float32 write the same texts, token for token, up to ties."
        " CTranslate2 has no speculative decoding, and transformers' is for batch 1"
        " alone. Times are of the day, the commit and the versions that each row names;"
        " no goal is said to be met by what came after."
    )
    return Table("bench", title, note, COMMAND, lines)


def verdict(goal: Goal, record: dict | None) -> list[str]:
    """One goal in the columns of HEAD: met or missed if all of the interval is, on the
    day of the record, by its commit. What has changed since was not measured."""
    sign = "at most" if goal.most else "at least"
    aim = "" if goal.value is None else f"{sign} {goal.value:g}"
    if record is None:
        return [goal.what, aim, "", "never", ""]
    measured = record["measured"]
    value, ends = measured[goal.quantity], measured[f"{goal.quantity}_ci"]
    shown = f"{number(value)} [{', '.join(map(number, ends))}]"
    origin = record["provenance"]
    when = ", ".join(filter(None, (origin["date"][:10], (origin["commit"] or "")[:7])))
    if goal.value is None:
        return [goal.what, aim, shown, when, ""]
    beyond = {end <= goal.value if goal.most else end >= goal.value for end in ends}
    state = "within the interval" if len(beyond) == 2 else "missed"
    return [goal.what, aim, shown, when, "met" if beyond == {True} else state]


def goals(records: dict[str, dict]) -> list[list[str]]:
    """Every goal, by the latest record of each row."""
    return [verdict(goal, records.get(goal.row)) for goal in GOALS]


def times(records: dict[str, dict]) -> list[list[str]]:
    """Every engine of every row, ours first."""
    lines = []
    for name, record in records.items():
        measured = record["measured"]
        for key, value in measured.items():
            if key.startswith("ms_"):
                ratio = f"over_{key.removeprefix('ms_')}"
                shown = ""
                if ratio in measured:
                    ends = ", ".join(map(number, measured[f"{ratio}_ci"]))
                    shown = f"{number(measured[ratio])} [{ends}]"
                lines.append([name, key.removeprefix("ms_"), number(value), shown])
    return lines


def agreements(records: dict[str, dict]) -> list[list[str]]:
    """What made each row a comparison: equal texts, acceptance, target calls."""
    return [_agreement(name, record["measured"]) for name, record in records.items()]


def _agreement(name: str, measured: dict) -> list[str]:
    def each(key: str) -> str:
        values = measured.get(key, {}).items()
        shown = {k: x if isinstance(x, str | int) else number(x) for k, x in values}
        return ", ".join(f"{k} {x}" for k, x in shown.items())

    texts = measured["setting"]["texts"]
    same = f"{each('same_texts')} of {texts}" if "same_texts" in measured else ""
    if "int8_same_prefix" in measured:
        rounded = 100 * measured["int8_same_prefix"]
        same += f"; ctranslate2_int8 {rounded:.0f} % of tokens"
    alpha = number(measured["alpha"]) if "alpha" in measured else ""
    apart = ", ".join(f"{k} {x:.1g}" for k, x in measured.get("nats_apart", {}).items())
    return [name, same, apart, alpha, each("calls"), each("refusals")]


def wider(records: dict[str, dict]) -> list[tuple[str, list, list]]:
    """Tables that say more than a number a line: title, head, rows."""
    if not records:
        return []
    aims = [("Goals, as they were measured", HEAD, goals(records))]
    shown = any(goal.row in records for goal in GOALS)
    return [
        *(aims if shown else []),
        ("Milliseconds a token (a call)", TIMES_HEAD, times(records)),
        ("Same texts, and how often drafts were kept", SAME_HEAD, agreements(records)),
    ]
