"""Drafts that repeat tokens: of the text, its prompt or other texts, or earlier
predictions of the target.

None has a law at every position: alpha is the share of their tokens that were accepted.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from specjax.checkpoints import Pretrained
from specjax.drafters import anchored as anchors
from specjax.drafters import copying as copies
from specjax.drafters import datastore, nothing
from specjax.drafters import lookahead as ahead
from specjax.drafters import recycling as recycles
from specjax.drafters import suffix as suffixes
from specjax.drafts.source import (
    REDUCED_VOCAB,
    SAMPLED,
    DraftSource,
    Recipe,
    certain_source,
    derived_source,
    recipe,
)
from specjax.drafts.trees import parse_chances
from specjax.prompts import text_files
from specjax.topologies import likeliest
from specjax.types import Drafter


def copying(longest: int = 3, least: int = 1) -> DraftSource:
    """Returns the draft that repeats the continuation of an earlier occurrence of the
    last tokens (Leviathan et al. 2023, Section 3.6): of at least `least` matching
    tokens, and at most `longest`.

    It has no law: where nothing matches it drafts nothing, so that beta is not defined
    at every position. Raises ValueError for a `longest` below 1, or a `least` that is
    not within it.
    """
    copies.build(1, longest, least)
    return certain_source("copying", copies.build, longest=longest, least=least)


def copying_else(
    target: Pretrained, pair: Callable, draft: str, *, least: int = 4, short: int = 0
) -> DraftSource:
    """Returns the draft of the continuation of the last `least` tokens where the text
    had them before, else of a model's tokens, at most `short` of them (0: gamma).

    pair: as `drafts.pair`. Raises ValueError for a draft that is not a model, or for a
    negative number.
    """
    if short < 0:
        raise ValueError(f"short={short}: write a number that is not negative")
    other = pair(target, draft)[1]
    if other.regime not in (SAMPLED, REDUCED_VOCAB):
        raise ValueError(
            f"{draft} is not a model: name one that drafts where nothing is copied"
        )
    factory = recipe(_build_copying_else, other=other.factory, least=least, short=short)
    name = f"copying, else {other.name}"
    source = derived_source(other, name=name, factory=factory, regime=SAMPLED)
    source.drafter(1)
    return source


def _build_copying_else(
    gamma: int, draw: Callable, *, other: Recipe, least: int, short: int
) -> Drafter:
    drafter = other(gamma=gamma, draw=copies.copy_first(draw, gamma, least))
    if not 0 < short < gamma:
        return drafter
    return copies.shorten_without_copy(drafter, least, short)


def suffix(longest: int = 4, paths: int = 1) -> DraftSource:
    """Returns the draft that repeats the most frequent continuation of the longest
    match (`drafters.suffix`), or a tree of `paths` continuations. Raises ValueError for
    either argument below 1."""
    suffixes.build(1, longest, paths)
    return certain_source("suffix", suffixes.build, longest=longest, paths=paths)


def anchored(target: Pretrained) -> DraftSource:
    """Returns the draft that follows its position in an encoder's input
    (`drafters.anchored`). It aligns by the words of the target's tokenizer, or by
    tokens where there is none."""
    begins = jnp.ones(target.vocab, bool)
    if target.tokenizer_file is not None:
        tokenizer = target.tokenizer
        known = range(min(target.vocab, tokenizer.vocab))
        starts = [tokenizer.piece(i)[:1].isspace() for i in known]
        begins = begins.at[: len(starts)].set(jnp.array(starts))
    return certain_source("anchored", anchors.build, begins)


def lookahead(tokens: int = 4, pool: int = 512) -> DraftSource:
    """Returns the draft of the target's own guesses, of gamma nodes
    (`drafters.lookahead`). tokens: those of an n-gram. pool: the n-grams that are
    remembered. Raises ValueError as `drafters.lookahead.build` does."""
    ahead.build(1, tokens, pool)
    return certain_source("lookahead", ahead.build, tokens=tokens, pool=pool)


def recycling(target: Pretrained, accept: str = "") -> DraftSource:
    """Returns the draft of the ids that the target itself last found likely after each
    id (`drafters.recycling`).

    A chain, or the tree of gamma nodes that keeps most where the i-th sibling is
    accepted as `accept` says, as "0.6/0.3/0.2". Raises ValueError for other values.
    """
    chances = parse_chances("accept", accept)
    options = {"vocab": target.vocab, "accept": chances}
    source = certain_source("recycling", _recycling, **options)
    source.drafter(2)
    return source._replace(vocab=target.vocab)


def _recycling(gamma: int, vocab: int, accept: tuple[float, ...]) -> Drafter:
    if gamma == 0:
        return nothing.drafter
    parents = likeliest.build(accept)(gamma) if accept else None
    return recycles.build(vocab, gamma, parents)


def texts_store(target: Pretrained, file: str, longest: int = 4) -> DraftSource:
    """Returns the draft that repeats the continuation of the last tokens in a file of
    texts, or in the text itself (`drafters.datastore`).

    Args:
      target: whose tokenizer reads the file.
      file: text, or by its name .jsonl, lines of {"text": text} or {"tokens": ids};
        packed by gzip or xz, or not.
      longest: tokens of the text that are compared.

    Raises:
      ValueError: the file is absent or holds no text, or the target has no tokenizer.
    """
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"no file {file}: name one of texts, FILE.txt or FILE.jsonl")
    if ".jsonl" in path.suffixes[-2:]:
        lines = text_files.numbered_lines(path)
        each = [
            line_ids(line, f"{file}, line {number}", target) for number, line in lines
        ]
    else:
        text = text_files.read_text(path)
        each = [target.tokenizer.encode(text)] if text else []
    try:
        store = datastore.index(each)
    except ValueError as error:
        raise ValueError(f"{file} holds no text: {error}") from None
    if not 0 <= int(store.tokens.max()) < target.vocab:
        raise ValueError(f"{file} has ids that {target.name} does not know")
    datastore.build(1, longest)
    source = certain_source("datastore", datastore.build, store, longest=longest)
    return source._replace(files=(path,))


def line_ids(line: bytes, where: str, target: Pretrained) -> list[int]:
    """Returns the ids of a line of JSON. where: its file and number. Raises ValueError
    for a line without a text."""
    try:
        fields = json.loads(line)
        if fields.get("tokens") is not None:
            return [check_id(token, target.vocab) for token in fields["tokens"]]
        return target.tokenizer.encode(fields["text"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        shown = ascii(line[:40].decode("utf-8", "replace"))
        raise ValueError(
            f'{where}: {shown} is not a text: write {{"text": "..."}} or'
            f' {{"tokens": [ids below {target.vocab}]}} a line'
        ) from None


def check_id(token: Any, vocab: int) -> int:
    """Returns an id. Raises ValueError for a value that is none."""
    if type(token) is not int or not 0 <= token < vocab:
        raise ValueError(f"{token} is no id")
    return token
