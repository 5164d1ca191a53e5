"""How fast a pair decodes and why, on your own prompts: `specjax measure`.

Prints, and appends to a file that `specjax compare` reads: alpha by four estimators, c,
v and the overhead of every gamma, the best gamma, predicted and measured speed.
"""

import argparse
import datetime
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import sentencepiece

from specjax import zoo
from specjax.bench import jsonl, plan, players, scoring, walltime
from specjax.bench.decoding import Protocol, speculate, write
from specjax.bench.machine import machine
from specjax.bench.players import Player
from specjax.demo import Parser


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), measures and prints; returns 0."""
    parser = make_parser()
    flags = parser.parse_args(argv)
    try:
        target, draft = players.named(flags.target), players.named(flags.draft)
        prompts = read_prompts(flags.data, tokenizer(flags))
        setting = make_setting(flags)
        walltime.check(target, draft, setting)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if flags.out:
        Path(flags.out).parent.mkdir(parents=True, exist_ok=True)
    plan.announce(target, draft, prompts, setting)
    begun = time.monotonic()
    found = walltime.measure(target, draft, prompts, setting)
    found["estimates"] = estimates(target, draft, prompts, setting, found)
    report(found)
    if flags.out:
        jsonl.append(Path(flags.out), record(flags, found, time.monotonic() - begun))
        print(f"\nappended to {flags.out}")
    return 0


def make_parser() -> Parser:
    parser = Parser(prog="specjax measure", description=__doc__.split("\n")[0])
    add = parser.add_argument
    of_model = "a bundled name, a .safetensors file or a folder; default %(default)s"
    add("--target", default=zoo.MODELS[0], help=of_model)
    of_draft = "the same, or unigram or bigram; default %(default)s"
    add("--draft", default=zoo.MODELS[1], help=of_draft)
    add("--data", required=True, help='JSON lines: {"prompt": text}')
    add("--tokenizer", help="a SentencePiece file; default: of the target's folder")
    add("--temperature", type=float, default=0.0)
    add("--batch", type=int, default=1, help="texts decoded together")
    gammas = [0, 1, 2, 3, 5, 8]
    add("--gammas", type=int, nargs="+", default=gammas, help="0 is the baseline")
    add("--tokens", type=int, default=96, help="of every text, without its prompt")
    add("--texts", type=int, help="texts measured; default 16, or two batches")
    add("--rounds", type=int, default=5, help="how often each is timed")
    add("--seed", type=int, default=0)
    add("--name", help="of the row that is written; default: the draft's")
    add("--out", help="a .jsonl file to append to")
    return parser


def make_setting(flags: argparse.Namespace) -> walltime.Setting:
    """Raises ValueError for a setting that means nothing."""
    if not flags.temperature >= 0:
        raise ValueError(f"--temperature must be at least 0; got {flags.temperature}")
    batch = max(flags.batch, 1)
    others = batch * -(-4 // batch)
    return walltime.Setting(
        flags.temperature,
        flags.batch,
        tuple(sorted({0, *flags.gammas})),
        flags.tokens,
        flags.texts or max(16 // batch, 2) * batch,
        others,
        flags.rounds,
        flags.seed,
    )


def tokenizer(flags: argparse.Namespace) -> Callable[[str], list[int]]:
    """The target's: what was named, else in its folder, else the bundled models'."""
    beside = Path(flags.target).resolve()
    beside = (beside if beside.is_dir() else beside.parent) / "tokenizer.model"
    named = flags.tokenizer or (beside if beside.exists() else None)
    if named is None:
        return zoo.encode
    if not Path(named).exists():
        raise ValueError(f"no tokenizer at {named}: name a SentencePiece .model file")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(named))
    return lambda text: [zoo.START, *pieces.encode(text)]


def read_prompts(path: str, encode: Callable[[str], list[int]]) -> list[list[int]]:
    """The prompts of a file. Raises ValueError naming the line that is not one."""
    found = []
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(encode(json.loads(line)["prompt"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f'{path}, line {number}: want {{"prompt": text}} ({error!r})'
            ) from None
    if not found:
        raise ValueError(f'{path} has no line: write {{"prompt": text}}, one a line')
    return found


def estimates(
    target: Player,
    draft: Player,
    prompts: Sequence[list[int]],
    setting: walltime.Setting,
    found: dict,
) -> dict:
    """alpha by the four estimators at the best gamma, on texts up to their ends."""
    protocol = Protocol(
        "prompts",
        setting.temperature,
        setting.texts * setting.new_tokens,
        found["best_gamma"],
        setting.seed,
        setting.new_tokens,
        min(32, setting.texts),
    )
    text = write(target, prompts, protocol)
    scores = scoring.score(target, draft, text, setting.temperature)
    calls = speculate(target, draft, prompts, len(text.start), protocol)
    return scoring.estimates(scores, calls, found["best_gamma"])


def report(found: dict) -> None:
    """The table, then what to do with it."""
    print(f"{found['target']} with {found['draft']}, {jax.devices()[0].device_kind}")
    print(
        f"T = {found['temperature']:g}, batch {found['batch']}, {found['texts']} texts"
    )
    print(f"output: {found['exactness']} ({found['draft_regime']})\n\nalpha")
    for name, one in found["estimates"].items():
        error = "" if one["se"] is None else f" ± {one['se']:.4f}"
        print(f"  {name:14}{one['value']:.4f}{error}")
    print(f"\ntarget call on one token: {found['target_ms']:.3f} ms")
    head = (
        "gamma",
        "c",
        "v",
        "overhead",
        "tok/call",
        "EXP",
        "exact",
        "measured",
        "95 %",
    )
    form = "{:>5} {:>7} {:>6} {:>8} {:>8} {:>6} {:>6} {:>8}  {}"
    print(form.format(*head))
    for at, gamma in enumerate(found["gamma"]):
        c = "" if found["c"][at] is None else f"{found['c'][at]:.4f}"
        names = ("v", "overhead", "tokens_per_call", "exp", "predicted", "speedup")
        numbers = (f"{found[name][at]:.2f}" for name in names)
        low, high = found["speedup_ci"][at]
        print(form.format(gamma, c, *numbers, f"{low:.2f} to {high:.2f}"))
    faster = found["best_speedup"] > 1
    advice = f"gamma = {found['best_gamma']}" if faster else "decode without a draft"
    print(
        f"\nbest: {advice}; {found['best_speedup']:.2f} times the baseline's speed,"
        f" predicted {found['best_predicted']:.2f}"
    )


def record(flags: argparse.Namespace, found: dict, seconds: float) -> dict:
    """A row as `specjax compare` and the experiments read it."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    provenance = {
        "commit": None,
        **machine(),
        "dtype": "float32",
        "seed": flags.seed,
        "config": "".join(f"{k} = {v!r}\n" for k, v in sorted(vars(flags).items())),
        "date": now,
        "seconds": round(seconds, 2),
    }
    return {
        "row": flags.name or found["draft"],
        "table": "measure",
        "scale": "measured",
        "measured": found,
        "published": None,
        "provenance": provenance,
    }


if __name__ == "__main__":
    sys.exit(main())
