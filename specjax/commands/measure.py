"""How fast a pair decodes and why, on your own prompts: `specjax measure`.

Prints, and appends to a file that `specjax compare` reads: alpha by four estimators, c,
v and the overhead of every gamma, the best gamma, predicted and measured speed.
"""

import argparse
import datetime
import json
import sys
import time
from pathlib import Path

import jax
import sentencepiece

from specjax import verifiers, zoo
from specjax.bench import jsonl, plan, players, scoring, walltime
from specjax.bench.decoding import Prompts, Protocol, speculate, write
from specjax.bench.machine import machine
from specjax.bench.players import Player
from specjax.demo import Parser

TOKENIZERS = ("tokenizer.model", "spiece.model")  # as they are called beside weights


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), measures and prints; returns 0."""
    parser = make_parser()
    flags = parser.parse_args(argv)
    try:
        target, draft = players.named(flags.target), players.named(flags.draft)
        prompts = read_prompts(flags.data, tokenizer(flags, target), target)
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
    of_model = "a bundled name, a path or a hub's id; default %(default)s"
    add("--target", default=zoo.MODELS[0], help=of_model)
    of_draft = "the same, or unigram or bigram; default %(default)s"
    add("--draft", default=zoo.MODELS[1], help=of_draft)
    add("--data", required=True, help='JSON lines: {"prompt": text}')
    add("--tokenizer", help="a SentencePiece file; default: beside the target's")
    add("--temperature", type=float, default=0.0)
    add("--batch", type=int, default=1, help="texts decoded together")
    gammas = [0, 1, 2, 3, 5, 8]
    add("--gammas", type=int, nargs="+", default=gammas, help="0 is the baseline")
    add("--tokens", type=int, default=96, help="of every text, without its prompt")
    add("--ends", action="store_true", help="texts stop at their ends, before --tokens")
    add(
        "--rule",
        default="token",
        choices=verifiers.names(),
        help="how drafts are verified",
    )
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
        flags.ends,
        flags.rule,
    )


def tokenizer(
    flags: argparse.Namespace, target: Player
) -> sentencepiece.SentencePieceProcessor:
    """The target's: what was named, else what lies beside its weights, else that of the
    bundled models of its kind. Raises ValueError where there is no such file."""
    folders = {path.parent for path in target.files}
    beside = [folder / name for folder in folders for name in TOKENIZERS]
    if flags.tokenizer is not None:
        beside = [Path(flags.tokenizer)]
    elif zoo.FOLDER in folders and target.encodes:
        beside = [zoo.FOLDER / "t5.model"]
    elif target.vocab == zoo.tokenizer().vocab_size():
        beside.append(zoo.FOLDER / "tokenizer.model")
    found = [path for path in beside if path.is_file()]
    if not found:
        raise ValueError(
            f"no tokenizer at {', '.join(map(str, beside))}: name a SentencePiece file"
            " with --tokenizer"
        )
    return sentencepiece.SentencePieceProcessor(model_file=str(found[0]))


def read_prompts(path: str, pieces, target: Player) -> Prompts:
    """The prompts of a file, as the target reads them: an encoder's input, which ends
    with the end id, or the beginning of a text, which begins with the start id.

    Raises ValueError naming the line that is no prompt.
    """
    found = []
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(pieces.encode(json.loads(line)["prompt"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f'{path}, line {number}: want {{"prompt": text}} ({error!r})'
            ) from None
    if not found:
        raise ValueError(f'{path} has no line: write {{"prompt": text}}, one a line')
    start = zoo.START if target.start is None else target.start
    end = zoo.END if target.end is None else target.end
    if not target.encodes:
        return Prompts([[start, *ids] for ids in found], None, end)
    return Prompts([[start]] * len(found), [[*ids, end] for ids in found], end)


def estimates(
    target: Player,
    draft: Player,
    prompts: Prompts,
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
        setting.rule,
    )
    text = write(target, prompts, protocol)
    scores = scoring.score(target, draft, text, setting.temperature)
    calls = speculate((target, draft), prompts, len(text.start), protocol)
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
        numbers = (shown(found[name][at]) for name in names)
        low, high = found["speedup_ci"][at]
        print(form.format(gamma, c, *numbers, f"{low:.2f} to {high:.2f}"))
    faster = found["best_speedup"] > 1
    advice = f"gamma = {found['best_gamma']}" if faster else "decode without a draft"
    print(
        f"\nbest: {advice}; {found['best_speedup']:.2f} times the baseline's speed,"
        f" predicted {shown(found['best_predicted'])}"
    )


def shown(x: float | None) -> str:
    """Two decimals; steps too short for the clock have no prediction."""
    return "none" if x is None else f"{x:.2f}"


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
