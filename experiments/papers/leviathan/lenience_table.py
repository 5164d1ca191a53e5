"""Lines of Table 5 and of Appendix A.5: alpha, speed and drift as functions of l."""

from experiments.papers.leviathan import walltime_table as walltime
from experiments.records import markup
from experiments.records.table import Line, Table, command, leviathan
from specjax.theory import closed_forms

OURS = {"unigram": "unigram", "bigram": "bigram", "t5_small": "small"}
OURS |= {"t5_base": "base"}
DRAFTS = {"unigram": "unigrams", "bigram": "bigrams"}
DRAFTS |= {"t5_small": "T5-small", "t5_base": "T5-base"}
NEEDS = walltime.NEEDS_T5
SPEEDS = (
    "Hypothetical: the speed by Theorem 3.8 at the paper's c and v = 1; Table 4 has"
    " what was measured"
)
SPEEDS_HEAD = ["what", "l", "alpha", "gamma", "speed if c were the paper's"]
SPEEDS_HEAD += ["printed in A.5 (T5-XXL)"]
RUNS_HEAD = ["what", "l", "alpha (the target's text)", "alpha (its own text)"]
RUNS_HEAD += ["accepted of tested", "tokens per call", "drift (total variation)"]
RUNS_HEAD += ["log p(output), nats a token"]


def table5() -> Table:
    """What the bundled pairs measure, beside what the paper prints of the same task,
    then the paper's own rows."""
    ours, papers = [], []
    for draft, temperature, alphas, _ in published():
        for row in rows_of(draft, temperature):
            what = f"{pair_of(row)}, T = {temperature}"
            # The paper has no such row for code.
            beside = alphas if row.startswith("ende") else [None] * len(alphas)
            ours += lines_of("table5", row, what, beside)
            ours += drifts(row, what)
        row, what = paper_row(draft, temperature)
        own = lines_of("table5_paper", row, what, alphas)
        papers += [line._replace(needs=NEEDS) for line in own]
    title = "Table 5: alpha by lenience l"
    return Table("table5", title, note(), command("table5"), ours + papers)


def published() -> list[tuple]:
    """Draft, temperature, alpha of every l, speed of every l or None."""
    table = leviathan()["table5_lenience"]
    cold = table["temperature_0"]
    speed = {"t5_small": table["improvement_t5_small_c_0.015"]}
    hot = [(name, 1, alpha, speed.get(name)) for name, alpha in table["alpha"].items()]
    return [*hot, ("t5_small", 0, cold["alpha_t5_small"], cold["improvement"])]


def rows_of(draft: str, temperature: int) -> list[str]:
    """Our rows of a kind of draft; the code models have no second model to draft."""
    families = ("ende",) if draft == "t5_base" else ("ende", "gpt")
    return [f"{family}_{OURS[draft]}_t{temperature}" for family in families]


def paper_row(draft: str, temperature: int) -> tuple[str, str]:
    """The paper's own row: its name, and what it is."""
    what = f"the paper's models: T5-XXL (EnDe), {DRAFTS[draft]}, T = {temperature}"
    return f"ende_{draft}_t{temperature}", what


def levels() -> list[float]:
    return leviathan()["table5_lenience"]["lenience"]


def lines_of(folder: str, row: str, what: str, alphas: list) -> list[Line]:
    """A line for alpha of every l."""
    lines = []
    for level, alpha in zip(levels(), alphas, strict=True):
        key, name = f"alpha_l{level:g}", f"{what}, l = {level:g}: alpha"
        lines.append(Line(folder, row, name, key, alpha, error=f"{key}_se"))
    return lines


def hypothetical(records: dict[str, dict]) -> list[list[str]]:
    """A line of SPEEDS_HEAD for each l of the rows of which A.5 prints a speed: what
    Theorem 3.8 would give if a draft cost what the paper's does. None is measured.

    records: records by folder and row.
    """
    lines = []
    for draft, temperature, _, speeds in published():
        rows = rows_of(draft, temperature) if speeds else []
        named = [(row, f"{pair_of(row)}, T = {temperature}") for row in rows]
        own = [paper_row(draft, temperature)] if speeds else []
        for folder, several in (("table5", named), ("table5_paper", own)):
            for row, what in several:
                beside = speeds if row.startswith("ende") else [None] * len(speeds)
                record = records.get(folder, {}).get(row)
                lines += speeds_of(what, record, beside)
    return lines


