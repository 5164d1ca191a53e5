"""What commands share: flags of a pair, of prompts and of dtypes, and who they name."""

import argparse
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from specjax import (
    drafts,
    fused,
    native,
    policies,
    pretrained,
    probs,
    prompts,
    verifiers,
    zoo,
)
from specjax.drafts import source as sides
from specjax.drafts.source import Side
from specjax.measure import texts
from specjax.prompts import Prompts
from specjax.prompts.questions import ALL, Chosen
from specjax.runtime import console, mesh
from specjax.runtime.console import Parser, checked
from specjax.speech import spoken_prompts

OWN = "your own, my_module:its_name"
PROMPT = '{"prompt": text}, {"tokens": [ids]}, {"messages": [...]}, {"turns": [text,'
PROMPT += ' ...]} or {"audio": file}'
DTYPES = ("float32", "bfloat16", "int8", "int8_dynamic")
OF_DTYPE = "of weights, activations and cache; int8 of weights alone, beside float32;"
OF_DTYPE += " int8_dynamic sums products of whole numbers"
DRAFTS = f"the same, or {drafts.spelled()}"
KEPT = {
    "top_k": "so many of the likeliest ids",
    "top_p": "the likeliest ids of at least this mass",
    "min_p": "ids of at least this share of the likeliest's probability",
}


def kept(name: str) -> Callable[[str], float]:
    """Type of a flag: a value of top_k, top_p or min_p (`probs.RANGES`)."""

    def parsed(text: str) -> float:
        try:
            value = int(text) if name == "top_k" else float(text)
        except ValueError:
            value = text
        probs.check_numbers(**{name: value})
        return value

    return console.typed(parsed)


RULES, POLICIES = ", ".join(verifiers.spellings()), ", ".join(policies.POLICIES)


# What several commands have. Who says no default in its help has it told behind it.
FLAGS: dict[str, dict[str, Any]] = {
    "target": dict(default=zoo.MODELS[0], help="a bundled name, a path or a hub's id"),
    "draft": dict(default=zoo.MODELS[1], help=DRAFTS),
    "rule": dict(
        default="token",
        type=checked(verifiers.find),
        help=f"how drafts are verified: {RULES}, or {OWN}",
    ),
    "policy": dict(
        default="none",
        type=checked(policies.find),
        help=f"how much of gamma is drafted: {POLICIES}, or {OWN}",
    ),
    "data": dict(help=f"JSON lines: {PROMPT}"),
    "tokenizer": dict(
        help="a SentencePiece model, a tokenizer.json or a folder with one; default:"
        " beside the target's weights"
    ),
    "dtype": dict(default=DTYPES[0], choices=DTYPES, help=OF_DTYPE),
    "cache": dict(
        type=checked(pretrained.check_cache),
        help="of the target: int8, or a window such as window:128 of a Llama's last"
        " tokens; default: all in dtype",
    ),
    "temperature": dict(
        type=console.temperature, default=0.0, help="of both models; 0 is greedy"
    ),
    "gammas": dict(type=console.gamma, nargs="+", help="drafted tokens"),
    "tokens": dict(type=console.count, help="of every text, without its prompt"),
    "texts": dict(type=console.count),
    "batch": dict(type=console.count, default=1, help="texts decoded together"),
    "mesh": dict(
        default="",
        type=checked(lambda text: text and mesh.parse(text)),
        help="devices, data=4,model=2: rows over 4, matrices over 2; with draft=2 a"
        " draft's too; default: one device",
    ),
    "seed": dict(type=console.seed, default=0, help="of all that is drawn"),
    "kernels": dict(
        default=fused.AUTO,
        choices=fused.CHOICES,
        help="what reads logits; auto, the default: kernels where there are any",
    ),
    "products": dict(
        default=native.THIN,
        choices=native.CHOICES,
        help="of few rows with a matrix, on a CPU; default %(default)s, where compiled",
    ),
}
PAIR = "target", "draft", "rule", "policy"


def add(parser: argparse.ArgumentParser, *names: str, **changed: Any) -> None:
    """Adds flags of the table, with what is otherwise here."""
    for name in names:
        options = FLAGS[name] | changed
        if options.get("default") is not None and "default" not in options["help"]:
            options["help"] += "; default %(default)s"
        parser.add_argument(f"--{name}", **options)


def add_filters(parser: argparse.ArgumentParser) -> None:
    """--top-k, --top-p and --min-p, which `texts.truncation` reads."""
    for name, text in KEPT.items():
        spelled = f"--{name.replace('_', '-')}", f"--{name}"
        text = f"both models keep {text}; default: all"
        parser.add_argument(*spelled, dest=name, type=kept(name), help=text)


@contextlib.contextmanager
def on_mesh(parser: Parser, text: str) -> Iterator[None]:
    """`mesh.using` of --mesh; too few devices end the command."""
    with contextlib.ExitStack() as stack:
        with parser.refusing():
            stack.enter_context(mesh.using(text))
        yield


def pair(
    names: Sequence[str], dtype: str, cache: str | None = None
) -> tuple[Side, Side]:
    """Target and draft by name, in this dtype where they are models; the target with
    this cache."""
    return drafts.paired(drafts.target(names[0], dtype, cache), names[1])


def read_case(
    flags: argparse.Namespace,
    pair: tuple[Side, Side],
    otherwise: Sequence[str] = (),
    chosen: Chosen = ALL,
    answer: int = texts.ANSWER,
) -> tuple[tuple[Side, Side], Prompts]:
    """The prompts of --data, by the target's tokenizer or the one of --tokenizer, and
    the pair that decodes them: of Whispers, one that hears the recordings of --data.
    otherwise: prompts where there is no --data. chosen, answer: as of `texts.read`."""
    target = pair[0]
    if flags.data is None:
        if target.encodes:
            raise ValueError(
                f"{target.name} reads its task with an encoder: name its inputs with"
                " --data"
            )
        if flags.tokenizer is not None and not otherwise:
            raise ValueError(
                "--tokenizer reads the texts of --data: name both, or neither"
            )
        model = sides.reader(target, flags.tokenizer)
        read = prompts.of(otherwise, model) if otherwise else prompts.start(model)
        return pair, read
    if not spoken_prompts.listens(target):
        how = flags.tokenizer, chosen, answer
        return pair, texts.read(flags.data, target, *how)
    if flags.tokenizer is not None:
        raise ValueError("recordings need no --tokenizer: leave it out")
    if chosen != ALL:
        raise ValueError(
            "recordings are no questions: leave --longest, --per-category, --by and"
            " --specdec out"
        )
    return spoken_prompts.read(flags.data, pair)
