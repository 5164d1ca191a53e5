"""Drafts that are told of their target, as `specjax.drafts` names them.

Each function is of a name's options; `paired` is (target, a draft's name) -> both.
"""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from specjax import checkpoints, generate, pretrained, zoo
from specjax.drafters import (
    best_first,
    copying,
    datastore,
    forked,
    ngram,
    nothing,
    recycling,
)
from specjax.drafters import grown as grows
from specjax.drafters import tree as trees
from specjax.drafters.rollout import independent
from specjax.drafts import source as sides
from specjax.drafts.source import (
    CERTAIN,
    REDUCED,
    SAMPLED,
    TABLE,
    Certain,
    Remade,
    Side,
)
from specjax.inputs import make_request, make_sampling
from specjax.keys import root_key
from specjax.models import pad_vocab
from specjax.pretrained import Pretrained
from specjax.prompts import text_files
from specjax.runtime import contracts
from specjax.runtime.plugins import call_with_options, describe_error, resolve
from specjax.step import Decoder
from specjax.topologies import kary, likeliest
from specjax.topologies import paths as apart
from specjax.types import Drafter, Model, Params, Prompt, Reduced, Table


def early_exit(target: Side, layers: int) -> Side:
    """The target's own first layers."""
    if target.pretrained is None:
        raise ValueError(f"{target.name} has no layers to leave early: name a model")
    return sides.early_exit(target.pretrained, layers)


# What is bundled, by the vocabulary.
COUNTS = {zoo.CODE_VOCAB: "bigram", zoo.T5_VOCAB: "t5_bigram"}


def counts() -> tuple[Path, ...]:
    """Returns the files of all bundled counts."""
    return tuple(zoo.FOLDER / f"{name}.safetensors" for name in COUNTS.values())


def counted(target: Side, order: int) -> Side:
    """Counts of the target's vocabulary. Raises ValueError where none are bundled."""
    if target.vocab not in COUNTS:
        raise ValueError(
            f"there are no counts of the {target.vocab} ids of {target.name}: those of"
            " the bundled code and T5 models alone are here; name another draft"
        )
    return sides.ngram(order, COUNTS[target.vocab])


def copying_else(
    target: Side, paired: Callable, draft: str, least: int = 4, short: int = 0
) -> Side:
    """What followed the last `least` tokens when the text had them before, else what a
    model drafts, at most `short` tokens of it (0: gamma). Raises ValueError for a draft
    that is no model."""
    other = paired(target, draft)[1]
    if other.regime not in (SAMPLED, REDUCED):
        raise ValueError(f"{draft} is no model: name one that drafts where none copies")
    make = sides.built(_copying_else, other=other.drafter, least=least, short=short)
    make(1)
    return derived(other, f"copying, else {other.name}", make, SAMPLED)


def _copying_else(
    gamma: int, draw: Callable, other: Callable[..., Drafter], least: int, short: int
) -> Drafter:
    drafter = other(gamma, copying.copy_first(draw, gamma, least))
    if not 0 < short < gamma:
        return drafter
    return copying.shorten_without_copy(drafter, least, short)


def derived(other: Side, name: str, make: Callable[..., Drafter], regime: str) -> Side:
    """Who drafts in another way with the parameters of `other`."""
    made = other._replace(name=name, drafter=make, regime=regime)
    return made._replace(law=None, model=None, pretrained=None)


