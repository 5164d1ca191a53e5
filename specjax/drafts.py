"""Who drafts, by name, wherever a draft is named: `named` has the grammar.

A drafter that only has a name knows nothing of the target; the functions of `DRAFTS`
are told of it where they have a parameter `target`, and so is one's own (`own`).
"""

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from specjax import checkpoints, generate, pretrained, sides, zoo
from specjax.checkpoints import reduced
from specjax.drafters import (
    best_first,
    copying,
    datastore,
    forked,
    grown,
    ngram,
    nothing,
    recycling,
)
from specjax.drafters import tree as trees
from specjax.drafters.rollout import independent
from specjax.inputs import make_request, make_sampling
from specjax.models import widened
from specjax.plugins import attribute, built, is_module, is_own, of, usage
from specjax.pretrained import Pretrained
from specjax.sides import CERTAIN, REDUCED, SAMPLED, TABLE, Side
from specjax.step import Decoder
from specjax.topologies import kary, likeliest
from specjax.topologies import paths as apart
from specjax.types import Drafter, Model, Params, Prompt, Reduced, Table


def load_draft(name: str, target: Pretrained) -> Side:
    """A draft for a target, to be given to `generate_text` again and again.

    Args:
      name: "copying", "copying:longest=5", "early_exit:4", "random", "unigram",
        "bigram", what `specjax.load` takes, or one's own "my_module:builder" (see the
        guide on writing one).
      target: for whom it drafts.

    Raises:
      ValueError: there is no such draft, in one line that lists those that there are.
    """
    return named(name, sides.of_pretrained(target))


def named(name: str, target: Side) -> Side:
    """The draft of a name, for a target and in its dtype; see `load_draft`."""
    bare, _, options = name.partition(":")
    if bare in DRAFTS:
        return built(name, DRAFTS[bare], options, {"target": target})
    if is_own(name):
        return own(name, target)
    if (path := reduced.find(name)) is not None:
        return of_some_ids(path, target)
    return of_model(name, sides.model, target.dtype)


def of_model(name: str, load: Callable, dtype: str) -> Any:
    """What `load` makes of a model's name; where there is none, it is told what else a
    draft may be."""
    try:
        return load(name, dtype)
    except ValueError as error:
        if "no checkpoint at" not in str(error):
            raise
        if is_module(name):
            raise ValueError(
                f"{name} is a module: write {name}:NAME, of what it has"
            ) from None
        raise ValueError(f"{error}; a draft may also be {spelled()}") from None


def of_some_ids(path: Path, target: Side) -> Side:
    """The draft in a file with `d2t`."""
    if target.pretrained is None:
        raise ValueError(f"{target.name} has no embedding to read by: name a model")
    draft = reduced.load(path, target.dtype)
    return sides.reduced(path.stem, draft, target.pretrained)._replace(files=(path,))


def check(target: str, draft: str, dtype: str) -> None:
    """Raises ValueError for names of a pair that `target` and `named` would refuse, as
    far as that is seen before weights are read."""
    check_target(target)
    checkpoints.check(target, dtype)
    check_draft(draft, dtype)


def check_draft(name: str, dtype: str) -> None:
    bare, _, options = name.partition(":")
    if bare in DRAFTS:

        @functools.wraps(DRAFTS[bare])
        def named_in(draft: str | None = None, **_) -> None:
            if draft is not None:
                check_draft(draft, dtype)

        built(name, named_in, options, {"target": None})
    elif is_own(name):
        attribute(name)
    elif reduced.find(name) is None:
        of_model(name, checkpoints.check, dtype)


def is_named(name: str) -> bool:
    """Whether a name is that of a draft which is no model."""
    return name.partition(":")[0] in DRAFTS or is_own(name)


def target(name: str, dtype: str, cache: str | None = None) -> Side:
    """A model that decodes; cache: as of `specjax.load`. Raises ValueError for the name
    of what only drafts."""
    check_target(name)
    return sides.model(name, dtype, cache=cache)


def check_target(name: str) -> None:
    if is_named(name):
        raise ValueError(f"{name} only drafts: name a model as the target")


def paired(target: Side, draft: Side | str) -> tuple[Side, Side]:
    """As `sides.paired`, with a draft that may be a name (`named`).

    Raises ValueError as both, and for a target that is a name.
    """
    if isinstance(target, str):
        raise ValueError(
            f"TARGET = {target!r} is a name: include gin_configs/checkpoints/target.gin"
            f" and write TARGET_NAME = {target!r}"
        )
    if isinstance(draft, str):
        draft = named(draft, target)
    return sides.paired(target, draft)


