"""Lines of what decoding measures: Tables 2 and 4, Figures 1 and 5, operations."""

from experiments.records.table import Line, Table, command, rows_of

DRAFTS = {"small": "code_small", "bigram": "bigram"}
ROWS = ["small_t0_b1", "small_t1_b1", "small_t0_b1_xla", "small_t1_b1_xla"]
ROWS += [f"small_t0_b{batch}" for batch in (2, 4, 8, 16, 32)] + ["small_t1_b8"]
ROWS += ["bigram_t0_b1", "bigram_t1_b1"]
PAPER_ROWS = [f"gpt_small_t{heat}_b{batch}" for heat in (0, 1) for batch in (1, 8)]
NEEDS_T5 = (
    "a family of `gin_configs/checkpoints`, a prepared task"
    " (`python -m experiments.tasks.prepare`) and 80 GB of accelerator"
)
NEEDS_GPU = "runs/paper_pair and a GPU (`experiments/gpu/run_all.sh`)"
TASKS = {"ende": "EnDe", "cnndm": "CNN/DM"}
OURS = {"ende": "ende", "cnndm": "docs"}  # the task that stands for it
OWN_TASKS = {"ende": "EnDe", "docs": "docs", "correct": "correction"}
OTHERS = ["docs_copying_t0", "docs_copying_t1"]  # of the family, which no paper has
OTHERS += ["correct_small_t0", "correct_small_t1", "correct_small_t0_xla"]
OTHERS += ["correct_copying_t0", "correct_copying_t1", "correct_bigram_t0"]
# A pair of Llama's kind on the user's dialogues; LaMDA's filter keeps 40 tokens.
LLAMA_ROWS = {
    "dialogue_llama_t0": "Llama-like 34M with 0.6M (dialogues), T = 0",
    "dialogue_llama_t1": "Llama-like 34M with 0.6M (dialogues), T = 1",
    "dialogue_llama_top40": "Llama-like 34M with 0.6M (dialogues), T = 1, top-40",
    "summary_llama_t0": "Llama-like 34M with 0.6M (dialogues summed up), T = 0",
    "summary_llama_t1": "Llama-like 34M with 0.6M (dialogues summed up), T = 1",
}
NEEDS_DIALOGUES = (
    "runs/llama (`make zoo-llama DIALOGUES=FOLDER`) and runs/data/dialogues.jsonl"
)
XLA = "_xla"  # ends the name of a row that XLA's own products measured again
T5 = {"t5_small": "T5-small", "t5_base": "T5-base", "t5_large": "T5-large"}
TABLE2 = {
    "best_gamma": ("gamma", "gamma", None),
    "alpha": ("alpha", "alpha", "alpha_se"),
    "best_speedup": ("speed", "speedup", "best_speedup_se"),
}
TABLE4 = {
    "alpha": ("alpha", "alpha", "alpha_se"),
    "best_c": ("c", "c", None),
    "best_exp": ("EXP", "expected", None),
    "best_predicted": ("predicted", None, None),
    "best_speedup": ("EMP", "measured", "best_speedup_se"),
}


def table2() -> Table:
    title = "Table 2: speed over decoding with the target alone, at the best gamma"
    note = (
        "Ours at laptop scale: each text has 96 tokens, whole texts are timed, and the"
        " best gamma, up to 7, for bigrams to 5, is the one with which other texts were"
        " fastest than those whose speed is given. The T5"
        " family's texts end where they end, and its encoders are timed with them; EnDe"
        " is several sentences at a time, which have nothing to do with each other;"
        " correction is prose with errors, which the target writes clean (Section 5)."
        " Copying drafts repeat the encoder's input and have no law at every"
        " position: their alpha is accepted over tested, and no call can be predicted."
        " On a CPU both sides multiply by the fastest products known here, and rows"
        " that say so by XLA's own."
        " The published numbers are those of T5-XXL on one TPU-v4, batch 1; the paper"
        " has no such row for its GPT-like pair. n counts the target's tokens."
    )
    lines = walltime_lines(TABLE2, "table2_walltime")
    return Table("table2", title, note, command("table2"), lines)


def table4() -> Table:
    title = "Table 4: expected, predicted and measured speed"
    note = (
        "EXP is Theorem 3.8 with the measured alpha and c, v = 1. Predicted: tokens a"
        " call over v + c gamma + overhead, from texts that are not measured. Their"
        " scores tell the tokens (`theory.predict`), c and v are timed apart, and the"
        " overhead, one for all gammas, is what their steps take beyond both; the"
        " baseline's step likewise. Its interval is that of their acceptance. EMP is"
        " measured. The overhead shown is that of each gamma, over a target call: where"
        " it grows, drafts take longer inside a step than in a loop of their own, and"
        " the prediction is too fast. Intervals are over texts, 95 % by Student's t on"
        " the logarithm of the ratio. From the records of Table 2."
    )
    lines = walltime_lines(TABLE4, "table4_expected_vs_measured")
    return Table("table4", title, note, command("table2"), lines)


