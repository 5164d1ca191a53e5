"""Lines after Wagner et al. (2024): verification by gamma, by method and by scale.

What their models gave stands in lines of its own (of text: `decoders_table`); ours are
of the bundled pairs. Of their Tables 1, 5, 6 and 8 and of their figures the text gives
ranges only, which the notes tell.
"""

import itertools

from experiments.papers.wagner import decoders_table as decoders
from experiments.papers.wagner.decoders_table import rows_of, wagner
from experiments.records.markup import number
from experiments.records.table import Line, Table, command

PAIRS = {
    "docs_small": "t5_target with t5_small (docs)",
    "docs_base": "t5_target with t5_base (docs)",
    "docs_large": "t5_target with t5_large (docs)",
    "code": "code_target with code_small",
}
PLAIN = ("baseline", "exact", "sigmoid_1e4", "always")
CUT = tuple(f"{name}_top50" for name in PLAIN)
SCALES = ("1e1", "1e3", "1e4", "1e5")
SIGMOIDS = [f"sigmoid_{s}{half}" for s in SCALES for half in ("", "_half")]
GAMMAS = (1, 5, 10, 20)  # of the curves, as lines
HELD = (1, 10, 20)
SAID = {"always": "control that keeps every draft"}
MODELS = {
    "whisper_small_en": "Whisper small.en with Distil-Whisper small.en",
    "whisper_large_v2": "Whisper large-v2 with Distil-Whisper large-v2",
}
NEEDS_SPEECH = "Whisper and its speech"
OURS = (
    " Ours are of this machine and of bundled models of 1M to 41M parameters on our"
    " documentation strings (docs), between `summarize: ` and `Summary:`, and on"
    " Python code; theirs are of an A100 or an RTX 2080 TI, PyTorch and CUDA, models"
    " of 0.2B to 13B parameters, XSum and CommonVoice: shapes may be compared, digits"
    " not. `baseline` writes out every matrix, `exact` is `verifiers.token` as XLA"
    " fuses it, and both have the target's law; `sigmoid` (`verifiers.sigmoid`) is"
    " lossy and has no bound: the rule as the paper prints it, not as the authors' code"
    " has it, which made the paper's numbers (`verifiers.sigmoid_released`). No bound"
    " has `always` either, a control that the paper lacks. Every"
    " program is compiled, where the paper's baseline is eager. T = 1, batch 1 where"
    " something is timed, at most 100 new tokens. Samples are 10 % of a task's prompts,"
    " as theirs, here 12 or 13, of which each is continued ten times (docs) or twice"
    " (code) where texts are counted; standard errors are over prompts."
)


def spelled(method: str) -> str:
    """sigmoid_1e4_top50: sigmoid, +-1e4, top-k 50."""
    plain = method.removesuffix("_top50")
    words = plain.replace("sigmoid_", "sigmoid, +-").replace("_half", ", float16")
    words = SAID.get(plain, words)
    return f"{words}, top-k 50" if plain != method else words


def figure_wagner() -> Table:
    lines = []
    for row in ("docs_small", "code"):
        for method in PLAIN:
            for gamma in GAMMAS:
                what = f"{PAIRS[row]}: {spelled(method)}, gamma = {gamma}: us a step"
                key = f"us_{method}_g{gamma}"
                lines.append(Line("wagner_time", row, what, key, error=f"{key}_sd"))
        for method, gamma in itertools.product(PLAIN, HELD):
            what = f"{PAIRS[row]}: {spelled(method)}, gamma = {gamma}: KiB of a step"
            key = f"step_peak_kib_{method}_g{gamma}"
            lines.append(Line("wagner_time", row, what, key))
    lines += decoders.time_lines(GAMMAS)
    note = (
        "Microseconds of one verification, from raw logits of both models to tokens,"
        " its median over rounds; the standard error column has the deviation of a"
        " round. The paper prints curves and no numbers: each is nearly flat in gamma"
        " and the optimized ones lie below the baseline. A sigmoid needs no sum over a"
        " row, and here it reads one logit of each drafted token and one whole row of"
        " both models, so that it hardly depends on gamma. KiB (Figures 4 and 5): the"
        " peak of a whole compiled step, its weights and caches included, as XLA plans"
        " it; the paper's methods differ by about 200 MB on summaries and under 10 MB"
        " on speech. Speech, Figure 3b, is in the table of speech." + OURS
    )
    title = "Wagner et al. (2024), Figures 3 to 5: time and memory by gamma"
    return Table("figure_wagner", title, note, command("wagner_time"), lines)


