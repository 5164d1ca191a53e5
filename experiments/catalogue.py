"""Which tables there are and what each line of them is, measured here or not.

A line names the record that fills it (folder of `gin_configs`, row, quantity) and the
number that was published for it. What no file here can run says what it would need.
"""

from pathlib import Path

from experiments import catalogue_chip, catalogue_lenience
from experiments import catalogue_walltime as walltime
from experiments.catalogue_audit import audit
from experiments.catalogue_conformance import conformance
from experiments.catalogue_kernels import kernels
from experiments.catalogue_kernels_aot import kernels_aot
from experiments.catalogue_launches import launches
from experiments.catalogue_microscope import microscope
from experiments.catalogue_quality import quality
from experiments.catalogue_wagner import figure_wagner, wagner_scale, wagner_text
from experiments.line import Line, Table, command, rows_of
from experiments.rivals import table as rivals

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "gin_configs"


def tables() -> list[Table]:
    """Every table and figure, in the order of the paper."""
    closed = [table1(), figure2(), figure3(), figure4()]
    timelines = [walltime.figure5(), walltime.figure5_ende()]
    return [walltime.figure1(), *closed, *timelines, *measured()]


def measured() -> list[Table]:
    """Those that need a machine and take minutes."""
    own = walltime.operations(), walltime.certificate()
    tables = walltime.table2(), table3(), walltime.table4(), catalogue_lenience.table5()
    proofs = own[1], conformance(), audit(), microscope()
    gpu = catalogue_chip.chip(), kernels(), kernels_aot(), launches()
    wagner = figure_wagner(), wagner_text(), wagner_scale()
    return [*tables, quality(), own[0], *proofs, *gpu, *wagner, rivals.bench()]


def published(folder: str, row: str) -> dict[str, float] | None:
    """The published numbers of a row by quantity, None if there are none."""
    found = {
        line.quantity: line.published
        for table in tables()
        for line in table.lines
        if (line.folder, line.row) == (folder, row) and line.published is not None
    }
    return found or None


def table1() -> Table:
    lines = []
    for row in rows_of("table1_operations_speed"):
        name = f"alpha_{row['alpha']}_gamma_{row['gamma']}"
        for quantity in ("operations", "speed"):
            what = f"alpha = {row['alpha']}, gamma = {row['gamma']}: {quantity}"
            value = row[quantity]
            lines.append(Line("table1", name, what, quantity, value, exact=True))
    title = "Table 1: operations and speed against the target alone, c = c_hat = 0"
    note = (
        "Closed forms, Theorems 3.8 and 3.11; `ok` also means: rounds to the paper's."
    )
    return Table("table1", title, note, command("table1"), lines)


def curves(name: str, kind: str, values: list, quantities: tuple, title: str) -> Table:
    """A figure: a row of the catalogue per curve, its value at two points as lines."""
    lines = []
    for value in values:
        for quantity in quantities:
            for alpha in (0.5, 0.8):
                word = quantity.replace("_", " ")
                what = f"{kind} = {value}: {word} at alpha = {alpha}"
                row = f"{kind}_{value}"
                lines.append(Line(name, row, what, f"{quantity}@{alpha}"))
    note = "Closed forms; the paper prints no numbers. All points are in the CSV file."
    return Table(name, title, note, command(name), lines)


def figure2() -> Table:
    values = [1, 3, 5, 7, 10, "inf"]
    title = "Figure 2: expected tokens per call against alpha"
    return curves("figure2", "gamma", values, ("expected_tokens",), title)


def figure3() -> Table:
    values = [0.01, 0.02, 0.05, 0.1]
    title = "Figure 3: the best gamma against alpha"
    return curves("figure3", "c", values, ("best_gamma",), title)


def figure4() -> Table:
    quantities = ("speed", "operations")
    title = "Figure 4: speed and operations against alpha, c = c_hat = 0"
    return curves("figure4", "gamma", [3, 5, 7, 10], quantities, title)


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
    lines.sort(key=lambda line: line.folder)  # ours first; the sort keeps the order
    note = (
        "Ours at laptop scale: the bundled code_9m with code_05m, unigrams and bigrams,"
        " on Python code, and the bundled T5 family, on English to German (EnDe) and on"
        " summaries of documentation strings (docs); t5_decoder does not see the input."
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
        return f"code_9m with {'code_05m' if draft == 'small' else draft}"
    draft = draft if draft in ("unigram", "bigram") else f"t5_{draft}"
    return f"t5_target with {draft} ({walltime.OWN_TASKS[family]})"


def alpha_line(folder: str, name: str, what: str, row: dict) -> Line:
    heat, alpha = row["temperature"], row["alpha"]
    what, name = f"{what}, T = {heat}", f"{name}_t{heat}"
    return Line(folder, name, what, "alpha", alpha, error="alpha_se")
