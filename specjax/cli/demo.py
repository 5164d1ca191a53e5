"""Decodes a prompt without and with speculation, timed and traced: `specjax demo`.

The flags, their defaults and the two printed blocks are those of Jay Mody's
`speculative-sampling` script, where K is gamma. GPT-2 by its sizes, as there, writes
just as many tokens as were asked for; the text of any other model stops at its end.
What is timed is the compiled loop; the speculative text is then decoded again, printed
step by step. Below come what was measured and the trace of Figure 1 of
Leviathan et al. (2023). What runs meanwhile is told on stderr.
"""

import argparse
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import jax
import numpy as np

from specjax import (
    console,
    drafts,
    finite,
    fused,
    generate,
    mesh,
    native,
    policies,
    prompts,
    sides,
    verifiers,
    zoo,
)
from specjax.checkpoints import BUNDLED
from specjax.checkpoints.huggingface import CONFIG
from specjax.cli import flags as shared
from specjax.console import Parser
from specjax.inputs import bucketed, check, make_prompt, make_request, make_sampling
from specjax.measure import scoring, timing
from specjax.measure.texts import truncation
from specjax.measure.trace import Case, Step, colorful, iterate, make_step, print_trace
from specjax.speech import spoken_prompts
from specjax.step import Decoder
from specjax.theory import closed_forms
from specjax.tokenizers import Tokenizer, stream
from specjax.types import Params

# The sizes that OpenAI published, and what the hub calls them.
SIZES = {"124M": "gpt2", "355M": "gpt2-medium", "774M": "gpt2-large"}
SIZES |= {"1558M": "gpt2-xl"}
FOLDER = "models"  # that sizes are looked for in, unless another is named
PAIR = "1558M", "124M"  # of whom names a folder alone


def add_models(parser: argparse.ArgumentParser) -> None:
    """--target, --draft and --models_dir, which `located_pair` reads."""
    add = parser.add_argument
    of_target = f"a bundled name, a path, a hub's id, or a size ({', '.join(SIZES)})"
    of_target += f" of GPT-2; default {zoo.MODELS[0]}, or {PAIR[0]} of --models_dir"
    add("--target", "--target_model_size", help=of_target)
    of_draft = f"{shared.DRAFTS}; default {zoo.MODELS[1]}, or"
    add("--draft", "--draft_model_size", help=f"{of_draft} {PAIR[1]}")
    add("--models_dir", help=f"has a folder of each size; default {FOLDER}")


def named_pair(flags: argparse.Namespace) -> tuple[str, str]:
    """Target and draft as they were named, or by default."""
    pair = zoo.MODELS if flags.audio is None else zoo.SPEECH_MODELS
    pair = pair if flags.models_dir is None else PAIR
    return flags.target or pair[0], flags.draft or pair[1]


def located_pair(flags: argparse.Namespace) -> tuple[str, str]:
    """Target and draft by names that `flags.pair` takes."""
    return tuple(size_folder(name, flags.models_dir) for name in named_pair(flags))


def size_folder(name: str, below: str | None) -> str:
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


