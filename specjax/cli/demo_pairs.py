"""Which pair `specjax demo` decodes with: by a name of ours, by two names, or by the
sizes of GPT-2 in a folder; and a prompt that suits it."""

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
FOLDER = "models"  # that sizes are looked for in, unless another is named
PAIR = "1558M", "124M"  # of whom names a folder alone


class Known(NamedTuple):
    """A target and its draft. prompt: unless another is typed; to be answered where
    the target is one to `chat` with. audio: a recording in its place."""

    target: str
    draft: str
    prompt: str = ""
    audio: Path | None = None
    chat: bool = False


T5 = "t5_target", "t5_small"
SPOKEN = zoo.FOLDER / "speech" / "speech.flac"
PAIRS = {
    "code": Known(
        *zoo.MODELS, 'import json\nimport os\n\n\ndef load_config(path):\n    """Load'
    ),
    "ende": Known(*T5, "translate English to German: Where is the next station?"),
    "correct": Known(
        *T5, "correct: This functoin return a list of all the files in the folder."
    ),
    "docs": Known(
        *T5,
        "summarize: Write the given text to the file. The file is created if it does"
        " not exist, and its content is replaced if it does.",
    ),
    "speech": Known(*zoo.SPEECH_MODELS, audio=SPOKEN),
    "smollm2": Known(
        "smollm2", "smollm2_draft", "Why do people need sleep?", chat=True
    ),
}


def add_models(parser: argparse.ArgumentParser) -> None:
    """--pair, --target, --draft and --models_dir, which `located` reads."""
    add = parser.add_argument
    of_pair = "target, draft and prompt by one name: %(choices)s, which wants `specjax"
    of_pair += " fetch smollm2` first"
    add("--pair", choices=PAIRS, help=of_pair)
    of_target = f"a bundled name, a path, a hub's id, or a size ({', '.join(SIZES)})"
    of_target += f" of GPT-2; default {zoo.MODELS[0]}, or {PAIR[0]} of --models_dir"
    add("--target", "--target_model_size", help=of_target)
    of_draft = f"{shared.DRAFTS}; default {zoo.MODELS[1]}, or"
    add("--draft", "--draft_model_size", help=f"{of_draft} {PAIR[1]}")
    add("--models_dir", help=f"has a folder of each size; default {FOLDER}")


def named(flags: argparse.Namespace) -> Known:
    """What was asked for, with what was typed in the place of what it has. Raises
    ValueError for a pair that is named twice."""
    asked = flags.target or flags.draft or flags.models_dir
    if flags.pair and asked:
        raise ValueError("--pair names target and draft: leave these and folders out")
    known = PAIRS[flags.pair or ("code" if flags.audio is None else "speech")]
    if flags.models_dir is not None:
        known = known._replace(target=PAIR[0], draft=PAIR[1])
    suiting = [it for it in PAIRS.values() if flags.target == it.target]
    if suiting and flags.audio is None:
        known = suiting[0]
    known = known._replace(
        target=flags.target or known.target, draft=flags.draft or known.draft
    )
    if flags.audio is not None:
        return known._replace(audio=Path(flags.audio), prompt="")
    if flags.prompt is not None:
        return known._replace(prompt=flags.prompt, audio=None)
    return known


def located(name: str, below: str | None) -> str:
    """A size's folder, or the name as it is where it names no size."""
    place = Path(below or FOLDER) / name
    known = name in BUNDLED or drafts.is_named(name) or "/" in name
    if known or (below is None and name not in SIZES):
        return name
    if (place / CONFIG).is_file():
        return str(place.absolute())
    if Path(name).exists():
        return name
    there = sorted(file.parent.name for file in place.parent.glob(f"*/{CONFIG}"))
    has = f"has {', '.join(there)}" if there else "has no model"
    model = f"openai-community/{SIZES[name]}" if name in SIZES else "MODEL"
    raise ValueError(
        f"no {place / CONFIG}, and {place.parent} {has}: put the Hugging Face folder of"
        f" that size there (hf download {model} --local-dir {place}), or name another"
        " --models_dir"
    )
