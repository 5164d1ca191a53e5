"""Lines of Figure 1: what each step kept."""

from experiments.records.table import Line, Table, command


def figure1() -> Table:
    lines = []
    for gamma in (3, 7):
        for key, what, value in (
            ("tokens", "tokens", 38 if gamma == 7 else None),
            ("target_calls", "target calls", 9 if gamma == 7 else None),
        ):
            what = f"gamma = {gamma}: {what}"
            line = Line("figure1", f"gamma_{gamma}", what, key, value, decimals=0)
            lines.append(line)
    title = "Figure 1: what each step kept"
    note = (
        "One text of code_target with code_small at T = 0, a line a target call:"
        " accepted, rejected, added by the target. The paper's example is another text"
        " by other models, at a gamma that it does not give."
    )
    return Table("figure1", title, note, command("figure1"), lines)
