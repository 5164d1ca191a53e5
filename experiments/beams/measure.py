"""The calls and the time that drafts save in beam search, by width.

Leviathan et al. (2023), Appendix A.4, describe the method and leave its numbers to
later work. Every text is searched by itself at each width, plainly and with drafted
beams, in turns, and both must find the same. Numbers of width w end in _w:

- `calls`: of the target with a draft, `alone` without, sums over the texts;
- `share`: the former over the latter;
- `differing`: the number of texts of which any beam is another, as rounding makes it
  where two scores are nearly equal;
- `ms`: milliseconds of a call of the target and all that belongs to it, its draft among
  them, `ms_alone` without a draft; encoders of sound are left out of both;
- `speed`: how many times as fast texts are with a draft, encoders included.

Errors are over texts, and times are the medians of the rounds.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from specjax.beam.settings import BeamConfig, check
from specjax.runtime import progress
from specjax.theory.estimate import nan_to_none, ratio


class BeamSetting(NamedTuple):
    """The setting of a row that times beam search.

    widths: w, of each search. times: drafted beams of a level for each beam of the
    target, u / w. gamma, length_penalty, early_stopping: see `BeamConfig`. new_tokens:
    of a text, at most. texts: how many of a task are searched. rounds: how often each
    is timed, after a first time that is not.
    """

    widths: tuple[int, ...] = (1, 2, 4, 8)
    times: int = 2
    gamma: int = 4
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    new_tokens: int = 64
    texts: int = 16
    rounds: int = 2

    def search(self, width: int) -> BeamConfig:
        """Returns the settings of the search of a width."""
        return BeamConfig(
            width=width,
            gamma=self.gamma,
            draft_width=self.times * width,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
        )


class SearchResult(NamedTuple):
    """The result of a beam search for one text.

    ids: the tokens of each beam, the best beam first. calls: how often the target was
    called. seconds: the time of prefill and decoding. encoding: the part of these
    seconds that the encoder of a Whisper took.
    """

    ids: list
    calls: int
    seconds: float
    encoding: float = 0.0


# (index of a text, settings of a search, whether it has a draft) -> the search.
Search = Callable[[int, BeamConfig, bool], SearchResult]
WAYS = (False, True)  # whether a search has a draft


def check_setting(setting: BeamSetting) -> None:
    """Raises ValueError for a setting that no search can have."""
    counts = setting.gamma, setting.times, setting.texts, setting.rounds
    if not setting.widths or min(counts) < 1:
        raise ValueError("widths, times, gamma, texts and rounds must be at least 1")
    for width in setting.widths:
        check(setting.search(width))


def compare(search: Search, setting: BeamSetting, *, texts: int) -> dict:
    """Searches `texts` texts without and with a draft, at each width, and returns every
    number of the row's record as a plain value."""
    rounds = [
        search_all(search, setting, texts=texts, label=f"round {turn}")
        for turn in range(setting.rounds + 1)
    ]
    numbers = {"texts": texts}
    for width in setting.widths:
        plain, drafted = (
            [[turn[width, way, i] for i in range(texts)] for turn in rounds]
            for way in WAYS
        )
        at_width = compare_searches(plain, drafted)
        numbers |= {f"{name}_{width}": x for name, x in at_width.items()}
    return setting._asdict() | numbers


def search_all(
    search: Search, setting: BeamSetting, *, texts: int, label: str
) -> dict[tuple[int, bool, int], SearchResult]:
    """Returns one search for each width, way and text; searches that are compared
    follow each other in time."""
    return {
        (width, way, i): search(i, setting.search(width), way)
        for i in progress.track(range(texts), label)
        for width in setting.widths
        for way in WAYS
    }


def compare_searches(
    plain: list[list[SearchResult]], drafted: list[list[SearchResult]]
) -> dict:
    """Returns the numbers of one width. plain, drafted: the searches [R + 1][N] of N
    texts, of which the first N are a warm-up."""
    calls, alone = (np.array([one.calls for one in way[0]]) for way in (drafted, plain))
    share = ratio(calls, alone)
    speed = ratio(text_seconds(plain), text_seconds(drafted))
    pairs = zip(plain[0], drafted[0], strict=True)
    return {
        "calls": int(calls.sum()),
        "alone": int(alone.sum()),
        "share": share.value,
        "share_se": nan_to_none(share.se),
        "differing": sum(a.ids != b.ids for a, b in pairs),
        "ms": 1e3 * float(decoding_seconds(drafted).sum() / calls.sum()),
        "ms_alone": 1e3 * float(decoding_seconds(plain).sum() / alone.sum()),
        "speed": speed.value,
        "speed_se": nan_to_none(speed.se),
    }


def text_seconds(rounds: list[list[SearchResult]]) -> np.ndarray:
    """Returns the median over the timed rounds of the seconds of each text, [N]."""
    return np.median([[one.seconds for one in turn] for turn in rounds[1:]], axis=0)


def decoding_seconds(rounds: list[list[SearchResult]]) -> np.ndarray:
    """Returns `text_seconds` without the time of an encoder of sound."""
    each = [[one.seconds - one.encoding for one in turn] for turn in rounds[1:]]
    return np.median(each, axis=0)
