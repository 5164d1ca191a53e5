"""What commands share: flags of a pair, of prompts and of dtypes, and who they name."""

import argparse
from collections.abc import Callable, Sequence

from specjax import drafts, native, policies, probs, prompts, sides, verifiers, zoo
from specjax.prompts import Prompts
from specjax.sides import Side
from specjax.speech import spoken_prompts

MODEL = "a bundled name, a path or a hub's id; default %(default)s"
OWN = "your own, my_module:its_name"
PROMPT = '{"prompt": text}, {"tokens": [ids]}, {"messages": [...]} or {"audio": file}'
DTYPES = ("float32", "bfloat16", "int8")
OF_DTYPE = "of weights, activations and cache; int8 of weights alone, beside float32"
OF_TEMPERATURE = "of both models; 0 is greedy; default %(default)s"
OF_SEED = "of all that is drawn; default %(default)s"
DRAFTS = f"the same, or {drafts.spelled()}"


def add_pair(parser: argparse.ArgumentParser) -> None:
    """--target, --draft, --rule and --policy."""
    parser.add_argument("--target", default=zoo.MODELS[0], help=MODEL)
    of_draft = f"{DRAFTS}; default %(default)s"
    parser.add_argument("--draft", default=zoo.MODELS[1], help=of_draft)
    add_rule(parser)


def add_rule(parser: argparse.ArgumentParser) -> None:
    """--rule and --policy, whose values `verifiers.named` and `policies.named` take."""
    of_rule = f"how drafts are verified: {', '.join(verifiers.spelled())}, or {OWN}"
    of_rule += "; default %(default)s"
    parser.add_argument("--rule", default="token", type=rule, help=of_rule)
    of_policy = "how much of gamma is drafted:"
    of_policy += f" {', '.join(policies.POLICIES)}, or {OWN}; default %(default)s"
    parser.add_argument("--policy", default="none", type=policy, help=of_policy)


def add_filters(parser: argparse.ArgumentParser) -> None:
    """--top-k, --top-p and --min-p, which `texts.truncation` reads."""
    meaning = {
        "top_k": "so many of the likeliest ids",
        "top_p": "the likeliest ids of at least this mass",
        "min_p": "ids of at least this share of the likeliest's probability",
    }
    for name, text in meaning.items():
        spelled = f"--{name.replace('_', '-')}", f"--{name}"
        kind, text = filter_of(name), f"both models keep {text}; default: all"
        parser.add_argument(*spelled, dest=name, type=kind, help=text)


def filter_of(name: str) -> Callable[[str], float]:
    """Type of a flag: a value of top_k, top_p or min_p (`probs.RANGES`)."""

    def parsed(text: str) -> float:
        try:
            value = int(text) if name == "top_k" else float(text)
        except ValueError:
            value = text
        try:
            probs.check_numbers(**{name: value})
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return value

    return parsed


def add_products(parser: argparse.ArgumentParser) -> None:
    """--products, a value of the context `native.products`."""
    text = "of few rows with a matrix, on a CPU; default %(default)s, where compiled"
    parser.add_argument(
        "--products", default=native.THIN, choices=native.CHOICES, help=text
    )


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """--dtype, one of `DTYPES`, which `side` takes."""
    text = f"{OF_DTYPE}; default %(default)s"
    parser.add_argument("--dtype", default=DTYPES[0], choices=DTYPES, help=text)


def add_prompts(parser: argparse.ArgumentParser, otherwise: str = "") -> None:
    """--data and --tokenizer. otherwise: what is read without --data; it must be named
    where that is empty."""
    asked = f"JSON lines: {PROMPT}" + (otherwise and f"; default: {otherwise}")
    parser.add_argument("--data", required=not otherwise, help=asked)
    add_tokenizer(parser)


def add_tokenizer(parser: argparse.ArgumentParser) -> None:
    beside = "a SentencePiece model, a tokenizer.json or a folder with one;"
    beside += " default: beside the target's weights"
    parser.add_argument("--tokenizer", help=beside)


def pair(names: Sequence[str], dtype: str) -> tuple[Side, Side]:
    """Target and draft by name, in this dtype where they are models. Raises ValueError
    for names of none, or two that do not decode together."""
    return drafts.paired(drafts.target(names[0], dtype), names[1])


def rule(name: str) -> str:
    """A name that `verifiers.named` knows."""
    return known(verifiers.named, name)


def policy(name: str) -> str:
    """A name that `policies.named` knows."""
    return known(policies.named, name)


def known(named: Callable, name: str) -> str:
    """The name, where `named` takes it. Raises ArgumentTypeError where it does not."""
    try:
        named(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def read_prompts(
    flags: argparse.Namespace, target: Side, otherwise: Sequence[str] = ()
) -> Prompts:
    """Those of --data, by the target's tokenizer or the one of --tokenizer.

    otherwise: for who names no --data, the start token alone if empty; an encoder has
    none. Raises ValueError or OSError for what cannot be read.
    """
    model = sides.reader(target, flags.tokenizer)
    if flags.data is not None:
        return prompts.read(flags.data, model)
    if target.encodes:
        raise ValueError(
            f"{target.name} reads its task with an encoder: name its inputs with --data"
        )
    if otherwise:
        return prompts.of(otherwise, model)
    if flags.tokenizer is not None:
        raise ValueError("--tokenizer reads the texts of --data: name both, or neither")
    return prompts.start(model)


def read_case(
    flags: argparse.Namespace, pair: tuple[Side, Side], otherwise: Sequence[str] = ()
) -> tuple[tuple[Side, Side], Prompts]:
    """As `read_prompts`, with the pair that decodes them: of Whispers, one that hears
    the recordings of --data."""
    if flags.data is None or not spoken_prompts.listens(pair[0]):
        return pair, read_prompts(flags, pair[0], otherwise)
    if flags.tokenizer is not None:
        raise ValueError("recordings need no --tokenizer: leave it out")
    return spoken_prompts.read(flags.data, pair)
