"""Traces of Figures 1 and 5 show the text of any other decoding, step by step."""

from typing import NamedTuple

import jax
import numpy as np
import pytest

from experiments.papers.leviathan import figure1
from specjax import generate, zoo
from specjax.checkpoints import Pretrained
from specjax.drafts import counts
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import gpt, t5
from specjax.step import Decoder
from specjax.tokenizers import Tokenizer
from specjax.types import Params, Prompt
from tests.support import bare, tiny, tiny_t5

pytestmark = pytest.mark.slow

CONFIG = gpt.Config(8192, dim=16, mlp_dim=32, num_layers=1, num_heads=2)
T5_CONFIG = tiny_t5.TARGET._replace(vocab=6016, pieces=6000, decoder_layers=1)
NEW, GAMMA = 14, 3
KINDS = ("accepted", "rejected", "added")
PREFIX = "translate English to German: "


class Case(NamedTuple):
    """A pair that compiles fast, its prompt, and its tokens."""

    pair: list[Pretrained]
    prompt: str
    begun: Prompt
    tokenizer: Tokenizer


def make_pair(model, weights, config) -> list[Pretrained]:
    """Returns a target, and a draft that is the target with some noise."""
    target = weights(config, 0)
    draft = tiny.add_share(target, weights(config, 1), 0.1)
    return [bare.target("p", model, target), bare.target("q", model, draft)]


@pytest.fixture(scope="module", params=["decoder", "encoder-decoder"])
def case(request):
    if request.param == "decoder":
        prompt, code = "def add(a, b):\n", zoo.tokenizer()
        pair = make_pair(gpt.build(CONFIG), tiny.weights, CONFIG)
        return Case(pair, prompt, make_prompt([code.encode(prompt)]), code)
    prompt, pieces = f"{PREFIX}We had no bread left.", zoo.tokenizer("t5")
    pair = make_pair(t5.build(T5_CONFIG), tiny_t5.weights, T5_CONFIG)
    return Case(pair, prompt, make_prompt([[t5.PAD]], [pieces.encode(prompt)]), pieces)


@pytest.fixture(scope="module")
def trace(case):
    return figure1.build(*case.pair, prompt=case.prompt, gamma=GAMMA, tokens=NEW).run()


@pytest.fixture(scope="module")
def alone(case) -> list[int]:
    """The greedy text by the target alone."""
    request = make_request(jax.random.key(1), case.begun, NEW, make_sampling(1, 0.0))
    target, slots = case.pair[0], int(request.limit[0]) + 1
    loop = tiny_t5.quick_jit(generate.build_loop(Decoder(target.model), slots))
    output = loop(Params(target.params), case.begun, request)
    return output.tokens[0, int(case.begun.length[0]) : int(output.length[0])].tolist()


def show_tokens(case: Case, ids) -> list[str]:
    return [case.tokenizer.piece(token) for token in ids]


def emitted_tokens(trace):
    return [it for step in trace["steps"] for it in step["accepted"] + step["added"]]


def test_the_pieces_are_the_text_that_the_target_alone_writes(case, trace, alone):
    assert len(set(alone)) > 2 and emitted_tokens(trace) == show_tokens(case, alone)
    assert trace["tokens"] == NEW > trace["target_calls"] == len(trace["steps"])
    told = {"target": "p", "draft": "q", "prompt": case.prompt, "gamma": GAMMA}
    assert told.items() <= trace.items()
    for step in trace["steps"][:-1]:
        accepted, rejected = len(step["accepted"]), len(step["rejected"])
        assert len(step["added"]) == 1 and rejected == (accepted < GAMMA)
        assert accepted + rejected + len(step["untested"]) == GAMMA
    assert all(any(step[kind] for step in trace["steps"]) for kind in KINDS)


def test_without_drafts_every_call_adds_one_token(case, alone):
    trace = figure1.build(*case.pair, prompt=case.prompt, gamma=0, tokens=5).run()
    added = [it for step in trace["steps"] for it in step["added"]]
    assert len(trace["steps"]) == 5 and added == show_tokens(case, alone[:5])


def test_it_begins_and_stops_where_its_models_do(case, alone, monkeypatch):
    prompt, ends = figure1.begin(case.pair[0], case.prompt)
    assert jax.tree.all(jax.tree.map(np.array_equal, prompt, case.begun))
    assert ends == case.tokenizer.ends
    end = next(token for token in alone if token != alone[0])
    monkeypatch.setattr(figure1, "begin", lambda *arguments: (case.begun, end))
    trace = figure1.build(*case.pair, prompt=case.prompt, gamma=GAMMA, tokens=NEW).run()
    assert trace["tokens"] == alone.index(end) + 1
    assert emitted_tokens(trace)[-1:] == show_tokens(case, [end])


def side(name: str, module, config) -> Pretrained:
    return bare.target(name, module.build(config), None)


REFUSED = [
    ({"target": counts.ngram(2)}, "name a model as the target"),
    ({"tokens": 0}, "tokens must be at least 1"),
    ({"gamma": -1}, "gamma must be at least 0"),
    ({"draft": counts.random(8)}, "same tokens on both sides"),
    ({"draft": side("q", t5, T5_CONFIG)}, "q reads the prompt with an encoder and p"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_what_cannot_be_traced_is_refused(change, message):
    model = side("p", gpt, CONFIG)
    asked = dict(target=model, draft=model, prompt="a", gamma=GAMMA)
    with pytest.raises(ValueError, match=message):
        figure1.build(**asked | change)