def speeds_of(what: str, record: dict | None, printed: list) -> list[list[str]]:
    lines = []
    for level, speed in zip(levels(), printed, strict=True):
        cells = ["not run"] * 3
        if record is not None:
            it, end = record["measured"], f"_l{level:g}"
            names = (f"{name}{end}" for name in ("alpha", "implied_gamma"))
            cells = [markup.number(it[name]) for name in names]
            cells.append(markup.number(it[f"implied_speed{end}"]))
        beside = "" if speed is None else f"{speed:.1f}"
        lines.append([what, f"{level:g}", *cells, beside])
    return lines


def drifts(row: str, what: str) -> list[Line]:
    """How far a drafted token's law is from the target's, which the paper omits."""
    return [
        Line("table5", row, f"{what}, l = {level:g}: drift", key, error=f"{key}_se")
        for level in levels()[1:]
        for key in [f"tv_l{level:g}"]
    ]


def pair_of(row: str) -> str:
    """gpt_small_t1: which of the bundled models that is."""
    family, draft, _ = row.split("_")
    if family == "ende":
        draft = draft if draft in ("unigram", "bigram") else f"t5_{draft}"
        return f"t5_target with {draft} (EnDe)"
    return f"code_target with {'code_small' if draft == 'small' else draft}"


def note() -> str:
    """What a reader must know, with the paper's speeds worked out from its own alpha.

    A.5 prints a speed for each l at T = 1 that its alpha and c do not give.
    """
    table = leviathan()["table5_lenience"]
    c, gamma = (table["temperature_0"][key] for key in ("c", "gamma"))
    alpha = table["alpha"]["t5_small"]
    speeds = closed_forms.walltime_factor(
        alpha, closed_forms.optimal_gamma(alpha, c), c
    )
    follows = ", ".join(f"{speed:.2f}" for speed in speeds)
    printed = ", ".join(f"{x:g}" for x in table["improvement_t5_small_c_0.015"])
    return (
        "Ours at laptop scale, the bundled T5 family on English to German and the code"
        " models on Python code; the published number beside the former is that"
        " of T5-XXL on EnDe with the draft of that kind, there to compare shapes and"
        " not digits; of code the paper has no such row. A.5 goes on to a speed:"
        " Theorem 3.8 at alpha of that l and at the paper's"
        f" c = {c} with v = 1, at T = 1 with the best gamma, at T = 0 with"
        f" gamma = {gamma}. Such speeds are hypothetical and stand apart, below. The"
        f" paper's own at T = 1 ({printed}) do not follow"
        f" from its alpha and its c, which give {follows} at the best gamma. Drift is"
        " E(beta_l - beta_1), the total variation from the target of a drafted token's"
        " law. n counts the target's tokens."
    )


def wider(records: dict[str, dict]) -> list[tuple[str, list, list]]:
    """Title, head and rows of the tables that say more than a number a line."""
    parts = [(SPEEDS, SPEEDS_HEAD, hypothetical(records))]
    title = "Decoding runs with lenience l, ± one standard error"
    if lines := runs(records.get("table5", {})):
        parts.append((title, RUNS_HEAD, lines))
    return parts


def runs(records: dict[str, dict]) -> list[list[str]]:
    """A line of RUNS_HEAD for each l of each record of folder table5, by row."""
    lines = []
    for record in records.values():
        it = record["measured"]
        what = f"{it['target']} with {it['draft']}"
        what += f", T = {it['protocol']['temperature']:g}"
        for run in it["runs"]:
            level = run["lenience"]
            alpha, drift = (
                within(
                    {"value": it[f"{key}_l{level:g}"], "se": it[f"{key}_l{level:g}_se"]}
                )
                for key in ("alpha", "tv")
            )
            own, counts, log_p = map(
                within, (run["alpha_own_text"], run["counts"], run["log_p"])
            )
            calls = f"{run['tokens_per_call']:.3f}"
            lines.append([what, f"{level:g}", alpha, own, counts, calls, drift, log_p])
    return lines


def within(estimate: dict) -> str:
    """A number and its standard error, where it has one."""
    if estimate["se"] is None:
        return markup.number(estimate["value"])
    return f"{markup.number(estimate['value'])} ± {markup.number(estimate['se'])}"
