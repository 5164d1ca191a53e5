"""The exact law of a verifier, computed from its own compiled code without statistics.

`enumeration` goes through one step of it from one prefix. Here steps are composed over
the prefixes that they emit, up to n tokens, and compared with the target's own law
(Appendix A.1). That law is computed separately in float64, and so are thresholds and
tokens per call (`claims`). `specjax certify` prints the table, and fails where a claim
does. Axes: G = gamma, V vocabulary."""

import contextlib
import functools
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import special

from specjax import keys, native, policies, probs, verifiers
from specjax.exactness import (
    draft_certificate,
    draws,
    enumerated_texts,
    enumeration,
    same_bits,
)
from specjax.exactness.checks import CHECKS, TOLERANCE, VOID
from specjax.exactness.claims import CLAIMS, UNKNOWN, Claim
from specjax.exactness.fixtures import Fixture, fits, tree_trials, trials
from specjax.inputs import make_sampling
from specjax.runtime import console
from specjax.types import BLOCK, Draft, Sampling, Verdict, Verifier
from specjax.verifiers import guarantees
from specjax.verifiers.token import verifier as TOKEN

NEXT_TO_ONE = 1 - 2**-24  # the largest float32 below 1


def pick_law(weights: np.ndarray) -> np.ndarray:
    """Returns the law [V] that `probs.pick` has in fact for `weights` [V].

    The drawn id never falls as u grows, so bisection over the multiples of 2^-24 finds
    the lengths of the sets of u that draw each id: first those of blocks, then those of
    ids."""
    weights, vocab = np.asarray(weights, np.float32), len(weights)
    ids = np.arange(vocab)

    def ends(count: int, u: Callable, drawn: Callable) -> np.ndarray:
        """Returns the first u whose draw is past each value of `count`."""
        low, high = np.zeros(count, int), np.full(count, 2**24)
        rows = np.broadcast_to(weights, (count, vocab))
        for _ in range(25):
            middle = (low + high) // 2
            picked = _pick(rows, u(np.minimum(middle * 2.0**-24, NEXT_TO_ONE)))
            beyond = drawn(np.asarray(picked)) > np.arange(count)
            high = np.where(beyond, middle, high)
            low = np.where(beyond | (low == high), low, middle + 1)
        return high * 2.0**-24

    count = -(-vocab // BLOCK)
    limits = ends(
        count, lambda u: np.stack([u, u], axis=1), lambda index: index // BLOCK
    )
    sizes = np.diff(limits, prepend=0.0)
    inside = (limits - sizes / 2)[ids // BLOCK]
    limits = ends(vocab, lambda u: np.stack([inside, u], axis=1), lambda index: index)
    starts = np.where(ids % BLOCK, np.roll(limits, 1), 0.0)
    return (limits - starts) * sizes[ids // BLOCK]


_pick = jax.jit(probs.pick)


@functools.cache
def pick_gaps(vocab: int) -> np.ndarray:
    """Returns how far the law [V] of `probs.pick` is from random weights, some of which
    are 0."""
    rng = np.random.default_rng(vocab)
    weights = rng.exponential(size=vocab) * (rng.random(vocab) < 0.8)
    return np.abs(pick_law(weights) - weights / weights.sum())


def noise_p_value(
    verifier: Verifier, gamma: int, vocab: int, uniform: Callable = np.asarray
) -> float:
    """Returns a p-value for the independence of the noise of two successive steps.

    The noise of the drafts is included. It is the smallest p-value of a chi-square test
    of each pair of variables times the number of pairs, at most 1; 0 if a variable is
    outside [0, 1) or takes few values. The keys are fixed. uniform: maps a leaf of the
    noise to [0, 1). The steps have no position in common."""
    draws, bins = 2**14, 8
    columns: list[Any] = []
    requests = jax.vmap(keys.root_key)(jnp.arange(draws))
    for length in (1, gamma + 2):
        start = jnp.full(draws, length)
        key = keys.iteration(requests, start)
        drafting = keys.purpose(key, keys.DRAFT)
        noise = verifier.noise(requests, start, gamma, vocab)
        columns += map(uniform, jax.tree.leaves(noise))
        columns += [keys.uniform(drafting, slot, (2,)) for slot in range(gamma)]
    flat = [np.asarray(column, float).reshape(draws, -1) for column in columns]
    u = np.concatenate(flat, axis=1).T
    distinct = min(len(np.unique(column)) for column in u)
    if u.min() < 0 or u.max() >= 1 or distinct < 0.9 * draws:
        return 0.0
    pairs = [a * bins + b for a, b in itertools.combinations((u * bins).astype(int), 2)]
    counts = np.array([np.bincount(pair, minlength=bins**2) for pair in pairs])
    p_values = chi_square(counts, np.full(bins**2, draws / bins**2))
    return min(1.0, float(p_values.min()) * len(pairs))


def chi_square(counts: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Returns the p-values of counts [..., K] where [K] are expected."""
    statistic = ((counts - expected) ** 2 / expected).sum(-1)
    return special.chdtrc(expected.size - 1, statistic)


@functools.cache
def race_p_value(vocab: int, draws: int = 2**18) -> float:
    """Returns a p-value for the winners of `probs.race` under the law that they should
    follow.

    It is a chi-square test against float64 probabilities of every size down to 1e-3,
    with `keys.gumbel` at one position of many requests; 0 if an id outside of the law
    wins. The keys are fixed."""
    p = np.geomspace(1e-3, 1, vocab)
    p = np.append(p / p.sum(), 0.0)
    with np.errstate(divide="ignore"):
        z: Any = np.log(p)[None].astype(np.float32)
    law = probs.standardize(z, Sampling(jnp.ones(1)))

    @jax.jit
    def winners() -> Array:
        requests = jax.vmap(keys.root_key)(jnp.arange(draws))
        gumbel = keys.gumbel(requests, jnp.full(draws, 7), p.size)
        each = jax.tree.map(lambda leaf: jnp.repeat(leaf, draws, 0), law)
        return probs.race(each, gumbel)

    counts = np.bincount(np.asarray(winners()), minlength=p.size)
    if counts[-1]:
        return 0.0
    return float(chi_square(counts[:-1], draws * p[:-1]))


class Certificate(NamedTuple):
    """The result of an enumeration, with the names of the CHECKS that failed at some
    prefix.

    error: `max |law - target|` over texts of n tokens. tv: their total variation.
    tokens, closed: mean tokens of the first call, as enumerated and by the closed form
    (None where no claim gives one). broken: the failed checks, sorted. exact: none
    failed, or "per_call" alone."""

    error: float
    tv: float
    tokens: float
    closed: float | None
    broken: tuple[str, ...]
    exact: bool


def certify(
    verifier: Verifier,
    fixture: Fixture,
    gamma: int,
    n: int,
    claim: Claim = UNKNOWN,
    *,
    dtype: str = "float32",
) -> Certificate:
    """Returns the law of the first `n` tokens that `verifier` emits, compared with the
    target's.

    Args:
      verifier: the rule.
      fixture: the pair of models.
      gamma: drafted tokens.
      n: tokens of a text.
      claim: one of `CLAIMS`, or `UNKNOWN` for a custom rule: its noise must be that
        of `verifiers.token`, and the `accept_prob` that it reports bounds the cells.
      dtype: "float32" or "float64", of all its arithmetic.

    Raises:
      ValueError: n < 1, an unknown regime or dtype, or as `check`.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1; got {n}")
    if dtype not in TOLERANCE:
        raise ValueError(f"dtype must be one of {tuple(TOLERANCE)}; got {dtype!r}")
    check("the verifier", verifier, claim)
    case = enumeration.make_case(verifier, claim, fixture, gamma, dtype)
    wide = jax.enable_x64(True) if dtype == "float64" else contextlib.nullcontext()
    with wide:
        law, steps = text_law(case, n)

    texts = itertools.product(range(fixture.vocab), repeat=n)
    own = {x: np.prod([case.p(x[:i])[x[i]] for i in range(n)]) for x in texts}
    gaps = np.abs([law[x] - own.get(x, 0.0) for x in own.keys() | law.keys()])
    broken = set().union(*(step.broken for step in steps))
    broken |= set() if gaps.max() <= TOLERANCE[dtype] else {"law"}
    exact, names = broken <= {"per_call"}, tuple(sorted(broken))
    first = steps[0]
    return Certificate(
        error=float(gaps.max()),
        tv=float(gaps.sum() / 2),
        tokens=first.tokens,
        closed=first.closed,
        broken=names,
        exact=exact,
    )


def text_law(
    case: enumeration.Case, n: int
) -> tuple[defaultdict, list[enumeration.Step]]:
    """Returns the probability of each text of n tokens, and all steps in their
    order."""
    policy, gamma = case.fixture.policy, case.gamma
    masses: list[dict] = [defaultdict(float) for _ in range(n + 1)]
    memory = () if policy is None else enumeration.rows(policy.init(1, gamma))[0]
    masses[0][(), memory] = 1.0
    steps = []
    for length in range(n):
        for (prefix, memory), mass in masses[length].items():
            steps.append(enumeration.run(case, prefix, memory))
            for (emitted, after), chance in steps[-1].law.items():
                text = (prefix + emitted)[:n]
                masses[len(text)][text, after] += mass * chance
    law: defaultdict[tuple, float] = defaultdict(float)
    for (text, _), mass in masses[n].items():
        law[text] += mass
    return law, steps


NAMES = "rule fixture V gamma n float32 float64 TV tokens closed verdict".split()


def lines(rules: Sequence[str] = (), policy: str = "adaptive") -> Iterator[tuple]:
    """Yields the lines of the table: a cell for each of NAMES, the last "exact" or the
    failed checks.

    float32, float64: `Certificate.error` in that arithmetic; the other cells are of
    float32. rules: the verifiers, by default all exact ones; one without a claim, such
    as a custom rule, is enumerated as `UNKNOWN`. policy: the name of the policy of one
    fixture."""
    chosen = rules or tuple(CLAIMS)
    every = [*trials(policy), *tree_trials()]
    for name, trial in itertools.product(chosen, every):
        verifier, claim = verifiers.find(name), CLAIMS.get(name, UNKNOWN)
        branches = trial.fixture.parent is not None
        if claim is UNKNOWN if branches else claim.chains:
            continue
        if not fits(verifier, trial.fixture):
            continue
        narrow, wide = (
            certify(verifier, trial.fixture, trial.gamma, trial.n, claim, dtype=dtype)
            for dtype in TOLERANCE
        )
        sizes = name, trial.fixture.name, trial.fixture.vocab, trial.gamma, trial.n
        errors = f"{narrow.error:.1e}", f"{wide.error:.1e}", f"{narrow.tv:.1e}"
        broken = {*narrow.broken, *wide.broken}
        errors = ("void",) * 3 if broken & VOID else errors
        closed = "" if narrow.closed is None else f"{narrow.closed:.5f}"
        yield *sizes, *errors, f"{narrow.tokens:.5f}", closed, format_verdict(broken)
    for vocab in (4, BLOCK, 3 * BLOCK - 1):
        gaps = pick_gaps(vocab)
        broken = set() if gaps.max() <= TOLERANCE["float32"] else {"law"}
        errors = f"{gaps.max():.1e}", "", f"{gaps.sum() / 2:.1e}"
        what = "pick", "random weights", vocab, "", 1
        yield *what, *errors, "", "", format_verdict(broken)
    for name in chosen:
        uniform = CLAIMS.get(name, UNKNOWN).uniform
        p_value = noise_p_value(verifiers.find(name), 2, 3, uniform)
        broken = set() if p_value > 1e-6 else {"noise"}
        what = f"noise, p = {p_value:.2f}"
        yield name, what, 3, 2, *[""] * 6, format_verdict(broken)
    for name in chosen:
        steps, problems = draws.check_rule(verifiers.find(name))
        broken = {"draws"} if problems else set()
        yield name, f"draws of {steps} steps", 3, *[""] * 7, format_verdict(broken)
    count, shared = draws.check_shapes(10)
    broken = {"draws"} if shared else set()
    yield "tree", f"slots, {count} shapes", "", 10, *[""] * 6, format_verdict(broken)
    p_value = race_p_value(5)
    broken = set() if p_value > 1e-6 else {"law"}
    yield "race", f"winners, p = {p_value:.2f}", 5, *[""] * 7, format_verdict(broken)


def format_verdict(broken: set[str]) -> str:
    """Returns "exact", with "per_call" if only the speed is wrong; else "LOSSY" and the
    failed checks."""
    word = "exact" if broken <= {"per_call"} else "LOSSY"
    return " ".join([word, *sorted(broken)])


@functools.cache
def check(name: str, verifier: Verifier, claim: Claim = UNKNOWN) -> None:
    """Traces a rule, so that an error shows before minutes are spent on it.

    Raises ValueError where it fails, its verdict has no residual, or it has no claim
    and its noise differs from that of `verifiers.token`."""
    gamma, vocab = 2, 3
    key, start = jax.random.split(keys.root_key(0), 1), jnp.ones(1, jnp.int32)
    sampling = make_sampling(1, 1.0)

    def noise(of: Verifier) -> Any:
        return of.noise(key, start, gamma, vocab)

    def verdict() -> Verdict:
        law = probs.standardize(jnp.zeros((1, gamma + 1, vocab)), sampling)
        tokens, num = jnp.zeros((1, gamma), jnp.int32), jnp.full(1, gamma)
        draft = Draft(tokens, num, probs.first_tokens(law, gamma))
        return verifier.verify(law, draft, noise(verifier), keep_residual=True)

    try:
        noises = (functools.partial(noise, each) for each in (verifier, TOKEN))
        own, wanted = map(jax.eval_shape, noises)
        returned = jax.eval_shape(verdict)
    except Exception as error:  # a custom rule may raise anything
        first = next(iter(str(error).splitlines()), "")
        raise ValueError(f"{name} fails: {type(error).__name__}: {first}") from error
    own, wanted = ([x.shape for x in jax.tree.leaves(it)] for it in (own, wanted))
    if claim is UNKNOWN and own != wanted:
        raise ValueError(
            f"{name} draws noise of another shape, which cannot be enumerated: use the"
            " noise of specjax.verifiers.token"
        )
    if not isinstance(returned, Verdict) or returned.residual is None:
        raise ValueError(
            f"{name}: verify must return a specjax.types.Verdict, with its residual"
            " where keep_residual is True"
        )


def main(arguments: list[str] | None = None) -> None:
    """Prints the table with the seconds of each line; exits with 1 if any is wrong."""
    about = "Enumerates the law of each rule's compiled code and compares it with the"
    about += " target's: `specjax certify`. Exits with 1 if any differs."
    parser = console.Parser(prog="specjax certify", description=about)
    of_rule = f"rules: {', '.join(CLAIMS)}, or your own, my_module:my_verifier; default"
    of_rule += " all, or with --draft those that read the draft's probabilities"
    parser.add_argument("--rule", nargs="*", help=of_rule)
    of_policy = f"the policy of one fixture: {', '.join(policies.POLICIES)}, or your"
    of_policy += " own, my_module:my_policy; default adaptive, or none with --draft"
    parser.add_argument("--policy", help=of_policy)
    of_draft = "test whole texts with this draft instead of the rules: random,"
    of_draft += " tree:q,width=2 (q stands for a model), or my_module:my_drafter"
    parser.add_argument("--draft", metavar="NAME", help=of_draft)
    of_bits = "show instead that drafts, batches and the shapes of calls leave greedy"
    of_bits += " texts and logits as they are, bit for bit, with native operations; of"
    of_bits += " --target with --draft, by default the code pair and tiny models"
    parser.add_argument("--bits", action="store_true", help=of_bits)
    parser.add_argument("--target", metavar="NAME", help="with --bits: a model's name")
    of_dtype = "with --bits: the dtypes; default all, and two of each tiny model"
    choices = same_bits.DTYPES
    parser.add_argument("--dtype", nargs="+", choices=choices, help=of_dtype)
    of_products = "with --bits: xla sums by XLA, whose bits do depend on calls"
    parser.add_argument("--products", choices=native.CHOICES, help=of_products)
    console.add_json(parser)
    flags = parser.parse_args(arguments)
    of_bits_alone = flags.target, flags.dtype, flags.products
    if not flags.bits and any(of_bits_alone):
        parser.error("--target, --dtype and --products are for --bits")
    if flags.bits and (flags.rule or flags.policy):
        parser.error("--bits compares greedy texts, by no --rule or --policy")

    def run() -> dict:
        if flags.bits:
            with native.products(flags.products or native.THIN):
                dtypes = flags.dtype or ()
                return same_bits.certify(parser, flags.target, flags.draft, dtypes)
        if flags.draft is not None:
            policy = flags.policy or "none"
            return certify_draft(parser, flags.draft, flags.rule or (), policy)
        rules, policy = flags.rule or tuple(CLAIMS), flags.policy or "adaptive"
        return certify_table(parser, rules, policy)

    document = console.print_document(flags.json, run)
    raise SystemExit(int(not document["passed"]))


def certify_table(parser: console.Parser, chosen: Sequence[str], policy: str) -> dict:
    """Prints the table, and returns the fields of --json."""
    with parser.report_errors():
        policies.find(policy)
        for name in chosen:
            check(name, verifiers.find(name), CLAIMS.get(name, UNKNOWN))
    with console.handle_stops(lambda: "the lines above are whole"):
        checks = show(chosen, policy)
    wrong = {check["rule"] for check in checks if check["verdict"] != "exact"}
    for name in chosen:
        guarantees.record(name, name not in wrong)
    passed = not wrong
    guarantees.record(policy, passed)
    return {"passed": passed, "policy": policy, "checks": checks}


def certify_draft(
    parser: console.Parser, name: str, rules: Sequence[str], policy: str
) -> dict:
    """Prints the results of a draft's texts, and returns the fields of --json."""
    began, passed, error = time.perf_counter(), True, None
    with console.handle_stops(), parser.report_errors():
        case = draft_certificate.make_case(name, rules, policy)
        if case.certain:
            error = enumerated_texts.draft_error(case.source)
            passed = error <= TOLERANCE["float32"]
            print(f"{name}: enumerated, max |law - target| of a text {error:.0e}")
        found = {}
        for rule, it in draft_certificate.certify(case):
            found[rule] = it
            print(
                f"{name} with {rule}: {draft_certificate.format_line(it)}", flush=True
            )
        wrong = draws.problems(draft_certificate.record_draws(case))
        print(f"{name}: {'; '.join(wrong) or 'no key is used for two draws'}")
    passed &= not wrong and all(it.passed for it in found.values())
    if not rules:  # rules that were not chosen may fail
        guarantees.record(name, passed)
    seconds = time.perf_counter() - began
    print(f"{'exact' if passed else 'WRONG'} ({seconds:.0f} s)")
    texts = [{"rule": rule, **it._asdict()} for rule, it in found.items()]
    document = {"passed": passed, "draft": name, "policy": policy, "error": error}
    return document | {"draws": wrong, "texts": texts, "seconds": seconds}


def show(rules: Sequence[str], policy: str = "adaptive") -> list[dict]:
    """Prints the table as it grows; returns its lines, by NAMES and with their
    seconds."""
    form = "{:18} {:20} {:>3} {:>5} {:>2} {:>8} {:>8} {:>8} {:>8} {:>8} {:>5}  {}"
    print(
        "float32, float64: max |law - target| over texts of n tokens, in that"
        " arithmetic;\ntokens: per call; closed: by a formula; s: seconds. A rule takes"
        " a minute."
    )
    print(form.format(*NAMES[:-1], "s", NAMES[-1]))
    checks, began = [], time.perf_counter()
    for *cells, verdict in lines(rules, policy):
        now = time.perf_counter()
        print(form.format(*cells, f"{now - began:.1f}", verdict), flush=True)
        each = *cells[:2], *map(parse_cell, cells[2:]), verdict
        checks.append(dict(zip(NAMES, each, strict=True)) | {"seconds": now - began})
        began = now
    verdicts = [check["verdict"].split() for check in checks]
    wrong = sum(verdict[0] != "exact" for verdict in verdicts)
    print(f"{len(checks)} checks, {f'{wrong} LOSSY' if wrong else 'all exact'}")
    for name in {name: None for _, *names in verdicts for name in sorted(names)}:
        print(f"  {name}: {CHECKS[name]}")
    return checks


def parse_cell(cell: int | str) -> float | None:
    """Returns the number in a cell of the table; None where it has none."""
    if isinstance(cell, int):
        return cell
    return None if cell in ("", "void") else float(cell)
