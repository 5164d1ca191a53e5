"""Schemas, regular expressions and grammars become tables over tokens, or are
refused."""

import itertools
import json
import re
import sys

import numpy as np
import pytest

import specjax
from specjax import constraints
from specjax.constraints import grammars, regular, schemas, tables
from specjax.models import gpt, penalties
from tests.support import text_folders

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("outlines_core", reason="needs the extra constraints")
pytest.importorskip("llguidance", reason="needs the extra constraints")

CODE = gpt.Config(8192, 16, 32, 1, 2)
BYTES = [bytes([byte]) for byte in range(256)]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "code": {"type": "string", "pattern": "^[A-Z]{2}|x\\d$"},
        "kind": {"enum": ["a.b", 'say "no"', 3, None, {"deep": [1]}]},
        "sizes": {"type": "array", "items": {"$ref": "#/$defs/size"}, "maxItems": 3},
        "size": {"$ref": "#/$defs/size", "description": "a note"},
    },
    "required": ["code", "kind"],
    "additionalProperties": False,
    "$defs": {"size": {"anyOf": [{"type": ["integer", "null"]}, {"const": "big"}]}},
}


UNHASHABLE = {"type": "object", "properties": {"a": {"type": "null"}}}
UNHASHABLE["required"] = [{}]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return text_folders.code_pair(tmp_path_factory.mktemp("code"), CODE)


def matches(automaton, text: bytes) -> bool:
    state = 0
    for byte in text:
        state = automaton.step[state, byte]
        if state == regular.NO_STATE:
            return False
    return bool(automaton.accepts[state])


def random_text(automaton, rng) -> bytes:
    """Returns a text of random steps, which ends with probability one half where it
    may."""
    state, text = 0, b""
    while True:
        after = np.flatnonzero(automaton.step[state] != regular.NO_STATE)
        if automaton.accepts[state] and (not after.size or rng.random() < 0.5):
            return text
        byte = rng.choice(after)
        state, text = automaton.step[state, byte], text + bytes([byte])


@pytest.mark.parametrize(
    "regex",
    # Alternatives that begin as others do, and as few repetitions as possible.
    [
        *("a|ab", "(a|ab)(c|bca)?", "a*?b??", "(a|b)*?", "", "(|a)b", "a{2,3}?c"),
        # Brackets that close no group.
        *("[^a]b*", "[])a]b|c", "[^])]", r"(a\)|b)c?", "(?x)a # :)\n|b"),
    ],
)
def test_an_automaton_is_of_what_python_matches(regex):
    automaton = regular.compile_bytes(regex)
    for size in range(6):
        for text in map("".join, itertools.product("abc", repeat=size)):
            whole = re.fullmatch(regex, text) is not None
            assert matches(automaton, text.encode()) == whole, text


def test_an_automaton_has_the_fewest_states_and_whole_characters():
    assert len(regular.compile_bytes("(a|b)*abb").step) == 4
    assert len(regular.compile_bytes("[ab]c|[bc]c").step) == 3
    long = regular.compile_bytes("(ab){300}")  # which takes too many rounds
    assert matches(long, b"ab" * 300) and not matches(long, b"ab" * 299)
    automaton = regular.compile_bytes("[éü]{2}")
    assert matches(automaton, "éü".encode()) and not matches(automaton, b"\xc3\xc3")
    spaced = regular.compile_bytes("a", space_before=True)
    assert [matches(spaced, text) for text in (b"a", b" a", b"  a")] == [1, 1, 0]


def test_every_text_of_a_schema_is_valid():
    automaton = regular.compile_bytes(schemas.to_regex(json.dumps(SCHEMA)))
    rng = np.random.default_rng(0)
    texts = {random_text(automaton, rng) for _ in range(300)}
    assert len(texts) > 200
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)
    full = b'{"name": "\xc3\xbc \\n", "code": "AB", "kind": {"deep": [1]}, '
    full += b'"sizes": [1, null, "big"], "size": -20}'
    assert matches(automaton, full)


def test_a_token_table_reads_words_as_their_bytes():
    """Words share beginnings, and some words are impossible; an automaton over bytes
    decides which."""
    rng = np.random.default_rng(1)
    words = ["".join(rng.choice([*"abc"], rng.integers(1, 5))) for _ in range(60)]
    words = [None, b"a", b"b", b"c", *(word.encode() for word in words)]
    automaton = regular.compile_bytes("(ab|c){1,4}a?|b+c")
    table = tables.lift(automaton, words, [0])
    states = len(automaton.step)
    bits = np.unpackbits(table.masks.view(np.uint8), axis=1, bitorder="little")
    for state, (i, word) in itertools.product(range(states), enumerate(words)):
        after = state
        for byte in word or b"":
            after = regular.NO_STATE if after < 0 else automaton.step[after, byte]
        if word is None:
            after = states if automaton.accepts[state] else regular.NO_STATE
        allowed = after != regular.NO_STATE
        assert bits[table.mask[state], i] == allowed, (state, word)
        assert table.step[state, table.classes[i]] == (after if allowed else states)
    assert bits[table.mask[states], : len(words)].tolist() == [1] + [0] * 63


