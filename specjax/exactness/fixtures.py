"""Pairs of models small enough to enumerate, for `specjax.exactness.certify`.

They cover every regime of drafts, setting of the sampler and kind of support that an
exact verifier must handle. Their laws are computed in float64, and as a `Law` of
decoding has them. Axes: V vocabulary, C contexts."""

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import policies, probs
from specjax.drafters.intersection import Spelling, in_target_vocab
from specjax.models import gpt
from specjax.types import Law, Model, Policy, Prompt, Reduced, Sampling, Table, Verifier

ROWS = 32  # the number of prefixes whose laws are made at once is a multiple
REGIMES = ("dense", "table", "certain", "reduced", "common")


def scalar_sampling(temperature: Any, **limits: Any) -> Sampling:
    """Returns settings whose fields are scalars, which apply to each row."""
    return Sampling(temperature, **limits)


class Fixture(NamedTuple):
    """Two models small enough to enumerate, and the way that drafts are made.

    target, draft: prefix (a tuple of ids) -> logits [V] float32. sampling: one number
    per setting, for both. regime: "dense", "table" (rows of one shared `Table`),
    "certain" (the draft's most probable id, no law), "reduced" (the draft never
    proposes the first id) or "common" (its logits are of V + 1 other ids, some of which
    are common). num: prefix -> tokens drafted, at most gamma; None is gamma. policy: it
    limits them further. drawn: prefix -> the law [V] that tokens are really drawn from;
    None where it is the one that the draft carries, as it must be. parent: the parent
    of each node of a tree, as in `specjax.trees`, None for a chain; or, for trees that
    differ from draft to draft, (context -> q [V]) -> {(parents, tokens): probability}.
    siblings: how they are drawn, as in `specjax.types.Drafter`. sure: nodes that are
    certain, without a law."""

    name: str
    vocab: int
    target: Callable
    draft: Callable
    sampling: Sampling = scalar_sampling(1.0)
    regime: str = "dense"
    num: Callable | None = None
    policy: Policy | None = None
    drawn: Callable | None = None
    parent: tuple[int, ...] | Callable | None = None
    siblings: str = "without"
    sure: tuple[int, ...] = ()


def references(fixture: Fixture) -> tuple[Callable, Callable]:
    """Returns the laws that tokens are drawn from: prefix -> p [V] and prefix -> q [V].

    They are in float64."""
    if fixture.regime not in REGIMES:
        raise ValueError(f"regime must be one of {REGIMES}; got {fixture.regime!r}")
    certain = fixture.regime == "certain"
    drafted = scalar_sampling(0.0) if certain else fixture.sampling
    both = (fixture.target, fixture.sampling), (draft_logits(fixture), drafted)

    def law(model: Callable, sampling: Sampling) -> Callable:
        return functools.cache(lambda prefix: reference(model(prefix), sampling))

    (target, setting), (draft, own) = both
    return law(target, setting), law(draft, own)


def draft_logits(fixture: Fixture) -> Callable:
    """Returns the draft's logits, with -inf at ids that its regime excludes."""
    if fixture.regime == "common":
        ids, own = shared_ids(fixture.vocab)
        return lambda prefix: scatter(fixture.draft(prefix)[own], ids, fixture.vocab)
    if fixture.regime != "reduced":
        return fixture.draft

    def logits(prefix: tuple) -> np.ndarray:
        z = np.array(fixture.draft(prefix))
        z[0] = -np.inf
        return z if np.isfinite(z).any() else np.where(np.arange(z.size), 0, -np.inf)

    return logits


