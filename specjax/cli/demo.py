"""Decodes a prompt without and with speculation, timed and traced: `specjax demo`.

The flags, their defaults and the two printed blocks are those of Jay Mody's
`speculative-sampling` script, where K is gamma. As there, a GPT-2 that is named by its
size writes exactly the number of tokens that was requested; the text of any other model
stops at its end. The compiled loop is timed; then the speculative text is decoded again
and printed step by step. Below follow the measurements and the trace of Figure 1 of
Leviathan et al. (2023). Progress is printed on stderr."""

import argparse
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import jax
import numpy as np

from specjax import finite, fused, generate, native, policies, prompts, verifiers
from specjax.cli import demo_pairs
from specjax.cli import flags as shared
from specjax.decode_config import setting_type
from specjax.drafts.placement import place_pair
from specjax.drafts.source import check_pair
from specjax.inputs import check, make_prompt, make_request, pad_to_bucket
from specjax.keys import root_key
from specjax.measure import scoring, timing
from specjax.measure.trace import (
    Case,
    Step,
    iterate,
    make_step,
    print_trace,
    supports_color,
)
from specjax.pretrained import use_tokenizer
from specjax.runtime import console, mesh
from specjax.runtime.console import Parser
from specjax.speech import spoken_prompts
from specjax.step import Decoder
from specjax.theory import closed_forms
from specjax.tokenizers import Tokenizer, stream
from specjax.types import Params
from specjax.verifiers import guarantees