def test_masks_of_a_grammar_are_those_of_its_regular_expression():
    """This holds too where only one text can follow, for which the library would allow
    one spelling alone."""
    words = [*BYTES[97:100], b"ab", b"bc", b"abc", b"cab", b"aa", None]
    for regex in ("abca?b", "(a|ab)(c|bca)?", "(ab)*c", "abcab|abcb"):
        table = tables.lift(regular.compile_bytes(regex), words, [8])
        host = grammars.open_host(f"start: /{regex}/", words, [8])
        waiting = [((), 0)]
        for ids, state in waiting:
            mask = table.masks[table.mask[state]]
            found = grammars.find_masks(host, [[*ids, -1]], [len(ids)])
            np.testing.assert_array_equal(found[0], mask)
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(words)]
            if len(ids) < 4 and 8 not in ids:
                following = np.flatnonzero(bits)
                waiting += [
                    ((*ids, i), table.step[state, table.classes[i]]) for i in following
                ]
        assert len(waiting) > 10
    # What no text begins with: only an end may follow.
    assert grammars.find_masks(host, [[2]], [1]).tolist() == [[1 << 8]]


def test_a_grammar_may_nest_without_end(monkeypatch):
    monkeypatch.setattr(grammars, "KEPT", 3)  # so that most is read again
    words = [*BYTES, b"((", b"))", None]
    host = grammars.open_host('start: "(" start ")" | "x"', words, [258])
    text = [256] * 40 + [ord("x")] + [257] * 40
    for count in (80, 1, 40, 41, 60, 81):
        mask = grammars.find_masks(host, [text], [count])[0]
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        allowed = {*np.flatnonzero(bits)}
        if count <= 40:
            assert allowed == {ord("("), ord("x"), 256}
        elif count < 80:
            assert allowed == {ord(")"), 257}
        else:
            assert allowed == ({ord(")"), 257} if count == 80 else {258})


ASKED = {"gamma": 3, "temperature": 1.0, "new_tokens": 24}


def test_texts_have_their_form_drafted_by_chains_and_trees(pair):
    target, draft = pair
    schema = {"type": "object", "properties": {"a": {"enum": [[1, 2], "b"]}}}
    regex = r"[a-c]{2,4}\([01]{1,3}\)"
    tree = specjax.drafts.pair(target, "tree:bigram,width=2")[1]
    prompts = ["def add(", "x = "]
    for drafts, asked in [(draft, {}), (tree, {"rule": "recursive"})]:
        made = specjax.generate_text(
            target, drafts, prompts, regex=regex, samples=3, **asked, **ASKED
        )
        assert all(re.fullmatch(regex, text) for each in made.texts for text in each)
        assert made.ended == [["end"] * 3] * 2
    made = specjax.generate_text(target, draft, prompts, schema=schema, **ASKED)
    for text in made.texts:
        jsonschema.validate(json.loads(text), schema)
    grammar = 'start: "<" start ">" | /[ab]{1,2}/'
    rules = penalties.build(1.3)
    pieces = specjax.stream_text(
        target, draft, prompts, grammar=grammar, rules=rules, **ASKED
    )
    texts, ended = ["", ""], ["", ""]
    for piece in pieces:
        texts[piece.index] += piece.text
        ended[piece.index] = piece.ended
    for text, end in zip(texts, ended, strict=True):
        before, inner, after = re.fullmatch("(<*)([ab]{0,2})(>*)", text).groups()
        assert len(after) <= len(before) and (inner or not after)
        assert end == "length" or (inner and len(after) == len(before))


@pytest.mark.slow
def test_an_encoder_decoder_has_a_form_and_no_grammar():
    asked = {"prompts": ["translate English to German: The house is old."]}
    regex = "(Das|Ein) [A-Z][a-z]+ ist [a-z]+\\."
    made = specjax.generate_text("t5_base", "t5_small", regex=regex, **asked)
    assert re.fullmatch(regex, made.texts[0]) and made.ended == ["end"]
    with pytest.raises(ValueError, match="t5_base reads prompts by an encoder, and a"):
        specjax.generate_text("t5_base", None, grammar='start: "a"', **asked)