PROMPT = 'import os\n\n\ndef find_files(root, suffix):\n    """'
ROUNDS = 5  # timed runs of each kind, in turns
PATIENCE = 1.0  # seconds that weights may take to be read before a word is said


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), decodes and prints; returns 0."""
    parser = make_parser()
    flags = parser.parse_args(argv)
    with console.stops(), native.products(flags.products):
        with shared.on_mesh(parser, flags.mesh):
            return decode(parser, flags)


def decode(parser: Parser, flags: argparse.Namespace) -> int:
    with parser.refusing(OverflowError, FloatingPointError):
        target, draft = named_pair(flags)
        with told_if_slow(f"Reading {target} and {draft} ..."):
            case = make_case(flags)
        print("Compiling (not timed) ...", file=sys.stderr, flush=True)
        baseline, outputs, seconds = measure(case)
        steps = iterate(case)
        with console.announced("  its steps, to be printed"):
            first = next(steps)  # compiles, before anything is printed
    before, after = np.median(seconds, axis=1)
    block("Autoregressive Decode", before)
    print(case.tokenizer.decode(baseline), end="\n\n")
    block("Speculative Decode", after)
    length = int(case.prompt.length[0])
    text, trace = show(case.tokenizer, length, itertools.chain([first], steps))
    print()
    summarize(case, flags, trace, seconds)
    print(repetition(baseline, length))
    print(fused.line(case.kernels.record))
    print(f"products: {native.in_use()}")
    guarantee = case.decoder.verifier.guarantee
    print(f"rule {flags.rule}: {guarantee}")
    compare(flags.temperature, baseline, outputs, text)
    color = {"always": True, "never": False}.get(flags.color, colorful())
    print_trace(case.tokenizer, trace, color)
    return 0


def make_parser() -> Parser:
    parser = Parser(prog="specjax demo", description=__doc__.split("\n")[0])
    add = parser.add_argument
    of_prompt = "what is gone on with, or what an encoder reads; default %(default)r"
    add("--prompt", default=PROMPT, help=of_prompt)
    of_audio = "a recording, for Whispers; by the bundled pair unless one is named"
    add("--audio", metavar="FILE", help=of_audio)
    of_new = "at most, or of a GPT-2 by its size so many; default %(default)s"
    add("--n_tokens_to_generate", type=console.count, default=60, help=of_new)
    add_models(parser)
    shared.add(parser, "rule", "policy", "tokenizer")
    add("--K", type=console.gamma, default=4, help="drafted tokens a step: gamma")
    shared.add(parser, "temperature", help="0 is greedy, the default")
    shared.add_filters(parser)
    shared.add(parser, "dtype", "cache")
    shared.add(parser, "seed", default=123)
    shared.add(parser, "mesh", "kernels", "products")
    of_color = "of the trace; auto: on a terminal, where NO_COLOR is not set"
    add("--color", choices=("auto", "always", "never"), default="auto", help=of_color)
    return parser


def make_case(flags: argparse.Namespace) -> Case:
    """Loads and checks everything; raises ValueError before any compute."""
    names = located_pair(flags)
    target, draft = shared.pair(names, flags.dtype, flags.cache)
    sides.check(target, draft, with_alpha=False)
    model = sides.reader(target, flags.tokenizer)
    if flags.audio is None:
        read = prompts.of([flags.prompt], model)
    else:
        heard, pair = [{"audio": flags.audio}], (target, draft)
        (target, draft), read = spoken_prompts.of(heard, pair)
    mesh.check_rows(1)
    target, draft = mesh.pair(target, draft)
    shape = fused.Sizes(1, flags.K, target.vocab, draft.regime)
    chosen = fused.choose(flags.kernels, verifiers.named(flags.rule), shape)
    chosen = finite.guarded_kernels(chosen)
    drafter = draft.drafter(flags.K, chosen.draw)
    policy = policies.named(flags.policy)
    decoder = Decoder(target.model, drafter, chosen.verifier, policy)
    known = [x for x in (target.model.slots, drafter.slots) if x is not None]
    most = min(known) - flags.n_tokens_to_generate if known else None
    prompt = bucketed(make_prompt(read.tokens, read.inputs), most)
    request = make_request(
        jax.random.key(flags.seed),
        prompt,
        flags.n_tokens_to_generate,
        make_sampling(1, flags.temperature, **truncation(flags)),
        () if names[0] != named_pair(flags)[0] else read.ends,
    )
    prompt, request = mesh.rows((prompt, request))
    slots = prompt.tokens.shape[1] + flags.n_tokens_to_generate + flags.K + 1
    params = Params(target.params, draft.params)
    check(decoder, slots, params, prompt, request)
    names = target.name, draft.name
    inputs = params, prompt, request
    return Case(names, decoder, slots, *inputs, model.tokenizer, chosen)


def measure(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both kinds of decoding, in turns after a first run of each that compiles."""
    alone = Decoder(case.decoder.target, verifier=case.kernels.alone)
    runs, tokens = {"baseline": alone, "speculative": case.decoder}, []
    for name, parts in runs.items():
        runs[name] = build_run(case, parts)
        with console.announced(f"  the {name} text"):
            tokens.append(runs[name]())
        finite.check([tokens[-1][int(case.prompt.length[0]) :]])
    seconds = np.zeros((len(runs), ROUNDS))
    with console.announced(f"Timing {ROUNDS} rounds"):
        for at in np.ndindex(ROUNDS):
            for taken, run in zip(seconds, runs.values(), strict=True):
                begun = time.perf_counter()
                run()
                taken[at] = time.perf_counter() - begun
    return *tokens, seconds


