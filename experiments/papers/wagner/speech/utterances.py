"""Recordings and their transcripts, from a folder of the user's own with a table.

`transcripts.tsv` has a head and a line for each recording: file, speaker, seconds,
transcript, split, separated by tabs. LibriSpeech, TED-LIUM and Common Voice can be
written in this form with a few lines of code; nothing of them is bundled.
"""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

TABLE = "transcripts.tsv"
HEAD = ("file", "speaker", "seconds", "transcript", "split")


class Utterances(NamedTuple):
    """Recordings and their transcripts.

    Attributes:
        files: the files of the recordings.
        references: the human transcript of each.
        seconds: as in the table.
        table: its path.
    """

    files: tuple[Path, ...]
    references: tuple[str, ...]
    seconds: tuple[float, ...]
    table: Path


def read(
    folder: str | Path, *, split: str = "", share: float = 1.0, seed: int = 0
) -> Utterances:
    """Returns the recordings of a folder, in the order of its table.

    Args:
        split: "" for all.
        share: the share of them, drawn by `seed`, at least one.

    Raises:
        ValueError: there is no table, a line has not all fields, no recording belongs
            to the split, or a file is missing.
    """
    table = Path(folder) / TABLE
    if not table.is_file():
        raise ValueError(
            f"no {table}: put recordings there, and a table of {', '.join(HEAD)}"
        )
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1; got {share}")
    lines = [line for line in _lines(table) if not split or line["split"] == split]
    if not lines:
        raise ValueError(f"{table} has no recording of the split {split!r}")
    count = max(1, round(share * len(lines)))
    chosen = np.random.default_rng(seed).permutation(len(lines))[:count]
    lines = [lines[i] for i in sorted(chosen)]
    files = tuple(table.parent / line["file"] for line in lines)
    absent = next((file for file in files if not file.is_file()), None)
    if absent is not None:
        raise ValueError(f"{table} names {absent.name}, which is not beside it")
    references = tuple(line["transcript"] for line in lines)
    return Utterances(files, references, tuple(map(_seconds, lines)), table)


def _lines(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8", newline="") as opened:
        lines = list(csv.DictReader(opened, delimiter="\t", quoting=csv.QUOTE_NONE))
    for number, line in enumerate(lines, start=2):
        if any(line.get(name) is None for name in HEAD) or None in line:
            raise ValueError(
                f"{table}, line {number}: want {len(HEAD)} fields parted by tabs,"
                f" {', '.join(HEAD)}, as its first line names them"
            )
    return lines


def _seconds(line: dict[str, str]) -> float:
    try:
        return float(line["seconds"])
    except ValueError:
        return float("nan")
