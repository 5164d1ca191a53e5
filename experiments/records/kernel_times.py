"""What a record of kernels says of the times of its programs, by name.

A line of `programs` is of one program: `us` is what a step of its chain takes, less
what one of the empty chain does. In earlier records one dispatch took many sets, and
the host's work on their arrays was in every number; it was in that of the chain that
does nothing too, so that it can be taken away again: `current`.
"""

from collections.abc import Mapping, Sequence

from experiments.records.words import FAILED, SKIPPED, UNCLEAR, over

COLD, WARM = "cold", "warm"  # caches before every step
EMPTY = "empty"
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
    """The numbers of a record of kernels, without the host's time where that is in
    them: `host_us` is how much was taken away. Others as they are."""
    lines = measured.get("programs", ())
    if "empty_us" not in measured or any("cache" in line for line in lines):
        return measured
    empty = {line["acceptance"]: line["us"] for line in lines if line["name"] == EMPTY}
    fresh = [without(line, empty[line["acceptance"]]) for line in lines]
    return measured | {
        **quantities(fresh, measured),
        "programs": fresh,
        "host_us": measured["empty_us"],
    }


def without(line: dict, host: float) -> dict:
    """A line less the microseconds that the host took."""
    told = line | {"cache": COLD, "chain_us": line["us"], "empty_us": host}
    if line["name"] == EMPTY:
        return told
    net = {key: line[key] - host for key in ("us", "p10", "p90")}
    faster = line["us"] / net["us"] if net["us"] > 0 else 0
    return told | net | {"share": line["share"] * faster if faster else UNCLEAR}


def note(measured: Mapping, quantity: str) -> str:
    """What a reader must know of a quantity of `current`, or ""."""
    host = measured.get("host_us")
    known = {f"{name}_us" for name in CHOICES} - {"empty_us"} | {"fused_share"}
    if host is None or quantity not in known:
        return ""
    return f"less {host:.1f} us of the host, which a chain of nothing took"
