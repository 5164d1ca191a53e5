"""Trains the bundled speech models again, in an hour on a CPU.

    python -m experiments.training.zoo_speech
    python -m experiments.training.zoo_speech --recordings FOLDER

The stages, each resumable and skipped when done, are windows of synthesised speech; a
Whisper with one decoder layer, on short windows, then on whole ones; the target, grown
from it; the texts that it writes; the draft, distilled on them behind the target's own
encoder. The results in `runs/speech_zoo` go into the package. With recordings of digits
the pair continues to learn from them, and goes to `runs/speech` in Hugging Face's
format, not into the package, because the recordings' licence would apply to it.

The target also learns which letter is spoken when, beside the text, so that its encoder
is soon worth attending to. The draft uses the target's encoder unchanged, as in
Distil-Whisper (Gandhi et al. 2023, https://arxiv.org/abs/2311.00430). Axes: B rows, L
tokens, S states of the encoder, E features.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from safetensors.numpy import load_file, save_file

from experiments.tasks import word_errors
from experiments.training import pipeline
from experiments.training.drafts import lessons as learning
from experiments.training.drafts.lessons import Lessons
from experiments.training.pipeline import Data, Stage
from experiments.training.voices import examples, recorded, sentences, synthesis
from experiments.training.voices.examples import Rows
from specjax import checkpoints, zoo
from specjax.checkpoints import Pretrained, archive
from specjax.keys import root_key
from specjax.models import families, whisper
from specjax.models.whisper import Config
from specjax.training import forward, loop, storage, written
from specjax.training.written import Written
from specjax.types import Encoded, Prompt

LETTERS = 0.3  # weight of the letters, beside the text
MEASURED = 16  # rows of the batches that are measured on
RECORDING = "call seven three nine one meet me at gate two".split()
SEED = 7  # of the recording
Sides = tuple[Rows, Rows]  # what is learnt from, and what is held out
cross_entropy = optax.softmax_cross_entropy_with_integer_labels


def main() -> None:
    flags = {
        **pipeline.EXPORT,
        "--recordings": dict(type=Path, help="a folder of spoken digits"),
        "--folders": dict(type=Path, default=Path("runs/speech")),
    }
    options, recipe = pipeline.parse_flags(__doc__, "speech", "runs/speech_zoo", flags)
    runs = options.runs
    rows = windows(runs, recipe["windows"])
    data = {name: make_data(*parts) for name, parts in rows.items()}
    short, whole, deep, *_ = pipeline.stages(recipe)
    first = pipeline.run(runs, [short, whole], data)
    large = pipeline.run(runs, [short, whole, deep], data)
    if options.recordings is None:
        bundle(
            runs,
            options.export,
            first=first,
            large=large,
            rows=rows["whole"],
            recipe=recipe,
        )
    else:
        learn_on(
            runs / "recorded",
            options.recordings,
            folders=options.folders,
            first=first,
            large=large,
            recipe=recipe,
        )


def windows(runs: Path, counts: dict[str, int]) -> dict[str, Sides]:
    kinds = {"short": ("_short", examples.SHORT), "whole": ("", examples.WHOLE)}
    return {
        name: (
            examples.keep(
                runs / f"windows{end}.npz", seed=0, count=counts[name], window=window
            ),
            examples.keep(
                runs / f"held_out{end}.npz",
                seed=1,
                count=counts["held_out"],
                window=window,
            ),
        )
        for name, (end, window) in kinds.items()
    }


def bundle(
    runs: Path, export: Path, *, first: Any, large: Any, rows: Sides, recipe: dict
) -> None:
    """Trains the pair on synthesized speech, and writes its tokenizer, a recording and
    its recipe.
    """
    paths = [export / f"{name}.safetensors" for name in zoo.SPEECH_MODELS]
    deep, whole = (pipeline.config(recipe, name) for name in ("deep", "whole"))
    zoo.save(paths[0], deep, large, bits=8)
    target = checkpoints.load(paths[0])
    lessons, draft = train_draft(runs, first, target, rows, recipe)
    zoo.save(paths[1], whole, draft, bits=8)
    # The very numbers of one file's encoder in the other: rounded again, the last digit
    # of a scale would differ, and the two would not be known for the same.
    stored = load_file(paths[1]), load_file(paths[0])
    encoder = {k: v for k, v in stored[1].items() if k.startswith("encoder/")}
    save_file(stored[0] | encoder, paths[1], archive.metadata(paths[1]))
    (export / "speech").mkdir(exist_ok=True)
    (export / "speech" / "tokenizer.json").write_text(sentences.tokenizer())
    record(export / "speech")
    found = scores(rows[1], lessons, whole, checkpoints.load(paths[1]).params)
    path, text = export / "speech_recipes.json", "synthesised by training/voices"
    pipeline.save(path, runs, recipe, text=text, held_out=found)


def train_draft(
    runs: Path, first: Any, target: Pretrained, rows: Sides, recipe: dict
) -> tuple[Lessons, Any]:
    """Returns the training data and the weights of the draft, which starts from the
    decoder that the target grew from, on the target's encoder.
    """
    lessons = write_lessons(runs / "texts", target, *rows, recipe["written"])
    begun = {"decoder": first["decoder"], "encoder": target.params["encoder"]}
    data = {"lessons": learning.data(lessons)}
    return lessons, pipeline.run(
        runs, pipeline.stages(recipe, "draft"), data, first=begun
    )


def learn_on(
    runs: Path, recordings: Path, *, folders: Path, first: Any, large: Any, recipe: dict
) -> None:
    """Trains the same pair on strings of recorded digits, and writes folders of Hugging
    Face.
    """
    there = folders / "target"
    if there.exists():
        raise ValueError(f"{there} exists: name another folder, or move it")
    counts = recipe["windows"]
    rows = tuple(
        examples.keep(
            runs / f"{split}.npz",
            seed=seed,
            count=counts[kept],
            spoken=recorded.strings(recordings, split),
        )
        for seed, split, kept in ((2, "train", "recorded"), (3, "test", "held_out"))
    )
    stages, data = pipeline.stages(recipe, "recorded"), {"recorded": make_data(*rows)}
    params = pipeline.run(runs, stages, data, first=large)
    deep, whole = (pipeline.config(recipe, name) for name in ("deep", "whole"))
    built = families.build(deep)
    ends = dict(start=sentences.START, ends=(sentences.END,))
    target = Pretrained("target", deep, built, params, **ends)
    lessons, draft = train_draft(runs, first, target, rows, recipe)
    export(there, target)
    export(folders / "draft", target._replace(config=whole, params=draft))
    found = scores(rows[1], lessons, whole, draft)
    storage.write_json(folders / "scores.json", found)
    print(json.dumps(found))


def texts(tokens: np.ndarray, length: np.ndarray) -> list[str]:
    rows = (row[:count] for row, count in zip(tokens, length, strict=True))
    pieces = ([sentences.PIECES[i] for i in row if i < sentences.END] for row in rows)
    return ["".join(row).strip() for row in pieces]


def scores(
    held_out: Rows, lessons: Lessons, config: Config, draft: Any
) -> dict[str, Any]:
    """Returns the word errors of the target at T = 0, and the values of alpha of its
    draft.

    Whisper's normalizer for English would turn a string of digits into one number, so
    words count unchanged.
    """
    heard = lessons.held_out["t0"].texts
    spoken = texts(held_out.tokens, held_out.length)
    errors = word_errors.score(
        spoken, texts(heard.tokens, heard.length), language="words"
    )
    alphas = written.acceptance(config, draft, lessons.held_out)
    return {"word_errors": errors._asdict(), **alphas}


def record(folder: Path) -> None:
    import soundfile

    rng = np.random.default_rng(SEED)
    speech = synthesis.say(RECORDING, synthesis.Speaker(slow=0.75), rng)
    kind = dict(subtype="PCM_16")
    soundfile.write(folder / "speech.flac", speech.samples, synthesis.RATE, **kind)
    (folder / "speech.txt").write_text(" ".join(RECORDING) + "\n")


def export(folder: Path, model: Pretrained) -> None:
    """Writes a folder of Hugging Face, with the special tokens."""
    checkpoints.save(folder, model)
    (folder / "tokenizer.json").write_text(sentences.tokenizer())
    generation = {
        "is_multilingual": False,
        "decoder_start_token_id": sentences.START,
        "eos_token_id": sentences.END,
        "pad_token_id": sentences.END,
        "no_timestamps_token_id": sentences.MUTE,
    }
    text = json.dumps(generation, indent=1) + "\n"
    (folder / "generation_config.json").write_text(text)


def loss(config: Config) -> Callable[[Any, Rows], Array]:
    """Returns the mean cross-entropy in nats per token after the prompt, plus LETTERS
    times that of the letter at each state, which is read out by the tokens' embedding.
    """

    def mean_loss(params, rows: Rows) -> Array:
        states = forward.states_of(config, params, rows.frames)
        logits = forward.logits(config, params, rows.tokens[:, :-1], read=states)
        each = cross_entropy(logits, rows.tokens[:, 1:])
        place = jnp.arange(1, rows.tokens.shape[1])
        live = (place >= rows.begun[:, None]) & (place < rows.length[:, None])
        letters = whisper.readout(config, params, states)
        spoken = cross_entropy(letters, rows.spoken).mean()
        return jnp.sum(each * live) / live.sum() + LETTERS * spoken

    return mean_loss


def make_data(read: Rows, held_out: Rows) -> Callable[[Stage], Data]:
    every = np.arange(len(held_out.tokens))
    parts = np.split(every, len(every) // MEASURED)
    fixed = {"held_out": [examples.select_rows(held_out, part) for part in parts]}

    def stage_data(stage: Stage) -> Data:
        def batch(seed: tuple[int, ...]) -> Rows:
            rng, count = np.random.default_rng(seed), len(read.tokens)
            return examples.select_rows(
                read, rng.integers(count, size=stage.recipe.batch)
            )

        return Data(batch, fixed, loss, {"told": LETTERS})

    return stage_data


def write_lessons(
    runs: Path, target: Pretrained, train: Rows, held_out: Rows, plan: dict[str, int]
) -> Lessons:
    """Returns the texts that the target writes for windows, at T = 0 and at T = 1, with
    its law.
    """
    encode = jax.jit(partial(forward.states_of, target.config))
    digest, batch = loop.digest(target.params), plan["batch"]
    turned = Rows(*(leaf[::-1] for leaf in train))  # so that other windows come first

    def write_texts(name: str, apart: bool, temperature: float) -> Written:
        rows = held_out if apart else turned if temperature else train
        count = plan["held_out" if apart else "texts"]
        part = examples.select_rows(rows, np.arange(count) % len(rows.tokens))

        def begin(index: np.ndarray) -> tuple:
            states = encode(target.params, part.frames[index])
            tokens = jnp.asarray(part.tokens[index, :2])
            length = jnp.asarray(part.begun[index], jnp.int32)
            key = jax.random.fold_in(root_key(0), index[0])
            sources = np.asarray(states), np.zeros(batch, np.int32)
            return key, Prompt(tokens, length, Encoded(states)), sources

        size = count, batch, part.tokens.shape[1] - 2
        make = partial(
            written.write, target, begin, size=size, temperature=temperature, label=name
        )
        about = {"target": digest, "texts": count, "temperature": temperature}
        return written.keep(
            runs / f"{name}.npz", target, texts=make, about=about, batch=batch
        )

    return learning.lessons(digest, write_texts)


if __name__ == "__main__":
    pipeline.command(main)
