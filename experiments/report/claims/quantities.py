"""The numbers that claims compare, and the preconditions of claims.

alpha is E(beta), c the time of one drafted token over one target token (Definition
3.7), v that of gamma + 1 positions over one; EXP is Theorem 3.8, EMP the measurement. r
is the number of tokens decoded in a call over K + 1 (Chen et al., 2023).
"""

import json
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from experiments import catalogue
from experiments.records.markup import interval, number, number_with_error
from experiments.records.table import Records
from experiments.report.claims.subjects import chen, costs, table2
from experiments.report.columns import numbers_by_row
from specjax.measure.texts import prompt_units
from specjax.theory import closed_forms, estimate

CONFIDENCE = 0.95
OF_THE_DRAFT = ("gamma", "rule", "policy", "kernels")  # no matter to the target's texts
NEGLIGIBLE_C = 0.02  # the least c that Table 4 prints
CLOSE = 0.05  # ours: wider than most intervals, finer than what gamma changes
HUNDREDTH = 50  # ours: a target this many times its draft is about a hundred times it
# Parameters of the bundled models in millions, by which c is expected to be small.
MILLIONS = {"code_target": 33.6, "code_small": 0.99, "t5_target": 41.4}
MILLIONS |= {"t5_large": 4.7, "t5_base": 2.5, "t5_small": 1.0}
# Heads of code_target: the bundled one by its recipe, and Medusa's texts and steps
# (gin_configs/heads_data/medusa.gin).
EAGLE3, EAGLE3_MADE = "code_eagle3", catalogue.ROOT / "specjax/zoo/code_eagle3.json"
MEDUSA = (2048, 2000)


class Number(NamedTuple):
    """A number with its standard error, and its text."""

    value: float
    error: float = 0.0
    shown: str = ""


def exact_number(x: float) -> Number:
    return Number(x, 0.0, number(x))


def critical_errors(count: int) -> float:
    """Returns how many standard errors are significant for one of `count` comparisons,
    two-sided."""
    return NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * count))


def interval_error(ends: Sequence[float] | None) -> float:
    """Returns the standard error that a 95 % interval implies under a normal law.

    It is infinite without an interval: a number of a single round or text decides
    nothing.
    """
    if ends is None:
        return math.inf
    low, high = ends
    return (high - low) / (2 * critical_errors(1))


# Numbers that no record has as they are.


def slope(alpha: float, gamma: int) -> float:
    """Returns the derivative of Equation 1 with respect to alpha."""
    return sum(i * alpha ** (i - 1) for i in range(1, gamma + 1))


def equation_1(it: dict, fewer_drafted: int = 0) -> Number:
    alpha, gamma = it["alpha"], it["gamma"] - fewer_drafted
    tokens = closed_forms.expected_tokens(alpha, gamma)
    shown = f"{number(tokens)} at gamma = {it['gamma']}"
    return Number(tokens, slope(alpha, gamma) * it["alpha_se"], shown)


def alpha_difference(it: dict) -> Number:
    """Returns alpha of one measurement minus that of another.

    It is computed text by text where both drafts were measured on the same texts, else
    the two are taken as independent. Texts of one prompt are one unit, where the record
    has the number of prompts.
    """
    more, less = it["more"], it["less"]
    both = [m.get("alpha_by_text") for m in (more, less)]
    shown = ", ".join(f"{m['alpha']:.3f} ± {m['alpha_se']:.3f}" for m in (more, less))
    if None in both or text_identity(more) != text_identity(less):
        error = math.hypot(more["alpha_se"], less["alpha_se"])
        gap, how = more["alpha"] - less["alpha"], "taken as independent"
        return Number(gap, error, f"{shown}; {how}")
    totals = [by_prompt(m["beta"], both[0]) for m in both]
    paired = estimate.difference(*totals, by_prompt(both[0]["tokens"], both[0]))
    how = f"text by text {number(paired.value)} ± {number(paired.se)}"
    return Number(paired.value, paired.se, f"{shown}; {how}")


