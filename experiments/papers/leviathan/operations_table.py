"""Lines of operations and bytes a token (Section 3.4)."""

from experiments.papers.leviathan.walltime_table import DRAFTS
from experiments.records.table import Line, Table, command


def operations() -> Table:
    quantities = {
        "alpha": "alpha",
        "tokens_per_call": "tokens a call",
        "tokens_per_call_eq1": "tokens a call by Eq. 1",
        "c_hat": "c_hat",
        "operations_factor": "operations, over the target alone",
        "operations_factor_theorem": "operations by Theorem 3.11",
        "bytes_factor": "bytes accessed, over the target alone",
        "bytes_factor_expected": "bytes if all were the target's, read once a call",
    }
    uncertain = ("alpha", "tokens_per_call")
    uncertain += ("operations_factor", "operations_factor_theorem")
    lines = []
    for row in ("small_g1", "small_g3", "small_g5", "small_g7", "bigram_g3"):
        draft, gamma = row.split("_g")
        pair = f"code_target with {DRAFTS[draft]}, gamma = {gamma}"
        for key, name in quantities.items():
            error = f"{key}_se" if key in uncertain else None
            line = Line("operations", row, f"{pair}: {name}", key, error=error)
            lines.append(line)
    note = (
        "Section 3.4: per emitted token, as XLA counts the compiled programs at batch 1"
        " and 128 slots, T = 1. Bytes accessed are operands and results of every fused"
        " kernel, not traffic to memory. The counts are spread over the tokens that the"
        " calls of a run gave; Theorem 3.11 and Eq. 1 take alpha = E(sum min(p, q)) on"
        " the target's own text and know nothing of that run."
    )
    title = "Operations and bytes a token, with speculation over without"
    return Table("operations", title, note, command("operations"), lines)
