"""What a record of kernels says of the times of its programs, by name.

A line of `programs` is of one program: `us` is what a step of its chain takes, less
what one of the empty chain does. In earlier records one dispatch took many sets, and
the host's work on their arrays was in every number; it was in that of the chain that
does nothing too, so that it can be taken away again: `current`. In records without
`steps` each step copied the logits as well, in the empty chain too (`notes`).
"""

from collections.abc import Mapping, Sequence

from experiments.records.words import FAILED, SKIPPED, UNCLEAR, over

COLD, WARM = "cold", "warm"  # caches before every step
EMPTY = "empty"
FIRST = 20  # steps of the loop of copies of 1 GiB
# Quantity of a record, and the programs of which the fastest gives it.
CHOICES = {
    "empty": "empty",
    "read": "read",
    "ref_jnp": "ref_jnp/none",
    "ref_jnp_draft": "ref_jnp/draft",
    "ref_jnp_both": "ref_jnp/both",
    "onepass": "onepass/none",
    "onepass_draft": "onepass/draft",
    "fused": "mosaic_gpu/none",
    "fused_draft": "mosaic_gpu/draft",
    "fused_both": "mosaic_gpu/both",
    "sigmoid": "sigmoid/both",
    "triton": "triton/none",
    "triton_draft": "triton/draft",
    "triton_both": "triton/both",
    "four_launches": "four_launches/none",
}


def group(name: str) -> str:
    """A program's name without its tiles."""
    return "/".join(name.split("/")[:2])


def asked(name: str, setting: Mapping) -> bool:
    """Whether a row has a program, a `group`. setting: its `skip` and its `only`."""
    only = setting.get("only")
    return name.partition("/")[0] not in setting["skip"] and (not only or name in only)


def quantities(lines: Sequence[dict], setting: Mapping) -> dict:
    """Microseconds of the fastest by name where caches are cold, and ratios, or the
    word for why not.

    Args:
        lines: of programs.
        setting: the row's: its `acceptances`, the first of which counts, as `asked`.
    """
    best, first = {}, (setting["acceptances"][0], COLD)
    for line in sorted(lines, key=lambda line: line["us"]):
        if (line["acceptance"], line["cache"]) == first:
            best.setdefault(group(line["name"]), line)

    def of(name: str, quantity: str) -> float | str:
        if name not in best:
            return FAILED if asked(name, setting) else SKIPPED
        return best[name][quantity] if best[name]["us"] > 0 else UNCLEAR

    values = {f"{name}_us": of(key, "us") for name, key in CHOICES.items()}
    values["fused_share"] = of(CHOICES["fused"], "share")
    for other in ("ref_jnp", "onepass", "triton", "four_launches"):
        values[f"over_{other}"] = over(values[f"{other}_us"], values["fused_us"], True)
    values["sigmoid_over_exact"] = over(values["fused_us"], values["sigmoid_us"])
    values["both_over_sigmoid"] = over(values["fused_both_us"], values["sigmoid_us"])
    return values


def current(measured: dict) -> dict:
    """The numbers of a record of kernels as one of today would have them; others as
    they are. host_us: of the host, how much was taken away."""
    lines = measured.get("programs", ())
    if "empty_us" not in measured or "steps" in measured:
        return measured
    if any("cache" in line for line in lines):
        return counted(measured)
    empty = {line["acceptance"]: line["us"] for line in lines if line["name"] == EMPTY}
    fresh = [without(line, empty[line["acceptance"]]) for line in lines]
    return measured | {
        **quantities(fresh, measured),
        "programs": fresh,
        "host_us": measured["empty_us"],
    }


def counted(measured: dict) -> dict:
    """With a speed of the memory that counts the copy ahead of its loop: the loop was
    compared with one step, of which XLA makes no loop, and the difference of FIRST
    steps had a copy more."""
    more = FIRST / (FIRST - 1)
    lines = [
        line
        if isinstance(line["share"], str)
        else line | {"share": line["share"] / more}
        for line in measured["programs"]
    ]
    return measured | {
        **quantities(lines, measured),
        "programs": lines,
        "copy_gb_s": measured["copy_gb_s"] * more,
        "copy_us": measured["copy_us"] / more,
    }


def without(line: dict, host: float) -> dict:
    """A line less the microseconds that the host took."""
    told = line | {"cache": COLD, "chain_us": line["us"], "empty_us": host}
    if line["name"] == EMPTY:
        return told
    net = {key: line[key] - host for key in ("us", "p10", "p90")}
    faster = line["us"] / net["us"] if net["us"] > 0 else 0
    return told | net | {"share": line["share"] * faster if faster else UNCLEAR}


def notes(measured: Mapping) -> list[str]:
    """What a reader must know of all times of a record of `current`."""
    told = []
    if "host_us" in measured:
        host = f"{measured['host_us']:.1f} us of the host"
        told.append(f"less {host}, which a chain of nothing took")
    elif "programs" in measured and "steps" not in measured:
        told.append("each step copied the logits too: what a cache holds was warm")
    return told


def note(measured: Mapping, quantity: str) -> list[str]:
    """`notes`, of a quantity that is a time of a program, or a share."""
    times = {f"{name}_us" for name in CHOICES} - {"empty_us"} | {"fused_share"}
    return notes(measured) if quantity in times else []