def by_prompt(totals: Sequence[float], of: dict) -> np.ndarray:
    """Returns the totals of texts, summed over the texts of each prompt. of: the
    `alpha_by_text` of a record."""
    units = prompt_units(np.arange(len(totals)), of.get("prompts", 1))
    return np.bincount(units, totals)


def tokens_gained(it: dict) -> Number:
    """Returns the tokens per call of one measurement minus those of another; their
    errors are taken as independent."""
    both = [(m["tokens_per_call"], tokens_error(m)) for m in (it["more"], it["less"])]
    (more, more_error), (less, less_error) = both
    shown = " against ".join(number_with_error(*each) for each in both)
    return Number(more - less, math.hypot(more_error, less_error), shown)


def tokens_error(it: dict) -> float:
    """Returns the standard error of the tokens per call; where a record has none, it
    follows from that of the share kept, by Equation 1."""
    gamma, estimates = it["protocol"]["gamma"], it["estimates"]
    if "chen_r" in estimates:
        return (gamma + 1) * estimates["chen_r"]["se"]
    alpha = float(closed_forms.implied_alpha(it["tokens_per_call"], gamma))
    return slope(alpha, gamma) * estimates["counts"]["se"]


def tokens_of_a_call(it: dict) -> Number:
    x, error = it["tokens_per_call"], tokens_error(it)
    return Number(x, error, number_with_error(x, error))


def text_identity(it: dict) -> tuple:
    """Returns what identifies the texts that alpha was measured on: their target and
    its protocol.
    """
    how = {name: x for name, x in it["protocol"].items() if name not in OF_THE_DRAFT}
    return it["target"], how, it["alpha_by_text"]["tokens"]


def largest_c(it: dict) -> Number:
    c = max(costs(it))
    ends = it["c_ci"][it["c"].index(c)]
    return Number(c, interval_error(ends), interval(c, ends))


def limit(it: dict) -> Number:
    """Returns 1 / (1 - alpha), the limit for c = 0 and v = 1."""
    x = 1 / (1 - it["alpha"])
    return Number(x, it["alpha_se"] * x**2, number(x))


def per_token(name: str, it: dict) -> Number:
    """Returns a factor of operations or bytes, with the error that follows from that of
    alpha."""
    tokens = closed_forms.expected_tokens(it["alpha"], it["gamma"])
    luck = slope(it["alpha"], it["gamma"]) * it["alpha_se"] / tokens
    return Number(it[name], it[name] * luck, number(it[name]))


def room(it: dict) -> Number:
    """Returns how far the tokens per call stay inside their bounds, 1 and K + 1."""
    tokens = it["tokens_per_call"]
    both = zip(tokens, it["gamma"], strict=True)
    least = min(min(count - 1, gamma + 1 - count) for count, gamma in both)
    return Number(least + 1e-9, 0.0, f"{number(min(tokens))} to {number(max(tokens))}")


def speed_by_r(it: dict) -> Number:
    """Returns the speed that r predicts by Chen et al., for a row measured with their
    protocol, or for a row at its best gamma.
    """
    if "theoretical_speed" in it:
        c, v = (it[f"t_{part}_ms"] / it["t_target_ms"] for part in ("draft", "score"))
        speed, r = it["theoretical_speed"], it["r"]
        with_v = it["tokens_per_call"] / (it["K"] * c + v)
        shown = f"{number(speed)} by r = {number(r)} (v = {number(v)}, with which"
        return Number(speed, speed * it["r_se"] / r, f"{shown} {number(with_v)})")
    r = closed_forms.chen_r(it["best_tokens_per_call"], it["best_gamma"])
    speed = closed_forms.chen_speedup(
        r, it["best_gamma"], t_draft=it["best_c"], t_target=1.0
    )
    return Number(speed, 0.0, f"{number(speed)} by r = {number(r)}")