def shared_ids(vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the target's ids that a "common" draft shares with it, and the draft's
    own ids for them."""
    ids = np.arange(1, vocab)
    return ids, vocab + 1 - ids


def scatter(logits: np.ndarray, ids: np.ndarray, vocab: int) -> np.ndarray:
    """Returns logits [V] that are -inf except at `ids`."""
    z = np.full(vocab, -np.inf, logits.dtype)
    z[ids] = logits
    return z


def reference(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Returns the law of Section 2.2 in float64, independently of `specjax.probs`."""
    z, vocab = np.asarray(logits, float), len(logits)
    order = np.argsort(-z, kind="stable")
    law = np.zeros(vocab)
    if sampling.temperature == 0:
        law[order[0]] = 1.0
        return law
    ranked = np.exp((z[order] - z[order[0]]) / sampling.temperature)
    if sampling.top_k is not None:
        ranked[sampling.top_k :] = 0.0
    if sampling.top_p is not None and sampling.top_p < 1:
        mass = np.cumsum(ranked) / ranked.sum()
        ranked[np.argmax(mass >= sampling.top_p) + 1 :] = 0.0
    if sampling.min_p is not None:
        ranked[ranked < sampling.min_p * ranked[0]] = 0.0
    law[order] = ranked / ranked.sum()
    return law


def laws(
    fixture: Fixture, prefixes: Sequence[tuple], dtype: str = "float32"
) -> tuple[Law, Law | None]:
    """Returns both laws by `specjax.probs`, after each of C prefixes: the target's, and
    the one that the draft carries.

    Further rows repeat the first prefix, so that trees share a program."""
    prefixes = [*prefixes, *[prefixes[0]] * (-len(prefixes) % ROWS)]
    z_p, z_q = (
        np.array([model(prefix) for prefix in prefixes], dtype)
        for model in (fixture.target, draft_logits(fixture))
    )
    count = len(prefixes)
    settings = jax.tree.map(lambda value: np.full(count, value), fixture.sampling)
    match fixture.regime:
        case "common":
            q = _common_law(
                np.array([fixture.draft(x) for x in prefixes], dtype), settings
            )
        case "table":
            q = _table_law(shared_table(z_q), settings)
        case "reduced":
            ids: Any = np.arange(1, fixture.vocab, dtype=np.int32)
            place: Any = np.roll(np.arange(fixture.vocab, dtype=np.int32), 1)
            place[0] = ids.size
            some: Any = z_q[:, 1:]
            q = _standardize(Reduced(some, ids, place), settings)
        case "dense":
            q = _standardize(z_q, settings)
        case "certain":
            q = None
    return _standardize(z_p, settings), q


_standardize = jax.jit(probs.standardize)


@jax.jit
def _common_law(logits: jax.Array, settings: Sampling) -> Law:
    """Returns the law that `drafters.intersection` computes from logits [C, V + 1]."""
    vocab = logits.shape[-1] - 1
    ids, own = shared_ids(vocab)
    none = np.zeros(vocab, int)
    known = Spelling(ids, own, none[:, None], none + 1, none[:0]).params(None)
    unread: Any = None
    model = Model(unread, unread, lambda params, features: features, vocab + 1)
    said = in_target_vocab(model, vocab, 1).readout(known, logits)
    return probs.standardize(said, settings)


@jax.jit
def _table_law(table: Table, settings: Sampling) -> Law:
    row = jnp.arange(table.offset.size)
    law = probs.standardize(probs.table_rows(table, row), settings)
    return law._replace(logits=table, row=row)


def shared_table(logits: np.ndarray) -> Table:
    """Returns `logits` [C, V] as a table: in each row one id has the logit of the
    common row."""
    count, vocab = logits.shape
    rows, plain = np.arange(count), np.arange(count) % vocab
    base: Any = np.arange(vocab, dtype=logits.dtype) / 4
    special: Any = logits.copy()
    ids: Any = np.tile(np.arange(vocab), (count, 1))
    ids[rows, plain], special[rows, plain] = vocab, 99.0  # an unused place
    return Table(base, logits[rows, plain] - base[plain], ids, special)


def table(vocab: int, seed: int, zeros: float = 0.0, spread: float = 1.5) -> Callable:
    """Returns a function prefix -> random logits [V], of which a share `zeros` is
    -inf."""

    @functools.cache
    def logits(prefix: tuple) -> np.ndarray:
        rng = np.random.default_rng([seed, *(x + 1 for x in prefix)])
        z = np.round(1024 * spread * rng.normal(size=vocab)) / 1024  # sums are exact
        gone = rng.random(vocab) < zeros
        gone[rng.integers(vocab)] = False
        return np.where(gone, -np.inf, z).astype(np.float32)

    return logits


def context_free(law: Sequence[float]) -> Callable:
    """Returns the logits of one law [V], whatever the prefix."""
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray(law, float)).astype(np.float32)
    return lambda prefix: logits


