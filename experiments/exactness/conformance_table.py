"""Lines that say whose acceptance rule gives which law: the conformance table."""

from experiments.exactness.engines import RULES
from experiments.records.markup import number
from experiments.records.table import Line, Table, command

HEAD = ["rule", "source", "version", "pair of models", "law", "TV, first token"]
HEAD += ["TV, three tokens", "largest difference", "tokens a call"]
HEAD += ["tokens of Algorithm 1", "an id of p = 0"]


def conformance() -> Table:
    lines = [
        Line("conformance", "rules", "rules put to the test", "total"),
        Line("conformance", "rules", "rules that give their sampler's law", "exact"),
    ]
    for rule in RULES:
        what = f"{rule.name} [{rule.fixture.name}]: total variation, three tokens"
        lines.append(Line("conformance", "rules", what, f"tv_{rule.key}"))
    note = (
        "The acceptance rules of other engines, each written in a few lines here from"
        " its public description and enumerated in float64 as our own are. They are our"
        " transcriptions and not the engines' code: a number is about the rule as it is"
        " written in `experiments/exactness/rules.py`, in the version that is named."
        " Total variation is the distance of the texts' law from that of the same"
        " engine's sampler without drafts, on a pair of models small enough to"
        " enumerate; on others it is larger or smaller, and 0 for a rule that gives its"
        " sampler's law. Two tokens are drafted. Fixed laws: p = (.4, .3, .2, .1) and q"
        " = (.55, .25, .15, .05) after any prefix. Random: laws of four ids that depend"
        " on the prefix, all but the two largest logits of each removed where it says"
        " top-k 2. A tie: target logits (1, 1, 0, -1). Five logits: (2, 1.5, 1, 0, -1)."
        " `at u = 0`: emitted only where a uniform is exactly 0, a set of measure zero."
    )
    title = "Conformance: the law that acceptance rules give"
    return Table("conformance", title, note, command("conformance"), lines)


def wider(records: dict[str, dict]) -> list[tuple[str, list, list]]:
    """Every column of every rule, for the records of this table by row."""
    if "rules" not in records:
        return []
    measured = records["rules"]["measured"]
    lines = [cells(rule) for rule in measured["rules"]]
    return [("Rule by rule, with sources and versions", HEAD, lines)]


def cells(rule: dict) -> list[str]:
    """One rule, as `conformance.certified` measured it, in the columns of HEAD."""
    sizes = "tv_first", "tv", "largest", "tokens", "algorithm_1"
    words = [rule[name] for name in ("name", "source", "version", "fixture", "class")]
    return [*words, *(number(rule[name]) for name in sizes), forbidden(rule)]


def forbidden(rule: dict) -> str:
    """How often a call emits an id that the target cannot draw."""
    if rule["impossible"]:
        return number(rule["impossible"])
    return "at u = 0" if rule["at_zero"] else "never"
