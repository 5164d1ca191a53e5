"""Numbers that follow from those of a record, and intervals that say nothing.

Tables show them as if the record had them; records stay as they were measured.
"""

from collections.abc import Mapping

from experiments.report import estimators, rivals
from experiments.report.methods import INTERVAL


def update_record(measured: dict) -> dict:
    """Returns the numbers of a record with those that follow from them."""
    own = estimators.update_record(measured)
    own = own | tokens_error(own) | best_fixed(own) | same_texts(own)
    return own | dict.fromkeys(empty_intervals(own))


def tokens_error(it: Mapping) -> dict[str, float]:
    """Returns the standard error of tokens a call, by text, where Chen's r of the same
    calls has one: r is over gamma + 1, and also counts drafts after the end of a
    text."""
    r = (it.get("estimates") or {}).get("chen_r")
    if r is None or not isinstance(it.get("tokens_per_call"), float):
        return {}
    return {"tokens_per_call_se": (it["protocol"]["gamma"] + 1) * r["se"]}


def best_fixed(it: Mapping) -> dict[str, float]:
    """Returns the cost of a token at the best of all fixed numbers of drafted
    tokens."""
    name = f"gamma_{it.get('best_gamma')}_cost"
    if name not in it:
        return {}
    return {"best_fixed_cost": it[name], "best_fixed_cost_se": it[f"{name}_se"]}


def same_texts(it: Mapping) -> dict[str, str]:
    """Returns how many of all greedy texts are the target's own, such as "48 of
    48"."""
    same, texts = it.get("same_greedy_texts"), it.get("texts")
    if same is None or texts is None:
        return {}
    return {"same_of_texts": f"{same} of {texts}"}


def empty_intervals(it: Mapping) -> list[str]:
    """Returns the names of intervals over recordings that hold one recording, and of
    those of ratios with too few times."""
    alone = [key for key in it if key.startswith(INTERVAL)]
    return alone * (it.get("recordings") == 1) + rivals.few_times(it)
