"""Drafts of another vocabulary than their target's.

The two may have one tokenizer, where one vocabulary is only padded. Where their
tokenizers differ, the draft proposes the tokens that both have (TLI,
`drafters.intersection`), or its strings are tokenized again (SLEM, `drafters.strings`).
"""

from collections.abc import Callable
from typing import Any

from specjax import pretrained
from specjax.checkpoints import Config, Pretrained
from specjax.drafters import intersection, strings
from specjax.drafts.models import chain_source, model_source
from specjax.drafts.source import (
    REDUCED_VOCAB,
    DraftSource,
    Recipe,
    certain_source,
    recipe,
)
from specjax.models import families
from specjax.tokenizers.retokenize import Retokenizer
from specjax.types import Drafter, Model


def match_vocab(target: Pretrained, draft: DraftSource) -> DraftSource:
    """Returns the draft in the vocabulary of its target.

    A model is matched as by `pretrained.match_vocab`; a decoder of another tokenizer
    drafts the tokens that both have (`common_tokens`). What drafts without a model of
    its own comes back as it is. Raises ValueError as `pretrained.match_vocab`.
    """
    if draft.pretrained is None or draft.model is None:
        return draft
    try:
        matched = pretrained.match_vocab(target, draft.pretrained)[1]
    except pretrained.OtherTokens:
        if target.encodes or draft.encodes:
            raise
        return common_tokens(target, draft.pretrained)
    return draft if matched is draft.pretrained else model_source(matched)


def common_tokens(target: Pretrained, draft: Pretrained) -> DraftSource:
    """Returns the draft of another tokenizer, which proposes only the tokens that both
    have (`drafters.intersection`)."""
    vocab, spelled = target.vocab, spelling(target, draft)
    config = draft.required_config
    model = recipe(_common_tokens, config=config, vocab=vocab, stretch=spelled.stretch)
    own = Pretrained(
        name=f"{draft.name}, of {spelled.ids.size:,} of {vocab:,} ids (TLI)",
        config=None,
        model=model(),
        params=spelled.params(draft.params),
    )
    source = chain_source(own, model, regime=REDUCED_VOCAB)
    factory = recipe(
        _limit_to_room,
        factory=source.factory,
        config=config,
        stretch=spelled.stretch,
    )
    return source._replace(factory=factory, files=pretrained.files_of(draft))


def _common_tokens(config: Config, vocab: int, stretch: int) -> Model:
    return intersection.in_target_vocab(families.build(config), vocab, stretch)


def limit_to_room(draft: DraftSource, factory: Recipe) -> Recipe:
    """Returns the recipe of a drafter by the model of `draft`, limited to the positions
    that a model by `common_tokens` has; any other recipe unchanged."""
    if draft.factory.build is _limit_to_room:
        return draft.factory.change(factory=factory)
    return factory


def _limit_to_room(
    gamma: int, draw: Callable, *, factory: Recipe, config: Config, stretch: int
) -> Drafter:
    drafter = factory(gamma=gamma, draw=draw)
    if not gamma:
        return drafter
    return intersection.limit_to_room(drafter, families.build(config), stretch)


def spelling(target: Pretrained, draft: Pretrained) -> intersection.Spelling:
    """Returns the tables by which a draft with another tokenizer reads the ids of a
    target."""
    reads, writes = target.tokenizer, draft.tokenizer
    same: Any = dict(zip(target.ends[:1], draft.ends[:1], strict=False))
    head = () if draft.start is None else (draft.start,)
    if head and reads.encode("a")[:1] == [target.start]:
        same, head = same | {target.start: draft.start}, ()
    return intersection.spelling(
        list(map(reads.token_bytes, range(target.vocab))),
        list(map(writes.token_bytes, range(draft.vocab))),
        same=same,
        names=list(map(reads.token, range(target.vocab))),
        head=head,
    )


def strings_source(target: Pretrained, draft: str) -> DraftSource:
    """Returns the draft of text that a decoder with another tokenizer writes, tokenized
    by the target's tokenizer (`drafters.strings`). Raises ValueError for a draft
    without a tokenizer, with the target's own, or that is not a decoder."""
    other = pretrained.load(draft, target.dtype)
    if target.encodes or other.encodes:
        raise ValueError(
            f"{target.name} and {draft} are not two decoders: name a decoder that"
            " drafts for a decoder"
        )
    coders = [model.tokenizer for model in (target, other)]  # or none: raises
    try:
        pretrained.check_tokens(target, other)
    except pretrained.OtherTokens:
        return respelled_draft(target, other)
    raise ValueError(
        f"{target.name} and {draft} have one tokenizer, {coders[0].file.name}: name the"
        f" draft {draft} alone"
    )


def respelled_draft(target: Pretrained, draft: Pretrained) -> DraftSource:
    """Returns the draft of another tokenizer whose text is tokenized again."""
    vocab, spelled = target.vocab, spelling(target, draft)
    source = certain_source(
        f"{draft.name}, by strings (SLEM)",
        _respelled_draft,
        spelled.params(draft.params),
        config=draft.config,
        vocab=vocab,
        stretch=spelled.stretch,
        respelled=Retokenizer(target.tokenizer, draft.tokenizer, vocab),
    )
    return source._replace(vocab=vocab, files=pretrained.files_of(draft))


def _respelled_draft(
    gamma: int, *, config: Config, vocab: int, stretch: int, respelled: Callable
) -> Drafter:
    return strings.build(
        families.build(config),
        gamma=gamma,
        vocab=vocab,
        stretch=stretch,
        respelled=respelled,
    )