def rouge_loss(it: dict, method: str = "sigmoid_1e4") -> Number:
    """Returns ROUGE-1 of the baseline minus that of a method.

    It is computed prompt by prompt where the record has the scores of prompts, else the
    two are taken as independent.
    """
    first, second = (it[f"rouge1_{name}"] for name in ("baseline", method))
    each = [it.get(f"rouge1_by_prompt_{name}") for name in ("baseline", method)]
    if None not in each and len(each[0]) > 1:
        error = float(np.std(np.subtract(*each), ddof=1) / len(each[0]) ** 0.5)
        return Number(first - second, error, number_with_error(first - second, error))
    errors = [it[f"rouge1_se_{name}"] for name in ("baseline", method)]
    if None in errors:
        return Number(first - second, math.inf, number(first - second))
    error = math.hypot(*errors)
    return Number(first - second, error, number_with_error(first - second, error))


def time_error(it: dict, method: str) -> float:
    """Returns the error of a median over rounds; under a normal law it is 1.2533 times
    that of a mean. It is infinite for a single round.
    """
    deviation = it[f"us_{method}_sd"]
    if it["rounds"] < 2 or deviation is None:
        return math.inf
    return 1.2533 * deviation / it["rounds"] ** 0.5


def reduction_error(it: dict, method: str) -> float:
    """Returns the error, in per cent, of the reduction of a method's time against the
    baseline with the same filter, which was timed as well."""
    base = "baseline_top50" if method.endswith("_top50") else "baseline"
    share = 1 - it[f"step_reduction_{method}"] / 100  # of the baseline's time
    error = math.hypot(time_error(it, method), share * time_error(it, base))
    return 100 * error / it[f"us_{base}"]


MEASURED = ("exact", "sigmoid_1e4")
NUMBERS = {
    "equation 1": equation_1,
    "the page's tokens": lambda it: equation_1(it, fewer_drafted=1),
    "fewest tokens": lambda it: exact_number(min(it["tokens"])),
    "difference": alpha_difference,
    "tokens gained": tokens_gained,
    "tokens a call": tokens_of_a_call,
    "largest c": largest_c,
    # Corollary 3.9.
    "least gain": lambda it: exact_number(
        closed_forms.minimum_gain(it["alpha"], costs(it)[0])
    ),
    "limit": limit,
    "operations": lambda it: per_token("operations_factor", it),
    "bytes": lambda it: per_token("bytes_factor", it),
    "room": room,
    "by r": speed_by_r,
    "loss": rouge_loss,
    "most memory": lambda it: exact_number(
        max(it[f"peak_kib_{name}"] for name in MEASURED)
    ),
}


def find_number(it: dict, name: str | float) -> Number:
    """Returns the number that a name stands for: a constant, one of NUMBERS, or a
    number of the record.
    """
    if not isinstance(name, str):
        return exact_number(name)
    if name in NUMBERS:
        return NUMBERS[name](it)
    x, (kind, _, method) = it[name], name.partition("_")
    if f"{name}_ci" in it:
        return Number(
            x, interval_error(it[f"{name}_ci"]), interval(x, it[f"{name}_ci"])
        )
    if kind == "us":
        error = time_error(it, method)
    elif name.startswith("step_reduction_"):
        method = name.removeprefix("step_reduction_")
        error = reduction_error(it, method)
    else:
        error = it.get(f"{name}_se", it.get(f"{kind}_se_{method}"))
    shown = number_with_error(x, error if error and math.isfinite(error) else None)
    return Number(x, error or 0.0, shown)


# What a claim takes for granted: nothing, or what it lacks here, with the numbers.


def scoring_costs(it: dict) -> str:
    """Returns "" if v is 1 at the best gamma, as Theorem 3.8 assumes; else the value of
    v in words.
    """
    at = it["gamma"].index(it["best_gamma"])
    if it["v"][at] <= 1 + CLOSE:
        return ""
    return f"v = {interval(it['v'][at], it['v_ci'][at])} at gamma = {it['gamma'][at]}"


