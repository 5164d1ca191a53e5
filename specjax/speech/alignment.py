"""Times of the tokens of a text, from the attention heads that follow the sound.

Some heads of Whisper's decoder attend to the place where the next token is spoken; a
checkpoint names them. One call over the finished text gives their weights, and the best
monotonic path through these gives a time to each token, as in OpenAI's own
transcription (https://github.com/openai/whisper, `timing.py`). Axes: B rows, A heads, T
tokens, S states of the encoder, V vocabulary."""

import functools
import reprlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.stages import Wrapped
from scipy.ndimage import median_filter
from scipy.special import softmax

from specjax import zoo
from specjax.models import whisper
from specjax.speech.pair import Listeners, folder
from specjax.speech.tokens import CONFIG, GENERATION
from specjax.tokenizers.folder import read_json

HEADS = "alignment_heads"
WIDTH = 7  # states, of the median
Heads = tuple[tuple[int, int], ...]  # of a layer and a head of it


def heads(pair: Listeners) -> Heads:
    """Returns the attention heads that the target's checkpoint names for alignment.

    They stand in generation_config.json or, for CTranslate2, in config.json. Raises
    ValueError where there are none, or other numbers."""
    place, config = folder(pair.target), pair.config
    files = (read_json(place / name).get(HEADS) for name in (GENERATION, CONFIG))
    entries = next(filter(None, files), None)
    if entries is None and place.is_relative_to(zoo.FOLDER):
        raise ValueError(
            f"{pair.target.name} is bundled without alignment heads, so its words have"
            " no times: use --target whisper-base, fetched by `specjax fetch"
            " whisper-base`"
        )
    if entries is None:
        raise ValueError(
            f"{pair.target.name} does not name the heads that follow the sound, so its"
            f" words have no times: put a {GENERATION} with its {HEADS} into {place}"
        )
    most = config.decoder_layers, config.num_heads
    try:
        pairs = tuple((int(layer), int(head)) for layer, head in entries)
        good = all(0 <= x < most[0] and 0 <= y < most[1] for x, y in pairs)
    except (TypeError, ValueError):
        good = False
    if not good:
        raise ValueError(
            f"{place}: {HEADS} are {reprlib.repr(entries)}: write pairs of a layer"
            f" below {most[0]} and a head below {most[1]}"
        )
    return pairs


@functools.lru_cache(maxsize=8)
def program(config: whisper.Config, heads: Heads) -> Wrapped:
    """Returns a jitted function of params, states [B, S, E], texts [B, T] and text [V]
    bool.

    text says which ids are text. It returns the scores of the heads before softmax [B,
    A, T, S], and the probability of each token but the first among the ids that are
    text [B, T - 1]."""

    def listen(params: Any, states: Array, texts: Array, text: Array) -> tuple:
        states = states.astype(config.dtype)
        features, scores = whisper.features_and_scores(config, params, states, texts)

        def token_probs(row: tuple[Array, Array]) -> Array:
            """Computes one row at a time, because logits are large."""
            logits = whisper.readout(config, params, row[0][:-1])
            law = jax.nn.softmax(jnp.where(text, logits, -jnp.inf))
            return jnp.take_along_axis(law, row[1][1:, None], 1)[:, 0]

        chosen = [scores[layer][:, head] for layer, head in heads]
        return jnp.stack(chosen, 1), jax.lax.map(token_probs, (features, texts))

    return jax.jit(listen)


def token_starts(scores: np.ndarray, head: int) -> np.ndarray:
    """Returns the state at which each token begins, and the one where the last token
    ends, [N + 1].

    scores: [A, T, S] of a text of `head` tokens, N more, and an end. A token is spoken
    where the token before it attends. The weights of a state are normalized over the
    tokens, and smoothed by a median over neighbouring states."""
    weights = softmax(scores, axis=-1)
    spread = np.maximum(weights.std(1, keepdims=True), np.finfo(np.float32).tiny)
    weights = (weights - weights.mean(1, keepdims=True)) / spread
    weights = median_filter(weights, (1, 1, WIDTH), mode="mirror")
    return cheapest_path(-weights.mean(0)[head - 1 : -1])


def cheapest_path(cost: np.ndarray) -> np.ndarray:
    """Returns the column [N] at which the cheapest path through `cost` [N, M] enters
    each row.

    A step goes to the next row, the next column, or both (dynamic time warping, Sakoe
    and Chiba, 1978). Diagonals are filled one after the other."""
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0.0
    for both in range(2, rows + columns + 1):
        i = np.arange(max(1, both - columns), min(rows, both - 1) + 1)
        j = both - i
        straight = np.minimum(total[i - 1, j], total[i, j - 1])
        total[i, j] = cost[i - 1, j - 1] + np.minimum(straight, total[i - 1, j - 1])
    entered, i, j = np.zeros(rows, int), rows, columns
    while i:
        entered[i - 1] = j - 1
        across, up, left = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        if across < min(up, left):
            i, j = i - 1, j - 1
        elif up < min(across, left):
            i -= 1
        else:  # with equal costs the path stays in the row
            j -= 1
    return entered