ROUNDS = 5  # timed runs of each kind, in turns
PATIENCE = 1.0  # seconds that weights may take to be read before a word is said


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), decodes and prints; returns 0."""
    parser = make_parser()
    flags = parser.parse_args(argv)
    with console.handle_stops(), native.products(flags.products):
        with shared.use_mesh(parser, flags.mesh):
            console.print_document(flags.json, lambda: decode(parser, flags))
    return 0


def decode(parser: Parser, flags: argparse.Namespace) -> dict:
    """Prints the output that the module describes, and returns the fields of --json."""
    with parser.report_errors(OverflowError, FloatingPointError):
        pair = demo_pairs.choose(flags)
        with announce_if_slow(f"Reading {pair.target} and {pair.draft} ..."):
            case = make_case(flags)
        print("Compiling (not timed) ...", file=sys.stderr, flush=True)
        baseline, outputs, seconds = measure(case)
        steps = iterate(case)
        with console.announce("  its steps, to be printed"):
            first = next(steps)  # compiles, before anything is printed
    before, after = np.median(seconds, axis=1)
    length = int(case.prompt.length[0])
    begin = length if pair.chat else 0  # a chat prompt has words of its template
    if pair.chat or case.decoder.target.encodes:
        print(f"Input = {pair.audio or pair.prompt}\n")
    block("Autoregressive Decode", before)
    alone = case.tokenizer.decode(baseline[begin:])
    print(alone, end="\n\n")
    block("Speculative Decode", after)
    steps = itertools.chain([first], steps)
    text, trace = show(case.tokenizer, length, steps, begin)
    texts = {"alone": alone, "speculative": case.tokenizer.decode(text[begin:])}
    greedy = flags.temperature == 0  # texts must agree, up to rounding
    differ = first_difference(baseline, outputs, text) if greedy else None
    document = {
        **dict(zip(("target", "draft"), case.names, strict=True)),
        "device": jax.default_backend(),
        "prompt": str(pair.audio or pair.prompt),
        "temperature": flags.temperature,
        "gamma": flags.K,
        "rule": flags.rule,
        "guarantee": guarantees.combine(flags.rule, case.names[1], flags.policy),
        "policy": flags.policy,
        **counts(trace, flags.K),
        **speeds(seconds),
        "repeats": repetition(baseline, length),
        "texts": texts,
        "same_text": differ is None if greedy else None,
        "kernels": case.kernels.record,
        "products": native.in_use(),
        "steps": [pieces(case.tokenizer, step) for step in trace],
    }
    print()
    summarize(document)
    print(fused.line(case.kernels.record))
    print(f"products: {document['products']}")
    print(f"rule {flags.rule}: {document['guarantee']}")
    print(f"texts: {sameness(differ, greedy)}")
    color = {"always": True, "never": False}.get(flags.color, supports_color())
    print_trace(case.tokenizer, trace, color)
    return document


def make_parser() -> Parser:
    parser = Parser(prog="specjax demo", description=__doc__.split("\n")[0])
    add = parser.add_argument
    of_prompt = "the text to continue, an encoder's input, or a question to a chat"
    of_prompt += " model; default: one that suits the pair"
    add("--prompt", help=of_prompt)
    of_audio = "a recording for Whisper; decoded by the bundled pair unless another is"
    of_audio += " named"
    add("--audio", metavar="FILE", help=of_audio)
    of_new = "new tokens: at most, or exactly for a GPT-2 that is named by its size;"
    of_new += " default %(default)s"
    add(
        "--n_tokens_to_generate",
        "--tokens",
        type=console.count,
        default=60,
        help=of_new,
    )
    demo_pairs.add_models(parser)
    shared.add(parser, "rule", "policy", "tokenizer")
    of_gamma = "drafted tokens per step; default %(default)s"
    add("--K", "--gamma", type=setting_type("gamma"), default=4, help=of_gamma)
    shared.add(parser, "temperature", help="0 is greedy, the default")
    shared.add_filters(parser)
    shared.add(parser, "dtype", "cache")
    shared.add(parser, "seed", default=123)
    shared.add(parser, "mesh", "kernels", "products")
    of_color = "color the trace; auto: on a terminal, unless NO_COLOR is set"
    add("--color", choices=("auto", "always", "never"), default="auto", help=of_color)
    console.add_json(parser)
    return parser


def make_case(flags: argparse.Namespace) -> Case:
    """Loads and checks everything; raises ValueError before any computation."""
    chosen = demo_pairs.choose(flags)
    names = [
        demo_pairs.find_model(name, flags.models_dir)
        for name in (chosen.target, chosen.draft)
    ]
    target, draft = shared.load_pair(names, flags.dtype, flags.cache)
    check_pair(target, draft, with_alpha=False)
    model = use_tokenizer(target, flags.tokenizer)
    if chosen.audio is not None:
        recordings, pair = [{"audio": str(chosen.audio)}], (target, draft)
        (target, draft), read = spoken_prompts.from_list(recordings, pair)
    elif chosen.chat:
        message = {"role": "user", "content": chosen.prompt}
        read = prompts.from_list([{"messages": [message]}], model)
    else:
        read = prompts.from_list([chosen.prompt], model)
    mesh.check_rows(1)
    target, draft = place_pair(target, draft)
    shape = fused.Sizes(1, flags.K, target.vocab, draft.regime)
    kernels = fused.choose(flags.kernels, verifiers.find(flags.rule), shape)
    kernels = finite.guard_kernels(kernels)
    drafter = draft.drafter(flags.K, kernels.draw)
    policy = policies.find(flags.policy)
    decoder = Decoder(target.model, drafter, kernels.verifier, policy)
    limits = [x for x in (target.model.slots, drafter.slots) if x is not None]
    most = min(limits) - flags.n_tokens_to_generate if limits else None
    prompt = pad_to_bucket(make_prompt(read.tokens, read.inputs), most)
    request = make_request(
        root_key(flags.seed),
        prompt,
        flags.n_tokens_to_generate,
        shared.read_config(flags).sampling(1),
        () if names[0] != chosen.target else read.ends,
    )
    prompt, request = mesh.rows((prompt, request))
    slots = prompt.tokens.shape[1] + flags.n_tokens_to_generate + flags.K + 1
    params = Params(target.params, draft.params)
    check(decoder, slots, params, prompt, request)
    return Case(
        names=(target.name, draft.name),
        decoder=decoder,
        slots=slots,
        params=params,
        prompt=prompt,
        request=request,
        tokenizer=model.tokenizer,
        kernels=kernels,
    )


def measure(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Runs both kinds of decoding in turns, after a first run of each that compiles.

    Returns the tokens of the baseline, those of speculation, and seconds [2, ROUNDS].
    """
    alone = Decoder(case.decoder.target, verifier=case.kernels.alone)
    runs, tokens = [], []
    for name, parts in (("baseline", alone), ("speculative", case.decoder)):
        runs.append(build_run(case, parts))
        with console.announce(f"  the {name} text"):
            tokens.append(runs[-1]())
        finite.check([tokens[-1][int(case.prompt.length[0]) :]])
    seconds = np.zeros((len(runs), ROUNDS))
    with console.announce(f"Timing {ROUNDS} rounds"):
        for at in np.ndindex(ROUNDS):
            for times, run in zip(seconds, runs, strict=True):
                start = time.perf_counter()
                run()
                times[at] = time.perf_counter() - start
    return tokens[0], tokens[1], seconds


