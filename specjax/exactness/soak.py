"""A test of every verifier on the most difficult inputs, over hundreds of millions of
rows.

A draw is one verified row: extreme logits of two models, a draft, and noise. KINDS must
hold of the verdict of each row, so that one bad row in 1e8 is found;
`specjax.exactness.certify` tests the laws. In some chunks a drafter's own code draws,
and its draws are judged over all rows (`drafter_draws`). `specjax soak --draws 1e8`
prints rates and exits with 1 on a violation. Axes: B rows, G = gamma, V vocabulary, F
features, K kinds."""

import argparse
import functools
import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from specjax import probs, trees, verifiers
from specjax.decode_config import setting_type
from specjax.exactness import drafter_draws
from specjax.exactness.nasty import (
    FEATURES,
    GAMMA,
    ROWS,
    TREE,
    VARIANTS,
    Problem,
    Variant,
    make,
)
from specjax.keys import root_key
from specjax.runtime import console, progress
from specjax.types import Draft, Verdict, Verifier

ROUNDS = 128  # draws of each problem of a chunk
CHUNK = ROWS * ROUNDS

# What can be wrong with a verdict.
KINDS = {
    "count": "num_accepted is outside of 0 .. num",
    "range": "a token is outside of 0 .. V - 1",
    "prefix": "an accepted token is not the drafted one",
    "zeros": "a token after the last is not 0",
    "support": "a token is emitted that the target cannot draw there",
    "accept_prob": "accept_prob is NaN, outside of [0, 1], or not 0 beyond num",
    "residual": "a residual weight is NaN, negative or outside of the support",
    "empty": "no residual weight is left to draw from",
    "drawn": "the token added has no weight in the residual",
}

NEXT_TO_ONE = 1 - 2**-24  # the largest float32 below 1
# Square roots of primes: multiples of them fill [0, 1) evenly, whatever the start.
STEPS = tuple(math.sqrt(prime) % 1 for prime in (2, 3, 5, 7, 11, 13, 17))
# The extremes of jax.random.gumbel(mode="high") in float32.
LEAST_GUMBEL, MOST_GUMBEL = -2.7689812, 87.33655


class Deal(NamedTuple):
    """A draw for each problem: the input of the verifier, and its verdict."""

    draft: Draft
    noise: Array | tuple
    verdict: Verdict


class Tally(NamedTuple):
    """The violations in a chunk.

    counts: [K] rows by kind. first: [K] the first such row of the chunk, or -1. draws:
    [2, Z] sums of `drafter_draws.moments`, Z = 0 where no drafter drew."""

    counts: Any
    first: Any
    draws: Any

    @property
    def wrong_draws(self) -> np.ndarray:
        """Returns which statistics of draws are wrong: [Z] bool."""
        return np.abs(drafter_draws.scores(self.draws)) > drafter_draws.LIMIT


class SoakRow(NamedTuple):
    """A row in full: its problem and deal as NumPy arrays, and the names of its
    violations.

    features: names of (target, draft)."""

    kinds: list[str]
    features: tuple[list[str], list[str]]
    variant: Variant
    problem: Problem
    deal: Deal


def soak(verifier: Verifier, seed: int, chunk: int) -> Tally:
    """Returns the violations in the CHUNK rows that `seed` and `chunk` identify.

    The problems are the same for any rule. Raises ValueError for a negative chunk."""
    run = _compile(verifier, variant_of(chunk))
    return Tally(*map(np.asarray, run(_problem(seed, chunk), 0, ROUNDS)[0]))


def replay(verifier: Verifier, seed: int, chunk: int, row: int) -> SoakRow:
    """Returns everything about one row of a chunk.

    Raises ValueError for a row outside of it, or a negative chunk."""
    if not 0 <= row < CHUNK:
        raise ValueError(f"row must be in 0 .. {CHUNK - 1}, as reported; got {row}")
    variant, problem = variant_of(chunk), _problem(seed, chunk)
    number, row = divmod(row, ROWS)
    deal, wrong = _compile(verifier, variant)(problem, number, number + 1)[1]
    kinds = [name for name, bad in zip(KINDS, wrong[:, row], strict=True) if bad]
    problem = problem._replace(key=jax.random.key_data(problem.key))
    problem, deal = jax.tree.map(lambda leaf: np.asarray(leaf[row]), (problem, deal))
    return SoakRow(kinds, _names(problem.features), variant, problem, deal)


