"""Traces of Figure 1: the same text as any other decoding, told step by step."""

import jax
import numpy as np
import pytest

from experiments import run, trace
from specjax import demo, generate, zoo
from specjax.bench import players
from specjax.models import gpt
from specjax.types import Params
from tests import tiny

CONFIG = gpt.Config(8192, dim=16, mlp_dim=32, num_layers=1, num_heads=2)
PROMPT, NEW, GAMMA = "def add(a, b):\n", 14, 3
KINDS = ("accepted", "rejected", "added")


@pytest.fixture(scope="module")
def pair():
    """A pair that compiles fast; the draft is the target with some noise."""
    model, target = gpt.build(CONFIG), tiny.weights(CONFIG, 0)
    draft = tiny.mixed(target, tiny.weights(CONFIG, 1), 0.1)
    return [
        players.of_model(name, model, weights)
        for name, weights in (("p", target), ("q", draft))
    ]


@pytest.fixture(scope="module")
def found(pair):
    return trace.build(*pair, PROMPT, GAMMA, NEW).run()


@pytest.fixture(scope="module")
def alone(pair):
    """The ids of the greedy text by the target alone."""
    prompt = generate.make_prompt([zoo.encode(PROMPT)])
    sampling = generate.make_sampling(1, 0.0)
    request = generate.make_request(jax.random.key(1), prompt, NEW, sampling)
    begun = int(prompt.length[0])
    decode = generate.autoregressive(pair[0].model, begun + NEW + 1)
    return np.asarray(decode(Params(pair[0].params), prompt, request).tokens)[0, begun:]


def emitted(found):
    return [it for step in found["steps"] for it in step["accepted"] + step["added"]]


def test_the_pieces_are_the_text_that_the_target_alone_writes(found, alone):
    assert emitted(found) == [demo.piece(token) for token in alone[:NEW]]


def test_what_a_trace_reports(found):
    assert found["tokens"] == NEW
    assert found["target_calls"] == len(found["steps"]) < NEW
    assert (found["target"], found["draft"]) == ("p", "q")
    assert (found["prompt"], found["gamma"]) == (PROMPT, GAMMA)
    assert found["temperature"] == 0.0


def test_a_step_is_gamma_drafts_and_one_more(found):
    for step in found["steps"]:
        assert tuple(step) == KINDS
        assert len(step["accepted"] + step["rejected"]) <= GAMMA
        assert len(step["rejected"]) <= 1
    for step in found["steps"][:-1]:
        assert len(step["added"]) == 1
        whole = len(step["accepted"]) == GAMMA
        assert whole == (not step["rejected"])
    for kind in KINDS:
        assert any(step[kind] for step in found["steps"])


def test_without_drafts_every_call_adds_one_token(pair, alone):
    found = trace.build(*pair, PROMPT, 0, 5).run()
    expected = [demo.piece(token) for token in alone[:5]]
    assert [step["added"] for step in found["steps"]] == [[it] for it in expected]
    assert found["target_calls"] == 5


def test_it_stops_where_the_text_ends(pair, alone, monkeypatch):
    at = int(np.argmax(alone != alone[0]))
    monkeypatch.setattr(zoo, "END", int(alone[at]))
    found = trace.build(*pair, PROMPT, GAMMA, NEW).run()
    assert found["tokens"] == at + 1
    assert emitted(found)[-1] == demo.piece(alone[at])


def test_a_newline_stays_on_its_line():
    ids = zoo.encode("a\nb")[1:]
    assert "\n" in zoo.decode(ids)
    shown = trace.pieces(demo.Step(ids, [], [], 0))
    assert "".join(shown["accepted"]) == "a\\nb"


def test_what_cannot_be_traced_is_refused(pair):
    target, draft = pair
    with pytest.raises(ValueError, match="name a model as the target"):
        trace.build(players.ngram(2), draft, PROMPT, GAMMA)
    with pytest.raises(ValueError, match="tokens must be at least 1"):
        trace.build(target, draft, PROMPT, GAMMA, tokens=0)
    with pytest.raises(ValueError, match="gamma must be at least 0"):
        trace.build(target, draft, PROMPT, -1)
    with pytest.raises(ValueError, match="same tokens on both sides"):
        trace.build(target, players.random(8), PROMPT, GAMMA)


@pytest.mark.parametrize("gamma", [3, 7])
def test_the_rows_decode_the_demos_prompt_with_the_bundled_pair(gamma):
    built = run.build(run.ROOT / f"gin_configs/figure1/gamma_{gamma}.gin")
    assert built.table == "figure1" and built.row.scale == "laptop"
    case, prompt = built.row.measurement.run.args
    assert case.names == zoo.MODELS and prompt == demo.PROMPT
    assert case.parts.drafter.gamma == gamma
    assert int(case.request.limit[0] - case.request.start[0]) == 48
    names = {path.name for path in built.row.measurement.inputs}
    assert names == {*(f"{it}.safetensors" for it in zoo.MODELS), "tokenizer.model"}