@contextlib.contextmanager
def announce_if_slow(label: str) -> Iterator[None]:
    """Prints a label on stderr once the block has run for `PATIENCE` seconds.

    An error that comes earlier is then printed without it."""
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
    tokenizer: Tokenizer, length: int, steps: Iterable, begin: int = 0
) -> tuple[np.ndarray, list[Step]]:
    """Prints the text as it grows, from token `begin` on; returns the text and its
    steps.

    length: the number of tokens of the prompt."""
    texts, trace = [np.zeros(length, int)], []

    def record_steps() -> Iterator[np.ndarray]:
        for ids, info in steps:
            trace.append(make_step(ids[len(texts[-1]) :], info))
            texts.append(ids)
            yield ids[begin:]

    for part in stream(tokenizer, record_steps()):
        print(part, end="", flush=True)
    print()
    return texts[-1], trace


def counts(trace: list[Step], gamma: int) -> dict:
    """Returns the counts of this text. alpha: None where no drafted token was
    tested."""
    accepted = sum(len(step.accepted) for step in trace)
    tested = sum(step.tested for step in trace)
    tokens = accepted + sum(len(step.added) for step in trace)
    tokens_per_call = tokens / len(trace)
    return {
        "alpha": accepted / tested if tested else None,
        "accepted": accepted,
        "tested": tested,
        "tokens": tokens,
        "calls": len(trace),
        "tokens_per_call": tokens_per_call,
        "chen_r": closed_forms.chen_r(tokens_per_call, gamma),
    }


def speeds(seconds: np.ndarray) -> dict:
    """Returns the milliseconds of both kinds of decoding, and the speedup.

    seconds: [2, ROUNDS], of the baseline and of speculation, on one text. The interval
    therefore covers the noise of the clock only."""
    before, after = 1e3 * np.median(seconds, axis=1)
    interval = timing.interval(speedup, tuple(seconds))
    return {
        "alone_ms": before,
        "speculative_ms": after,
        "speedup": speedup(*seconds),
        "speedup_ci": interval,
        "rounds": ROUNDS,
    }


def pieces(tokenizer: Tokenizer, step: Step) -> dict[str, list[str]]:
    """Returns the accepted, rejected and added tokens of a step as text."""
    runs = zip(Step._fields, step[:3], strict=False)
    return {name: [*map(tokenizer.piece, ids)] for name, ids in runs}


def summarize(it: dict) -> None:
    """Prints the measurements of this text. it: the document of --json."""
    alpha = "-" if it["alpha"] is None else f"{it['alpha']:.3f}"
    low, high = it["speedup_ci"]
    verdict = "faster" if low > 1 else "slower" if high < 1 else "undecided"
    print("Summary\n-------")
    print(f"target, draft = {it['target']}, {it['draft']} on {it['device']}")
    tested = f"{it['accepted']} accepted of {it['tested']} tested tokens"
    print(f"alpha = {alpha} ({tested})")
    each = f"{it['tokens_per_call']:.2f} ({it['tokens']} in {it['calls']} calls)"
    print(f"tokens per target call = {each}; at most gamma + 1 = {it['gamma'] + 1}")
    print(f"Chen's r = {it['chen_r']:.3f} (the former over the latter)")
    print(
        f"speedup = {it['speedup']:.2f}, 95 % {low:.2f} to {high:.2f}"
        f" ({it['alone_ms']:.1f} ms over {it['speculative_ms']:.1f} ms, medians of"
        f" {ROUNDS} rounds)"
    )
    print(
        f"{verdict} on this text and machine; `specjax measure` measures your own texts"
    )
    share = f"{it['repeats']:.0%} of tokens end {scoring.RUN}"
    print(f"repeats: {share} that occurred earlier in the text")


def repetition(ids: np.ndarray, length: int) -> float:
    """Returns the share of the tokens after `length` that repeat earlier text, which
    are easy to draft."""
    marks = scoring.find_repeats(ids)[length:]
    return float(marks.mean()) if marks.size else 0.0


def speedup(alone: np.ndarray, drafted: np.ndarray) -> float:
    """Returns the ratio of median seconds. alone, drafted: [R], of the same rounds."""
    return float(np.median(alone) / np.median(drafted))


def first_difference(*texts: np.ndarray) -> int | None:
    """Returns the first place where the texts differ; None where they are the same."""
    columns = enumerate(itertools.zip_longest(*texts))
    return next((at for at, ids in columns if len(set(ids)) > 1), None)


def sameness(differ: int | None, is_greedy: bool) -> str:
    if not is_greedy:
        return "two samples of one distribution; equal only by chance"
    if differ is None:
        return "identical"
    return f"differ from token {differ} on (counting the prompt's)"