def large_draft(it: dict) -> str:
    """Returns "" if the draft has at most a hundredth of the target's size, or a size
    is unknown; else both sizes in words. In a hierarchy the first model counts.
    """
    names = it["target"], it["draft"].partition(", accelerated by ")[0]
    target, draft = map(MILLIONS.get, names)
    if target is None or draft is None or target / draft >= HUNDREDTH:
        return ""
    return f"the draft is 1/{target / draft:.0f} of its target"


def corollary(it: dict) -> str:
    """Returns "" if a row satisfies Corollary 3.9, which needs alpha above c and v = 1;
    else the reason why not.
    """
    if it["alpha"] <= costs(it)[0]:
        return f"alpha {number(it['alpha'])} is not above c {number(costs(it)[0])}"
    return scoring_costs(it)


def costly_ngrams(it: dict) -> str:
    c = costs(it)[0]
    if c >= NEGLIGIBLE_C:
        return f"c = {number(c)}, not below {NEGLIGIBLE_C}"
    return scoring_costs(it)


def dependent_acceptances(it: dict) -> str:
    """Returns "" if Equation 1 also predicts the exact count; else a note that
    acceptances are dependent or texts end.
    """
    if "counted" not in it:
        return ""
    if it["counted"] is None:
        return "no draft at every position: alpha is of those tested"
    if abs(equation_1(it).value / it["counted"] - 1) <= CLOSE:
        return ""
    return f"not independent, or texts end: {number(it['counted'])} by exact count"


def not_free(it: dict) -> str:
    c, v = it["last_c"], it["last_v"]
    large = c > NEGLIGIBLE_C or v > 1 + CLOSE
    return f"c = {number(c)}, v = {number(v)}" if large else ""


def insensitive_rouge(it: dict) -> str:
    """Returns "" if ROUGE-1 can detect a loss, which a control that keeps every draft
    shows; else the reason why not.
    """
    most = rouge_loss(it, "always")
    if abs(most.value) > critical_errors(1) * most.error:
        return ""
    return f"keeping every draft loses {most.shown} as well"


def training_length(draft: str) -> tuple[int, int] | None:
    """Returns the texts and the steps from which a head of code_target learnt; None for
    any other draft."""
    name = draft.partition(",")[0]
    if name != EAGLE3:
        return MEDUSA if name == "medusa" else None
    recipe = json.loads(EAGLE3_MADE.read_text())["recipe"]
    return recipe["written"]["texts"], recipe["stages"]["training"]["recipe"]["steps"]


def unequal_training(it: dict) -> str:
    """Returns "" if the heads of two rows learnt from as many texts in as many steps,
    or that is unknown; else how much more one learnt.
    """
    more, less = (training_length(it[x]["draft"]) for x in ("more", "less"))
    if more is None or less is None or more == less:
        return ""
    texts, steps = (number(x / y) for x, y in zip(more, less, strict=True))
    return f"learnt from {texts} times as many texts, in {steps} times as many steps"


# What was measured here beside claims that nothing here can test.


def our_texts(records: Records) -> str:
    return "; ".join(
        f"{it['tokens']} tokens in {it['target_calls']} runs at gamma = {it['gamma']}"
        f" ({number(it['tokens'] / it['target_calls'])} a run)"
        for _, it in sorted(numbers_by_row(records, "figure1").items())
    )


def our_best(records: Records) -> str:
    rows = table2(records)
    if not rows:
        return ""
    top = max(rows, key=lambda it: it["best_speedup"])
    return f"at best {find_number(top, 'best_speedup').shown} ({top['label']})"


def our_chen(records: Records) -> str:
    rows = chen(records)
    return "; ".join(f"{it['label']}: {find_number(it, 'speed').shown}" for it in rows)
