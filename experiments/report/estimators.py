"""The names of the estimators of alpha, and the rule that verified.

Each answers another question (`specjax.theory.estimate`): the mean of beta over every
position of the target's text, the share of tested tokens that were kept, the alpha that
Equation 1 implies, and Chen's r. Rows that are compared show one of them.
"""

from collections.abc import Mapping

NAMES = {
    "rao_blackwell": "mean beta",
    "counts": "share kept",
    "implied_alpha": "implied",
    "chen_r": "Chen's r",
}
KEPT = "share_kept"


def update_record(measured: dict) -> dict:
    """Returns the numbers of a record with its share of kept tokens, where it has
    one."""
    if counts := measured.get("estimates", {}).get("counts"):
        return measured | {KEPT: counts["value"], f"{KEPT}_se": counts["se"]}
    return measured


def name(measured: Mapping, quantity: str) -> str:
    """Returns the name of the estimator behind a record's alpha; "" for other
    quantities."""
    if quantity.startswith("alpha_l"):  # by lenience, over the target's text
        return NAMES["rao_blackwell"]
    if quantity == KEPT:
        return NAMES["counts"]
    if quantity != "alpha":
        return ""
    if "estimates" in measured:
        mean = "rao_blackwell" in measured["estimates"]
        return NAMES["rao_blackwell" if mean else "counts"]
    # Of texts that were timed: counts of the drafts and what was kept of them.
    return NAMES["counts"] if "rule" in measured else ""


def rule(measured: Mapping) -> str:
    """Returns the rule that verified, if a record names it."""
    protocol = measured.get("protocol")
    own = protocol.get("rule") if isinstance(protocol, Mapping) else None
    return measured.get("rule") or own or ""