TEXT = {
    "us": "us a verification, gamma = 5",
    "step_reduction": "% less time a step",
    "profile_reduction": "% less time in all steps",
    "gb_s": "GB/s by XLA's bytes accessed",
    "peak_kib": "KiB at the peak",
    "acceptance": "drafts kept, of all drafted, by the schedule",
    "tokens_per_call": "tokens a call, by the schedule",
    "rouge1": "ROUGE-1 F1",
    "tv_out_p": "total variation of a drafted token's law from p",
    "tv_out_q": "total variation of a drafted token's law from q",
    "tv_bonus_p": "total variation of the added token's law from p",
}
ERRORS = {"us": "us_{}_sd", "acceptance": "acceptance_se_{}", "rouge1": "rouge1_se_{}"}
ERRORS |= {"wall_reduction": "wall_reduction_{}_se"}
WALL = {"wall_reduction": "% less walltime, gamma = 5"}
WALL |= {"wall_ms_a_token": "ms a token, gamma = 5"}
WALL |= {"wall_share": "% of walltime in verification, gamma = 5"}


def wagner_text() -> Table:
    lines = []
    for row, pair in PAIRS.items():
        for method in (*PLAIN, *CUT):
            for key, words in TEXT.items():
                if key == "rouge1" and row == "code":
                    continue  # nobody wrote references
                lines.append(line_of("wagner_text", row, pair, method, key, words))
        for method in PLAIN[:3]:
            for key, words in WALL.items():
                lines.append(line_of("wagner_text", row, pair, method, key, words))
        for method in PLAIN[1:]:
            for gamma in gammas_of(row):
                what = (
                    f"{pair}: {spelled(method)}: drafts kept, of all, gamma = {gamma}"
                )
                key, error = (f"{k}_{method}_g{gamma}" for k in KEPT)
                lines.append(Line("wagner_text", row, what, key, error=error))
        for gamma in (1, 5, 10):
            what = f"{pair}: exact: verification, % of a step, gamma = {gamma}"
            lines.append(Line("wagner_text", row, what, f"step_share_g{gamma}"))
    return Table(
        "wagner_text", TITLE, note_text(), command("wagner_text"), lines + published()
    )


KEPT = ("acceptance", "acceptance_se")
TITLE = "Wagner et al. (2024), Tables 1, 3 to 6 and 8: three ways to verify"


def gammas_of(row: str) -> tuple[int, ...]:
    """As the row's file has them."""
    return (3, 5, 10, 15) if row == "docs_small" else (10,)


def line_of(
    folder: str, row: str, pair: str, method: str, key: str, words: str
) -> Line:
    error = ERRORS.get(key)
    error = None if error is None else error.format(method)
    what = f"{pair}: {spelled(method)}: {words}"
    return Line(folder, row, what, f"{key}_{method}", error=error)


def published() -> list[Line]:
    """What the paper's own models gave in Tables 3 and 4, those of text first."""
    lines = decoders.text_lines()
    for entry in rows_of("table3_bandwidth_gb_s"):
        if entry["target"] in decoders.MODELS:
            continue
        for method in ("baseline", "exact", "sigmoid"):
            words = f"Table 3: {method}: realised bandwidth, GB/s"
            lines.append(
                paper_line(entry["target"], words, f"gb_s_{method}", entry[method])
            )
    for entry in rows_of("table4_rtx2080ti"):
        if entry["pair"] in decoders.MODELS:
            continue
        about = f"Table 4, RTX 2080 TI, {entry['dataset']}"
        for method in ("baseline", "exact", "sigmoid"):
            name = f"{entry['dataset']}_metric_{method}"
            words = f"{about}: {method}: WER"
            value = entry[f"metric_{method}"]
            lines.append(paper_line(entry["pair"], words, name, value))
        for method in ("exact", "sigmoid"):
            name = f"{entry['dataset']}_profile_reduction_{method}"
            words = f"{about}: {method}: % less time in all steps"
            value = entry[f"time_reduction_{method}_percent"]
            lines.append(paper_line(entry["pair"], words, name, value, decimals=1))
    return lines


def paper_line(
    pair: str,
    words: str,
    quantity: str,
    value: float,
    folder: str = "wagner_text",
    decimals: int = 2,
) -> Line:
    what = f"the paper's models: {MODELS[pair]}: {words}"
    line = Line(folder, f"paper_{pair}", what, quantity, value, decimals=decimals)
    return line._replace(needs=NEEDS_SPEECH)


