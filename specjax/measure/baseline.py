"""How fast the target alone was where a speed was measured.

A speed is a ratio, and the same pair gains twice as much on one machine as on another.
Milliseconds a token of the target alone tell such machines apart.
"""

from collections.abc import Mapping


def token_ms(measured: Mapping) -> float | None:
    """Milliseconds a token of decoding with the target alone, in whole texts.

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
