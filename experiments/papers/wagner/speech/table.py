"""Lines of speech: word errors and acceptance by verifier, speed by batch, and the time
of verification alone.

The paper's numbers (Wagner et al., 2024, Tables 4 and 7) stand beside the rows that
would measure the same; those need its models, its recordings and a GPU.
"""

import itertools

from experiments.papers.wagner.speech.methods import of_errors, spelled
from experiments.papers.wagner.table import rows_of
from experiments.records.table import Line, Table

PAIRS = {
    "small_en": "small.en with distil-small.en",
    "large_v2": "large-v2 with distil-large-v2",
    "large_v3": "large-v3 with distil-large-v3",
    "turbo": "large-v3 with large-v3-turbo",
}
# A file of recordings, what they are, and their name in the paper's table.
SETS = {
    "librispeech_clean": ("LibriSpeech clean", "librispeech_clean"),
    "librispeech_other": ("LibriSpeech other", "librispeech_other"),
    "tedlium": ("TED-LIUM", "tedlium_release3"),
    "cv16": ("Common Voice 16", "cv16_en"),
}
NEEDS = "its recordings, the checkpoints and a GPU"
STRINGS = "`python -m experiments.training.voices.strings`"
OWN = {
    "words": ("bundled pair, synthesised sentences", STRINGS),
    "digits": ("our pair, spoken digits", f"spoken digits, a pair of them, {STRINGS}"),
}
SHOWN = ("exact", "sigmoid_1e3", "always")
BATCHES = (1, 2, 4, 8, 16)
SCALES = (1e1, 1e3, 1e4, 1e5)
PLAIN = ("baseline", "exact", "sigmoid_1e3", "always")  # of which steps are timed
GAMMAS = (1, 5, 15)
METHODS = [method.name for method in of_errors((1e3,))]
NOTE = (
    "Whisper by speculation, Wagner et al. (2024) in kind. `alone` is the target"
    " without a draft, `exact` Algorithm 1, both of one law; `sigmoid` is lossy and has"
    " no bound, the rule as the paper prints it; `sigmoid_released` is that of the"
    " authors' code, which made the paper's numbers and draws the token after the kept"
    " drafts otherwise. No bound has `always`, which keeps every draft: its words are"
    " the draft's own but for one in gamma + 1. At +-1e3 a sigmoid is all but flat, so"
    " that, as the paper prints the rule, the token"
    " that a call adds is drawn almost evenly of all that may be written: of ours,"
    " letters and the end, which cuts most texts short. With top-k 50, the default of"
    " the library that the paper decodes with, both laws are cut. Words are drawn at T"
    " = 1 (greedy: argmax) and counted by jiwer after Whisper's own normalizer;"
    " intervals are over recordings. Drafts kept are shares of those decided on. Speed"
    " is of encoding and decoding, greedy; where draft and target have one encoder it"
    " runs once. The paper's word errors are of an RTX 2080 Ti and rounded to whole per"
    " cents; at which temperature they were drawn it does not tell. Verification alone"
    " is timed from raw logits of both models to tokens at batch 1, after what the"
    " target wrote of a recording; the baseline writes out every matrix, and per cents"
    " are of its time with the same filter. The paper prints Figure 3b and no numbers,"
    " and in Table 4 per cents of all steps (with its other published values)."
)


def speech() -> Table:
    lines = [*recording(), *own(), *paper(), *scales(), *speeds()]
    command = "python -m experiments.run gin_configs/speech/*.gin"
    command += " gin_configs/speech_data/*.gin"
    title = "Speech, after Wagner et al. (2024), Tables 1, 2, 4, 6 and 8"
    return Table("speech", title, NOTE, command, lines)


def recording() -> list[Line]:
    """What the bundled pair needed for the bundled recording, which the page plays."""
    what = "bundled recording, gamma = 5: "
    counts = {"tokens": "letters and the end"}
    counts |= {"alone_calls": "target calls without a draft"}
    counts |= {"target_calls": "target calls", "calls_saved": "target calls saved"}
    return [
        Line("speech", "recording", what + words, key, decimals=0)
        for key, words in counts.items()
    ]


