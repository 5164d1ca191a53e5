"""The drafted tokens that a run of Algorithm 1 tested, one by one.

A call tests drafts until it rejects one. A kept draft is the token of the text; in the
place of a rejected one the text has the token that was drawn instead. Both follow p
(Appendix A.1): they are the target's own tokens. The token that a call adds after a
draft that was kept whole was never tested. Axes: N sequences, B rows of a batch, M
generated tokens in all.
"""

from typing import NamedTuple

import jax
import numpy as np

from specjax.checkpoints import Pretrained
from specjax.drafts.source import DraftSource
from specjax.measure import lenience, scoring, texts
from specjax.measure.texts import Protocol, Text
from specjax.prompts import Prompts
from specjax.types import Info, Kernels, State

Pair = tuple[Pretrained, DraftSource]  # target, draft


class Call(NamedTuple):
    """A call of the target, [B]: the length of each text before it, and how many
    drafted tokens it tested and accepted.
    """

    length: np.ndarray
    tested: np.ndarray
    accepted: np.ndarray


class Tokens(NamedTuple):
    """The numbers of each generated token x, [M], one text after the other.

    Attributes:
        block: the position in its block of the draft that was tested there, from 1 on,
            0 where none was.
        kept: whether the text has that draft.
        alpha: sum_x min(p, q).
        expected: min(1, q(x) / p(x)).
        sequence: the text.
        place: the position among the generated tokens, from 0 on.
    """

    block: np.ndarray
    kept: np.ndarray
    alpha: np.ndarray
    expected: np.ndarray
    sequence: np.ndarray
    place: np.ndarray

    def select_tested(self) -> "Tokens":
        """Returns the tokens at which a drafted token was tested."""
        return Tokens(*(leaf[self.block > 0] for leaf in self))


def run(
    pair: Pair, prompts: Prompts, protocol: Protocol, kernels: Kernels
) -> tuple[Text, Tokens]:
    """Writes texts by speculation until they have `protocol.tokens` tokens, and returns
    them with the numbers of every token.
    """
    starts, totals, blocks, written = [], [], [], 0
    log: list[Call] = []  # what each step decided on

    def record_step(running: np.ndarray, state: State, info: Info) -> None:
        before = np.array(state.length) - np.asarray(info.emitted)
        log.append(Call(before, np.asarray(info.tested), np.asarray(info.accepted)))

    count = texts.max_sequences(prompts, protocol)
    for prompt, calls in texts.decode(
        pair, prompts, count, protocol, kernels=kernels, seen=record_step
    ):
        starts.append(Text(prompt.tokens, prompt.length, prompt.length, prompt.inputs))
        totals.append(calls)
        blocks += match_calls(log, np.asarray(prompt.length), calls.tokens)
        log.clear()
        written += int(calls.tokens.sum())
        if written >= protocol.tokens:
            break
    calls = texts.join_calls(totals, count)
    prompted = jax.tree.map(lambda leaf: leaf[:count], texts.join(starts))
    text = lenience.outputs(prompted, calls)
    return text, score_tokens(pair, text, blocks[:count], protocol)


def match_calls(log: list[Call], start: np.ndarray, tokens: np.ndarray) -> list:
    """Returns (block, kept) of each text, two arrays of its length, from the calls that
    wrote it.

    Results of a call beyond the end of a text are left out.

    Args:
        start: [B], where each text begins.
        tokens: [B], the number of its tokens.
    """
    texts = [(np.zeros(n, np.int32), np.zeros(n, bool)) for n in tokens]
    for call in log:
        for row, (block, kept) in enumerate(texts):
            first = call.length[row] - start[row]
            for i in range(min(call.tested[row], len(block) - first)):
                block[first + i] = i + 1
                kept[first + i] = i < call.accepted[row]
    return texts


def score_tokens(pair: Pair, text: Text, blocks: list, protocol: Protocol) -> Tokens:
    """Returns each token with the numbers of one pass of both models.

    Args:
        blocks: as `match_calls` returns them.
    """
    filters = protocol.decode.truncation()
    scores = scoring.score(*pair, text, protocol.decode.temperature, **filters)
    block, kept = (np.concatenate(leaf) for leaf in zip(*blocks, strict=True))
    # A token of probability 0 is one that rounding alone lets through.
    p, q = scores.p.astype(np.float64), scores.q.astype(np.float64)
    share = np.divide(q, p, out=np.zeros_like(p), where=p > 0)
    # P(x is drafted and kept) / P(x is in the text) = min(p, q) / p (Appendix A.1).
    expected = np.minimum(1.0, share)
    place = np.concatenate([np.arange(len(row)) for row, _ in blocks])
    alpha = scores.beta.astype(np.float64)  # Corollary 3.6
    return Tokens(block, kept, alpha, expected, scores.sequence, place)
