"""Lines that say what the one-run audit of real pairs found, rule by rule."""

from experiments.records.table import Line, Table, command

PAIRS = {"code": "code_target with code_small", "ende": "t5_target with t5_small, EnDe"}
RULES = {
    "code": ("token", "block", "rejection", "match", "gumbel"),
    "ende": ("token", "gumbel"),
}
FAULTS = {
    "code_draft_temperature": "drafts drawn at T / 1.1 from a law that says T",
    "code_reused_key": "the uniform that rejected draws the extra token",
}


def audit() -> Table:
    lines = []
    for pair, rules in RULES.items():
        for rule in rules:
            what = f"{PAIRS[pair]}, T = 1: {rule}"
            lines.append(Line("audit", f"{pair}_{rule}", what, "max_z", decimals=1))
    for row, fault in FAULTS.items():
        what = f"{PAIRS['code']}, T = 1: token, broken: {fault}"
        lines.append(Line("audit", row, what, "max_z", decimals=1))
    note = (
        "Ours is the largest |z| of five statistics of text that the pair wrote by"
        " speculation: surprisal, log q/p, q/p, and how often the token is the"
        " target's or the draft's argmax, each against its mean under the target's own"
        " law at every token, in standard errors (`specjax audit`). An exact run"
        " is above 2.6 one time in 20, and above 4.3 one time in 10,000: there it"
        " fails. The two decoders that are broken on purpose must fail. n counts"
        " tokens. What moves every statistic less than that passes: `limits` in each"
        " record is the least shift of each mean, and the least share of leaked draft"
        " tokens, that a run of its length shows 999 times in 1,000;"
        " `tests/exactness/test_audit.py` has a leak of 1 % and uniforms of bfloat16"
        " that pass."
    )
    title = "The one-run audit of the output's law"
    return Table("audit", title, note, command("audit"), lines)