def variant_of(chunk: int) -> Variant:
    if chunk < 0:
        raise ValueError(f"chunks are numbered from 0; got {chunk}")
    return VARIANTS[chunk % len(VARIANTS)]


@functools.lru_cache(maxsize=1)  # every rule in turn is put before the same
def _problem(seed: int, chunk: int) -> Problem:
    return _make(root_key(seed), chunk, variant_of(chunk))


@functools.cache
def _compile(verifier: Verifier, variant: Variant) -> Callable:
    """Returns a function (problem, first, end) -> the tally of draws first .. end - 1,
    and the last draw.

    One program serves soaking and replaying, so that both round alike."""

    def trial(problem: Problem, number: Array) -> tuple[Deal, Array]:
        dealt = deal(verifier, problem, number, variant)
        return dealt, violations(problem, dealt)

    def drawn_moments(dealt: Deal) -> Array:
        if not variant.own:
            return jnp.zeros((2, 0))
        return drafter_draws.moments(dealt.draft, siblings_of(verifier, variant))

    @jax.jit
    def run(problem: Problem, first: int, end: int) -> tuple[Tally, tuple[Deal, Array]]:
        def soak_chunk(number: Array, carry: Any) -> Any:
            dealt, wrong = trial(problem, number)
            counts, earlier, draws = carry[0]
            row = number * ROWS + jnp.argmax(wrong, axis=1)
            row = jnp.where(wrong.any(1) & (earlier < 0), row, earlier)
            found = Tally(counts + wrong.sum(1), row, draws + drawn_moments(dealt))
            return found, (dealt, wrong)

        shapes = jax.eval_shape(trial, problem, 0)
        none = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        zero = jnp.zeros(len(KINDS), jnp.int32)
        draws = jax.eval_shape(drawn_moments, none[0])
        empty = Tally(zero, zero - 1, jnp.zeros(draws.shape, draws.dtype))
        return jax.lax.fori_loop(first, end, soak_chunk, (empty, none))

    return run


_make = jax.jit(make, static_argnums=2)


def deal(verifier: Verifier, problem: Problem, number: Array, variant: Variant) -> Deal:
    """Returns draw `number` of each problem: a draft, noise, and the verdict on
    them."""
    noise = verifier.noise(problem.key, jnp.full(ROWS, number), GAMMA, variant.vocab)
    noise = push_to_edges(noise, jnp.arange(ROWS) % 16 >= 8, verifier.coupled)
    dice = (problem.dice + number * jnp.array(STEPS)) % 1
    if variant.own:
        branches = siblings_of(verifier, variant) is not None
        drafter = drafter_draws.make_drafter(verifier, variant.vocab, branches)
        draft = drafter_draws.draft(drafter, problem, number)
    else:
        draft = draw_draft(verifier, problem, dice, noise, variant)
    num = jnp.minimum((2 * GAMMA * dice[:, -1]).astype(jnp.int32), GAMMA)
    draft = draft._replace(num=num)
    verdict = verifier.verify(problem.laws[0], draft, noise, keep_residual=True)
    return Deal(draft, noise, verdict)


def siblings_of(verifier: Verifier, variant: Variant) -> str | None:
    """Returns how the nodes of a rule's trees are drawn; None where its drafts are
    chains."""
    if not variant.tree or not verifier.siblings:
        return None
    if variant.certain and "certain" not in verifier.siblings:
        return None
    return verifier.siblings[0]


