"""How well a pair hears what was held out, and what is kept beside its weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from experiments.tasks import word_errors
from experiments.training.drafts import written
from experiments.training.voices import sentences, synthesis
from experiments.training.voices.examples import Rows
from specjax.checkpoints import huggingface, names_whisper
from specjax.models.whisper import Config

RECORDING = "call seven three nine one meet me at gate two".split()
SEED, MOST = 7, 5_000_000_000  # bytes of a file
NAMES = ("speech.flac", "speech.txt")
AROUND = sentences.START, (sentences.END,)


def texts(tokens: np.ndarray, length: np.ndarray) -> list[str]:
    rows = (row[:count] for row, count in zip(tokens, length, strict=True))
    pieces = ([sentences.PIECES[i] for i in row if i < sentences.END] for row in rows)
    return ["".join(row).strip() for row in pieces]


def scores(
    held_out: Rows, lessons: written.Lessons, config: Config, draft: Any
) -> dict[str, Any]:
    """Word errors of the target at T = 0, and the alphas of its draft.

    Whisper's normalizer for English would make one number of a string of digits: words
    count as they are.
    """
    heard = lessons.held_out["t0"].texts
    spoken = texts(held_out.tokens, held_out.length)
    errors = word_errors.score(spoken, texts(heard.tokens, heard.length), "words")
    alphas = written.accepted(config, draft, lessons.held_out)
    return {"word_errors": errors._asdict(), **alphas}


def record(folder: Path) -> None:
    rng = np.random.default_rng(SEED)
    speech = synthesis.say(RECORDING, synthesis.Speaker(slow=0.75), rng)
    soundfile.write(folder / NAMES[0], speech.samples, synthesis.RATE, subtype="PCM_16")
    (folder / NAMES[1]).write_text(" ".join(RECORDING) + "\n")


def export(
    folder: Path, config: Config, params: Any, around: tuple[int, tuple[int, ...]]
) -> None:
    """A folder of Hugging Face, with what tells its tokens apart."""
    huggingface.save(folder, names_whisper, (config, params), around, MOST)
    (folder / "tokenizer.json").write_text(sentences.tokenizer())
    generation = {
        "is_multilingual": False,
        "decoder_start_token_id": around[0],
        "eos_token_id": around[1][0],
        "pad_token_id": around[1][0],
        "no_timestamps_token_id": sentences.MUTE,
    }
    text = json.dumps(generation, indent=1) + "\n"
    (folder / "generation_config.json").write_text(text)
