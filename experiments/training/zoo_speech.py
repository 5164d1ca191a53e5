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

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

from experiments.training import pipeline, speech, storage
from experiments.training.drafts import written
from experiments.training.speech import Heard
from experiments.training.voices import examples, judged, recorded, sentences
from experiments.training.voices.examples import Rows
from specjax import checkpoints, zoo
from specjax.checkpoints import Pretrained, archive


def main() -> None:
    """Runs every stage, then exports."""
    recipe = pipeline.read("speech")
    parser = pipeline.parser(__doc__, "runs/speech_zoo", recipe)
    parser.add_argument("--export", type=Path, default=zoo.FOLDER)
    parser.add_argument("--recordings", type=Path, help="a folder of spoken digits")
    parser.add_argument("--folders", type=Path, default=Path("runs/speech"))
    options = parser.parse_args()
    runs, recipe = options.runs, pipeline.chosen(options, recipe)
    rows = windows(runs, recipe["windows"])
    data = {name: speech.data(*parts) for name, parts in rows.items()}
    short, whole, deep, *_ = pipeline.stages(recipe)
    first = pipeline.run(runs, [short, whole], data)
    large = pipeline.train(runs, deep, data, pipeline.grown(whole, first, deep))
    if options.recordings is None:
        bundle(runs, options.export, first, large, rows["whole"], recipe)
    else:
        folders = options.recordings, options.folders
        learn_on(runs / "recorded", *folders, first, large, recipe)


def windows(runs: Path, counts: dict[str, int]) -> dict[str, tuple[Rows, Rows]]:
    """Synthesised, short and whole: what is learnt from, and what is held out."""
    kinds = {"short": ("_short", examples.SHORT), "whole": ("", examples.WHOLE)}
    return {
        name: (
            examples.keep(runs / f"windows{end}.npz", 0, counts[name], window),
            examples.keep(runs / f"held_out{end}.npz", 1, counts["held_out"], window),
        )
        for name, (end, window) in kinds.items()
    }


def bundle(
    runs: Path, export: Path, first: Any, large: Any, rows: tuple[Rows, Rows], recipe
) -> None:
    """The pair on synthesised speech, with its tokenizer, a recording, its recipe."""
    paths = [export / f"{name}.safetensors" for name in zoo.SPEECH_MODELS]
    deep, whole = (pipeline.config(recipe, name) for name in ("deep", "whole"))
    zoo.save(paths[0], deep, large, bits=8)
    target = checkpoints.load(paths[0])
    lessons, draft = train_draft(runs, first, target, rows, recipe)
    zoo.save(paths[1], whole, draft, bits=8)
    share_encoder(*paths)
    (export / "speech").mkdir(exist_ok=True)
    (export / "speech" / "tokenizer.json").write_text(sentences.tokenizer())
    judged.record(export / "speech")
    scores = judged.scores(rows[1], lessons, whole, checkpoints.load(paths[1]).params)
    path, text = export / "speech_recipes.json", "synthesised by training/voices"
    pipeline.save(path, runs, recipe, text=text, held_out=scores)


def share_encoder(target: Path, draft: Path) -> None:
    """Stores the very numbers of one file's encoder in the other: rounded again, the
    last digit of a scale would differ, and the two would not be known for the same."""
    stored, whole = load_file(draft), load_file(target)
    encoder = {
        name: leaf for name, leaf in whole.items() if name.startswith("encoder/")
    }
    save_file(stored | encoder, draft, archive.metadata(draft))


def train_draft(
    runs: Path, first: Any, target: Pretrained, rows: tuple[Rows, Rows], recipe: dict
) -> tuple[written.Lessons, Any]:
    """What it learnt from and its weights: from the decoder that the target grew from,
    behind the target's encoder."""
    plan, stages = Heard(**recipe["written"]), pipeline.stages(recipe, "draft")
    lessons = speech.lessons(runs / "texts", target, *rows, plan)
    begun = {"decoder": first["decoder"], "encoder": target.params["encoder"]}
    data = {"lessons": written.data(lessons)}
    return lessons, pipeline.run(runs, stages, data, begun)


def learn_on(
    runs: Path, recordings: Path, folders: Path, first: Any, large: Any, recipe: dict
) -> None:
    """The same pair after strings of recorded digits, as folders of Hugging Face."""
    if (folders / "target").exists():
        raise ValueError(
            f"{folders / 'target'} exists: name another folder, or move it"
        )
    counts = {"train": recipe["windows"]["recorded"]}
    counts["test"] = recipe["windows"]["held_out"]
    rows = tuple(
        examples.keep(
            runs / f"{split}.npz",
            seed,
            count,
            spoken=recorded.strings(recordings, split),
        )
        for seed, (split, count) in enumerate(counts.items(), start=2)
    )
    stages, data = pipeline.stages(recipe, "recorded"), {"recorded": speech.data(*rows)}
    params, around = pipeline.run(runs, stages, data, large), judged.AROUND
    deep, whole = (pipeline.config(recipe, name) for name in ("deep", "whole"))
    built = checkpoints.build(deep)
    target = Pretrained("target", "whisper", deep, built, params, (), *around)
    lessons, draft = train_draft(runs, first, target, rows, recipe)
    judged.export(folders / "target", deep, params, around)
    judged.export(folders / "draft", whole, draft, around)
    scores = judged.scores(rows[1], lessons, whole, draft)
    storage.write_json(folders / "scores.json", scores)
    print(json.dumps(scores))


if __name__ == "__main__":
    main()
