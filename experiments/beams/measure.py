"""The calls of the target that beam search takes with a draft and without, by width.

Leviathan et al. (2023), Appendix A.4, describe the method and leave its numbers to
later work. Texts are searched twice at each width, plainly and with drafted beams, and
both must find the same. Numbers of width w end in _w:

- `calls`: of the target with a draft, `alone` without, sums over the texts;
- `share`: the former over the latter;
- `differing`: the number of texts of which any beam is another, as rounding makes it
  where two scores are nearly equal.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specjax import beam, zoo
from specjax.beam.settings import BeamConfig, check
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig
from specjax.drafts import pair as open_pair
from specjax.drafts.source import DraftLike, check_pair, pair_files
from specjax.measure.pairs import Read
from specjax.measure.row import Measurement
from specjax.pretrained import files_of
from specjax.prompts import Prompts
from specjax.speech import beams, sequential, transcripts
from specjax.speech.pair import Listeners, load_pair
from specjax.speech.sequential import Options
from specjax.text.programs import Pair

BUNDLED = zoo.FOLDER / "speech" / "speech.flac"


class BeamSetting(NamedTuple):
    """The setting of a row.

    widths: w, of each search. times: drafted beams of a level for each beam of the
    target, u / w. gamma, length_penalty, early_stopping: see `BeamConfig`. new_tokens:
    of a text, at most. texts: how many of a task are searched. batch: texts at a time.
    """

    widths: tuple[int, ...] = (1, 2, 4, 8)
    times: int = 2
    gamma: int = 4
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    new_tokens: int = 64
    texts: int = 32
    batch: int = 8

    def search(self, width: int) -> BeamConfig:
        """Returns the settings of the search of a width."""
        return BeamConfig(
            width=width,
            gamma=self.gamma,
            draft_width=self.times * width,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
        )


class Searched(NamedTuple):
    """The tokens of every beam of every text, and the calls that they took."""

    ids: list
    calls: int


# (settings of a search, whether it has a draft) -> what it found.
Search = Callable[[BeamConfig, bool], Searched]


def text_row(
    target: Pretrained,
    draft: DraftLike,
    *,
    task: str,
    read: Read,
    setting: BeamSetting,
) -> Measurement:
    """Returns the measurement of a pair of texts.

    Args:
        target, draft: M_p and M_q; the draft is a model.
        task, read: the name of a task, and how a task of that name is read.
        setting: of the row.

    Raises:
        ValueError: the pair or the setting cannot search.
    """
    check_setting(setting)
    pair = open_pair(target, draft)
    check_pair(*pair, with_alpha=False)
    about = read(task, target)
    run = partial(compare, partial(search_texts, pair, about.prompts, setting), setting)
    files = *pair_files(*pair), *about.files
    return Measurement(run, __name__, files, target.dtype)


def speech_row(
    target: Pretrained,
    draft: Pretrained,
    *,
    setting: BeamSetting,
    recordings: Sequence[str | Path] = (BUNDLED,),
) -> Measurement:
    """Returns the measurement of a pair of Whispers, on the first window of each
    recording. Args and Raises as `text_row`; new_tokens of the setting is not read.
    """
    check_setting(setting)
    pair = load_pair(target, draft)
    files = tuple(map(Path, recordings))
    run = partial(compare, partial(search_speech, pair, files, setting), setting)
    inputs = *files_of(target), *files_of(draft), *files
    return Measurement(run, __name__, inputs, target.dtype)


def check_setting(setting: BeamSetting) -> None:
    """Raises ValueError for a setting that cannot search."""
    if not setting.widths or min(setting.gamma, setting.times, setting.batch) < 1:
        raise ValueError("widths, times, gamma and batch must be at least 1")
    for width in setting.widths:
        check(setting.search(width))


def compare(search: Search, setting: BeamSetting) -> dict:
    """Returns every number of a row as a plain value."""
    numbers: dict = {}
    for width in setting.widths:
        config = setting.search(width)
        plain, drafted = search(config, False), search(config, True)
        pairs = zip(plain.ids, drafted.ids, strict=True)
        numbers |= {
            f"calls_{width}": drafted.calls,
            f"alone_{width}": plain.calls,
            f"share_{width}": drafted.calls / plain.calls,
            f"differing_{width}": sum(a != b for a, b in pairs),
        }
    return setting._asdict() | numbers | {"texts": len(plain.ids)}


def search_texts(
    pair: Pair,
    prompts: Prompts,
    setting: BeamSetting,
    config: BeamConfig,
    has_draft: bool,
) -> Searched:
    """Searches the first texts of a task, a batch at a time."""
    target, draft = pair
    read = prompts.tokens if prompts.inputs is None else prompts.inputs
    each = [list(map(int, ids)) for ids in read[: setting.texts]]
    made = [
        beam.generate_beams(
            target,
            draft if has_draft else None,
            each[i : i + setting.batch],
            best=config.width,
            new_tokens=setting.new_tokens,
            **config._asdict(),
        )
        for i in range(0, len(each), setting.batch)
    ]
    ids = [beams for batch in made for beams in batch.ids]
    return Searched(ids, sum(batch.calls for batch in made))


def search_speech(
    pair: Listeners,
    files: Sequence[Path],
    setting: BeamSetting,
    config: BeamConfig,
    has_draft: bool,
) -> Searched:
    """Searches the first window of each recording; of each its best text is kept."""
    size, spent = pair.config.frames, list[beams.Spent]()
    sounds = [transcripts.frames(file, pair.config.bands)[0] for file in files]
    windows = [sequential.cut_window(sound, 0, size) for sound in sounds]
    using = pair if has_draft else pair._replace(draft=None, shared=False)
    decode = beams.build(using, DecodeConfig(), config, on_batch=spent.append)
    head = Options().prompt(pair.tokens)
    ids: list = []
    for i in range(0, len(windows), setting.batch):
        some = np.stack(windows[i : i + setting.batch])
        ids += decode(some, [head] * len(some), np.zeros(len(some))).tokens
    return Searched(ids, sum(batch.calls for batch in spent))
