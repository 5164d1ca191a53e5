"""The flags of JAX that this library supports, and the one place that sets XLA's flags.

`jax_enable_x64`, `jax_disable_jit` and the debugging flags change no text. Nor do the
flags that change JAX's random draws, because `specjax.keys` makes every key. Types and
ranks are promoted as NumPy does, which two flags in `REFUSED` forbid, and JAX's own
check for NaN within programs fails under vmap. XLA's flags are those of XLA_FLAGS and
those of a word in SPECJAX_XLA; every record holds the flags that were set."""

import os

import jax

PROMOTES = "promotes types and ranks as NumPy does"
UNDER_VMAP = "runs under vmap, where JAX cannot check for NaN"
REFUSED = {
    "jax_numpy_dtype_promotion": ("strict", "standard", PROMOTES),
    "jax_numpy_rank_promotion": ("raise", "allow", PROMOTES),
    "jax_error_checking_behavior_nan": ("raise", "ignore", UNDER_VMAP),
}
VARIABLE = "SPECJAX_XLA"
# Flags of XLA by a word. None of them is set by default: no measurement has shown yet
# that they help.
SETS = {
    # Loops lie in CUDA graphs, of which one kernel makes one: a step is a single graph
    # where its loops know their ends.
    "graphs": (
        "--xla_gpu_enable_command_buffer=+WHILE",
        "--xla_gpu_graph_min_graph_size=1",
    ),
}


def set_xla() -> None:
    """Puts the flags of SPECJAX_XLA before those of XLA_FLAGS, which override them.

    XLA reads its flags once, at JAX's first use. If that has happened, they stay as
    they are, and `check` reports it."""
    from jax._src import xla_bridge  # no public name yet

    flags = SETS.get(os.environ.get(VARIABLE, ""), ())
    missing = [flag for flag in flags if flag not in xla_flags()]
    if missing and not xla_bridge.backends_are_initialized():
        os.environ["XLA_FLAGS"] = " ".join([*missing, *xla_flags()])


def xla_flags() -> list[str]:
    """Returns the flags of XLA that this process runs with."""
    return os.environ.get("XLA_FLAGS", "").split()


def check() -> None:
    """Raises ValueError, in one line, for a flag that this library does not support.

    It also does for a word in SPECJAX_XLA that names no flags, or that was read too
    late."""
    for flag, (value, instead, why) in REFUSED.items():
        if jax.config.values.get(flag) == value:
            raise ValueError(
                f"{flag} is {value!r}, and specjax {why}:"
                f" jax.config.update({flag!r}, {instead!r})"
            )
    word = os.environ.get(VARIABLE)
    if word and word not in SETS:
        raise ValueError(
            f"{VARIABLE}={word} names no flags of XLA: choose one of"
            f" {', '.join(SETS)}, or write flags in XLA_FLAGS"
        )
    if word and not set(SETS[word]).issubset(xla_flags()):
        raise ValueError(
            f"{VARIABLE}={word} was read after JAX's first use: set it for the process,"
            " and import specjax before JAX computes"
        )
