"""The pairs of `specjax demo`, with a prompt that suits each.

A pair is named by one of our names, by two model names, or by two sizes of GPT-2 in a
folder."""

import argparse
from pathlib import Path
from typing import NamedTuple

from specjax import drafts, zoo
from specjax.checkpoints import BUNDLED
from specjax.checkpoints.huggingface import CONFIG
from specjax.cli import flags as shared

# The sizes that OpenAI published, and what the hub calls them.
SIZES = {"124M": "gpt2", "355M": "gpt2-medium", "774M": "gpt2-large"}
SIZES |= {"1558M": "gpt2-xl"}
FOLDER = "models"  # the default folder of the sizes
PAIR = "1558M", "124M"  # the default sizes where only a folder is named


class DemoPair(NamedTuple):
    """A target and its draft.

    prompt: the default prompt; a question where the target is a `chat` model. audio: a
    recording in place of a prompt."""

    target: str
    draft: str
    prompt: str = ""
    audio: Path | None = None
    chat: bool = False


T5 = "t5_target", "t5_small"
SPOKEN = zoo.FOLDER / "speech" / "speech.flac"
PAIRS = {
    "code": DemoPair(
        *zoo.MODELS, 'import json\nimport os\n\n\ndef load_config(path):\n    """Load'
    ),
    "ende": DemoPair(*T5, "translate English to German: Where is the next station?"),
    "correct": DemoPair(
        *T5, "correct: This functoin return a list of all the files in the folder."
    ),
    "docs": DemoPair(
        *T5,
        "summarize: Write the given text to the file. The file is created if it does"
        " not exist, and its content is replaced if it does.",
    ),
    "speech": DemoPair(*zoo.SPEECH_MODELS, audio=SPOKEN),
    "smollm2": DemoPair(
        "smollm2", "smollm2_draft", "Why do people need sleep?", chat=True
    ),
}


def add_models(parser: argparse.ArgumentParser) -> None:
    """Adds --pair, --target, --draft and --models_dir, which `find_model` reads."""
    add = parser.add_argument
    of_pair = "a pair with a prompt that suits it: %(choices)s; smollm2 needs `specjax"
    of_pair += " fetch smollm2` first"
    add("--pair", choices=PAIRS, help=of_pair)
    of_target = (
        f"a bundled name, a path, an id of the hub, or a size ({', '.join(SIZES)})"
    )
    of_target += f" of GPT-2; default {zoo.MODELS[0]}, or {PAIR[0]} of --models_dir"
    add("--target", "--target_model_size", help=of_target)
    of_draft = f"{shared.DRAFTS}; default {zoo.MODELS[1]}, or"
    add("--draft", "--draft_model_size", help=f"{of_draft} {PAIR[1]}")
    add(
        "--models_dir",
        help=f"the folder with a folder for each size of GPT-2; default {FOLDER}",
    )


def choose(flags: argparse.Namespace) -> DemoPair:
    """Returns the pair that the flags name, with the typed prompt or recording if any.

    Raises ValueError for a pair that is named twice, and for two inputs."""
    if flags.pair and (flags.target or flags.draft or flags.models_dir):
        raise ValueError(
            "--pair names target and draft: leave --target, --draft and --models_dir"
            " out"
        )
    if flags.audio is not None and flags.prompt is not None:
        raise ValueError("--audio stands in place of a prompt: leave --prompt out")
    pair = PAIRS[flags.pair or ("code" if flags.audio is None else "speech")]
    if flags.models_dir is not None:
        pair = pair._replace(target=PAIR[0], draft=PAIR[1])
    matches = [each for each in PAIRS.values() if flags.target == each.target]
    if matches and flags.audio is None:
        pair = matches[0]
    pair = pair._replace(
        target=flags.target or pair.target, draft=flags.draft or pair.draft
    )
    if flags.audio is not None:
        return pair._replace(audio=Path(flags.audio), prompt="")
    if flags.prompt is not None:
        return pair._replace(prompt=flags.prompt, audio=None)
    return pair


def find_model(name: str, folder: str | None) -> str:
    """Returns the folder of a size, or the name itself where it is not a size."""
    place = Path(folder or FOLDER) / name
    is_name = name in BUNDLED or drafts.is_draft_name(name) or "/" in name
    if is_name or (folder is None and name not in SIZES):
        return name
    if (place / CONFIG).is_file():
        return str(place.absolute())
    if Path(name).exists():
        return name
    found = sorted(file.parent.name for file in place.parent.glob(f"*/{CONFIG}"))
    has = f"has {', '.join(found)}" if found else "has no model"
    model = f"openai-community/{SIZES[name]}" if name in SIZES else "MODEL"
    raise ValueError(
        f"there is no {place / CONFIG}, and {place.parent} {has}: put the Hugging Face"
        " folder of"
        f" that size there (hf download {model} --local-dir {place}), or name another"
        " --models_dir"
    )
