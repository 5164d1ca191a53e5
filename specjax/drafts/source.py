"""Who takes part in a measurement: what is named as target or draft.

p is the target M_p, q the drafter M_q. Axes: B rows, T tokens, V vocabulary.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

from specjax import checkpoints, chunks, pretrained, probs, zoo
from specjax.drafters import anchored as anchors
from specjax.drafters import autoregressive, copying, intersection, strings
from specjax.drafters import early_exit as early_exits
from specjax.drafters import lookahead as ahead
from specjax.drafters import ngram as ngrams
from specjax.drafters import random as random_draft
from specjax.drafters import suffix as suffixes
from specjax.drafters.rollout import for_rule, independent
from specjax.models import families
from specjax.models import reduced as some_ids
from specjax.models.reduced import Reduction
from specjax.pretrained import Pretrained
from specjax.tokenizers.respelled import Respelled
from specjax.types import Drafter, Kernels, Law, Model, Prompt, Sampling, Verifier
from specjax.verifiers import token

# What a draft carries (`specjax.types.Draft.law`).
SAMPLED, TABLE, CERTAIN = "sampled law", "table law", "certain"
REDUCED = "law of some ids"


class Side(NamedTuple):
    """One side. drafter: (gamma, draw=independent) -> Drafter, which takes `params`;
    see `drafters.rollout` for `draw`. regime: what its drafts carry. law: (params,
    Prompt, Sampling) -> Law [B, T] of the token after each token of the prompt, as the
    drafter would draw it; None where a draft may be no draft. model: what decodes; None
    for who only drafts. files: what it was read from. pretrained: the model as it was
    loaded, with its tokenizer; None where nothing was."""

    name: str
    params: Any
    vocab: int | None
    drafter: Callable[..., Drafter]
    regime: str
    law: Callable[[Any, Prompt, Sampling], Law] | None = None
    model: Model | None = None
    files: tuple[Path, ...] = ()
    pretrained: Pretrained | None = None

    @property
    def dtype(self) -> str:
        """Of its weights as they were loaded."""
        return "float32" if self.pretrained is None else self.pretrained.dtype

    @property
    def encodes(self) -> bool:
        """Whether its prompts need inputs for an encoder."""
        return self.model is not None and self.model.encodes


class Built(NamedTuple):
    """Builds a drafter, of gamma, draw and options. Two are equal where these are,
    so that what is compiled for one serves the other."""

    build: Callable[..., Drafter]
    options: tuple

    def __call__(self, gamma: int, draw: Callable = independent) -> Drafter:
        return self.build(gamma=gamma, draw=draw, **dict(self.options))


class Certain(Built):
    """As `Built`, of a drafter that draws nothing."""

    __slots__ = ()

    def __call__(self, gamma: int, draw: Callable = independent) -> Drafter:
        return self.build(gamma=gamma, **dict(self.options))


class Remade(Built):
    """As `Built`, of a model."""

    __slots__ = ()

    def __call__(self) -> Model:
        return self.build(**dict(self.options))


def built(build: Callable, kind: type[Built] = Built, **options: Any) -> Built:
    return kind(build, tuple(options.items()))


def by_model(gamma: int, draw: Callable, model: Remade) -> Drafter:
    """What drafts by a model, made of its options anew."""
    return autoregressive.build(model(), gamma, draw)


def reference(
    verifier: Verifier = token.verifier, why: str = "none was chosen"
) -> Kernels:
    """Decodes by a verifier and by `specjax.probs` as they are: nothing is fused."""
    names = "asked", "verify", "draw", "baseline"
    record = dict.fromkeys(names, "reference") | {"why": why}
    return Kernels(verifier, for_rule(verifier), token.verifier, record)


def model(
    name: str, dtype: str = "float32", made_by: str = "", cache: str | None = None
) -> Side:
    """A model by any name that `checkpoints.load` knows: bundled, a path, a hub's id.
    made_by: the command that makes the file. cache: as of `specjax.load`. Raises
    ValueError for no such model."""
    if made_by and not Path(name).exists():
        raise ValueError(f"no weights at {name}: make them with `{made_by}`")
    return of_pretrained(pretrained.load(name, dtype, cache=cache))


def of_pretrained(loaded: Pretrained) -> Side:
    """A pretrained model that can be either side."""
    side = of_model(loaded.name, loaded.model, loaded.params)
    return side._replace(files=pretrained.files_of(loaded), pretrained=loaded)


def paired(target: Side, draft: Side) -> tuple[Side, Side]:
    """As `pretrained.paired`, where both are models; decoders of other tokenizers are
    paired by the tokens that both have (`common`). Raises ValueError as it does."""
    loaded = target.pretrained, draft.pretrained
    if None in loaded:
        return target, draft
    try:
        both = pretrained.paired(*loaded)
    except pretrained.OtherTokens:
        if any(side.model.encodes for side in loaded):
            raise
        return target, common(*loaded)
    sides = zip(loaded, both, (target, draft), strict=True)
    return tuple(side if old is new else of_pretrained(new) for old, new, side in sides)


def common(target: Pretrained, draft: Pretrained) -> Side:
    """A draft of another tokenizer, which says the tokens that both have
    (`drafters.intersection`)."""
    vocab, spelled = target.model.vocab, spelling(target, draft)
    name = f"{draft.name}, of {spelled.ids.size:,} of {vocab:,} ids (TLI)"
    sizes = dict(config=draft.config, vocab=vocab, stretch=spelled.stretch)
    model = built(_common, Remade, **sizes)
    side = of_model(name, model(), spelled.params(draft.params))
    make = Held(built(by_model, model=model), draft.config, spelled.stretch)
    files = pretrained.files_of(draft)
    return side._replace(drafter=make, regime=REDUCED, model=None, files=files)


def _common(config: Any, vocab: int, stretch: int) -> Model:
    return intersection.in_target_vocab(checkpoints.build(config), vocab, stretch)


def spelling(target: Pretrained, draft: Pretrained) -> intersection.Spelling:
    """How a draft of another tokenizer reads the ids of a target."""
    reads, writes = target.tokenizer, draft.tokenizer
    same = dict(zip(target.ends[:1], draft.ends[:1], strict=False))
    head = () if draft.start is None else (draft.start,)
    if head and reads.encode("a")[:1] == [target.start]:
        same, head = same | {target.start: draft.start}, ()
    vocab = target.model.vocab
    return intersection.spelling(
        list(map(reads.spelled, range(vocab))),
        list(map(writes.spelled, range(draft.model.vocab))),
        same=same,
        names=list(map(reads.token, range(vocab))),
        head=head,
    )


def by_strings(target: Pretrained, draft: Pretrained) -> Side:
    """A draft of another tokenizer, whose text is read anew (`drafters.strings`)."""
    vocab, spelled = target.model.vocab, spelling(target, draft)
    respelled = Respelled(target.tokenizer, draft.tokenizer, vocab)
    sizes = dict(vocab=vocab, stretch=spelled.stretch, respelled=respelled)
    params = spelled.params(draft.params)
    name = f"{draft.name}, by strings (SLEM)"
    side = certain(name, _by_strings, params, config=draft.config, **sizes)
    return side._replace(vocab=vocab, files=pretrained.files_of(draft))


def _by_strings(config: Any, **sizes: Any) -> Drafter:
    return strings.build(checkpoints.build(config), **sizes)


class Held(NamedTuple):
    """Builds what `make` builds of a draft by `common`, held to that draft's room."""

    make: Callable[..., Drafter]
    config: Any
    stretch: int

    def __call__(self, gamma: int, draw: Callable = independent) -> Drafter:
        drafter = self.make(gamma, draw)
        if not gamma:
            return drafter
        return intersection.limit_to_room(
            drafter, checkpoints.build(self.config), self.stretch
        )


