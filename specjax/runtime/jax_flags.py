"""Which of JAX's flags this library runs under, and the one place that sets XLA's.

`jax_enable_x64` and `jax_disable_jit` change no text, and the flags that debug none;
nor do those that change what JAX draws, as `specjax.keys` makes every key. Types and
ranks are promoted as NumPy does, which two flags here forbid, and JAX's own check for
NaN within programs fails under vmap. XLA's flags are those of XLA_FLAGS and of a word
in SPECJAX_XLA; every record says which were set.
"""

import os

import jax

PROMOTES, UNDER_VMAP = "promotes as NumPy does", "works by row, where JAX cannot check"
REFUSED = {
    "jax_numpy_dtype_promotion": ("strict", "standard", PROMOTES),
    "jax_numpy_rank_promotion": ("raise", "allow", PROMOTES),
    "jax_error_checking_behavior_nan": ("raise", "ignore", UNDER_VMAP),
}
VARIABLE = "SPECJAX_XLA"
# Flags of XLA by a word. None is the default: no device has shown yet that they help.
SETS = {
    # Loops lie in CUDA graphs, of which one kernel makes one: a step is a single graph
    # where its loops know their ends.
    "graphs": (
        "--xla_gpu_enable_command_buffer=+WHILE",
        "--xla_gpu_graph_min_graph_size=1",
    ),
}


def set_xla() -> None:
    """Puts the flags that SPECJAX_XLA names before those of XLA_FLAGS, which overrule
    them. XLA reads them once, at JAX's first use: later they stay as they are, and
    `check` says so."""
    from jax._src import xla_bridge  # no public name yet

    flags = SETS.get(os.environ.get(VARIABLE, ""), ())
    missing = [flag for flag in flags if flag not in xla()]
    if missing and not xla_bridge.backends_are_initialized():
        os.environ["XLA_FLAGS"] = " ".join([*missing, *xla()])


def xla() -> list[str]:
    """The flags of XLA that this process runs under."""
    return os.environ.get("XLA_FLAGS", "").split()


def check() -> None:
    """Raises ValueError, in one line, for a flag that nothing here runs under, or for a
    word in SPECJAX_XLA that names no flags or came too late."""
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
    if word and not set(SETS[word]).issubset(xla()):
        raise ValueError(
            f"{VARIABLE}={word} was read after JAX's first use: set it for the process,"
            " and import specjax before JAX computes"
        )
