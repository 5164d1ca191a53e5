"""How fast a pair decodes and why, on your own prompts: `specjax measure`.

Prints, and appends to a file that `specjax compare` reads: alpha by four estimators; c
and v, timed apart and inside a step, and the overhead; the measured speed of every
gamma, and the one predicted of those that were not fitted; the best gamma.
"""

import argparse
import datetime
import sys
import time
from pathlib import Path

import jax
import numpy as np
from jax import Array

from specjax import finite
from specjax.bench import forecast, inside, jsonl, players, scoring, walltime
from specjax.bench.machine import machine
from specjax.bench.players import Player
from specjax.bench.texts import Prompts, Protocol, Text, speculate, write
from specjax.commands import flags as shared
from specjax.commands import kernels
from specjax.commands.flags import Parser
from specjax.commands.pairs import ONE_GAMMA
from specjax.types import Kernels, Law


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), measures and prints; returns 0."""
    parser = make_parser()
    flags = parser.parse_args(argv)
    try:
        target, draft = players.named(flags.target), players.named(flags.draft)
        prompts = shared.read_prompts(flags, target)
        setting = make_setting(flags)
        walltime.check(target, draft, setting)
        chosen = kernels.of_setting(target, draft, setting)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if flags.out:
        Path(flags.out).parent.mkdir(parents=True, exist_ok=True)
    print(kernels.line(chosen.record), file=sys.stderr)
    forecast.announce(target, draft, prompts, setting, chosen)
    begun = time.monotonic()
    try:
        text, scores = scored(target, draft, prompts, setting, chosen)
        found = walltime.measure(target, draft, prompts, setting, chosen)
        calls = (target, draft), prompts, len(text.start), setting, chosen
        found["estimates"] = estimates(*calls, scores, found["best_gamma"])
    except FloatingPointError as error:
        parser.error(str(error))
    report(found)
    if flags.out:
        jsonl.append(Path(flags.out), record(flags, found, time.monotonic() - begun))
        print(f"\nappended to {flags.out}")
    return 0


def make_parser() -> Parser:
    parser = Parser(prog="specjax measure", description=__doc__.split("\n")[0])
    add = parser.add_argument
    shared.add_pair(parser, "unigram or bigram")
    shared.add_policy(parser)
    shared.add_prompts(parser)
    add("--temperature", type=float, default=0.0)
    add("--batch", type=int, default=1, help="texts decoded together")
    gammas = [0, 1, 2, 3, 5, 8]
    add("--gammas", type=int, nargs="+", default=gammas, help="0 is the baseline")
    add("--tokens", type=int, default=96, help="of every text, without its prompt")
    add("--ends", action="store_true", help="texts stop at their ends, before --tokens")
    kernels.add_flag(parser)
    add("--texts", type=int, help="texts measured; default 16, or two batches")
    add("--rounds", type=int, default=5, help="how often each is timed")
    add("--seed", type=int, default=0)
    add("--name", help="of the row that is written; default: the draft's")
    add("--out", help="a .jsonl file to append to")
    return parser


def make_setting(flags: argparse.Namespace) -> walltime.WalltimeSetting:
    """Raises ValueError for a setting that means nothing."""
    if not flags.temperature >= 0:
        raise ValueError(f"--temperature must be at least 0; got {flags.temperature}")
    batch = max(flags.batch, 1)
    others = batch * max(2, -(-4 // batch))  # two batches: else there is no error
    return walltime.WalltimeSetting(
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
        flags.kernels,
        flags.policy,
    )


def scored(
    target: Player,
    draft: Player,
    prompts: Prompts,
    setting: walltime.WalltimeSetting,
    chosen: Kernels,
) -> tuple[Text, scoring.Scores]:
    """Texts of the target alone, and what the draft is worth at each of their tokens.

    Raises:
      FloatingPointError: logits of either side are no law; told before minutes of
        timing, which does not look at them.
    """
    kernels = finite.guarded_kernels(chosen)
    text = write(target, prompts, protocol(setting, 0), kernels)
    finite.check(text.rows())
    pair = target, draft

    def tops(p: Law, q: Law, written: Array) -> tuple[Array, Array]:
        del written
        return p.top, q.top

    *tops_of, sequence = scoring.positions(pair, text, setting.temperature, tops)
    for side, top in zip(("target", "draft"), tops_of, strict=True):
        lost = np.flatnonzero(~np.isfinite(top))
        if lost.size:
            row = sequence[lost[0]]
            token = lost[0] - np.flatnonzero(sequence == row)[0]
            raise finite.error(int(row), int(token), side)
    return text, scoring.score(target, draft, text, setting.temperature)


def estimates(
    pair: tuple[Player, Player],
    prompts: Prompts,
    count: int,
    setting: walltime.WalltimeSetting,
    chosen: Kernels,
    scores: scoring.Scores,
    gamma: int,
) -> dict:
    """alpha by the estimators at the best gamma, on texts up to their ends; by those
    alone that need no one gamma, where a policy moves it.

    Raises:
      FloatingPointError: logits of either side are no law.
    """
    kernels = finite.guarded_kernels(chosen)
    calls = speculate(pair, prompts, count, protocol(setting, gamma), kernels)
    finite.check(calls.texts)
    each = scoring.estimates(scores, calls, gamma)
    if setting.policy == "none":
        return each
    return {name: one for name, one in each.items() if name not in ONE_GAMMA}


def protocol(setting: walltime.WalltimeSetting, gamma: int) -> Protocol:
    """How the texts are decoded that alpha is estimated on."""
    return Protocol(
        "prompts",
        setting.temperature,
        setting.texts * setting.new_tokens,
        gamma,
        setting.seed,
        setting.new_tokens,
        min(32, setting.texts),
        setting.rule,
        setting.kernels,
        setting.policy,
    )


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
    head = "gamma", "c", "v", "overhead", "tok/call", "EXP", "predicted", "measured"
    form = "{:>5} {:>7} {:>6} {:>8} {:>8} {:>6} {:>9} {:>8}  {}"
    print(form.format(*head, "95 %"))
    for at, gamma in enumerate(found["gamma"]):
        c = "" if found["c"][at] is None else f"{found['c'][at]:.4f}"
        names = ("v", "overhead", "tokens_per_call", "exp")
        numbers = (shown(found[name][at]) for name in names)
        low, high = found["speedup_ci"][at]
        speeds = predicted(found, gamma), shown(found["speedup"][at])
        print(form.format(gamma, c, *numbers, *speeds, f"{low:.2f} to {high:.2f}"))
    print("\n".join(parts(found)))
    faster, gamma = found["best_speedup"] > 1, found["best_gamma"]
    advice = f"gamma = {gamma}" if faster else "decode without a draft"
    print(
        f"\nbest: {advice}; {found['best_speedup']:.2f} times the baseline's speed,"
        f" predicted: {predicted(found, gamma)}"
    )


def predicted(found: dict, gamma: int) -> str:
    """The predicted speed, or why there is none."""
    if gamma == 0:
        return "baseline"
    if gamma in found["fitted"]:
        return "fitted"
    return shown(found["predicted"][found["gamma"].index(gamma)])


def parts(found: dict) -> list[str]:
    """What a step consists of inside a text, beside what was timed apart, and what is
    wrong with either."""
    lines, step = [], found["inside"]
    if step:
        values = [f"{step[name]:.4f}" for name in inside.PARTS]
        if step["c_se"] is not None:
            values = [
                f"{value} ± {step[f'{name}_se']:.4f}"
                for name, value in zip(inside.PARTS, values, strict=True)
            ]
        named = zip(("c", "v0", "v1", "rest"), values, strict=True)
        lines.append("\ninside a step of gamma c + v0 + v1 (gamma + 1) + rest:")
        lines.append("  " + ", ".join(f"{name} {value}" for name, value in named))
        lines += [
            f"  timed apart at gamma = {gamma}: c {percent(c)}, v {percent(v)}"
            for gamma, c, v in inside.apart(found)
        ]
    return lines + [f"warning: {doubt}" for doubt in inside.doubts(found)]


def percent(x: float | None) -> str:
    return "not comparable" if x is None else f"{100 * x:+.0f} %"


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
