"""The memory and the time that a measurement will need, announced before it starts."""

import sys
import time

import jax

from specjax.checkpoints.memory import GB, available
from specjax.measure import costs, timing, walltime
from specjax.prompts import Prompts
from specjax.runtime import console

# What is compiled, in times of the program of whole texts: for every gamma that one,
# and target calls, drafts and prefills at half of it; then to write, score, estimate.
PROGRAMS, BESIDE = 2.5, 6


def check(
    pair: costs.Pair, prompts: Prompts, setting: walltime.WalltimeSetting
) -> None:
    """Raises ValueError, in one line, if a measurement needs more memory than is
    free."""
    most, prompt = max(setting.gammas), walltime.first_batch(prompts, setting).prompt
    needed = costs.memory(pair, most, prompt)
    beyond = needed - costs.count_bytes(pair.params(most))  # which are read
    free, where = available(jax.local_devices()[0])
    if free is not None and beyond > free:
        raise ValueError(
            f"needs {needed / GB:.1f} GB of {where}, {beyond / GB:.1f} of it beside the"
            f" weights, and {free / GB:.1f} GB are free: take a smaller batch, fewer"
            " tokens, or smaller gammas"
        )


def announce(
    pair: costs.Pair, prompts: Prompts, setting: walltime.WalltimeSetting
) -> None:
    """Prints the memory that is needed, and after a short run the expected minutes."""
    prompt, request = walltime.first_batch(prompts, setting)
    needed = costs.memory(pair, max(setting.gammas), prompt) / 2**20
    say(f"needs about {needed:,.0f} MiB for weights, caches and laws")
    with console.announce("Compiling and decoding a first text"):
        start = time.monotonic()
        run = costs.decode(pair, 0)
        jax.block_until_ready(run(prompt, request))
        compiled = time.monotonic() - start
        jax.block_until_ready(run(prompt, request))
        once = time.monotonic() - start - compiled
    say(f"expects about {seconds(setting, compiled, once) / 60:.1f} minutes")


def seconds(
    setting: walltime.WalltimeSetting, first_seconds: float, later_seconds: float
) -> float:
    """Returns the expected seconds of the whole measurement.

    first_seconds: seconds of a first decoding, with compilation. later_seconds: seconds
    of another one, without a draft; one with a draft is assumed to take the same.
    """
    gammas = len(setting.gammas)
    programs = gammas * PROGRAMS + BESIDE
    texts = (setting.texts + setting.others) / setting.batch
    # Target calls and drafts apart, by a text's seconds for so many tokens.
    apart = 2 * timing.SAMPLES * timing.LOOPS / setting.decode.new_tokens
    return (
        programs * first_seconds
        + gammas * setting.rounds * (texts + apart) * later_seconds
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