def early_exit(target: Side, layers: int) -> Side:
    """The target's own first layers."""
    if target.pretrained is None:
        raise ValueError(f"{target.name} has no layers to leave early: name a model")
    return sides.early_exit(target.pretrained, layers)


class CopyingElse(NamedTuple):
    """Builds a drafter that copies where it can, and else drafts as another."""

    other: Callable[..., Drafter]
    least: int
    short: int

    def __call__(self, gamma: int, draw: Callable = independent) -> Drafter:
        drafter = self.other(gamma, copying.first(draw, gamma, self.least))
        if not 0 < self.short < gamma:
            return drafter
        return copying.short_else(drafter, self.least, self.short)


def copying_else(target: Side, draft: str, least: int = 4, short: int = 0) -> Side:
    """What followed the last `least` tokens when the text had them before, else what a
    model drafts, at most `short` tokens of it (0: gamma). Raises ValueError for a draft
    that is no model."""
    other = paired(target, draft)[1]
    if other.regime not in (SAMPLED, REDUCED):
        raise ValueError(f"{draft} is no model: name one that drafts where none copies")
    make = CopyingElse(other.drafter, least, short)
    make(1)
    called = f"copying, else {other.name}"
    return other._replace(
        name=called, drafter=make, regime=SAMPLED, law=None, model=None, pretrained=None
    )


class TreeOf(NamedTuple):
    """Builds a drafter of trees of so many nodes, by a model; see `tree`."""

    model: Callable[[], Model]
    width: int
    side: int
    accept: tuple[float, ...]
    longest: int | None
    siblings: str
    best: int
    floors: tuple[float, ...]
    grown: tuple[float, ...]
    copied: int

    def __call__(self, gamma: int, draw: Callable = independent) -> Drafter:
        if gamma == 0:
            return nothing.drafter
        model = self.model()
        if self.copied:
            return forked.build(model, gamma, self.copied, draw=draw)
        if self.grown:
            return grown.build(model, gamma, self.grown, self.longest, draw)
        if self.best:
            longest = self.longest or gamma
            sizes = gamma, self.best, longest
            return best_first.build(model, *sizes, self.floors, draw)
        if self.accept:
            parents = likeliest.build(self.accept, self.longest)(gamma)
        elif self.side:
            parents = apart.build(self.side)(gamma)
        else:
            parents = kary.build(self.width)(gamma)
        return trees.build(model, parents, draw, self.siblings)


def tree(
    target: Side,
    draft: str,
    width: int = 2,
    accept: str = "",
    longest: int = 0,
    siblings: str = "without",
    best: int = 0,
    floors: str = "",
    grown: str = "",
    copied: int = 0,
    paths: int = 0,
) -> Side:
    """A tree of gamma nodes that a model drafts: `width` children a node, or the tree
    that keeps most where the i-th sibling is accepted as `accept` says, as
    "0.6/0.3/0.2", with paths of at most `longest` tokens (0: any), or so many `paths`
    side by side, for siblings="with" and the rule greedy_block. Or another tree for
    every text: the likeliest of `best` children a node (`drafters.best_first`, with
    `floors`), or one that is drawn where it seems kept (`drafters.grown`, with floors
    for each child). Or a chain and, beside it, a copy of `copied` tokens
    (`drafters.forked`). A model is any that drafts, or "bigram". Raises ValueError for
    another draft, or for what is no such number."""
    other = paired(target, draft)[1]
    held = isinstance(other.drafter, sides.Held)
    if held:
        model = Remade(sides.common_model, other.drafter.make.options)
    elif other.regime == REDUCED:
        model = Remade(sides.reduced_model, other.drafter.options)
    elif other.pretrained is not None:
        sizes = ("config", other.pretrained.config), ("vocab", target.vocab)
        model = Remade(_of_config, sizes)
    elif draft == "bigram":
        model = Remade(ngram.bigram, (("vocab", target.vocab),))
    else:
        raise ValueError(f"{draft} is no model: a tree is drafted by one")
    listed = {"accept": accept, "floors": floors, "grown": grown}
    chances = {name: chances_of(name, text) for name, text in listed.items()}
    shape = dict(width=width, side=paths, longest=longest or None, siblings=siblings)
    make = TreeOf(model, **shape, **chances, best=best, copied=copied)
    regime = SAMPLED if other.regime == TABLE else other.regime
    if make(2 * max(1, copied)).siblings == "certain":
        regime = CERTAIN
    make = other.drafter._replace(make=make) if held else make
    called = f"tree of {other.name}"
    return other._replace(
        name=called, drafter=make, regime=regime, law=None, model=None
    )


