"""Trains a draft for a target: `specjax train-draft --kind eagle3 --generate FILE`.

The target continues the prompts in FILE, or reads those of --data, and the
draft learns its distribution of every next token. What was computed is kept in --runs:
a command that was stopped continues when it is started again. The folder --out is then
a draft for `--draft` of the other commands, and for `specjax.load_draft`."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specjax import pretrained, zoo
from specjax.cli import flags as shared
from specjax.runtime import console
from specjax.training.draft_kinds import RATES, READ, Sizes
from specjax.training.heads import Objective
from specjax.training.losses import LOSSES

if TYPE_CHECKING:
    from specjax.training.train_draft import Setting

SCHEDULES = "linear", "cosine"  # the keys of `loop.FALLS`, which asks for optax
NEEDED = "training needs optax: pip install 'specjax[train]'"


def main(argv: list[str] | None = None) -> int:
    """Reads the flags (of `sys.argv` if None), trains and prints; returns 0."""
    parser = make_parser()
    chosen = parser.parse_args(argv)
    console.print_document(chosen.json, lambda: run(parser, chosen))
    return 0


def run(parser: console.Parser, chosen: argparse.Namespace) -> dict[str, Any]:
    """Trains, and returns the fields of --json: the folder of the draft, and what its
    last step measured on held-out texts."""
    start = time.monotonic()
    try:
        from specjax.training import train_draft
    except ImportError as error:
        if error.name != "optax":
            raise
        parser.error(NEEDED)
    again = "start the same command again to continue"
    with parser.report_errors(), console.handle_stops(lambda: again):
        setting = make_setting(chosen)
        target = pretrained.load(chosen.target)
        point = train_draft.train(target, setting)
    rates = {
        name.removeprefix("held_out "): value
        for name, value in point.items()
        if name.startswith("held_out ")
    }
    bounds = [x.removeprefix("held_out ") for x in point.get("at_most", ())]
    for name, value in rates.items():
        print(f"{name}:{' at most' if name in bounds else ''} {value}")
    print(f"draft: {chosen.out}")
    took = time.monotonic() - start
    told = {"folder": str(chosen.out), "step": point["step"], **rates}
    return told | {"at_most": bounds, "seconds": took}


def make_setting(chosen: argparse.Namespace) -> "Setting":
    """Returns the setting that the flags describe. Raises ValueError for flags that do
    not go together."""
    from specjax.training.loop import Recipe
    from specjax.training.train_draft import Setting

    flags = vars(chosen)
    for name in Sizes._fields:
        if name not in (*READ[chosen.kind], "dtype") and flags[name] is not None:
            flag = name.replace("_", "-")
            raise ValueError(f"--{flag} is not for --kind {chosen.kind}: leave it out")
    if (chosen.data is None) == (chosen.generate is None):
        raise ValueError("name either --generate FILE or --data FILE")
    if chosen.warmup + chosen.fall > chosen.steps:
        raise ValueError(
            f"--warmup {chosen.warmup} and --fall {chosen.fall} must fit into --steps"
            f" {chosen.steps}"
        )
    sizes = {name: flags[name] for name in Sizes._fields if name in flags}
    taps = None if chosen.taps is None else tuple(chosen.taps)
    recipe = Recipe(
        steps=chosen.steps,
        decay=chosen.fall,
        batch=chosen.batch,
        length=chosen.length,
        rate=chosen.rate or RATES[chosen.kind],
        warmup=chosen.warmup,
        weight_decay=chosen.weight_decay,
        seed=chosen.seed,
        checkpoint_every=chosen.save_every,
        evaluate_every=chosen.evaluate_every,
        schedule=chosen.schedule,
    )
    return Setting(
        kind=chosen.kind,
        out=chosen.out,
        runs=chosen.runs or chosen.out.with_name(f"{chosen.out.name}.run"),
        sizes=Sizes(**sizes | {"taps": taps}),
        objective=Objective(chosen.loss, chosen.decay),
        recipe=recipe,
        data=chosen.data,
        generate=chosen.generate,
        texts=chosen.texts,
        new=chosen.tokens,
        greedy_every=chosen.greedy_every,
        longest=chosen.longest,
        held_out=chosen.held_out,
        part=chosen.together,
        parts=chosen.parts,
        devices=chosen.mesh,
        events=chosen.events,
    )


def make_parser() -> console.Parser:
    about = __doc__.split("\n")[0]
    parser = console.Parser(prog="specjax train-draft", description=about)
    add, count = parser.add_argument, console.count
    shared.add(parser, "target", default=zoo.MODELS[0])
    of_kind = "small: a model of its own; early_exit: one that begins as the target's"
    of_kind += " first layers; medusa, blockwise, eagle3: heads that read the target"
    add("--kind", choices=RATES, default="eagle3", help=f"{of_kind}; %(default)s")
    of_prompts = "prompts that the target continues: JSON lines,"
    add(
        "--generate",
        type=Path,
        metavar="FILE",
        help=f"{of_prompts} {shared.TEXT_PROMPT}",
    )
    add("--data", type=Path, metavar="FILE", help="it reads these texts, likewise")
    add(
        "--out", type=Path, required=True, metavar="DIR", help="the draft, a new folder"
    )
    add("--runs", type=Path, metavar="DIR", help="of the run; default: OUT.run")

    texts = parser.add_argument_group("texts")
    add = texts.add_argument

    def add_whole_number(name: str, default: int, help: str, least: int = 1) -> None:
        kind = count if least else console.whole_number(0, 2**31 - 1)
        add(name, type=kind, default=default, metavar="N", help=f"{help}; {default}")

    add_whole_number("--texts", 320, "that the target writes")
    of_greedy = "one in this many of these is greedy, others are sampled; 0 for none"
    add_whole_number("--greedy-every", 2, of_greedy, least=0)
    add_whole_number("--tokens", 64, "new tokens of such a text")
    add_whole_number("--longest", 32, "leave out prompts of more tokens")
    add_whole_number("--together", 32, "texts that are written or read together")
    add_whole_number("--length", 128, "tokens that a text of --data is cut to")
    add_whole_number("--held-out", 32, "texts that are measured on, never trained on")

    draft = parser.add_argument_group("draft")
    add = draft.add_argument
    sizes = {
        "--vocab": "ids that an EAGLE-3 head proposes, the most frequent; default: 1/4",
        "--layers": "of a small model (2), of Medusa's heads (1), or how many of the"
        " target's begin an early exit (a quarter)",
        "--dim": "features of a small model; 64",
        "--mlp-dim": "features of its feed-forward layer (four times --dim), of an"
        " EAGLE-3 head's, or of each blockwise head (as many as the target has)",
        "--num-heads": "of attention; default: 2, for a head half of the target's",
        "--heads": "of Medusa, or blockwise parallel ones; 3",
        "--turns": "an EAGLE-3 head learns to draft this many tokens; 2",
    }
    for name, help in sizes.items():
        add(name, type=count, metavar="N", help=help)
    of_taps = "places of the target that an EAGLE-3 head reads: k is what enters layer"
    place = console.whole_number(0, 10_000)
    add("--taps", type=place, nargs="+", metavar="K", help=f"{of_taps} k; default: 3")
    kinds = "float32", "bfloat16"
    of_dtype = "of activations in training; weights are float32; %(default)s"
    add("--dtype", default=kinds[0], choices=kinds, help=of_dtype)

    training = parser.add_argument_group("training")
    add = training.add_argument
    of_loss = "the distance of the draft's law from the target's: forward or reverse"
    of_loss += (
        " KL, Jensen-Shannon, total variation (1 - alpha), -log alpha, or KL that"
    )
    of_loss += " turns into total variation as alpha grows; %(default)s"
    add("--loss", default="kl", choices=LOSSES, help=of_loss)
    share = console.number(0.0, 1.0)
    of_decay = "weight of each drafted token relative to the one before; %(default)s"
    add("--decay", type=share, default=0.8, metavar="W", help=of_decay)
    add_whole_number("--steps", 320, "batches")
    add_whole_number("--batch", 4, "texts of a batch")
    add_whole_number("--parts", 1, "of a batch, one after another, to save memory")
    rate = console.number(0.0, 1.0, above=True)
    each = ", ".join(f"{kind} {value:g}" for kind, value in RATES.items())
    add("--rate", type=rate, metavar="R", help=f"of learning; default: {each}")
    add_whole_number("--warmup", 10, "steps in which the rate rises from 0", least=0)
    add_whole_number("--fall", 240, "last steps, in which it falls to 0", least=0)
    of_schedule = "how it falls; %(default)s"
    add("--schedule", default=SCHEDULES[0], choices=SCHEDULES, help=of_schedule)
    add("--weight-decay", type=share, default=0.0, metavar="W", help="of AdamW; 0")
    shared.add(parser, "mesh", "seed")
    add_whole_number("--save-every", 50, "steps; and every five minutes")
    add_whole_number("--evaluate-every", 50, "steps")
    of_events = "also write the curve for TensorBoard; needs tensorboardX, pip install"
    of_events += " 'specjax[events]'"
    add("--events", type=Path, metavar="DIR", help=of_events)
    console.add_json(parser)
    return parser
