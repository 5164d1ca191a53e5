"""Lines of what a step launches on a GPU, counted in programs compiled without one."""

from experiments.records.table import Line, Table, command

NEEDS = "the compiler for GPUs: pip install --editable '.[aot]'"
PAIRS = {
    "t5_xxl_small": "T5-XXL with T5-small, bfloat16",
    "gpt_97m_6m": "GPT-like 97M with 6M, bfloat16",
    "t5_bundled": "bundled T5 pair, float32",
    "code_bundled": "bundled code pair, float32",
}
# Quantity of a record, what it counts, decimals.
QUANTITIES = (
    ("draft_step", "one further drafted token", 0),
    ("draft_per_layer", "a layer of the draft", 1),
    ("target_step", "a target call of gamma + 1 tokens", 0),
    ("target_per_layer", "a layer of the target", 1),
    ("verify", "verification and commit", 0),
    ("spec_step", "a whole step", 0),
    ("draft_step_fused", "one further drafted token, fused", 0),
    ("verify_fused", "verification and commit, fused", 0),
    ("spec_step_fused", "a whole step, fused", 0),
)


def launches() -> Table:
    lines = [
        Line("launches", row, f"{pair}: {what}", quantity, decimals=n, needs=NEEDS)
        for row, pair in PAIRS.items()
        for quantity, what, n in QUANTITIES
    ]
    note = (
        "Kernels, copies and library calls that a run launches, counted in the code"
        " that XLA compiles for an NVIDIA H200; nothing ran on one. Batch 1, gamma = 5,"
        " caches of 128 slots, inputs of 64 tokens. Fused: drawn and verified by the"
        " kernels of pallas_kernels. A compiler that times choices on"
        " a device may choose others. Nothing was published to compare with."
    )
    title = "Launches: kernels of a step on a GPU"
    return Table("launches", title, note, command("launches"), lines)
