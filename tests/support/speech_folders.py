"""Small folders as on the hub: a Whisper, a draft with the same encoder, one with its
own encoder, a draft with a reduced vocabulary, and recordings."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from specjax import checkpoints
from specjax.checkpoints import reduced_vocab
from specjax.models import whisper
from specjax.models.reduced_vocab import Reduction
from specjax.speech import logmel
from specjax.speech.tokens import STEPS
from tests.support import tiny_whisper

WORDS = 40  # ids of text
NAMES = "endoftext startoftranscript en de translate transcribe startoflm".split()
NAMES += ["startofprev", "nospeech", "notimestamps"]
FIRST = WORDS + len(NAMES)
SIZES = dict(bands=4, frames=300, positions=40)
TARGET = whisper.Config(FIRST + STEPS + 1, 16, 64, 1, 2, 2, **SIZES)
DRAFT = TARGET._replace(decoder_layers=1)
SAID = np.delete(np.arange(TARGET.vocab), np.arange(1, WORDS, 4))  # of a draft


def weights(config: whisper.Config, seed: int):
    """Returns random weights, whose texts have many words and a few times."""
    params = jax.tree.map(np.array, tiny_whisper.weights(config, seed))
    params["decoder"]["norm"]["scale"] /= np.float32(1.5)
    params["decoder"]["embedding"][FIRST:] *= 0.3  # times are many
    return params


def make_noisy_draft(params, config: whisper.Config, seed: int):
    """Returns a draft: the first layer with noise added, and the same encoder."""
    decoder = {k: v for k, v in params["decoder"].items() if k != "layers_1"}
    noise = weights(config, seed)["decoder"]
    mixed = jax.tree.map(lambda a, b: np.float32(0.9 * a + 0.1 * b), decoder, noise)
    return {"encoder": params["encoder"], "decoder": mixed}


def tokenizer(file: Path) -> None:
    """Writes a tokenizer with a word for each id, w0 w1 ..., and Whisper's special
    tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    vocab = {f" w{i}": i for i in range(WORDS)}
    names = [f"<|{name}|>" for name in NAMES]
    vocab |= {name: WORDS + i for i, name in enumerate(names)}
    made_of = models.WordLevel(vocab, unk_token=" w0")
    backend = Tokenizer(made_of)
    before = Regex(" w")
    backend.pre_tokenizer = pre_tokenizers.Split(before, "merged_with_next")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(names)
    backend.save(str(file))


def folders(place: Path) -> dict[str, str]:
    """Writes the folders and returns their names: "target"; "draft", which shares its
    encoder; "apart", which has its own; and "few", a file of the draft with the ids
    `SAID`."""
    target = weights(TARGET, 3)
    draft = make_noisy_draft(target, DRAFT, 7)
    apart = make_noisy_draft(target, DRAFT, 8) | {
        "encoder": weights(DRAFT, 9)["encoder"]
    }
    models = {"target": (TARGET, target), "draft": (DRAFT, draft)}
    models["apart"] = DRAFT, apart
    for name, model in models.items():
        checkpoints.save(place / name, model)
        if name == "target":
            tokenizer(place / name / "tokenizer.json")
        else:
            shutil.copy(place / "target" / "tokenizer.json", place / name)
        told = {"is_multilingual": True, "max_initial_timestamp_index": 50}
        told |= {"suppress_tokens": [1, *range(WORDS + 1, FIRST - 1)]}
        told |= {"begin_suppress_tokens": [5, WORDS]}
        told |= {"eos_token_id": WORDS, "decoder_start_token_id": WORDS + 1}
        (place / name / "generation_config.json").write_text(json.dumps(told))
    decoder = {**draft["decoder"], "embedding": target["decoder"]["embedding"][SAID]}
    sizes = DRAFT._replace(vocab=SAID.size)
    few = place / "few.safetensors"
    reduced_vocab.save(few, Reduction(sizes, {"decoder": decoder}, SAID))
    return {name: str(place / name) for name in models} | {"few": str(few)}


def sound(seconds: float, seed: int = 0) -> np.ndarray:
    """Returns noise with a varying loudness and pitch."""
    rng = np.random.default_rng(seed)
    time = np.arange(round(seconds * logmel.RATE)) / logmel.RATE
    tone = np.sin(2 * np.pi * (300 + 200 * np.sin(time)) * time)
    loud = 0.2 + 0.1 * np.sin(3 * time + seed)
    return np.float32(loud * (tone + 0.3 * rng.standard_normal(time.size)))


class Ears:
    """Replaces the detector of speech.

    size: of its chunks. likely: the chunks that it has heard -> how likely the last is
    speech.
    """

    def __init__(self, size: int, likely: Callable[[list], float]):
        self.size, self.likely = size, likely

    def reset(self):
        self.heard = []

    def chunk_samples(self) -> int:
        return self.size

    def process_samples(self, samples) -> float:
        self.heard.append(samples)
        return float(self.likely(self.heard))
