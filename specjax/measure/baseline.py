"""The speed of the target alone in a record that reports a speedup.

A speedup is a ratio, and the same pair gains twice as much on one machine as on
another. The milliseconds per token of the target alone tell such machines apart.
"""

from collections.abc import Mapping


def token_ms(measured: Mapping) -> float | None:
    """Returns the milliseconds per token that the target alone takes for whole texts.

    Args:
      measured: the numbers of a record, of any kind of row.

    Returns:
      None for a row that decodes nothing with the target alone, or times nothing.
    """
    for name in ("token_ms_alone", "token_ms"):  # Chen's rows, rows of paper size
        if isinstance(measured.get(name), float):
            return measured[name]
    rate = measured.get("tokens_per_second")
    if isinstance(rate, Mapping) and rate.get("alone"):
        return 1e3 / rate["alone"]
    gammas, seconds = measured.get("gamma"), measured.get("seconds")
    if isinstance(gammas, list) and isinstance(seconds, list) and 0 in gammas:
        return 1e3 * seconds[gammas.index(0)] / measured["tokens"]
    return None