def small_gpt(layers: int) -> tuple[gpt.Config, dict]:
    """Returns a GPT of three ids, with weights wide enough for laws far from
    uniform."""
    config = gpt.Config(vocab=3, dim=8, mlp_dim=16, num_layers=layers, num_heads=2)
    rng = np.random.default_rng(3)

    def wide(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        return rng.normal(scale=0.25, size=leaf.shape).astype(leaf.dtype)

    return config, jax.tree.map(wide, gpt.abstract_params(config))


def early_exit(longest: int, sampling: Sampling) -> Fixture:
    """Returns a real `gpt` of two layers and its own first layer, for prefixes of up to
    `longest` tokens."""
    (config, params), slots = small_gpt(2), longest + 1

    @functools.cache
    def rows(layers: int) -> np.ndarray:
        """Returns the logits at every slot of every text of `longest` tokens after a
        0."""
        model = gpt.build(config._replace(num_layers=layers))
        texts = np.array(list(itertools.product(range(config.vocab), repeat=longest)))
        tokens: Any = np.pad(texts, ((0, 0), (1, 0)))
        zero: Any = np.zeros(len(texts), np.int32)

        @jax.jit
        def score(params: Any) -> Any:
            cache = model.init(params, Prompt(tokens, zero + slots), slots)
            features, _ = model.apply(params, tokens, zero, cache)
            return model.readout(params, features)

        shape = *(config.vocab,) * longest, slots, config.vocab
        with jax.enable_x64(False):  # one model, in whatever precision it is decoded
            return np.asarray(score(params)).reshape(shape)

    def layer_logits(layers: int) -> Callable:
        def logits(prefix: tuple) -> np.ndarray:
            return rows(layers)[prefix + (0,) * (longest - len(prefix))][len(prefix)]

        return logits

    return Fixture(
        "early exit of a gpt", config.vocab, layer_logits(2), layer_logits(1), sampling
    )


class Trial(NamedTuple):
    """A fixture with the gamma and the n that it is certified at."""

    fixture: Fixture
    gamma: int
    n: int


def trials(policy: str = "adaptive") -> list[Trial]:
    """Returns the trials of an exact verifier: every regime, length, setting and
    support.

    policy: the policy of one of them, by its name in `specjax.policies`."""
    p, q = table(3, 1, zeros=0.25), table(3, 2, zeros=0.1)
    plain, twin = Fixture("random", 3, p, q), table(3, 14)
    larger = Fixture("random, V 4", 4, table(4, 5, 0.2), table(4, 6))
    ragged = plain._replace(name="ragged", num=lambda prefix: (1 + sum(prefix)) % 3)
    adapted = Fixture(policy, 2, table(2, 3), table(2, 4))
    few = "adaptive:start=2" if policy == "adaptive" else policy  # of its gamma, 3
    adapted = adapted._replace(policy=policies.find(few))
    within = policies.find("confidence:start=0.5,step=0.2")
    stops = adapted._replace(name="stops within a draft", policy=within)
    hot = np.array([0, -np.inf, -np.inf], np.float32)
    even = np.array([0, 2**-12, -(2**-12)], np.float32)
    models = {
        "p = q": (p, p),
        # Equal but for rounding: a rejection can leave no residual.
        "p = q, other logits": (twin, lambda prefix: twin(prefix) + np.float32(1.9)),
        "disjoint": (context_free([0.3, 0.7, 0]), context_free([0, 0, 1])),
        "one-hot target": (lambda prefix: np.roll(hot, len(prefix)), table(3, 7)),
        "one-hot draft": (table(3, 7), lambda prefix: np.roll(hot, sum(prefix))),
        "near ties": (lambda prefix: even, lambda prefix: even[::-1]),
    }
    settings = {
        "T 0.7, top-k 2": scalar_sampling(0.7, top_k=2),
        "T 1.3, top-p 0.8": scalar_sampling(1.3, top_p=0.8),
        "T 0.7, min-p 0.3": scalar_sampling(0.7, min_p=0.3),
        "T 0": scalar_sampling(0.0),
    }
    short = [Fixture(name, 3, *pair) for name, pair in models.items()]
    short += [plain._replace(name=n, sampling=s) for n, s in settings.items()]
    short += [Fixture("T 0, near ties", 3, *models["near ties"], scalar_sampling(0.0))]
    long = [plain, ragged, early_exit(5, scalar_sampling(1.0))]
    for name in REGIMES[1:4]:
        long += [plain._replace(name=name, regime=name)]
        long += [ragged._replace(name=f"ragged {name}", regime=name)]
    other: dict[str, Any] = dict(draft=table(4, 12), regime="common")
    long += [plain._replace(name="common", **other)]
    short += [ragged._replace(name="ragged common", **other)]
    return [
        *(Trial(fixture, 2, 4) for fixture in long),
        *(Trial(fixture, 2, 3) for fixture in short),
        Trial(plain._replace(name="gamma 1"), 1, 4),
        Trial(plain._replace(name="gamma 0"), 0, 4),
        Trial(adapted, 3, 5),
        Trial(stops, 3, 3),
        Trial(plain._replace(name="gamma 3"), 3, 2),
        Trial(larger, 2, 3),
        Trial(Fixture("one step, V 8", 8, table(8, 5, 0.3), table(8, 6, 0.1)), 1, 1),
    ]


def tree_trials() -> list[Trial]:
    """Returns the further trials of a rule for trees: shapes, siblings, supports,
    lengths."""
    p, q = table(3, 8, zeros=0.15), table(3, 28, zeros=0.1)
    plain = Fixture("tree", 3, p, q, parent=(-1, -1, 0))
    full = plain._replace(target=table(3, 1), draft=table(3, 2))
    ragged = plain._replace(name="tree, ragged", num=lambda x: (1 + sum(x)) % 4)
    hot = np.array([0, -np.inf, -np.inf], np.float32)
    narrow, side, deep = (-1, -1, -1), (-1, -1, 0, 1), (-1, -1, 0, 0, 2)
    few = Fixture("tree, V 2, deep", 2, table(2, 3), table(2, 4), parent=deep)
    replaced: dict[str, Any] = dict(siblings="with")
    mixed = plain._replace(name="tree, two drafts", parent=(-1, -1, 0, 1))
    mixed = mixed._replace(siblings="own", sure=(1, 3))
    settings = {
        "T 0": scalar_sampling(0.0),
        "T 0.7, top-k 2": scalar_sampling(0.7, top_k=2),
    }
    regimes = [
        plain._replace(name="tree, certain", regime="certain", siblings="certain"),
        plain._replace(name="tree, table", regime="table"),
        plain._replace(name="tree, reduced", regime="reduced"),
        plain._replace(name="tree, common", regime="common", draft=table(4, 12)),
    ]
    return [
        Trial(plain, 3, 3),
        Trial(plain._replace(name="tree, replaced", **replaced), 3, 3),
        Trial(plain._replace(name="tree, paths", parent=side, **replaced), 4, 2),
        Trial(ragged, 3, 3),
        *(Trial(fixture, 3, 2) for fixture in regimes),
        *(
            Trial(plain._replace(name=f"tree, {name}", sampling=setting), 3, 2)
            for name, setting in settings.items()
        ),
        Trial(plain._replace(name="tree, wide", parent=narrow), 3, 2),
        Trial(plain._replace(name="tree, p = q", draft=p), 3, 2),
        Trial(plain._replace(name="tree, one-hot", draft=lambda x: hot), 3, 2),
        Trial(few, 5, 2),
        Trial(few._replace(name="tree, V 2, replaced", **replaced), 5, 2),
        Trial(full._replace(name="tree, growing", parent=growing_trees(3)), 3, 2),
        Trial(few._replace(name="tree, V 2, growing", parent=growing_trees(4)), 4, 2),
        Trial(mixed, 4, 2),
    ]


def growing_trees(nodes: int) -> Callable:
    """Returns trees that grow where the draft finds the next token most likely.

    Their tokens are drawn there: the method of `drafters.grown`, in the form of
    `Fixture.parent`."""

    def trees(q: Callable) -> dict:
        found: defaultdict[tuple, float] = defaultdict(float)

        def grow(parents: tuple, tokens: tuple, places: dict, chance: float) -> None:
            """Adds nodes; places: row -> (context, chance to be reached, rest of q)."""
            if len(tokens) == nodes:
                found[parents, tokens] += chance
                return
            row = max(places, key=lambda row: places[row][1] * max(places[row][2]))
            context, reach, left = places[row]
            for x in np.flatnonzero(left).tolist():
                rest = np.where(np.arange(left.size) == x, 0.0, left)
                rest /= max(rest.sum(), 1e-9)
                on = {row: (context, reach * (1 - left[x]), rest)}
                path = (*context, x)
                on[len(tokens) + 1] = path, reach * left[x], q(path)
                grow((*parents, row - 1), (*tokens, x), places | on, chance * left[x])

        grow((), (), {0: ((), 1.0, q(()))}, 1.0)
        return found

    return trees


def fits(verifier: Verifier, fixture: Fixture) -> bool:
    """Returns whether a rule can verify the drafts of a fixture."""
    return fixture.parent is None or fixture.siblings in verifier.siblings
