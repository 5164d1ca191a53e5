"""The flags that several commands share, and the objects that they name."""

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from specjax import (
    drafts,
    fused,
    native,
    policies,
    pretrained,
    prompts,
    truncation,
    verifiers,
    zoo,
)
from specjax.checkpoints import Pretrained
from specjax.decode_config import NAMES, DecodeConfig, setting_type
from specjax.drafts.source import DraftSource
from specjax.measure import texts
from specjax.pretrained import use_tokenizer
from specjax.prompts import Prompts
from specjax.prompts.questions import ALL, Chosen
from specjax.runtime import console, mesh
from specjax.runtime.console import Parser, checked_text
from specjax.speech import spoken_prompts

OWN = "your own, my_module:its_name"
PROMPT = '{"prompt": text}, {"tokens": [ids]}, {"messages": [...]}'
TEXT_PROMPT = f'{PROMPT} or {{"turns": [text]}}'  # where no recording is read
PROMPT += ', {"turns": [text, ...]} or {"audio": file}'
DTYPES = ("float32", "bfloat16", "int8", "int8_dynamic")
OF_DTYPE = (
    "dtype of weights, activations and cache; int8: only the weights, the rest in"
)
OF_DTYPE += (
    " float32; int8_dynamic: activations rounded too, products summed in integers"
)
DRAFTS = f"a model, named like --target, or {drafts.usages()}"
ALONE = "none"  # what a command calls no draft
FILTERS = {name: it.keeps for name, it in truncation.SETTINGS.items()}


RULES, POLICIES = ", ".join(verifiers.spellings()), ", ".join(policies.POLICIES)


# The flags that several commands have. `add` appends the default to a help text that
# does not mention it.
FLAGS: dict[str, dict[str, Any]] = {
    "target": dict(
        default=zoo.MODELS[0], help="a bundled name, a path or an id of the hub"
    ),
    "draft": dict(default=zoo.MODELS[1], help=DRAFTS),
    "rule": dict(
        default="token",
        type=setting_type("rule"),
        help=f"how drafts are verified: {RULES}, or {OWN}",
    ),
    "policy": dict(
        default="none",
        type=setting_type("policy"),
        help=f"how much of gamma is drafted: {POLICIES}, or {OWN}",
    ),
    "data": dict(help=f"JSON lines: {PROMPT}"),
    "tokenizer": dict(
        help="a SentencePiece model, a tokenizer.json or a folder with one; default:"
        " the one beside the target's weights"
    ),
    "dtype": dict(default=DTYPES[0], choices=DTYPES, help=OF_DTYPE),
    "cache": dict(
        type=checked_text(pretrained.check_cache),
        help="the target's cache: int8, or a window of a Llama's last tokens such as"
        " window:128; default: all tokens, in --dtype",
    ),
    "temperature": dict(
        type=setting_type("temperature"),
        default=0.0,
        help="for both models; 0 is greedy",
    ),
    "gammas": dict(
        type=setting_type("gamma"), nargs="+", help="numbers of drafted tokens to try"
    ),
    "tokens": dict(type=setting_type("new_tokens"), help="new tokens of every text"),
    "texts": dict(type=console.count),
    "batch": dict(type=console.count, default=1, help="texts decoded together"),
    "mesh": dict(
        default="",
        type=checked_text(lambda text: text and mesh.parse(text)),
        help="devices, such as data=4,model=2: rows over 4, matrices over 2; draft=2"
        " splits a draft's matrices too; default: one device",
    ),
    "seed": dict(type=setting_type("seed"), default=0, help="seed of all random draws"),
    "kernels": dict(
        default=fused.AUTO,
        choices=fused.CHOICES,
        help="code for the functions that read logits; auto, the default: fused kernels"
        " where they are available",
    ),
    "products": dict(
        default=native.THIN,
        choices=native.CHOICES,
        help="code for products of matrices with few rows on a CPU; thin: our C++"
        " kernel; default %(default)s if it can be compiled",
    ),
}
PAIR = "target", "draft", "rule", "policy"


def add(parser: argparse.ArgumentParser, *names: str, **changed: Any) -> None:
    """Adds flags of `FLAGS` by name, with the given options changed."""
    for name in names:
        options = FLAGS[name] | changed
        if options.get("default") is not None and "default" not in options["help"]:
            options["help"] += "; default %(default)s"
        parser.add_argument(f"--{name}", **options)


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Adds --top-k, --top-p and --min-p, of `DecodeConfig.truncation`."""
    for name, text in FILTERS.items():
        spellings = dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}"))
        parser.add_argument(
            *spellings,
            dest=name,
            type=setting_type(name),
            help=f"both models keep {text}; default: all",
        )


def read_config(flags: argparse.Namespace, **settings: Any) -> DecodeConfig:
    """Returns the settings that a command decodes with.

    Args:
      flags: those of its flags that have the name of a setting.
      **settings: others, or in the place of such flags.
    """
    found = {name: x for name, x in vars(flags).items() if name in NAMES}
    return DecodeConfig(**(found | settings))


@contextlib.contextmanager
def use_mesh(parser: Parser, text: str) -> Iterator[None]:
    """Uses the mesh of --mesh in a `with` block (`mesh.using`). Where there are too few
    devices, the command ends with an error."""
    with contextlib.ExitStack() as stack:
        with parser.report_errors():
            stack.enter_context(mesh.using(text))
        yield


def load_pair(
    names: Sequence[str], dtype: str, cache: str | None = None
) -> tuple[Pretrained, DraftSource]:
    """Returns target and draft by name: models in this dtype, the target with this
    cache."""
    return drafts.pair(drafts.load_target(names[0], dtype, cache), names[1])


def read_case(
    flags: argparse.Namespace,
    pair: tuple[Pretrained, DraftSource],
    otherwise: Sequence[str] = (),
    chosen: Chosen = ALL,
    answer: int = texts.ANSWER,
) -> tuple[tuple[Pretrained, DraftSource], Prompts]:
    """Returns the pair and its prompts.

    They are the prompts of --data, read by the target's tokenizer or by --tokenizer. A
    pair of Whispers is returned as a pair that reads the recordings of --data.

    Args:
      flags: those of the command.
      pair: target and draft.
      otherwise: the prompts where there is no --data.
      chosen: the questions to read, as in `texts.read`.
      answer: the new tokens of an answer between turns, as in `texts.read`.
    """
    target = pair[0]
    if flags.data is None:
        if target.encodes:
            raise ValueError(
                f"{target.name} reads its input with an encoder: name a file of inputs"
                " with --data"
            )
        if flags.tokenizer is not None and not otherwise:
            raise ValueError(
                "--tokenizer is for the texts of --data: write both flags, or neither"
            )
        model = use_tokenizer(target, flags.tokenizer)
        read = (
            prompts.from_list(otherwise, model)
            if otherwise
            else prompts.start_prompt(model)
        )
        return pair, read
    if not spoken_prompts.is_whisper(target):
        return pair, texts.read(flags.data, target, flags.tokenizer, chosen, answer)
    if flags.tokenizer is not None:
        raise ValueError("recordings need no tokenizer: leave --tokenizer out")
    if chosen != ALL:
        raise ValueError(
            "recordings cannot be selected or grouped as questions: leave --longest,"
            " --per-category, --by and --specdec out"
        )
    return spoken_prompts.read(flags.data, pair)