DEEP, DEEP_TEXT = {"type": "null"}, "[" * 200_000
for _ in range(100_000):
    DEEP = {"anyOf": [DEEP]}
TOO_DEEP = "^schema is nested too deeply: write it flatter$"
REFUSED = [
    (dict(regex="(a"), r"^regex '\(a' cannot be read: close each bracket"),
    (dict(regex="yes)|(?:no"), r"^regex 'yes\)\|\(\?:no' cannot be read: close each"),
    (dict(regex="[(]a)|(?:b"), r"^regex '\[\(\]a\)\|\(\?:b' cannot be read: close"),
    (dict(schema=DEEP), TOO_DEEP),
    (dict(schema=DEEP_TEXT), TOO_DEEP),
    (dict(schema={"type": []}), r"^schema at # has type \[\]: write one of string"),
    (dict(schema={"type": {}}), r"^schema at # has type \{\}: write one of string"),
    (dict(schema=UNHASHABLE), "^schema at # requires what is not in its properties"),
    (dict(regex="a$"), r"^regex 'a\$' matches no whole text: leave \^, \$ and"),
    (dict(regex="a", schema={}), "^a text has one form: choose one of schema, regex"),
    (dict(regex=3), "^regex must be a text; got int"),
    (dict(schema=3), "^schema must be a JSON schema, a dictionary or text; got int"),
    (dict(schema="{"), "^schema is not JSON: Expecting property name"),
    (dict(schema={"type": {1}}), "^schema is not JSON: Object of type set"),
    (dict(schema={"type": "text"}), r"^schema at # has type 'text': write one of str"),
    (dict(schema={"type": "integer", "minimum": 1}), "^schema at # has 'minimum', whi"),
    (dict(schema={"$ref": "#/a"}), "^schema at # refers to '#/a', which is not there"),
    (dict(schema={"$ref": "#"}), "^schema at # refers to itself by '#': a grammar can"),
    (dict(schema={"type": "object"}), "^schema at # names no properties: a grammar"),
    (dict(schema={"type": "array"}), "^schema at # says nothing of its items: give"),
    (dict(schema={"enum": [True], "type": "integer"}), "^schema at # has the value Tr"),
    (dict(schema={"type": "string", "minLength": -1}), "^schema at # has minLength -1"),
    (dict(schema={"type": "string", "format": "date"}), "^schema at # has format 'da"),
    (
        dict(schema={"type": "string", "pattern": "."}),
        "^schema at # has a pattern that",
    ),
    (dict(grammar="start: ("), r"^grammar cannot be read: 1\(9\): Expected token"),
    (dict(grammar="begin: /a/"), "^grammar cannot be read: no start rule found"),
    (dict(regex="[ab]{9}(c|dd)"), r"^regex is too large, 13 states of at most 12: bou"),
    (
        dict(regex="[cd]{9}"),
        r"^regex is too large: 10 states for \d+ classes of tokens",
    ),
]


@pytest.mark.parametrize(
    ("form", "message"), REFUSED, ids=[message for _, message in REFUSED]
)
def test_what_cannot_be_a_form_is_refused_in_one_line(form, message, pair, monkeypatch):
    monkeypatch.setattr(regular, "MOST_STATES", 12)
    monkeypatch.setattr(tables, "MOST_ENTRIES", 40)
    with pytest.raises(ValueError, match=message) as caught:
        specjax.generate_text(*pair, ["x"], **form)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", constraints.KINDS)
def test_a_missing_library_is_named_with_its_extra(kind, pair, monkeypatch):
    name = "llguidance" if kind == "grammar" else "outlines_core"
    monkeypatch.setitem(sys.modules, name, None)
    form = {"schema": '{"type": "null"}', "regex": "a?", "grammar": 'start: "q"'}
    with pytest.raises(ValueError, match=rf"{kind} needs .* 'specjax\[constraints\]'"):
        constraints.build(pair[0], **{kind: form[kind]})


def test_a_target_must_write_the_form(pair):
    target = pair[0]
    with pytest.raises(ValueError, match="has no token that ends a text, which a reg"):
        constraints.build(target._replace(ends=()), regex="a")
    with pytest.raises(ValueError, match="name a form: schema, regex or grammar"):
        constraints.build(target)
    with pytest.raises(ValueError, match="no tokens of the model write a text of this"):
        tables.lift(regular.compile_bytes("ab"), [b"a", None], [1])
    rules = constraints.build(target, regex="a")
    assert rules is constraints.build(target, regex="a")  # one program for both
    with pytest.raises(ValueError, match="4 ids, and the rules were built for 8192"):
        rules.apply(np.zeros(1, np.int32), np.zeros((1, 4)))
