"""Lines after Chen et al. (2023): r, the two speedups, and what the texts are worth.

Their numbers are those that an account of the paper has as text
(https://jaykmody.com/blog/speculative-sampling/); the table itself is an image there.
"""

import json
from functools import cache

from experiments.records.markup import number
from experiments.records.table import PUBLISHED, Line, Records, Table, command

HUMANEVAL = "runs/data/humaneval.jsonl (gin_configs/tasks/humaneval.gin)"
XSUM = "runs/data/xsum.jsonl (gin_configs/tasks/xsum.gin)"
DIALOGUES = "runs/data/dialogues.jsonl (gin_configs/tasks/dialogue_summary.gin)"
TRAINED = "runs/llama (`make zoo-llama DIALOGUES=FOLDER`)"
GPT2 = "GPT-2 1.5B and 124M from the hub, a GPU of 24 GB"
CLOSED = "Chinchilla 70B and 4B, which are not public"
NUCLEUS = {"humaneval": "T = 0.8, nucleus 0.95", "xsum": "T = 1, nucleus 0.8"}
TASKS = {"humaneval": "HumanEval", "xsum": "XSum", "summaries": "dialogues"}
PAIRS = {
    "code": "code_target with code_small",
    "llama": "the Llama-shaped pair",
    "gpt2": "GPT-2 1.5B with 124M",
    "chinchilla": "the paper's models: Chinchilla 70B with 4B",
}
NEEDS = {"code": (), "llama": (TRAINED,), "gpt2": (GPT2,), "chinchilla": (CLOSED,)}
DATA = {"humaneval": HUMANEVAL, "xsum": XSUM, "summaries": DIALOGUES}
# A row of each folder: task, pair, and whether its texts are argmax ones.
OURS = ("humaneval_code", "humaneval_code_greedy")
OURS += ("summaries_llama", "summaries_llama_greedy")
PAPER = ("humaneval_gpt2", "xsum_gpt2", "xsum_greedy_gpt2")
PAPER += ("humaneval_chinchilla", "xsum_chinchilla", "xsum_greedy_chinchilla")
TIMES = {
    "r": "r, tokens decoded a call over K + 1",
    "theoretical_speed": "theoretical speedup, by r and the times of calls",
    "speed": "measured speedup, of mean token times",
    "token_ms_alone": "ms a token, target alone",
    "token_ms_speculative": "ms a token, speculative",
    "t_draft_ms": "t_draft, ms",
    "t_target_ms": "t_target, ms",
    "t_score_ms": "ms of a target call on K + 1 tokens",
}
WORTH = {
    "pass1": {"pass1": "pass@1"},
    "rouge": {"rouge1": "ROUGE-1 F1", "rouge2": "ROUGE-2 F1"},
}
WAYS = {"alone": "target alone", "speculative": "speculative"}


@cache
def published() -> dict[str, dict[str, float]]:
    """By task, under the names of what is measured."""
    entry = json.loads(PUBLISHED.read_text("utf-8"))["chen2023_as_told_by_jaymody2023"]
    times = {"t_draft_ms": entry["t_draft_ms"], "t_target_ms": entry["t_target_ms"]}
    return {
        task: {"r": r, "theoretical_speed": theory, "speed": speed, **times}
        for task, r, theory, speed in entry["rows"]
    }


def chen() -> Table:
    lines = [line for row in OURS for line in lines_of("chen_data", row)]
    entry = json.loads(PUBLISHED.read_text("utf-8"))["chen2023_as_told_by_jaymody2023"]
    told = entry["gpt2_1558m_124m_greedy_speedup"]
    what = f"{PAIRS['gpt2']}: one sentence of 40 tokens, T = 0: measured speedup"
    turing = Line("chen_paper", "turing_gpt2", what, "best_speedup", told, needs=GPT2)
    lines += [turing, *(it for row in PAPER for it in lines_of("chen_paper", row))]
    return Table("chen", TITLE, NOTE, command("chen_data"), lines)