def tree(
    target: Side,
    paired: Callable,
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
    if other.regime == REDUCED:
        model = sides.of_some_ids(other)
    elif other.pretrained is not None:
        sizes = dict(config=other.pretrained.config, vocab=target.vocab)
        model = sides.built(_of_config, Remade, **sizes)
    elif draft == "bigram":
        model = sides.built(ngram.bigram, Remade, vocab=target.vocab)
    elif other.model is not None:
        model = sides.built(_as_it_is, Remade, model=other.model)
    else:
        raise ValueError(f"{draft} is no model: a tree is drafted by one")
    listed = {"accept": accept, "floors": floors, "grown": grown}
    chances = {name: chances_of(name, text) for name, text in listed.items()}
    shape = dict(width=width, side=paths, longest=longest or None, siblings=siblings)
    more = dict(best=best, copied=copied, **chances)
    make = sides.built(_tree, model=model, **shape, **more)
    regime = SAMPLED if other.regime == TABLE else other.regime
    if make(2 * max(1, copied)).siblings == "certain":
        regime = CERTAIN
    make = other.drafter._replace(make=make) if held else make
    made = derived(other, f"tree of {other.name}", make, regime)
    return made._replace(pretrained=other.pretrained)


def _tree(
    gamma: int,
    draw: Callable,
    model: Remade,
    width: int,
    side: int,
    longest: int | None,
    siblings: str,
    best: int,
    copied: int,
    accept: tuple[float, ...],
    floors: tuple[float, ...],
    grown: tuple[float, ...],
) -> Drafter:
    """Of the options of `tree`; side: its `paths`."""
    del draw  # trees draw siblings by a rule of their own
    if gamma == 0:
        return nothing.drafter
    if copied:
        return forked.build(model(), gamma, copied)
    if grown:
        return grows.build(model(), gamma, grown, longest)
    if best:
        return best_first.build(
            model(), gamma, width=best, longest=longest or gamma, floors=floors
        )
    if accept:
        shape = likeliest.build(accept, longest)
    else:
        shape = apart.build(side) if side else kary.build(width)
    return trees.build(model(), shape(gamma), siblings)


def _as_it_is(model: Model) -> Model:
    return model


def _of_config(config: Any, vocab: int) -> Model:
    return pad_vocab.pad_vocab(checkpoints.build(config), vocab)


def chances_of(name: str, text: str) -> tuple[float, ...]:
    """Probabilities as an option has them, "0.6/0.3/0.2"."""
    try:
        return tuple(float(x) for x in text.split("/") if x)
    except ValueError:
        raise ValueError(
            f"{name}={text}: write probabilities with / between them, 0.6/0.3/0.2"
        ) from None


def recycled(target: Side, accept: str = "") -> Side:
    """What the target itself last held likely after each id (`drafters.recycling`): a
    chain, or the tree of gamma nodes that keeps most where the i-th sibling is accepted
    as `accept` says, as "0.6/0.3/0.2". Raises ValueError for what is no such number."""
    chances = chances_of("accept", accept)
    make = sides.built(_recycled, Certain, vocab=target.vocab, accept=chances)
    make(2)
    return Side("recycling", None, target.vocab, make, CERTAIN)


def _recycled(gamma: int, vocab: int, accept: tuple[float, ...]) -> Drafter:
    if gamma == 0:
        return nothing.drafter
    parents = likeliest.build(accept)(gamma) if accept else None
    return recycling.build(vocab, gamma, parents)


def stored(target: Side, file: str, longest: int = 4) -> Side:
    """What followed the same tokens in a file of texts, or in the text itself
    (`drafters.datastore`). file: text, or by its name .jsonl, lines of {"text": text}
    or {"tokens": ids}; packed by gzip or xz, or not. Raises ValueError for a file that
    is absent or holds no text, and for a target without a tokenizer."""
    path, read = Path(file), sides.reader(target, None)
    if not path.is_file():
        raise ValueError(f"no file {file}: name one of texts, FILE.txt or FILE.jsonl")
    if ".jsonl" in path.suffixes[-2:]:
        lines = text_files.numbered_lines(path)
        each = [ids_of(line, f"{file}, line {number}", read) for number, line in lines]
    else:
        text = text_files.read_text(path)
        each = [read.tokenizer.encode(text)] if text else []
    try:
        store = datastore.index(each)
    except ValueError as error:
        raise ValueError(f"{file} holds no text: {error}") from None
    if not 0 <= int(store.tokens.max()) < target.vocab:
        raise ValueError(f"{file} has ids that {target.name} does not know")
    datastore.build(1, longest)
    side = sides.certain("datastore", datastore.build, store, longest=longest)
    return side._replace(files=(path,))


def ids_of(line: bytes, where: str, read: Pretrained) -> list[int]:
    """Returns the ids of a line of JSON. where: its file and number. Raises ValueError
    for a line that is no text."""
    try:
        fields = json.loads(line)
        if fields.get("tokens") is not None:
            return [int(token) for token in fields["tokens"]]
        return read.tokenizer.encode(fields["text"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        shown = ascii(line[:40].decode("utf-8", "replace"))
        raise ValueError(
            f'{where}: {shown} is no text: write {{"text": "..."}} a line'
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
        drafter = call_with_options(self.name, self.build, self.options, context)
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
    build, options = resolve(name)
    if not inspect.isfunction(build):
        raise ValueError(f"{name} is of class {type(build).__name__}: name a function")
    make = Own(name, build, options, target.vocab)
    drafter, params = make.with_params(2)
    try:
        regime = carried(target, drafter, params)
    except Exception as error:  # whatever a drafter of one's own does
        raise ValueError(f"{name} fails: {describe_error(error)}") from error
    files = (Path(inspect.getfile(build)),)
    return Side(name, params, drafter.vocab, make, regime, files=files)


def carried(target: Side, drafter: Drafter, params: Any) -> str:
    """What drafts carry, from a trace of one: a name of `sides`."""
    tokens, length = jnp.zeros((1, 1), jnp.int32), jnp.ones(1, jnp.int32)
    inputs = (tokens, length) if target.encodes else None
    for kind in target.model.reads[:1]:
        inputs = type(kind)(*(jnp.zeros((1, *shape)) for shape in kind))
    prompt, decoder = Prompt(tokens, length, inputs), Decoder(target.model, drafter)
    request = make_request(root_key(0), prompt, 1, make_sampling(1, 1.0))

    def draft(both: Params):
        state = generate.prefill(decoder, both, prompt, drafter.gamma + 2)
        made = drafter.draft(request.key, both.draft, request, state)
        return contracts.check_draft(made, 1, drafter.gamma)[0]

    law = jax.eval_shape(draft, Params(target.params, params)).law
    if law is None:
        return CERTAIN
    regimes = {Table: TABLE, Reduced: REDUCED}
    return regimes.get(type(law.logits), SAMPLED)