def walltime_lines(quantities: dict, published: str) -> list[Line]:
    """A line per row and quantity: ours, the GPT-like pair, the pair of Llama's kind,
    the paper's own rows."""
    lines, family, papers = [], [], []
    for folder, rows, needs in (
        ("table2", ROWS, None),
        ("table2_paper", PAPER_ROWS, NEEDS_GPU),
    ):
        for row in rows:
            for key, (name, _, error) in quantities.items():
                what = f"{pair_of(row)}: {name}"
                lines.append(Line(folder, row, what, key, error=error, needs=needs))
    for row in rows_of(published):
        task, draft, heat = row["task"], row["draft"], row["temperature"]
        own = f"{OURS[task]}_{draft.removeprefix('t5_')}_t{heat}"
        family += lines_of("table2", own, pair_of(own), quantities, row)
        pair = f"T5-XXL ({TASKS[task]}), {T5[draft]}, T = {heat}"
        paper = lines_of(
            "table2_paper", f"{task}_{draft}_t{heat}", pair, quantities, row
        )
        papers += [line._replace(needs=NEEDS_T5) for line in paper]
    for own in OTHERS:
        family += lines_of("table2", own, pair_of(own), quantities, {})
    llamas = [
        line._replace(needs=NEEDS_DIALOGUES)
        for row, pair in LLAMA_ROWS.items()
        for line in lines_of("table2_data", row, f"{pair}, batch 1", quantities, {})
    ]
    return [*family, *lines, *llamas, *papers]


def lines_of(
    folder: str, name: str, pair: str, quantities: dict, published: dict
) -> list[Line]:
    """A line for every quantity of one row of the T5 family, or of the paper's."""
    lines = []
    for key, (column, published_key, error) in quantities.items():
        line = Line(folder, name, f"{pair}: {column}", key, error=error)
        value = published.get(published_key)
        if value is not None:
            decimals = {"gamma": 0, "alpha": 2, "c": 2}.get(published_key, 1)
            line = line._replace(published=value, decimals=decimals)
        lines.append(line)
    return lines


def pair_of(row: str) -> str:
    """small_t0_b1, ende_small_t0: which models, temperature and batch that is."""
    if row.endswith(XLA):
        return f"{pair_of(row.removesuffix(XLA))}, XLA's products"
    if row.split("_")[0] in OWN_TASKS:
        task, draft, heat = row.split("_")
        draft = draft if draft in ("copying", "bigram") else f"t5_{draft}"
        names = f"t5_target with {draft} ({OWN_TASKS[task]})"
        return f"{names}, T = {heat[1:]}, batch 1"
    *draft, heat, batch = row.split("_")
    if draft[0] == "gpt":
        names = "GPT-like 97M with 6M"
    else:
        names = f"code_target with {DRAFTS[draft[0]]}"
    return f"{names}, T = {heat[1:]}, batch {batch[1:]}"


def figure5() -> Table:
    row, folder = "small_t0_b1", "table2"
    lines = [
        Line(folder, row, "target call on one token, in ms", "target_ms"),
        Line(folder, row, "c at the best gamma", "best_c"),
        Line(folder, row, "v at the best gamma", "best_v"),
        Line(folder, row, "overhead at the best gamma", "best_overhead"),
    ]
    title = "Figure 5: where the time goes, step by step"
    note = (
        "Drawn from measured times: each step's drafts, its target call and the rest of"
        " it, with what the steps of Figure 1's text kept. From the records of Table 2"
        " and Figure 1."
    )
    return Table("figure5", title, note, command("table2"), lines)


def figure5_ende() -> Table:
    row, folder = "ende_small_t0", "table2"
    lines = [
        Line(folder, row, "target call on one token, in ms", "target_ms"),
        Line(folder, row, "encoder of the target, in ms", "prefill_target_ms"),
        Line(folder, row, "encoder of the draft, in ms", "prefill_draft_ms"),
        Line(folder, row, "c at the best gamma", "best_c"),
        Line(folder, row, "v at the best gamma", "best_v"),
        Line(folder, row, "overhead at the best gamma", "best_overhead"),
    ]
    for gamma in (3, 7):
        for key, what in (("tokens", "tokens"), ("target_calls", "target calls")):
            what = f"gamma = {gamma}, the text's {what}"
            lines.append(Line("figure5", f"ende_gamma_{gamma}", what, key, decimals=0))
    title = "Figure 5 with both encoders: where the time goes, English to German"
    note = (
        "As Figure 5, of t5_target with t5_small, batch 1, T = 0. An encoder's time is"
        " all that comes before the first step: its run, the keys and values of"
        " cross-attention, and the start token; the draft's is what it adds to that of"
        " the target alone. From the records of Table 2 and some sentences of its own."
    )
    return Table("figure5_ende", title, note, command("figure5"), lines)