def of_some_ids(draft: Side) -> Remade:
    """What drafts in a draft by `reduced` or `common`."""
    make = draft.drafter.make if isinstance(draft.drafter, Held) else draft.drafter
    return dict(make.options)["model"]


def of_model(name: str, model: Model, params) -> Side:
    """A model that can be either side."""

    def law(params, prompt: Prompt, sampling: Sampling) -> Law:
        start = jnp.zeros(prompt.tokens.shape[0], jnp.int32)
        cache = model.init(params, prompt, prompt.tokens.shape[1])
        reader = chunks.read_in_portions(model)
        features, _ = reader.apply(params, prompt.tokens, start, cache)
        return probs.standardize(model.readout(params, features), sampling)

    def drafter(gamma: int, draw: Callable = independent) -> Drafter:
        return autoregressive.build(model, gamma, draw)

    return Side(name, params, model.vocab, drafter, SAMPLED, law, model)


def early_exit(whole: Pretrained, layers: int) -> Side:
    """A target's first `layers` layers, which draft for it (`drafters.early_exit`) by
    its own weights. Raises ValueError for layers that it lacks."""
    family = families.of(whole.config)
    most = getattr(whole.config, family.layers)
    if not 1 <= layers < most:
        raise ValueError(
            f"{whole.name} has {most} layers, of which 1 to {most - 1} can draft; got"
            f" {layers}"
        )
    shallow = families.first_layers(whole.config, layers)
    side = of_model(f"{whole.name}, {layers} layers", shallow, whole.params)
    make = built(_early_exit, config=whole.config, layers=layers)
    own = dict(drafter=make, model=None, files=pretrained.files_of(whole))
    if family.listens:  # as a pair that listens has it
        config = family.first_layers(whole.config, layers)
        sizes = dict(name=side.name, config=config, model=shallow)
        own["pretrained"] = whole._replace(**sizes)
    return side._replace(**own)


