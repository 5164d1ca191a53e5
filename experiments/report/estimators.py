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
ROUNDED = 1e-4  # how far a count may be from a whole number


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
    if "rule" not in measured:
        return ""
    return NAMES[measured.get("alpha_estimator") or infer(measured)]


def infer(measured: Mapping) -> str:
    """Returns the estimator behind the alpha of texts that were timed, for a record
    that does not name it.

    Answers to questions, which are in turns, have counts alone. What a record has of
    scored texts shows it: expected steps and, at T = 0, alpha of fresh text. Else a
    share of `tokens` that is no count is a mean.
    """
    if "turns" in measured:
        return "counts"
    if any(x is not None for x in measured.get("predicted_steps") or ()):
        return "rao_blackwell"
    if measured.get("alpha_fresh") is not None:
        return "rao_blackwell"
    kept = (measured["alpha"] or 0) * measured.get("tokens", 0)
    return "rao_blackwell" if abs(kept - round(kept)) > ROUNDED else "counts"


def rule(measured: Mapping) -> str:
    """Returns the rule that verified, if a record names it."""
    protocol = measured.get("protocol")
    own = protocol.get("rule") if isinstance(protocol, Mapping) else None
    return measured.get("rule") or own or ""
