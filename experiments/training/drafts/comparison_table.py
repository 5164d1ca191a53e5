"""Lines that compare the losses by which a draft is distilled."""

from experiments.records.table import Line, Table, command

LOSSES = {
    "none": "before: forward KL alone",
    "kl": "forward KL",
    "tvd": "total variation, 1 - alpha",
    "hybrid": "KL where alpha is small, total variation where it is large",
    "reverse_kl": "reverse KL",
    "jsd": "Jensen-Shannon",
    "log_alpha": "-log alpha",
}
NEEDS = "the runs of `python -m experiments.training.zoo_code`"


def distillation() -> Table:
    lines = [
        Line(
            "distillation",
            row,
            f"{what}: alpha at T = {temperature}",
            f"alpha_t{temperature}",
            error=f"alpha_t{temperature}_se",
            decimals=4,
            needs=NEEDS,
        )
        for row, what in LOSSES.items()
        for temperature in (0, 1)
    ]
    note = (
        "The draft of the code target by forward KL until that was flat, and then for"
        " a while more by each loss, all from the same weights, on the target's own"
        " texts and its law there (its 64 likeliest ids and the rest as one). alpha on"
        " held-out texts that the target wrote at that temperature; errors are of three"
        " seeds for the order of the texts, where there are three."
    )
    title = "Which loss a draft is distilled by"
    return Table("distillation", title, note, command("distillation"), lines)