def own() -> list[Line]:
    """Pairs of our own: the bundled one, and one of spoken digits."""
    lines = []
    for row, (pair, needs) in OWN.items():
        for method in METHODS:
            lines.append(line("speech_data", row, pair, method, "wer", needs))
        for method in METHODS:
            if "alone" not in method:
                lines.append(line("speech_data", row, pair, method, "alpha", needs))
        for batch in BATCHES:
            what = f"{pair}: times as fast as without a draft, batch {batch}"
            at = f"{row}_speed", what, f"speedup_b{batch}"
            lines.append(Line("speech_data", *at, needs=needs))
        lines += times("speech_data", row, pair, needs)
    return lines


def times(folder: str, row: str, pair: str, needs: str) -> list[Line]:
    """Verification alone, by method and gamma, and what it saves of the baseline."""
    lines = []
    for method, gamma in itertools.product(PLAIN, GAMMAS):
        what = f"{pair}: {method.replace('_', ' ')}, gamma = {gamma}: us a verification"
        key = f"us_{method}_g{gamma}"
        at = f"{row}_time", what, key
        lines.append(Line(folder, *at, error=f"{key}_sd", needs=needs))
    for method in (*PLAIN[1:], *(f"{name}_top50" for name in PLAIN[1:])):
        what = f"{pair}: {method.replace('_', ' ')}, gamma = 5: % less time a step"
        at = f"{row}_time", what, f"step_reduction_{method}_g5"
        lines.append(Line(folder, *at, needs=needs, decimals=1))
    return lines


WORDS = {"wer": "word errors, %", "alpha": "drafts kept"}


def line(folder, row, pair: str, method: str, key: str, needs: str, published=None):
    what = f"{pair}: {method.replace('_', ' ')}: {WORDS[key]}"
    error = f"alpha_se_{method}" if key == "alpha" else None
    decimals = 1 if key == "wer" else 3
    return Line(
        folder,
        row,
        what,
        f"{key}_{method}",
        published,
        error,
        decimals=decimals,
        needs=needs,
    )


def paper() -> list[Line]:
    lines = []
    for pair, names in PAIRS.items():
        for task, (what, key) in SETS.items():
            about = f"{names}, {what}"
            printed = of_table4(f"whisper_{pair}", key)
            for method in SHOWN:
                parts = f"{pair}_{task}", about, method, "wer", NEEDS
                lines.append(line("speech_paper", *parts, printed.get(method)))
            parts = f"{pair}_{task}", about, "exact", "alpha", NEEDS
            lines.append(line("speech_paper", *parts))
    return lines


def of_table4(pair: str, dataset: str) -> dict[str, float]:
    """Word errors in per cent by method, of a pair and a set that the paper has."""
    for entry in rows_of("table4_rtx2080ti"):
        if (entry["pair"], entry["dataset"]) == (pair, dataset):
            both = {"exact": "metric_exact", "sigmoid_1e3": "metric_sigmoid"}
            return {name: percent(entry[key]) for name, key in both.items()}
    return {}


def scales() -> list[Line]:
    pair, needs = OWN["digits"]
    names = ("exact", *map(spelled, SCALES))
    lines = [line("speech_data", "digits_scale", pair, m, "wer", needs) for m in names]
    for entry in rows_of("table7_sigmoid_scale"):
        pair = entry["pair"].removeprefix("whisper_")
        if pair not in PAIRS:
            continue
        scale = entry["scale"]
        method = "exact" if scale is None else spelled(scale)
        about = f"{PAIRS[pair]}, a tenth of Common Voice 16"
        parts = f"{pair}_scale", about, method, "wer", NEEDS, percent(entry["metric"])
        lines.append(line("speech_paper", *parts))
    return lines


def speeds() -> list[Line]:
    lines = []
    for pair, names in PAIRS.items():
        for batch in BATCHES:
            what = f"{names}: times as fast as without a draft, batch {batch}"
            quantity = f"speedup_b{batch}"
            row = f"{pair}_speed"
            lines.append(Line("speech_paper", row, what, quantity, needs=NEEDS))
        lines += times("speech_paper", pair, names, NEEDS)
    return lines


def percent(share: float) -> float:
    return round(100 * share, 6)
