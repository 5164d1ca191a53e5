"""Lines of Table 3: alpha on text that the target generated."""

import math

from experiments.papers.leviathan import walltime_table as walltime
from experiments.records.markup import number
from experiments.records.table import Line, Records, Table, command, rows_of
from specjax.theory import estimate

PLAYERS = {
    "gpt_like_97m": "GPT-like 97M",
    "gpt_like_6m": "GPT-like 6M",
    "t5_xxl_ende": "T5-XXL (EnDe)",
    "t5_xxl_cnndm": "T5-XXL (CNN/DM)",
    "t5_small": "T5-small",
    "t5_base": "T5-base",
    "t5_large": "T5-large",
    "lamda_137b": "LaMDA 137B",
    "lamda_100m": "LaMDA 100M",
    "lamda_2b": "LaMDA 2B",
    "lamda_8b": "LaMDA 8B",
}

NEEDS = {
    "gpt": "runs/paper_pair, trained on a GPU (`experiments/gpu/run_all.sh`)",
    "t5": walltime.NEEDS_T5,
    "lamda": "LaMDA, which is not public",
}

FAMILIES = {"gpt_like_97m": "gpt", "t5_xxl_ende": "ende", "t5_xxl_cnndm": "cnndm"}

OURS = {"gpt": "gpt", "ende": "ende", "cnndm": "docs"}  # the task that stands for it

SHORT = {"gpt_like_6m": "small"}

OF_THE_DRAFT = ("gamma", "rule", "policy", "kernels")  # no matter to the target's texts
FOUR = ("rao_blackwell", "counts", "implied_alpha", "chen_r")
FOUR_HEAD = ["what", "alpha (Rao-Blackwell)", "alpha (counts)", "alpha (implied)"]
FOUR_HEAD += ["Chen's r", "gamma", "tokens per call", "output"]


def table3() -> Table:
    lines = []
    for row in rows_of("table3_alpha"):
        target, draft = row["target"], row["draft"]
        family, draft = FAMILIES.get(target, "lamda"), SHORT.get(draft, draft)
        if family in OURS:
            name = f"{OURS[family]}_{draft.removeprefix('t5_')}"
            lines.append(alpha_line("table3", name, f"laptop, {pair_of(name)}", row))
        names = f"{PLAYERS[target]}, {PLAYERS.get(row['draft'], draft)}"
        what = f"the paper's models: {names}"
        line = alpha_line("table3_paper", f"{family}_{draft}", what, row)
        lines.append(line._replace(needs=NEEDS[target.split("_")[0]]))
    for heat in (0, 1):
        row, name = {"alpha": None, "temperature": heat}, "ende_decoder"
        lines.append(alpha_line("table3", name, f"laptop, {pair_of(name)}", row))
    for name, pair in walltime.LLAMA_ROWS.items():
        line = Line("table3_data", name, f"laptop, {pair}", "alpha", error="alpha_se")
        lines.append(line._replace(needs=walltime.NEEDS_DIALOGUES))
    lines.sort(key=lambda line: line.folder)  # ours first; the sort keeps the order
    note = (
        "Ours at laptop scale: the bundled code_target with code_small, unigrams and"
        " bigrams, on Python code, and the bundled T5 family, on English to German"
        " (EnDe; several sentences that have nothing to do with each other) and on"
        " summaries of documentation strings (docs); t5_decoder does not see the input."
        " The pair of Llama's kind is trained on the user's dialogues (DialogSum and"
        " SAMSum): it goes on with one, LaMDA's task, or sums it up."
        " The published number beside it is that of other models and other text (97M"
        " and 6M on lm1b; T5-XXL on EnDe and on CNN/DM, for which docs stands), there"
        " to compare shapes and not digits. n counts the target's tokens."
    )
    title = "Table 3: alpha on text that the target generated"
    return Table("table3", title, note, command("table3"), lines)


def pair_of(name: str) -> str:
    """ende_small: which of the bundled models that is, and on what."""
    family, draft = name.split("_")
    if family == "gpt":
        return f"code_target with {'code_small' if draft == 'small' else draft}"
    draft = draft if draft in ("unigram", "bigram") else f"t5_{draft}"
    return f"t5_target with {draft} ({walltime.OWN_TASKS[family]})"


def alpha_line(folder: str, name: str, what: str, row: dict) -> Line:
    heat, alpha = row["temperature"], row["alpha"]
    what, name = f"{what}, T = {heat}", f"{name}_t{heat}"
    return Line(folder, name, what, "alpha", alpha, error="alpha_se")


def difference(more: dict, less: dict) -> tuple[float, float, bool]:
    """alpha of one measurement less that of another: value, error, and whether it was
    taken text by text, as it is of two drafts on the same texts of one target.

    Else, and of records that do not have alpha of each text, the two are taken for
    independent.
    """
    both = [m.get("alpha_by_text") for m in (more, less)]
    if None not in both and written(more) == written(less):
        betas = (it["beta"] for it in both)
        paired = estimate.difference(*betas, both[0]["tokens"])
        return paired.value, paired.se, True
    error = math.hypot(more["alpha_se"], less["alpha_se"])
    return more["alpha"] - less["alpha"], error, False


def written(m: dict) -> tuple:
    """What says which texts alpha was measured on: who wrote them, and how."""
    how = {name: x for name, x in m["protocol"].items() if name not in OF_THE_DRAFT}
    return m["target"], how, m["alpha_by_text"]["tokens"]


def wider(records: Records) -> list[tuple[str, list, list]]:
    """The four estimates side by side, for the rows that have them."""
    lines = []
    for line in table3().lines:
        measured = records.get(line.folder, {}).get(line.row, {}).get("measured", {})
        if "estimates" in measured:
            lines.append([line.what, *estimators(measured)])
    title = "The four estimators, ± one standard error"
    return [(title, FOUR_HEAD, lines)] if lines else []


def estimators(it: dict) -> list[str]:
    """One row in the columns of FOUR_HEAD."""
    four = (it["estimates"][name] for name in FOUR)
    both = [
        f"{number(estimate['value'])} ± {number(estimate['se'])}" for estimate in four
    ]
    gamma, calls = it["protocol"]["gamma"], f"{it['tokens_per_call']:.3f}"
    return [*both, str(gamma), calls, f"{it['exactness']}, {it['draft_regime']}"]
