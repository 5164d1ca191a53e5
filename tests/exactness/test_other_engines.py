"""Greedy texts of another engine are the same, tied, or different for a stated reason.

Tables of logits: of calls of one token, and of others. id i is followed by i + 1, and
after 2 the ids 3 and 4 are nearly tied. Only after 1 the two calls differ, by EPS.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import generate, zoo
from specjax.checkpoints import Pretrained
from specjax.cli import microscope, other_engines
from specjax.exactness.other_engines import JOINED, LOST, OtherText, encode, explain
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.measure import jsonl
from specjax.prompts import Prompts
from specjax.step import Decoder
from specjax.types import Params
from tests.support import bare, tiny

GAP, EPS, END = 3e-4, 5.5e-4, 5


def make_target(one: np.ndarray, many: np.ndarray) -> Pretrained:
    """Returns a target with other logits [V, V] in calls of several tokens."""
    model = tiny.markov(len(one))

    def apply(params, tokens, start, cache):
        return model.apply(params[min(tokens.shape[1] - 1, 1)], tokens, start, cache)

    both = jnp.stack([one, many])
    return bare.target("rounds", model._replace(apply=apply, shapes=None), both)


def rounding() -> Pretrained:
    table = np.roll(5 * np.eye(6, dtype=np.float32), 1, axis=1)
    table[2, 4] = 5 - GAP
    many = table.copy()
    many[1, 0] += EPS
    return make_target(table, many)


# prompt, ids, kind, place, explained, what is printed
TEXTS = [
    ([0], [1, 2, 3, 4, END], "same", 5, 5, "the same, 5 tokens to the end"),
    ([3], [4], "same", 1, 1, "the same, 1 tokens to the end"),  # without its end
    ([0], [1, 2, 3], "same", 3, 3, "and ours goes on: it ended earlier, or was cut"),
    ([3, 0], [1, 2, 4, END], "tie", 2, 4, "a tie within rounding (gap 0.0003, 2 eps 0"),
    ([0], [1, 3, 4, END], "difference", 1, 3, "a difference: gap 5, beyond rounding"),
    ([0], [1, 2, END], "difference", 2, 2, "; it ended earlier; 2 of 3 tokens expl"),
    ([3], [4, 0, 1, 2], "difference", 1, 3, "theirs 0 0, ours 5 5: a difference: gap"),
    # The eps of a later place explains nothing before it.
    ([2], [4, END], "difference", 0, 1, "gap 0.0003, beyond rounding (2 eps 0)"),
]


def test_a_tie_is_explained_and_a_wrong_token_is_not():
    prompts, ids, *_ = zip(*TEXTS, strict=True)
    asked = Prompts(prompts, None, (END,))
    texts = [*map(OtherText, range(len(ids)), ids)]
    found = [*explain(rounding(), asked, texts)]
    for each, text, (*_, kind, place, explained, told) in zip(
        found, texts, TEXTS, strict=True
    ):
        assert (each.kind, each.place, each.explained) == (kind, place, explained)
        assert told in other_engines.line(text, each, name=str, ends=(END,))
    assert "ended later" in other_engines.line(
        texts[6], found[6], name=str, ends=(END,)
    )
    tie = found[3]
    assert (tie.theirs, tie.ours, tie.best) == (4, 3, 5)
    np.testing.assert_allclose((tie.gap, tie.eps), (GAP, EPS), rtol=1e-3)
    row = other_engines.numbers(texts, found)
    assert (row["same"], row["tie"], row["difference"]) == (3, 1, 4)
    assert row["explained"] == sum(each.explained for each in found)
    json.dumps(row, allow_nan=False)
    few = other_engines.summary(other_engines.numbers(texts[:4], found[:4]))
    assert "100.00% of 13 tokens" in few and "causes" not in few


@pytest.mark.parametrize(
    ("prompt", "text", "doubt"),
    [
        ("def add(", "a, b):\n    return a", ""),
        ("x", "  a ", ""),
        ("return", "ed", JOINED),
        ("x", "\u2581a", LOST),
    ],
)
def test_a_text_is_read_behind_its_prompt(prompt, text, doubt):
    tokenizer = zoo.tokenizer()
    before = tokenizer.encode(prompt)
    ids, said = encode(tokenizer, before, text)
    assert said == doubt
    assert (tokenizer.decode([*before, *ids]) == prompt + text) == (doubt != LOST)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small model of the bundled vocabulary, by its path."""
    path = tmp_path_factory.mktemp("models") / "small.safetensors"
    config = tiny.TARGET._replace(vocab=8192)
    zoo.save(path, config, tiny.weights(config, 2))
    return path


def test_our_own_text_is_the_same_and_a_changed_one_is_not(model, tmp_path, capsys):
    loaded, prompt = specjax.load(model), zoo.tokenizer().encode("def add(")
    batch, out = make_prompt([prompt]), tmp_path / "found.jsonl"
    request = make_request(jax.random.key(0), batch, 8, make_sampling(1, 0.0))
    written = generate.build(Decoder(loaded.model), 24)(
        Params(loaded.params), batch, request
    )
    ids = written.tokens[0, len(prompt) : written.length[0]].tolist()
    wrong = [*ids[:3], (ids[3] + 1) % 8192, *ids[4:]]
    lines = [
        {"prompt": "def add(", "ids": ids},
        {"tokens": prompt, "ids": wrong},
        {"prompt": "def add(", "text": "def add(a"},
    ]
    path = tmp_path / "other.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    flags = ["--target", str(model), "--texts", str(path), "--out", str(out)]
    assert microscope.main(flags) == 0
    printed = capsys.readouterr().out
    assert "line 1: the same, 8 tokens" in printed and "Likely causes: " in printed
    assert "line 2: token 3, theirs" in printed and "begins with the prompt" in printed
    (record,) = jsonl.read(out)
    first, second, _ = record["measured"]["each"]
    assert first["explained"] == 8 and second["kind"] == "difference"
    assert record["row"] == "other, float32"


REFUSED = [
    ({"text": "a"}, 'write {"prompt": text}'),
    ({"prompt": "a"}, 'beside the prompt, as "text"'),
    ({"prompt": "a", "ids": [8192]}, "ids in 0..8191; got [8192]: are they of this"),
    ({"prompt": "a", "ids": "a"}, "ids must be a list of ids"),
    ({"prompt": "a", "ids": []}, 'ended at once, write its end, "ids": [id]'),
    ({"prompt": "a", "text": 3}, "text must be one text; got 3"),
    ({"messages": [{"role": "user", "content": "a"}], "text": "c"}, "no chat template"),
]


def test_what_is_no_text_is_refused_in_one_line(model, tmp_path, refused):
    path = tmp_path / "other.jsonl"
    flags = ["--target", str(model), "--texts", str(path)]

    def line(*more) -> str:
        return refused(microscope.main, [*flags, *more])

    assert "other.jsonl" in line()  # which is not there
    for text, told in REFUSED:
        path.write_text(f"\n{json.dumps(text)}\n")
        printed = line()
        assert f"{path}, line 2: " in printed and told in printed
    assert "leave --gammas out" in line("--gammas", "3")
    assert "leave --mesh out" in line("--mesh", "data=1")
    assert "is a folder: name a .jsonl file" in line("--out", tmp_path)
    flags = ["--out", "a.jsonl"]
    assert "--out is for the --texts of a file" in line()