def parts_of(row: str) -> tuple[str, str, bool]:
    """humaneval_code_greedy: the task, the pair, and that its texts are greedy."""
    words = row.split("_")
    greedy = "greedy" in words
    task, pair = (word for word in words if word != "greedy")
    return task, pair, greedy


def lines_of(folder: str, row: str) -> list[Line]:
    """Every quantity of a row."""
    task, pair, greedy = parts_of(row)
    kind = "pass1" if task == "humaneval" else "rouge"
    how = "T = 0" if greedy else NUCLEUS["humaneval" if kind == "pass1" else "xsum"]
    about = f"{PAIRS[pair]}, {TASKS[task]}, {how}"
    facts = published().get(task, {}) if pair == "chinchilla" and not greedy else {}
    needs = ", ".join((*NEEDS[pair], DATA[task]))

    def line(key: str, words: str, error: str | None = None) -> Line:
        value = facts.get(key)
        decimals = 1 if key.endswith("_ms") else 2
        what = f"{about}: {words}"
        return Line(folder, row, what, key, value, error, decimals, needs=needs)

    lines = [line(key, words, {"r": "r_se"}.get(key)) for key, words in TIMES.items()]
    for way, shown in WAYS.items():
        for key, words in WORTH[kind].items():
            error = f"pass1_se_{way}" if key == "pass1" else None
            lines.append(line(f"{key}_{way}", f"{words}, {shown}", error))
    return lines


HEAD = ["row", "r", "theory", "measured [95 %]", "t_draft ms", "t_target ms"]
HEAD += ["t_score ms", "alone", "speculative", "what stopped programs, alone"]


def wider(records: Records) -> list[tuple[str, list, list]]:
    """A line a row: what is compared side by side."""
    folders = (records.get(name, {}) for name in ("chen_data", "chen_paper"))
    each = (pair for folder in folders for pair in folder.items())
    rows = [[row, *cells(it["measured"])] for row, it in each]
    rows = [row for row in rows if len(row) == len(HEAD)]
    return [("Chen et al. (2023), a line a row", HEAD, rows)] if rows else []


def cells(it: dict) -> list[str]:
    """Of a record; nothing of one that measures something else."""
    if "theoretical_speed" not in it:
        return []
    low, high = it["speed_interval"]
    keys = "r", "theoretical_speed"
    shown = [number(it[key]) for key in keys]
    shown += [f"{number(it['speed'])} [{number(low)}, {number(high)}]"]
    parts = "t_draft_ms", "t_target_ms", "t_score_ms"
    shown += [number(it[key]) for key in parts]
    for way in WAYS:
        names = WORTH[it["metric"]]
        shown.append(", ".join(f"{n} {number(it[f'{n}_{way}'])}" for n in names))
    why = it.get("why_not_alone", {})
    return [*shown, ", ".join(f"{kind} {count}" for kind, count in why.items())]


TITLE = "Chen et al. (2023): r, speedups in theory and measured, and quality"
NOTE = (
    "K = 4 drafted tokens a call. r is tokens decoded a call, the resampled or added"
    " one among them, over K + 1; the theoretical speedup is what r and the times of"
    " single calls give, if K + 1 tokens are scored in the time of one (t_score says"
    " what they take); the measured one is the ratio of mean token times of whole"
    " texts at batch 1, prompts included. Both ways' texts have one law: they differ"
    " by chance alone. Programs that complete HumanEval's functions run in a sandbox"
    " (`papers/chen/sandbox.py`), and pass@1 is the share that passes its tests."
    " The published numbers are of Chinchilla 70B with a draft of 4B in a distributed"
    " setup, which nobody else can run; configurations of public descriptions are in"
    " gin_configs/models/chinchilla.gin. GPT-2 1.5B with 124M is the pair of jaymody's"
    " account of the paper, whose one measured speedup is of NumPy on a CPU without"
    " caches. Dialogues stand for XSum where a pair of this project writes summaries."
)