def draw_draft(
    verifier: Verifier, problem: Problem, dice: Array, noise: Any, variant: Variant
) -> Draft:
    """Returns a draft of each problem, drawn by separate uniforms, with all its
    nodes."""
    law, row, vocab = problem.laws[1], jnp.arange(ROWS), variant.vocab
    u, stray = dice[:, :GAMMA], dice[:, GAMMA:-1]
    siblings, cumulative = siblings_of(verifier, variant), problem.cumulative
    if siblings:  # a node's law is that after its parent
        rows = jnp.array(TREE) + 1
        own = jax.tree.map(lambda leaf: leaf[:, rows], probs.per_row(law))
        law, cumulative = probs.with_shared(own, law.logits), cumulative[:, rows]
    below = u[..., None] * cumulative[..., -1:]
    tokens = (cumulative <= below).sum(-1)
    if siblings == "without":
        tokens = tokens.at[:, 1].set(
            draw_other(cumulative[:, 1], tokens[:, 0], u[:, 1])
        )
    if verifier.coupled:
        race = probs.race(law, noise[:, :GAMMA])
        tokens = jnp.where((row % 4 < 2)[:, None], race, tokens)
    # Ids that the draft's law need not have: a deterministic drafter names any.
    tokens = jnp.where((row % 8 == 7)[:, None], (stray * vocab).astype(int), tokens)
    tokens = jnp.minimum(tokens, vocab - 1).astype(jnp.int32)
    no_num: Any = None  # the caller sets it
    draft = Draft(tokens, no_num, None if variant.certain else law)
    if siblings:
        above = jnp.broadcast_to(jnp.array(TREE, jnp.int32), tokens.shape)
        draft = draft._replace(parent=above)
    return draft


def draw_other(cumulative: Array, taken: Array, u: Array) -> Array:
    """Returns an id for each row of laws [B, V] other than `taken` [B]; any id where no
    other is possible."""
    law = jnp.diff(cumulative, axis=-1, prepend=0.0)
    left = jnp.cumsum(law.at[jnp.arange(len(taken)), taken].set(0.0), axis=-1)
    return (left <= u[:, None] * left[:, -1:]).sum(-1)


def push_to_edges(noise: Array | tuple, rows: Array, gumbel: bool) -> Array | tuple:
    """Returns noise whose lower and upper quarters are extreme in `rows` [B]."""
    low, high = (-0.33, 1.25) if gumbel else (0.25, 0.75)
    least, most = (LEAST_GUMBEL, MOST_GUMBEL) if gumbel else (0.0, NEXT_TO_ONE)

    def push(leaf: Array) -> Array:
        extreme = jnp.where(leaf > high, most, jnp.where(leaf < low, least, leaf))
        return jnp.where(rows.reshape(-1, *(1,) * (leaf.ndim - 1)), extreme, leaf)

    return jax.tree.map(push, noise)


def violations(problem: Problem, dealt: Deal) -> Array:
    """Returns which kinds of violation each row has, [K, B] bool by KINDS."""
    draft, verdict = dealt.draft, dealt.verdict
    n, tokens, chance, path = verdict[:4]
    residual: Any = verdict.residual
    inside, drafted = trees.rows_on_path(problem.inside, dealt.verdict), draft.tokens
    if path is not None:
        drafted = jnp.take_along_axis(drafted, path, axis=1)
    vocab = inside.shape[-1]
    slots, at = jnp.arange(tokens.shape[1]), n[:, None]
    known = jnp.clip(tokens, 0, vocab - 1)
    drawable = jnp.take_along_axis(inside, known[..., None], axis=-1)[..., 0]
    place = jnp.clip(at, 0, GAMMA)
    here = jnp.take_along_axis(inside, place[..., None], axis=1)[:, 0]
    extra = jnp.take_along_axis(known, place, axis=1)
    changed = (drafted != tokens[:, :GAMMA]) & (slots[:GAMMA] < at)
    beyond = slots[:GAMMA] >= draft.num[:, None]
    off = ~((chance >= 0) & (chance <= 1)) | (beyond & (chance != 0))
    wrong = {
        "count": (n < 0) | (n > draft.num),
        "range": (known != tokens).any(1),
        "prefix": changed.any(1),
        "zeros": ((slots > at) & (tokens != 0)).any(1),
        "support": ((slots <= at) & ~drawable).any(1),
        "accept_prob": off.any(1),
        "residual": (~(residual >= 0) | ((residual > 0) & ~here)).any(1),
        "empty": ~(residual > 0).any(1),
        "drawn": ~(jnp.take_along_axis(residual, extra, axis=1)[:, 0] > 0),
    }
    return jnp.stack([wrong[name] for name in KINDS])


