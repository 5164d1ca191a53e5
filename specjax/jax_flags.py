"""Which of JAX's flags this library runs under.

`jax_enable_x64` and `jax_disable_jit` change no text, and the flags that debug none.
Types and ranks are promoted as NumPy does, which the two flags here forbid.
"""

import jax

REFUSED = {
    "jax_numpy_dtype_promotion": ("strict", "standard"),
    "jax_numpy_rank_promotion": ("raise", "allow"),
}


def check() -> None:
    """Raises ValueError, in one line, for a flag that nothing here runs under."""
    for flag, (value, instead) in REFUSED.items():
        if getattr(jax.config, flag) == value:
            raise ValueError(
                f"{flag} is {value!r}, and specjax promotes as NumPy does:"
                f" jax.config.update({flag!r}, {instead!r})"
            )
