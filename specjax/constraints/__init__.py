"""Forms that texts must have: a JSON schema, a regular expression or a grammar.

A form becomes a `TokenAutomaton`: before each token, the ids that no text of the form
goes on with are masked, and the probabilities of the others are divided by their sum.
Texts follow this masked model exactly, drafted or not. It is another law than that of
the model given that its whole text has the form (`docs/guides/constraints.md`).

Regular expressions and schemas are tables on the device (`tables`). A grammar needs a
stack: the host reads it, in one call for each call of a model (`grammars`). All need
the extra `constraints`.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from specjax.constraints import grammars, regular, schemas, tables
from specjax.pretrained import Pretrained
from specjax.runtime.console import shorten
from specjax.tokenizers import Tokenizer
from specjax.types import TokenAutomaton

KINDS = SCHEMA, REGEX, GRAMMAR = "schema", "regex", "grammar"
LEAST_ROOM = 64  # tokens, to which the room of a grammar's texts is rounded up


class Form(NamedTuple):
    """A form that texts must have. It is hashable.

    kind: SCHEMA, REGEX or GRAMMAR. text: a schema as JSON, a regular expression in the
    syntax of Rust's regex crate, or a grammar in Lark's syntax, as llguidance reads it.
    """

    kind: str
    text: str


def read_form(
    schema: str | Mapping[str, Any] | None = None,
    regex: str | None = None,
    grammar: str | None = None,
) -> Form | None:
    """Returns the form that is asked for, None if there is none.

    Args:
      schema: a JSON schema, as an object or as text.
      regex: a regular expression, which whole texts match.
      grammar: a grammar with a rule `start`, as text.

    Raises:
      ValueError: there are several, or one is of another type; in one line.
    """
    asked = {SCHEMA: schema, REGEX: regex, GRAMMAR: grammar}
    given = {kind: each for kind, each in asked.items() if each is not None}
    if not given:
        return None
    if len(given) > 1:
        raise ValueError(f"a text has one form: choose one of {', '.join(given)}")
    ((kind, text),) = given.items()
    if kind == SCHEMA and isinstance(text, Mapping):
        try:
            text = json.dumps(text)
        except (TypeError, ValueError) as error:
            raise ValueError(f"schema is not JSON: {shorten(str(error))}") from None
        except RecursionError:
            raise ValueError(schemas.TOO_DEEP) from None
    if not isinstance(text, str):
        wanted = "a JSON schema, a dictionary or" if kind == SCHEMA else "a"
        raise ValueError(f"{kind} must be {wanted} text; got {type(text).__name__}")
    return Form(kind, text)


def build(
    target: Pretrained,
    *,
    schema: str | Mapping[str, Any] | None = None,
    regex: str | None = None,
    grammar: str | None = None,
    new_tokens: int = 64,
) -> TokenAutomaton:
    """Returns the rules by which a target's texts have one form.

    They are for `generate_beams` and `models.constrained`; `generate_text` takes the
    forms themselves.

    Args:
      target: whose tokens they are.
      schema, regex, grammar: one of them, as of `read_form`.
      new_tokens: the most tokens after a prompt, those that are drafted included; only
        a grammar needs it.

    Raises:
      ValueError: there is no form, or more than one; it cannot be read, or it is too
        large.
    """
    form = read_form(schema, regex, grammar)
    if form is None:
        raise ValueError("name a form: schema, regex or grammar")
    return automaton(form, target, target.ends, new_tokens)


def automaton(
    form: Form, target: Pretrained, ends: tuple[int, ...], new_tokens: int
) -> TokenAutomaton:
    """Returns the rules of a form for a target; for the same form the same object, so
    that a program is compiled once.

    Args:
      form: what texts must have.
      target: whose tokens they are.
      ends: ids that each end a text.
      new_tokens: the most tokens after a prompt, as of `build`.

    Raises:
      ValueError: as of `build`.
    """
    known = [end for end in ends if 0 <= end < target.vocab]
    if not known:
        raise ValueError(
            f"{target.name} has no token that ends a text, which a {form.kind} needs:"
            " name a model with one"
        )
    if form.kind == GRAMMAR:
        if target.encodes:
            raise ValueError(
                f"{target.name} reads prompts by an encoder, and a grammar is for"
                " decoders alone: name a regex or a schema"
            )
        room = LEAST_ROOM
        while room < new_tokens:
            room *= 2
        return _grammar(form.text, target.tokenizer, target.vocab, tuple(known), room)
    return _regular(form, target.tokenizer, target.vocab, tuple(known), target.encodes)


@functools.lru_cache(maxsize=32)
def _regular(
    form: Form, tokenizer: Tokenizer, vocab: int, ends: tuple[int, ...], encodes: bool
) -> TokenAutomaton:
    regex = schemas.to_regex(form.text) if form.kind == SCHEMA else form.text
    # A text that begins with a token has no space before its first word, and the token
    # may have one.
    bytewise = regular.compile_bytes(regex, what=form.kind, space_before=encodes)
    words = token_bytes(tokenizer, vocab, ends)
    return tables.build(tables.lift(bytewise, words, ends, what=form.kind))


@functools.lru_cache(maxsize=32)
def _grammar(
    text: str, tokenizer: Tokenizer, vocab: int, ends: tuple[int, ...], room: int
) -> TokenAutomaton:
    words = token_bytes(tokenizer, vocab, ends)
    return grammars.build(text, words, ends, room)


def token_bytes(
    tokenizer: Tokenizer, vocab: int, ends: tuple[int, ...]
) -> list[bytes | None]:
    """Returns the bytes that each id writes [V], None for an id that is never written
    within a text."""
    count = min(vocab, tokenizer.vocab)
    words = [tokenizer.token_bytes(i) or None for i in range(count)]
    words += [None] * (vocab - count)
    for end in ends:
        words[end] = None
    return words


def both(first: TokenAutomaton | None, second: TokenAutomaton) -> TokenAutomaton:
    """Returns rules that apply those of `first`, if there are any, and then those of
    `second`."""
    return second if first is None else _apply_both(first, second)


@functools.lru_cache(maxsize=32)
def _apply_both(first: TokenAutomaton, second: TokenAutomaton) -> TokenAutomaton:
    def begin(tokens: Any, length: Any) -> Any:
        return first.begin(tokens, length), second.begin(tokens, length)

    def advance(state: Any, token: Any) -> Any:
        return first.advance(state[0], token), second.advance(state[1], token)

    def apply(state: Any, logits: Any) -> Any:
        return second.apply(state[1], first.apply(state[0], logits))

    return TokenAutomaton(begin, advance, apply)