def note_text() -> str:
    told = wagner()["told_in_prose"]
    asr, text = (
        told[f"table1_{task}_time_reduction_percent"]
        for task in ("asr", "summarization")
    )
    lost, both = (
        told["table1_sigmoid_rouge1_lost"],
        told["abstract_time_reduction_percent"],
    )
    return (
        "Of Tables 1, 5, 6 and 8 the paper's text tells ranges: time in all steps is"
        f" {text['exact'][0]} to {text['exact'][1]} % less with the exact method on"
        f" summaries and {asr['exact'][0]} to {asr['exact'][1]} % on speech, with"
        f" sigmoids up to {text['sigmoid_up_to']} % and {asr['sigmoid'][0]} to"
        f" {asr['sigmoid'][1]} % ({both['sigmoid'][0]} to {both['sigmoid'][1]} % over"
        f" all); sigmoids lose {lost[0]} to {lost[1]} of ROUGE-1; all three methods"
        " keep the same share of drafts, for Qwen about"
        f" {told['table8_qwen_acceptance_percent_about_gamma_10']} % at gamma = 10."
        " A share of all drafted tokens counts those beyond the end of a text, which"
        " nothing can keep: `always` shows how many they are. By the schedule gamma"
        " begins at 5, 2 more after a draft kept whole, 1 less otherwise, at most 20."
        " Time in all steps is the schedule's calls by the time of one at gamma = 5."
        " Total variations are exact means over places of the target's own text;"
        " ROUGE-1 is of texts drawn at T = 1. Bytes are those that XLA counts in the"
        " program, caches and all, and not memory traffic; the peak is arguments,"
        " results and temporaries of that program. With top-k 50, the default of the"
        " library that the paper decodes with, both models' logits are cut before"
        " anything is timed. The rows of Whisper are not run: they need its weights and"
        " speech; what is measured of speech is in a table of its own." + OURS
    )


SCALE = {"profile_reduction": "% less time in all steps"}
SCALE |= {key: TEXT[key] for key in ("step_reduction", "acceptance", "rouge1")}
SCALE |= {key: TEXT[key] for key in ("tv_out_p", "tv_out_q", "tv_bonus_p")}


def wagner_scale() -> Table:
    lines = []
    for row in ("docs_small", "code"):
        pair = PAIRS[row]
        plain = ("baseline", *SIGMOIDS, "always")
        for method in (*plain, *(f"{name}_top50" for name in plain)):
            for key, words in SCALE.items():
                if key == "rouge1" and row == "code":
                    continue
                lines.append(line_of("wagner_scale", row, pair, method, key, words))
    lines += decoders.scale_lines()
    for entry in rows_of("table7_sigmoid_scale"):
        if entry["pair"] in decoders.MODELS:
            continue
        what = "baseline" if entry["scale"] is None else f"+-{entry['scale']:g}"
        key = "baseline" if entry["scale"] is None else f"sigmoid_{entry['scale']:g}"
        parts = entry["pair"], f"{what}: WER", f"metric_{key}", entry["metric"]
        lines.append(paper_line(*parts, folder="wagner_scale"))
        if entry["scale"] is not None:
            words, value = (
                f"{what}: % less time in all steps",
                entry["time_reduction_percent"],
            )
            parts = entry["pair"], words, f"profile_reduction_{key}", value
            lines.append(paper_line(*parts, folder="wagner_scale", decimals=1))
    note = (
        "-alpha = beta = the scale, logits scaled in float32 and in float16, without a"
        " filter and with top-k 50, the default of the library that the paper decodes"
        " with, which cuts both models' logits before anything is timed; a tenth of the"
        " prompts, as in the paper, each continued ten times (code: twice)."
        " Beyond 65504 float16 has no numbers: at +-1e5 alpha and beta are infinite,"
        " every weight is NaN, no comparison with it holds, no draft is kept, and here"
        " every id is then equally likely: so the texts are noise up to their limit."
        " The paper reports such a collapse for speech, whose logits were in half"
        " precision, and calls it numerical instability of the exponentiation; in"
        " float32 the same scale is as stable as the others. Table 2 of the paper is"
        " the Whisper small.en and Llama2 7B part of Table 7." + OURS
    )
    title = "Wagner et al. (2024), Tables 2 and 7: the scale of the sigmoid"
    return Table("wagner_scale", title, note, command("wagner_scale"), lines)


HEAD = ["method", "us a step", "tokens a call", "drafts kept", "of those tested"]
HEAD += ["TV from p", "from q", "bonus from p", "ROUGE-1", "guarantee"]
COLUMNS = ("us", "tokens_per_call", "acceptance", "acceptance_tested", "tv_out_p")
COLUMNS += ("tv_out_q", "tv_bonus_p", "rouge1")


def wider(records: dict[str, dict]) -> list[tuple[str, list, list]]:
    """Every method of every row side by side; records of one folder by row."""
    tables = []
    for row, record in records.items():
        it = record["measured"]
        if f"acceptance_{it['methods'][0]}" not in it:
            continue  # of times alone
        lines = [cells(it, method) for method in it["methods"]]
        tables.append((f"{PAIRS.get(row, row)}, by method", HEAD, lines))
    return tables


def cells(it: dict, method: str) -> list[str]:
    values = (it.get(f"{key}_{method}") for key in COLUMNS)
    shown = ["" if value is None else number(value) for value in values]
    return [spelled(method), *shown, it["guarantees"][method]]
