"""Lines of pairs that people decode with today, at their own sizes: Tables 2 and 4."""

from experiments.records.table import Line, Table, command

PAIRS = {
    "qwen3": "Qwen3 8B with 0.6B",
    "llama3": "Llama 3.1 8B with Llama 3.2 1B",
    "gemma3": "Gemma 3 12B with 1B",
}
TASKS = {"humaneval": "HumanEval", "xsum": "XSum"}
QUANTITIES = {
    "best_gamma": ("gamma", None),
    "alpha": ("alpha", "alpha_se"),
    "best_c": ("c", None),
    "best_predicted": ("predicted speed", None),
    "best_speedup": ("measured speed", "best_speedup_se"),
}
NEEDS = "its weights from the hub and a GPU; {} (gin_configs/tasks/{}.gin)"


def today() -> Table:
    lines = []
    for pair, shown in PAIRS.items():
        for task, name in TASKS.items():
            needs = NEEDS.format(f"runs/data/{task}.jsonl", task)
            for heat in (0, 1):
                row = f"{task}_{pair}_t{heat}"
                for key, (words, error) in QUANTITIES.items():
                    what = f"{shown}, {name}, T = {heat}: {words}"
                    line = Line("today_paper", row, what, key, error=error, needs=needs)
                    lines.append(line)
    note = (
        "As Tables 2 and 4, batch 1, of pairs that no paper here has. Their checkpoints"
        " are read by name from the hub, in bfloat16; a pair whose vocabularies differ"
        " by padding alone is cut to the smaller. No number is published for them."
    )
    title = "Pairs of today at their own sizes: speed at the best gamma"
    return Table("today", title, note, command("today_paper"), lines)