def reduced(name: str, draft: Reduction, target: Pretrained) -> Side:
    """A draft that reads by its target's embedding and says some of its ids. Raises
    ValueError for a target that it was not made for."""
    family = families.of(draft.config)
    if families.of(target.config) is not family:
        raise ValueError(
            f"{name} drafts for {family.called}, and {target.name} is a"
            f" {target.family}: name the target that it was trained for"
        )
    try:
        params = some_ids.with_target(draft, target.params)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    model = built(some_ids.build, Remade, config=draft.config, whole=target.config)
    if family.listens:  # the rules of speech are of all ids
        spread = some_ids.spread(model())
        own = Pretrained(name, draft.config, spread, params, target.dtype)
        return of_pretrained(own)
    side, make = of_model(name, model(), params), built(by_model, model=model)
    return side._replace(drafter=make, regime=REDUCED, model=None)


def _early_exit(gamma: int, draw: Callable, config: Any, layers: int) -> Drafter:
    shallow = families.first_layers(config, layers)

    def cut(cache):
        return families.of(config).first_caches(cache, layers)

    return early_exits.build(shallow, cut, gamma, draw)


def ngram(order: int, name: str = "", made_by: str = "") -> Side:
    """Counts: order 1 is the unigram law, 2 the bigram's (Section 3.6). name: a bundled
    table, by default of the code models, or a file of `zoo.save_ngrams` by its path.
    Raises ValueError for no such file, or an order that it does not have."""
    path = Path(name)
    if name in ("", "bigram", "t5_bigram"):
        path = zoo.FOLDER / f"{name or 'bigram'}.safetensors"
    if not path.is_file():
        advice = f"make them with `{made_by}`" if made_by else "check the path"
        raise ValueError(f"no counts at {name}: {advice}")
    params = zoo.ngrams(path)
    vocab, known = params.table.base.size, params.contexts.shape[1] + 1
    if not 1 <= order <= known:
        raise ValueError(f"these counts have orders 1 to {known}; got {order}")

    def law(params, prompt: Prompt, sampling: Sampling) -> Law:
        row = ngrams.find(params, ngrams.draft_contexts(prompt.tokens, order))
        return probs.standardize(probs.table_rows(params.table, row), sampling)

    called = {1: "unigram", 2: "bigram"}.get(order, f"{order}-gram")
    make = built(ngrams.build, vocab=vocab, order=order)
    return Side(called, params, vocab, make, TABLE, law, files=(path,))


