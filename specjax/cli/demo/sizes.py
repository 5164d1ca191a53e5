"""GPT-2 by its sizes, each a folder of Hugging Face below one: `--models_dir`."""

import argparse
from pathlib import Path

from specjax import drafts, zoo
from specjax.checkpoints import BUNDLED
from specjax.checkpoints.huggingface import CONFIG
from specjax.cli import flags as shared

# The sizes that OpenAI published, and what the hub calls them.
SIZES = {"124M": "gpt2", "355M": "gpt2-medium", "774M": "gpt2-large"}
SIZES |= {"1558M": "gpt2-xl"}
FOLDER = "models"  # that sizes are looked for in, unless another is named
PAIR = "1558M", "124M"  # of whom names a folder alone


def add_flags(parser: argparse.ArgumentParser) -> None:
    """--target, --draft and --models_dir, which `located` reads."""
    add = parser.add_argument
    of_target = f"a bundled name, a path, a hub's id, or a size ({', '.join(SIZES)})"
    of_target += f" of GPT-2; default {zoo.MODELS[0]}, or {PAIR[0]} of --models_dir"
    add("--target", "--target_model_size", help=of_target)
    of_draft = f"{shared.DRAFTS}; default {zoo.MODELS[1]}, or"
    add("--draft", "--draft_model_size", help=f"{of_draft} {PAIR[1]}")
    add("--models_dir", help=f"has a folder of each size; default {FOLDER}")


def names(flags: argparse.Namespace) -> tuple[str, str]:
    """Target and draft as they were named, or by default."""
    pair = zoo.MODELS if flags.audio is None else zoo.SPEECH_MODELS
    pair = pair if flags.models_dir is None else PAIR
    return flags.target or pair[0], flags.draft or pair[1]


def located(flags: argparse.Namespace) -> tuple[str, str]:
    """Target and draft by names that `flags.pair` takes.

    Raises ValueError for a size that is not there, in one line that says what to put
    where.
    """
    return tuple(folder(name, flags.models_dir) for name in names(flags))


def folder(name: str, below: str | None) -> str:
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