def chances_of(name: str, text: str) -> tuple[float, ...]:
    """Probabilities as an option has them, "0.6/0.3/0.2"."""
    try:
        return tuple(float(x) for x in text.split("/") if x)
    except ValueError:
        raise ValueError(
            f"{name}={text}: write probabilities with / between them, 0.6/0.3/0.2"
        ) from None


class Recycled(NamedTuple):
    """Builds a drafter of the target's own outputs. accept: () for chains."""

    vocab: int
    accept: tuple[float, ...]

    def __call__(self, gamma: int, draw: Callable = independent) -> Drafter:
        del draw
        if gamma == 0:
            return nothing.drafter
        parents = likeliest.build(self.accept)(gamma) if self.accept else None
        return recycling.build(self.vocab, gamma, parents)


def recycled(target: Side, accept: str = "") -> Side:
    """What the target itself last held likely after each id (`drafters.recycling`): a
    chain, or the tree of gamma nodes that keeps most where the i-th sibling is accepted
    as `accept` says, as "0.6/0.3/0.2". Raises ValueError for what is no such number."""
    make = Recycled(target.vocab, chances_of("accept", accept))
    make(2)
    return Side("recycling", None, target.vocab, make, CERTAIN)


def stored(target: Side, file: str, longest: int = 4) -> Side:
    """What followed the same tokens in a file of texts, or in the text itself
    (`drafters.datastore`). file: text, or by its name .jsonl, lines of {"text": text}
    or {"tokens": ids}. Raises ValueError for a file that is absent or holds no text,
    and for a target without a tokenizer."""
    path, read = Path(file), sides.reader(target, None)
    if not path.is_file():
        raise ValueError(f"no file {file}: name one of texts, FILE.txt or FILE.jsonl")
    text = path.read_text("utf-8")
    if path.suffix != ".jsonl":
        each = [read.tokenizer.encode(text)] if text else []
    else:
        each = [ids_of(line, file, read) for line in text.splitlines() if line.strip()]
    try:
        store = datastore.index(each)
    except ValueError as error:
        raise ValueError(f"{file} holds no text: {error}") from None
    if not 0 <= int(store.tokens.max()) < target.vocab:
        raise ValueError(f"{file} has ids that {target.name} does not know")
    datastore.build(1, longest)
    make = sides.Certain(datastore.build, (("longest", longest),))
    return Side("datastore", store, None, make, CERTAIN, files=(path,))