def random(vocab: int = 8192) -> Side:
    """Uniform tokens, whatever the temperature: the floor (Section 3.6)."""

    def law(params, prompt: Prompt, sampling: Sampling) -> Law:
        as_it_draws = Sampling(jnp.ones_like(sampling.temperature))
        logits = jnp.broadcast_to(params, (*prompt.tokens.shape, vocab))
        return probs.standardize(logits, as_it_draws)

    make = built(random_draft.build, vocab=vocab)
    return Side("random", jnp.zeros(vocab), vocab, make, TABLE, law)


def copied(longest: int = 3, least: int = 1) -> Side:
    """Repeats what followed the same tokens before (Section 3.6), where at least
    `least` of them and at best `longest` are the same. It has no law: where nothing
    matches it drafts nothing, so that beta is not defined at every position: its alpha
    is the share of its tokens that were accepted. Raises ValueError for a `longest`
    below 1, or a `least` that is not within it."""
    copying.build(1, longest, least)
    return certain("copying", copying.build, longest=longest, least=least)


def suffix(longest: int = 4, paths: int = 1) -> Side:
    """Repeats what most often followed the longest match before (`drafters.suffix`), or
    drafts a tree of so many paths. Raises ValueError for either below 1."""
    suffixes.build(1, longest, paths)
    return certain("suffix", suffixes.build, longest=longest, paths=paths)


def anchored(target: Side) -> Side:
    """Follows an encoder's input from place to place (`drafters.anchored`), by the
    words of the target's tokenizer; by tokens where it has none."""
    begins = jnp.ones(target.vocab, bool)
    if target.pretrained is not None and target.pretrained.tokenizer_file is not None:
        tokenizer = target.pretrained.tokenizer
        known = range(min(target.vocab, tokenizer.vocab))
        starts = [tokenizer.piece(i)[:1].isspace() for i in known]
        begins = begins.at[: len(starts)].set(jnp.array(starts))
    return certain("anchored", anchors.build, begins)


def certain(name: str, build: Callable, params: Any = None, **options: Any) -> Side:
    """Who drafts tokens without a law, by a builder of gamma and options."""
    make = built(build, Certain, **options)
    return Side(name, params, None, make, CERTAIN)


def lookahead(tokens: int = 4, pool: int = 512) -> Side:
    """Guesses of the target's own, of gamma nodes (`drafters.lookahead`). tokens, pool:
    of an n-gram, and n-grams that are remembered. Raises ValueError as it does."""
    ahead.build(1, tokens, pool)
    return certain("lookahead", ahead.build, tokens=tokens, pool=pool)


def names(target: Side, draft: Side) -> dict[str, str]:
    """Who took part, as a record has it. Weights that were stored in fewer bits are
    another model than the published one: `stored` says which they are."""
    who = {"target": target.name, "draft": draft.name, "draft_regime": draft.regime}
    if target.pretrained is not None and target.pretrained.stored:
        who["stored"] = target.pretrained.stored
    return who


def check(target: Side, draft: Side, with_alpha: bool = True) -> None:
    """Raises ValueError for a pair that does not decode, or that has no alpha."""
    if target.model is None:
        raise ValueError(f"{target.name} only drafts: name a model as the target")
    if with_alpha and draft.law is None:
        raise ValueError(
            f"{draft.name} has no law at every position, so no alpha: measure its"
            " walltime or its accepted tokens instead"
        )
    if draft.vocab not in (None, target.vocab):
        raise ValueError(
            f"{target.name} has a vocabulary of {target.vocab}, {draft.name} one of"
            f" {draft.vocab}, and no tokenizers that say which ids are common: name a"
            " pair with one tokenizer, beside the weights of both"
        )
    if draft.encodes and not target.encodes:
        raise ValueError(
            f"{draft.name} reads the prompt with an encoder and {target.name} has none:"
            " name two models of one kind"
        )


def reader(target: Side, tokenizer: str | None) -> Pretrained:
    """The target with this tokenizer, if one is named. Raises ValueError for a target
    that only drafts."""
    if target.pretrained is None:
        raise ValueError(f"{target.name} only drafts: name a model as the target")
    if tokenizer is None:
        return target.pretrained
    return target.pretrained._replace(tokenizer_file=Path(tokenizer))
