"""Trains the bundled speech models again, in an hour on a CPU.

    python -m experiments.training.zoo_speech
    python -m experiments.training.zoo_speech --recordings FOLDER

Stages, each resumable and skipped when done: windows of synthesised speech; a Whisper
with one decoder layer, on short windows, then on whole ones; the target, grown from it;
what that writes; the draft, distilled on it behind the target's own encoder. What comes
out of `runs/speech_zoo` goes into the package. With recordings of digits the pair
learns on from those, and goes to `runs/speech` in Hugging Face's format, not into the
package: what the recordings' licence asks for would hold of it.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

from experiments.training import loop
from experiments.training.drafts import speech as drafts
from experiments.training.drafts import written
from experiments.training.targets import speech as targets
from experiments.training.targets import stages
from experiments.training.voices import examples, judged, recorded, sentences
from specjax import checkpoints, zoo
from specjax.checkpoints import archive

SHORT, WINDOWS, RECORDED, HELD_OUT = 3072, 4096, 2048, 64
SIZE = loop.Recipe(
    350,
    100,
    batch=16,
    rate=2e-3,
    warmup=50,
    weight_decay=0.0,
    checkpoint_every=50,
    evaluate_every=50,
)
RECIPES = {
    "short": SIZE._replace(decay=0),
    "whole": SIZE._replace(steps=400, decay=100, warmup=10),
    "deep": SIZE._replace(steps=480, decay=200, rate=1e-3, warmup=10),
    "recorded": SIZE._replace(steps=660, decay=250, rate=1e-3, warmup=10),
    "draft": drafts.KL,
}


def main() -> None:
    """Runs every stage, then exports."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/speech_zoo"))
    parser.add_argument("--export", type=Path, default=zoo.FOLDER)
    parser.add_argument("--recordings", type=Path, help="a folder of spoken digits")
    parser.add_argument("--folders", type=Path, default=Path("runs/speech"))
    stages.add_lengths(parser, RECIPES)
    arguments = parser.parse_args()
    runs, recipes = arguments.runs, stages.chosen(arguments, RECIPES)
    whole, large = train_target(runs, recipes)
    if arguments.recordings is None:
        bundle(runs, arguments.export, whole, large, recipes)
    else:
        folders = arguments.recordings, arguments.folders
        learn_on(runs / "recorded", *folders, whole, large, recipes)


def train_target(runs: Path, recipes: stages.Recipes) -> tuple[Any, Any]:
    """Every stage of the target: its weights with one decoder layer, and grown."""
    short = examples.SHORT
    few = examples.keep(runs / "held_out_short.npz", 1, HELD_OUT, short)
    data = examples.keep(runs / "windows_short.npz", 0, SHORT, short)
    task = targets.task(targets.SMALL)
    first = targets.train(runs / "short", task, recipes["short"], data, few)
    data, few = windows(runs)
    first = targets.longer(first, targets.WHOLE)
    task = targets.task(targets.WHOLE, first=first)
    whole = targets.train(runs / "whole", task, recipes["whole"], data, few)
    grown = targets.deeper(whole, targets.LARGE.decoder_layers)
    task = targets.task(targets.LARGE, first=grown)
    return whole, targets.train(runs / "deep", task, recipes["deep"], data, few)


def windows(runs: Path) -> tuple[examples.Rows, examples.Rows]:
    """Synthesised: what is learnt from, and what is held out."""
    few = examples.keep(runs / "held_out.npz", 1, HELD_OUT)
    return examples.keep(runs / "windows.npz", 0, WINDOWS), few


def bundle(
    runs: Path, export: Path, whole: Any, large: Any, recipes: stages.Recipes
) -> None:
    """The pair on synthesised speech, with its tokenizer, a recording, its recipe."""
    paths = [export / f"{name}.safetensors" for name in zoo.SPEECH_MODELS]
    zoo.save(paths[0], targets.LARGE, large, bits=8)
    large = checkpoints.load(paths[0]).params
    data, few = windows(runs)
    lessons = drafts.read(runs / "texts", targets.LARGE, large, data, few)
    draft = train_draft(runs / "draft", whole, large, lessons, recipes["draft"])
    zoo.save(paths[1], targets.WHOLE, draft, bits=8)
    share_encoder(*paths)
    draft = checkpoints.load(paths[1]).params
    (export / "speech").mkdir(exist_ok=True)
    (export / "speech" / "tokenizer.json").write_text(sentences.tokenizer())
    judged.record(export / "speech")
    content = {
        "speech": "synthesised: experiments/training/voices",
        "windows": {"short": SHORT, "whole": WINDOWS, "held_out": HELD_OUT},
        "speech_target": {
            "config": targets.LARGE._asdict(),
            **{name: recipes[name]._asdict() for name in ("short", "whole", "deep")},
        },
        "speech_small": {
            "config": targets.WHOLE._asdict(),
            "text": f"{drafts.TEXTS} texts that speech_target wrote at T = 0, and as"
            " many at T = 1, with its law at every token",
            "kl": recipes["draft"]._asdict(),
        },
        "held_out": judged.scores(few, lessons, draft),
        "curves": loop.curves(
            runs, {n: n for n in ("short", "whole", "deep", "draft")}
        ),
    }
    path = export / "speech_recipes.json"
    path.write_text(json.dumps(content, indent=1) + "\n")


def share_encoder(target: Path, draft: Path) -> None:
    """Stores the very numbers of one file's encoder in the other: rounded again, the
    last digit of a scale would differ, and the two would not be known for the same."""
    stored, whole = load_file(draft), load_file(target)
    encoder = {
        name: leaf for name, leaf in whole.items() if name.startswith("encoder/")
    }
    save_file(stored | encoder, draft, archive.metadata(draft))


def train_draft(
    folder: Path,
    whole: Any,
    target: Any,
    lessons: written.Lessons,
    recipe: loop.Recipe,
) -> Any:
    """From the decoder that the target grew from, behind the target's encoder."""
    first = {"decoder": whole["decoder"], "encoder": target["encoder"]}
    return drafts.trained(folder, targets.WHOLE, first, lessons, recipe)


def digits(runs: Path, recordings: Path) -> list[examples.Rows]:
    """Of recorded digits: what is learnt from, and what is held out."""
    counts = {"train": RECORDED, "test": HELD_OUT}
    return [
        examples.keep(
            runs / f"{split}.npz",
            i + 2,
            count,
            spoken=recorded.strings(recordings, split),
        )
        for i, (split, count) in enumerate(counts.items())
    ]


def learn_on(
    runs: Path, recordings: Path, folders: Path, whole: Any, large: Any, recipes
) -> None:
    """The same pair after strings of recorded digits, as folders of Hugging Face."""
    if (folders / "target").exists():
        raise ValueError(
            f"{folders / 'target'} exists: name another folder, or move it"
        )
    parts = digits(runs, recordings)
    task = targets.task(targets.LARGE, first=large)
    target = targets.train(runs / "target", task, recipes["recorded"], *parts)
    lessons = drafts.read(runs / "texts", targets.LARGE, target, *parts)
    draft = train_draft(runs / "draft", whole, target, lessons, recipes["draft"])
    around = sentences.START, (sentences.END,)
    for name, config, params in (
        ("target", targets.LARGE, target),
        ("draft", targets.WHOLE, draft),
    ):
        judged.export(folders / name, config, params, around)
    scores = judged.scores(parts[1], lessons, draft)
    (folders / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")
    print(json.dumps(scores))


if __name__ == "__main__":
    main()