@contextlib.contextmanager
def told_if_slow(label: str) -> Iterator[None]:
    """Says it on stderr once this has taken a while; a mistake is told before that."""
    timer = threading.Timer(PATIENCE, lambda: print(label, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def build_run(case: Case, decoder: Decoder) -> Callable[[], np.ndarray]:
    loop = jax.jit(generate.build_loop(decoder, case.slots))

    def run() -> np.ndarray:
        output = loop(case.params, case.prompt, case.request)
        return np.asarray(output.tokens)[0, : int(output.length[0])]

    return run


def block(title: str, seconds: float) -> None:
    print(f"{title}\n{'-' * len(title)}\nTime = {seconds:.2f}s\nText = ", end="")


def show(
    tokenizer: Tokenizer, length: int, steps: Iterable
) -> tuple[np.ndarray, list[Step]]:
    """Prints the text as it grows beyond its first `length` tokens, the prompt's."""
    texts, trace = [np.zeros(length, int)], []

    def grown() -> Iterator[np.ndarray]:
        for ids, info in steps:
            trace.append(make_step(ids[len(texts[-1]) :], info))
            texts.append(ids)
            yield ids

    for part in stream(tokenizer, grown()):
        print(part, end="", flush=True)
    print()
    return texts[-1], trace


def summarize(
    case: Case, flags: argparse.Namespace, trace: list[Step], seconds: np.ndarray
) -> None:
    """What was measured on this text: one, so that the interval is the clock's alone.
    seconds: [2, ROUNDS], of the baseline and of speculation."""
    accepted = sum(len(step.accepted) for step in trace)
    tested = sum(step.tested for step in trace)
    calls = len(trace)
    emitted = sum(len(step.accepted) + len(step.added) for step in trace)
    alpha = f"{accepted / tested:.3f}" if tested else "-"
    tokens_per_call = emitted / calls
    print("Summary\n-------")
    print(f"target, draft = {', '.join(case.names)} on {jax.default_backend()}")
    print(f"alpha = {alpha} ({accepted} accepted of {tested} drafted tokens tested)")
    each = f"{tokens_per_call:.2f} ({emitted} in {calls} calls)"
    print(f"tokens per target call = {each}")
    r = closed_forms.chen_r(tokens_per_call, flags.K)
    print(f"Chen's r = {r:.3f} (K = {flags.K})")
    low, high = timing.interval(speedup, tuple(seconds))
    before, after = 1e3 * np.median(seconds, axis=1)
    print(
        f"speedup = {speedup(*seconds):.2f}, 95 % {low:.2f} to {high:.2f}"
        f" ({before:.1f} ms over {after:.1f} ms, medians of {ROUNDS} rounds)"
    )


def repetition(ids: np.ndarray, length: int) -> str:
    """How much of the text after `length` runs in circles, which is easy to draft."""
    marks = scoring.repeated(ids)[length:]
    share = float(marks.mean()) if marks.size else 0.0
    return f"repeats: {share:.0%} of tokens end {scoring.RUN} that the text had before"


def speedup(alone: np.ndarray, drafted: np.ndarray) -> float:
    """Of seconds [R] of the baseline, and of speculation in the same rounds."""
    return float(np.median(alone) / np.median(drafted))


def compare(
    temperature: float, baseline: np.ndarray, timed: np.ndarray, streamed: np.ndarray
) -> None:
    """Greedy texts must agree, up to rounding between calls of different shape."""
    if temperature > 0:
        print("texts: two samples of one distribution; equal only by chance")
        return
    columns = itertools.zip_longest(baseline, timed, streamed)
    differ = [at for at, ids in enumerate(columns) if len(set(ids)) > 1]
    if differ:
        print(f"texts: differ from token {differ[0]} on (counting the prompt's)")
    else:
        print("texts: identical")