def describe(rule: str, seed: int, chunk: int, tally: Tally) -> Iterator[tuple]:
    """Yields (kind, text) for each kind of violation.

    The text says how often it occurred, the first row, and how to replay it. Wrong
    draws of a drafter, over all rows, are the kind "draws"."""
    problem, vocab = _problem(seed, chunk), variant_of(chunk).vocab
    for index, (kind, meaning) in enumerate(KINDS.items()):
        row = int(tally.first[index])
        if row < 0:
            continue
        target, draft = _names(problem.features[row % ROWS])
        setting = [
            f"{name} {float(value[row % ROWS]):g}"
            for name, value in problem.sampling[0]._asdict().items()
            if value is not None
        ]
        yield (
            kind,
            f"{rule}: {meaning} in {tally.counts[index]} of {CHUNK} rows, first with V"
            f" {vocab}, {', '.join(setting)}; target {target}; draft {draft}:\n"
            f"  soak.replay(verifiers.find({rule!r}), {seed=}, {chunk=}, {row=})",
        )
    siblings = siblings_of(verifiers.find(rule), variant_of(chunk))
    z, names = drafter_draws.scores(tally.draws), drafter_draws.names(siblings)
    for index in np.flatnonzero(tally.wrong_draws):
        yield (
            "draws",
            f"{rule}: a drafter's draws differ from its probabilities: {names[index]},"
            f" by {z[index]:.0f} standard errors over {CHUNK} rows of chunk {chunk}",
        )


def _names(features: Array) -> tuple[list[str], list[str]]:
    return tuple(np.array(FEATURES)[np.asarray(side)].tolist() for side in features)


def make_parser() -> console.Parser:
    about = "Tests verifiers on extreme logits, over many rows: `specjax soak`."
    parser = console.Parser(prog="specjax soak", description=about)
    add = parser.add_argument
    draws, of_draws = console.number(1, 1e15), "rows of all rules together; default 1e7"
    add("--draws", type=draws, default=1e7, help=of_draws)
    add("--rule", choices=verifiers.names(), help="only this rule; default all")
    seed, of_seed = setting_type("seed"), "seed of the inputs; default 0"
    add("--seed", type=seed, default=0, help=of_seed)
    add(
        "--from",
        type=console.whole_number(0, 2**31 - 1),
        default=0,
        dest="first",
        metavar="CHUNK",
        help="the chunk of rows to begin with; default %(default)s",
    )
    console.add_json(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Soaks, prints violations and rates; returns 1 if there is any violation."""
    flags = make_parser().parse_args(argv)
    document = console.print_document(flags.json, lambda: run(flags))
    return int(not document["passed"])


def run(flags: argparse.Namespace) -> dict:
    """Prints violations and rates, and returns the fields of --json."""
    rules = [flags.rule] if flags.rule else verifiers.names()
    count = math.ceil(flags.draws / (CHUNK * len(rules)))
    rows: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    shown: dict = {}
    chunks = range(flags.first, flags.first + count)
    with progress.Bar("soak", count * len(rules) * CHUNK, "rows", kept=True) as bar:
        try:
            for chunk, rule in itertools.product(chunks, rules):
                bar.label = f"chunk {chunk}"
                began = time.perf_counter()
                tally = soak(verifiers.find(rule), flags.seed, chunk)
                seconds[rule] += time.perf_counter() - began
                rows[rule] += CHUNK
                wrong[rule] += int(tally.counts.sum() + tally.wrong_draws.sum())
                for kind, text in describe(rule, flags.seed, chunk, tally):
                    if (rule, kind) not in shown:
                        with bar.paused():
                            print(text)
                        shown[rule, kind] = text
                bar.update(rows.total())
        except KeyboardInterrupt:
            chunks = range(flags.first, chunk)
            with bar.paused():
                print(f"interrupted in chunk {chunk}")
    for rule in rows:
        rate = rows[rule] / seconds[rule]
        print(f"{rule:9} {rows[rule]:13,} rows, {wrong[rule]:,} wrong, {rate:,.0f} a s")
    all_rows = f"{rows.total():,} rows of seed {flags.seed}"
    print(f"{all_rows}; continue with --from {chunks.stop}")
    counts: dict[str, Any] = {"rows": rows, "wrong": wrong, "seconds": seconds}
    return {
        "passed": not wrong.total(),
        "seed": flags.seed,
        "next_chunk": chunks.stop,
        "rules": [
            {"rule": rule} | {name: of[rule] for name, of in counts.items()}
            for rule in rows
        ],
        "violations": [
            {"rule": rule, "kind": kind, "text": text}
            for (rule, kind), text in shown.items()
        ],
    }
