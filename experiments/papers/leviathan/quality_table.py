"""Lines that say how good the bundled T5 family is: BLEU and ROUGE."""

from experiments.records.table import Line, Table, command

MODELS = ("t5_target", "t5_large", "t5_base", "t5_small")
METRICS = {"ende": ("bleu", "chrf"), "docs": ("rouge1", "rouge2", "rougeL")}
TASKS = {
    "ende": "English to German, our 320 sentences",
    "docs": "first line of a documentation string, our 120",
}
# Made with `python -m experiments.tasks.prepare` from the data's own files.
OTHERS = {
    "tatoeba": "English to German, 2,000 held-out sentences of Tatoeba",
    "multi30k": "English to German, Multi30k test2016",
    "newstest2014": "English to German, newstest2014",
}
NAMES = {"bleu": "BLEU", "chrf": "chrF", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2"}
NAMES |= {"rougeL": "ROUGE-L"}


def quality() -> Table:
    lines = []
    for task, what in TASKS.items():
        for model in MODELS:
            for metric in METRICS[task]:
                label = f"{what}: {model}: {NAMES[metric]}"
                row = f"{task}_{model}"
                lines.append(Line("quality", row, label, metric, decimals=1))
    for name, what in OTHERS.items():
        needs = f"runs/data/{name}.npz (`python -m experiments.tasks.prepare`)"
        for metric in METRICS["ende"]:
            label = f"{what}: t5_target: {NAMES[metric]}"
            row = f"{name}_t5_target"
            line = Line("quality_data", row, label, metric, decimals=1, needs=needs)
            lines.append(line)
    note = (
        "Argmax texts of the bundled T5 family against one reference each; BLEU and"
        " chrF by sacrebleu, ROUGE F1 by rouge-score, all in per cent. The family was"
        " trained on everyday sentences of Tatoeba, on documentation strings and on"
        " prose to be corrected: captions (Multi30k) and news (newstest2014) are"
        " outside of what it knows."
    )
    title = "What the bundled T5 family can do"
    return Table("quality", title, note, command("quality"), lines)
