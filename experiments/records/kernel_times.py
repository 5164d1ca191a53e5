"""The times of programs in a record of kernels, by name.

Each line of `programs` describes one program: `us` is the time of a step of its chain,
less the time of a step of the empty chain. In earlier records one dispatch took many
sets of arrays, and the host's work on them was part of every number, also of the empty
chain's; `update_record` subtracts it. In records without `steps` each step also copied
the logits, in the empty chain too (`notes`).
"""

from collections.abc import Mapping, Sequence

from experiments.records.words import FAILED, SKIPPED, UNCLEAR, ratio

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
    """Returns a program's name without its tiles."""
    return "/".join(name.split("/")[:2])


def has_program(name: str, setting: Mapping) -> bool:
    """Returns whether a row times a program.

    Args:
        name: the program's `group`.
        setting: the row's setting, of which `skip` and `only` are read.
    """
    only = setting.get("only")
    return name.partition("/")[0] not in setting["skip"] and (not only or name in only)


def quantities(lines: Sequence[dict], setting: Mapping) -> dict:
    """Returns, by name, the microseconds of the fastest programs with cold caches, and
    ratios of them; or a word that says why there is no time.

    Args:
        lines: the lines of programs.
        setting: the row's: its `acceptances`, of which the first counts, and what
            `has_program` reads.
    """
    best, first = {}, (setting["acceptances"][0], COLD)
    for line in sorted(lines, key=lambda line: line["us"]):
        if (line["acceptance"], line["cache"]) == first:
            best.setdefault(group(line["name"]), line)

    def fastest_or_unclear(name: str, quantity: str) -> float | str:
        if name not in best:
            return FAILED if has_program(name, setting) else SKIPPED
        return best[name][quantity] if best[name]["us"] > 0 else UNCLEAR

    values = {
        f"{name}_us": fastest_or_unclear(key, "us") for name, key in CHOICES.items()
    }
    values["fused_share"] = fastest_or_unclear(CHOICES["fused"], "share")
    for other in ("ref_jnp", "onepass", "triton", "four_launches"):
        values[f"over_{other}"] = ratio(values[f"{other}_us"], values["fused_us"], True)
    values["sigmoid_over_exact"] = ratio(values["fused_us"], values["sigmoid_us"])
    values["both_over_sigmoid"] = ratio(values["fused_both_us"], values["sigmoid_us"])
    return values


def update_record(measured: dict) -> dict:
    """Returns an old record of kernels with the numbers that would be measured today.

    Other records are returned unchanged. `host_us` is the time of the host that was
    subtracted.
    """
    lines = measured.get("programs", ())
    if "empty_us" not in measured or "steps" in measured:
        return measured
    if any("cache" in line for line in lines):
        return correct_copy_speed(measured)
    empty = {line["acceptance"]: line["us"] for line in lines if line["name"] == EMPTY}
    fresh = [subtract_host(line, empty[line["acceptance"]]) for line in lines]
    return measured | {
        **quantities(fresh, measured),
        "programs": fresh,
        "host_us": measured["empty_us"],
    }


def correct_copy_speed(measured: dict) -> dict:
    """Returns a record with the speed of the memory corrected for the copy that
    precedes the loop.

    The loop was compared with one step, which XLA does not compile as a loop, so that
    the difference of FIRST steps contained one more copy.
    """
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


def subtract_host(line: dict, host: float) -> dict:
    """Returns a line minus the microseconds that the host took."""
    cold = line | {"cache": COLD, "chain_us": line["us"], "empty_us": host}
    if line["name"] == EMPTY:
        return cold
    net = {key: line[key] - host for key in ("us", "p10", "p90")}
    faster = line["us"] / net["us"] if net["us"] > 0 else 0
    return cold | net | {"share": line["share"] * faster if faster else UNCLEAR}


def notes(measured: Mapping) -> list[str]:
    """Returns what a reader must know about all times of an updated record."""
    found = []
    if "host_us" in measured:
        host = f"{measured['host_us']:.1f} us of the host"
        found.append(f"less {host}, which the empty chain took")
    elif "programs" in measured and "steps" not in measured:
        found.append(
            "each step also copied the logits: data that fit in a cache were warm"
        )
    return found


def note(measured: Mapping, quantity: str) -> list[str]:
    """Returns `notes` if the quantity is the time of a program or a share, else []."""
    times = {f"{name}_us" for name in CHOICES} - {"empty_us"} | {"fused_share"}
    return notes(measured) if quantity in times else []