def ids_of(line: str, file: str, read: Pretrained) -> list[int]:
    """Of a line of JSON. Raises ValueError for one that is no text."""
    try:
        fields = json.loads(line)
        if "tokens" in fields:
            return [int(token) for token in fields["tokens"]]
        return read.tokenizer.encode(fields["text"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f'{file}: {line[:40]!r} is no text: write {{"text": "..."}} a line'
        ) from None


def by_strings(target: Side, draft: str) -> Side:
    """What a decoder of another tokenizer writes, as the target's tokenizer reads it
    (`drafters.strings`). Raises ValueError for a draft that has none, or the target's
    own, or that is no decoder."""
    if (reader := target.pretrained) is None:
        raise ValueError(f"{target.name} has no tokenizer to cut by: name a model")
    other = sides.model(draft, target.dtype)
    if target.encodes or other.encodes:
        raise ValueError(
            f"{target.name} and {draft} are no two decoders: name a decoder that drafts"
            " for a decoder"
        )
    coders = [side.tokenizer for side in (reader, other.pretrained)]  # or none: raises
    try:
        pretrained.check_tokens(reader, other.pretrained)
    except pretrained.OtherTokens:
        return sides.by_strings(reader, other.pretrained)
    raise ValueError(
        f"{target.name} and {draft} have one tokenizer, {coders[0].file.name}: name the"
        f" draft {draft} alone"
    )


class Remade(NamedTuple):
    """A model, made of its options; equal where they are."""

    build: Callable[..., Model]
    options: tuple

    def __call__(self) -> Model:
        return self.build(**dict(self.options))


def _of_config(config: Any, vocab: int) -> Model:
    return widened.widened(checkpoints.build(config), vocab)


# What is bundled, by the vocabulary.
COUNTS = {zoo.CODE_VOCAB: "bigram", zoo.T5_VOCAB: "t5_bigram"}


def counted(target: Side, order: int) -> Side:
    """Counts of the target's vocabulary. Raises ValueError where none are bundled."""
    if target.vocab not in COUNTS:
        raise ValueError(
            f"there are no counts of the {target.vocab} ids of {target.name}: those of"
            " the bundled code and T5 models alone are here; name another draft"
        )
    return sides.ngram(order, COUNTS[target.vocab])


DRAFTS: dict[str, Callable[..., Side]] = {
    "copying": sides.copied,
    "copying_else": copying_else,
    "suffix": sides.suffix,
    "anchored": sides.anchored,
    "datastore": stored,
    "recycling": recycled,
    "early_exit": early_exit,
    "tree": tree,
    "lookahead": sides.lookahead,
    "strings": by_strings,
    "random": lambda target: sides.random(target.vocab),
    "unigram": lambda target: counted(target, 1),
    "bigram": lambda target: counted(target, 2),
}


def spelled() -> str:
    """The names that are no model's, as a person writes them."""
    each = [usage(name, build, {"target"}) for name, build in DRAFTS.items()]
    return f"{', '.join(each)} or module:name"


# One's own.


class Own(NamedTuple):
    """Builds a drafter of one's own; equal where all that it is built of is."""

    name: str
    build: Callable
    options: str
    vocab: int

    def __call__(self, gamma: int, draw: Callable = independent) -> Drafter:
        return self.with_params(gamma, draw)[0]

    def with_params(self, gamma: int, draw: Callable = independent) -> tuple:
        """(Drafter, its parameters or None)."""
        context = {"gamma": gamma, "vocab": self.vocab, "draw": draw}
        drafter = built(self.name, self.build, self.options, context)
        pair = (drafter, None) if isinstance(drafter, Drafter) else drafter
        if not isinstance(pair, tuple) or not isinstance(pair[0], Drafter):
            raise ValueError(
                f"{self.name} returns a {type(drafter).__name__}: return a"
                " specjax.types.Drafter, or one with its parameters"
            )
        return pair


def own(name: str, target: Side) -> Side:
    """The drafter that "my_module:builder[:options]" builds, with whatever weights.

    builder: a function of what it has parameters for: `gamma`, `vocab`, `draw` (how
    drafts are drawn, see `drafters.rollout`); its other parameters are options. It
    returns a `Drafter`, or (Drafter, parameters), and is called for every gamma. Raises
    ValueError, before any compute, for one that fails.
    """
    build, options = attribute(name)
    if not inspect.isfunction(build):
        raise ValueError(f"{name} is of class {type(build).__name__}: name a function")
    make = Own(name, build, options, target.vocab)
    drafter, params = make.with_params(2)
    try:
        regime = carried(target, drafter, params)
    except Exception as error:  # whatever a drafter of one's own does
        raise ValueError(f"{name} fails: {of(error)}") from error
    files = (Path(inspect.getfile(build)),)
    return Side(name, params, drafter.vocab, make, regime, files=files)


def carried(target: Side, drafter: Drafter, params: Any) -> str:
    """What drafts carry, from a trace of one: a name of `sides`."""
    tokens, length = jnp.zeros((1, 1), jnp.int32), jnp.ones(1, jnp.int32)
    inputs = (tokens, length) if target.encodes else None
    for kind in target.model.reads[:1]:
        inputs = type(kind)(*(jnp.zeros((1, *shape)) for shape in kind))
    prompt, decoder = Prompt(tokens, length, inputs), Decoder(target.model, drafter)
    request = make_request(jax.random.key(0), prompt, 1, make_sampling(1, 1.0))

    def draft(both: Params):
        state = generate.prefill(decoder, both, prompt, drafter.gamma + 2)
        return drafter.draft(request.key, both.draft, request, state)[0]

    law = jax.eval_shape(draft, Params(target.params, params)).law
    if law is None:
        return CERTAIN
    regimes = {Table: TABLE, Reduced: REDUCED}
    return regimes.get(type(law.logits), SAMPLED)
