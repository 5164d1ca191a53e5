"""Draft models: with their own weights, the target's first layers, or a reduced
vocabulary.

Axes: B rows, T tokens, V vocabulary.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from specjax import chunks, pretrained, probs
from specjax.checkpoints import Config, Pretrained
from specjax.checkpoints import reduced_vocab as files
from specjax.drafters import autoregressive
from specjax.drafters import early_exit as early_exits
from specjax.drafts.source import (
    CERTAIN,
    REDUCED_VOCAB,
    SAMPLED,
    DraftSource,
    Recipe,
    recipe,
)
from specjax.models import constrained as ruled
from specjax.models import families, pad_vocab, reduced_vocab
from specjax.models.constrained import constrained
from specjax.models.reduced_vocab import Reduction
from specjax.types import Drafter, Law, Model, Prompt, Sampling, TokenAutomaton


def model_source(model: Pretrained) -> DraftSource:
    """Returns the source that drafts by a model, token by token."""
    source = chain_source(model, model_recipe(model), regime=SAMPLED)
    return source._replace(files=pretrained.files_of(model), pretrained=model)


def chain_source(model: Pretrained, build: Recipe, *, regime: str) -> DraftSource:
    """Returns the source of a model's chains, without files.

    Args:
      model: whose name and weights it has.
      build: the recipe of its model.
      regime: what the chains carry.
    """
    return DraftSource(
        name=model.name,
        factory=recipe(chain, model=build),
        params=model.params,
        vocab=model.vocab,
        regime=regime,
        law=build_law(model.model),
        model=build,
    )


def chain(gamma: int, draw: Callable, model: Recipe, behind: int = 2) -> Drafter:
    """Returns the drafter of a model that is built from its recipe. behind: see
    `autoregressive.build`."""
    return autoregressive.build(model(), gamma, draw, behind=behind)


def model_recipe(model: Pretrained) -> Recipe:
    """Returns the recipe of a model: from its configuration, where it has one."""
    if model.config is None:
        return constant(model.model)
    return recipe(_from_config, config=model.config, vocab=model.vocab)


def _from_config(config: Config, vocab: int) -> Model:
    return pad_vocab.pad_vocab(families.build(config), vocab)


def constant(model: Model) -> Recipe:
    """Returns the recipe of this very object, which equals no other recipe."""
    return Recipe(lambda: model)


def build_law(model: Model) -> Callable[[Any, Prompt, Sampling], Law]:
    """Returns the law of a model after each token: `DraftSource.law`."""

    def law(params: Any, prompt: Prompt, sampling: Sampling) -> Law:
        start = jnp.zeros(prompt.tokens.shape[0], jnp.int32)
        cache = model.init(params, prompt, prompt.tokens.shape[1])
        reader = chunks.read_in_portions(model)
        features, _ = reader.apply(params, prompt.tokens, start, cache)
        return probs.standardize(model.readout(params, features), sampling)

    return law


def with_rules(source: DraftSource, rules: TokenAutomaton) -> DraftSource:
    """Returns the source with rules applied to its model's logits, as to the target's.
    A source that drafts neither a chain nor a tree by a model of a whole vocabulary is
    returned unchanged."""
    if source.model is not None and source.regime == SAMPLED:
        model = recipe(_with_rules, model=source.model, rules=rules)
        factory = recipe(_chain_with_rules, model=model, own=source.factory)
        return source._replace(factory=factory, model=model, law=None)
    of_tree = dict(source.factory.options).get("model")
    if not isinstance(of_tree, Recipe) or source.regime not in (SAMPLED, CERTAIN):
        return source
    model = recipe(_with_rules, model=of_tree, rules=rules)
    return source._replace(factory=source.factory.change(model=model), law=None)


def _chain_with_rules(
    gamma: int, draw: Callable, *, model: Recipe, own: Recipe
) -> Drafter:
    own(gamma=gamma, draw=draw)  # raises where the source cannot draft so many
    return chain(gamma, draw, model)


def _with_rules(model: Recipe, rules: TokenAutomaton) -> Model:
    return constrained(model(), rules)


# The target's first layers.


def early_exit(target: Pretrained, layers: int) -> DraftSource:
    """Returns the draft by a target's first `layers` layers, with its own weights
    (`drafters.early_exit`). Raises ValueError for layers that it lacks."""
    config = target.required_config
    family = families.of(config)
    most = getattr(config, family.layers)
    if not 1 <= layers < most:
        raise ValueError(
            f"{target.name} has {most} layers, of which 1 to {most - 1} can draft; got"
            f" {layers}"
        )
    shallow = families.first_layers(config, layers)
    own = None
    if family.listens:  # as a pair that listens has it
        own = target._replace(
            name=f"{target.name}, {layers} layers",
            config=family.first_layers(config, layers),
            model=shallow,
        )
    return DraftSource(
        name=f"{target.name}, {layers} layers",
        factory=recipe(_build_early_exit, config=config, layers=layers),
        params=target.params,
        vocab=target.vocab,
        regime=SAMPLED,
        law=build_law(shallow),
        files=pretrained.files_of(target),
        pretrained=own,
    )


def _build_early_exit(
    gamma: int, draw: Callable, *, config: Config, layers: int
) -> Drafter:
    shallow = families.first_layers(config, layers)

    def first_layers_cache(cache: Any) -> Any:
        if isinstance(cache, ruled.Cache):  # the target follows rules
            cache = cache.model
        return families.of(config).first_caches(cache, layers)

    return early_exits.build(shallow, first_layers_cache, gamma, draw)


# A reduced vocabulary.


def load_reduced_vocab(path: Path, target: Pretrained) -> DraftSource:
    """Returns the draft in a file of `checkpoints.reduced_vocab`."""
    draft = files.load(path, target.dtype)
    return reduced_vocab_source(path.stem, draft, target)._replace(files=(path,))


def reduced_vocab_source(
    name: str, draft: Reduction, target: Pretrained
) -> DraftSource:
    """Returns the draft that reads tokens by its target's embedding and proposes some
    of its ids. Raises ValueError for a target that it was not made for."""
    whole, family = target.required_config, families.of(draft.config)
    if families.of(whole) is not family:
        raise ValueError(
            f"{name} drafts for {family.called}, and {target.name} is a"
            f" {target.family}: name the target that it was trained for"
        )
    try:
        params = reduced_vocab.with_target(draft, target.params)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    model = recipe(_reduced_vocab, config=draft.config, whole=whole)
    if not family.listens:
        return chain_source(
            Pretrained(name, None, model(), params), model, regime=REDUCED_VOCAB
        )
    # The rules of speech are of all ids.
    dense = recipe(_all_logits, model=model)
    own = Pretrained(name, draft.config, dense(), params, target.dtype)
    return chain_source(own, dense, regime=SAMPLED)._replace(pretrained=own)


def _reduced_vocab(config: Config, whole: Config) -> Model:
    return reduced_vocab.build(config, whole)


def all_logits(source: DraftSource) -> DraftSource:
    """Returns the same draft with logits of all ids, where it proposes only some."""
    if source.regime != REDUCED_VOCAB or source.model is None:
        return source
    model = recipe(_all_logits, model=source.model)
    dense = Pretrained(source.name, None, model(), source.params)
    made = chain_source(dense, model, regime=SAMPLED)
    return made._replace(files=source.files, pretrained=dense)


def _all_logits(model: Recipe) -> Model:
    return reduced_vocab.spread(model())
