"""Lines of Table 5 and of Appendix A.5: alpha, speed and drift as functions of l."""

from experiments import catalogue_walltime as walltime
from experiments import markup
from experiments.line import Line, Table, command, leviathan
from specjax import theory

OURS = {"unigram": "unigram", "bigram": "bigram", "t5_small": "small"}
OURS |= {"t5_base": "base"}
DRAFTS = {"unigram": "unigrams", "bigram": "bigrams"}
DRAFTS |= {"t5_small": "T5-small", "t5_base": "T5-base"}
NEEDS = walltime.NEEDS_T5
RUNS_HEAD = ["what", "l", "alpha (the target's text)", "alpha (its own text)"]
RUNS_HEAD += ["accepted of tested", "tokens per call", "drift (total variation)"]
RUNS_HEAD += ["log p(output), nats a token"]


def table5() -> Table:
    """What the bundled pair measures, beside what the paper prints, then the paper's
    own rows."""
    ours, papers = [], []
    for draft, temperature, alphas, speeds in published():
        for family in ("ende", "gpt"):
            row = f"{family}_{OURS[draft]}_t{temperature}"
            if row.startswith("gpt_base"):
                continue  # the code models have one draft
            what = f"{pair_of(row)}, T = {temperature}"
            ours += lines_of("table5", row, what, alphas, speeds)
            ours += drifts(row, what)
        what = f"the paper's models: T5-XXL (EnDe), {DRAFTS[draft]}, T = {temperature}"
        row = f"ende_{draft}_t{temperature}"
        own = lines_of("table5_paper", row, what, alphas, speeds)
        papers += [line._replace(needs=NEEDS) for line in own]
    title = "Table 5: alpha by lenience l, and the speed that A.5 makes of it"
    return Table("table5", title, note(), command("table5"), ours + papers)


def published() -> list[tuple]:
    """Draft, temperature, alpha of every l, speed of every l or None."""
    table = leviathan()["table5_lenience"]
    cold = table["temperature_0"]
    speed = {"t5_small": table["improvement_t5_small_c_0.015"]}
    hot = [(name, 1, alpha, speed.get(name)) for name, alpha in table["alpha"].items()]
    return [*hot, ("t5_small", 0, cold["alpha_t5_small"], cold["improvement"])]


def levels() -> list[float]:
    return leviathan()["table5_lenience"]["lenience"]


def lines_of(
    folder: str, row: str, what: str, alphas: list, speeds: list | None
) -> list[Line]:
    """A line for alpha, and one for the speed where the paper prints it, of every l."""
    lines = []
    for at, level in enumerate(levels()):
        key, said = f"alpha_l{level:g}", f"{what}, l = {level:g}: alpha"
        lines.append(Line(folder, row, said, key, alphas[at], error=f"{key}_se"))
    for at, level in enumerate(levels() if speeds else ()):
        key = f"implied_speed_l{level:g}"
        said = f"{what}, l = {level:g}: speed by Theorem 3.8 at the paper's c"
        lines.append(Line(folder, row, said, key, speeds[at], decimals=1))
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
    return f"code_9m with {'code_05m' if draft == 'small' else draft}"


def note() -> str:
    """What a reader must know, with the paper's speeds worked out from its own alpha.

    A.5 prints a speed for each l at T = 1 that its alpha and c do not give.
    """
    table = leviathan()["table5_lenience"]
    c, gamma = (table["temperature_0"][key] for key in ("c", "gamma"))
    alpha = table["alpha"]["t5_small"]
    given = theory.walltime_factor(alpha, theory.optimal_gamma(alpha, c), c)
    follows = ", ".join(f"{speed:.2f}" for speed in given)
    printed = ", ".join(f"{x:g}" for x in table["improvement_t5_small_c_0.015"])
    return (
        "Ours at laptop scale, the bundled T5 family on English to German and the code"
        " models on Python code; the published number beside it is that"
        " of T5-XXL on EnDe with the draft of that kind, there to compare shapes and"
        " not digits. Speeds are Theorem 3.8 at alpha of that l and at the paper's"
        f" c = {c}, which is not ours: at T = 1 with the best gamma, at T = 0 with"
        f" gamma = {gamma}. The paper's own speeds at T = 1 ({printed}) do not follow"
        f" from its alpha and its c, which give {follows} at the best gamma. Drift is"
        " E(beta_l - beta_1), the total variation from the target of a drafted token's"
        " law. n counts the target's tokens."
    )


def runs(made: dict[str, dict]) -> list[list[str]]:
    """A line of RUNS_HEAD for each l of each record of folder table5, by row."""
    lines = []
    for record in made.values():
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


def within(one: dict) -> str:
    """A number and its standard error, where it has one."""
    if one["se"] is None:
        return markup.number(one["value"])
    return f"{markup.number(one['value'])} ± {markup.number(one['se'])}"
