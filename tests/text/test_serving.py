"""Rows are refilled while others continue: texts are the same, and nothing compiles
again."""

import functools

import jax
import numpy as np
import pytest

from specjax import generate, inputs
from specjax.inputs import make_prompt, make_sampling
from specjax.step import Decoder, has_ended
from specjax.text import serving
from specjax.text.serving import Arrival
from specjax.types import Params, Prompt, Request
from tests.support import model_cases, tiny, tiny_llama, tiny_t5
from tests.support.drafter_cases import BY_NAME

GAMMA, SLOTS, ROWS = 2, 32, 3
TEXTS = [[1, 2, 3, 4, 5], [7], [3, 4, 3, 4], [9, 2], [5], [6, 5, 6, 5], [8, 1, 8, 1]]
SOURCES = [[5, 9, 2, 17, 11, 3, 1], [7, 7, 20], [4], [2, 3, 2, 3, 2], [9, 8], [6], [1]]
NEW = np.array([9, 3, 14, 5, 11, 8, 12])
HEAT = np.array([1.0, 0.0, 1.0, 0.7, 1.0, 1.0, 1.0], np.float32)
WIDTH = 8  # of every prompt and input
KEY = jax.random.key(3)
GPT, T5 = tiny.transformers, tiny_t5.world
LLAMA = tiny_llama.worlds(tiny_llama.GEMMA2, 22)
PAIRS = {
    "gpt-adaptive": (GPT, "adaptive"),
    "gpt-renewal": (GPT, "renewal"),
    "gpt-copying": (GPT, "copying"),
    "gpt-trigram": (GPT, "trigram"),
    "gpt-eagle": (GPT, "eagle"),
    "gpt-eagle3": (GPT, "eagle3"),
    "gpt-blockwise": (GPT, "blockwise"),
    "llama-adaptive": (LLAMA, "adaptive"),
    "t5-anchored": (T5, "anchored"),
}


@functools.cache
def make_requests(encodes: bool) -> tuple[Prompt, Request]:
    """Returns all requests as one batch: each has its own key, limit, temperature and
    end."""
    texts, sources = (inputs.pad(x, WIDTH) for x in (TEXTS, SOURCES))
    prompt = Prompt(*texts, sources if encodes else None)
    sampling = make_sampling(len(TEXTS), 1.0)._replace(temperature=HEAT)
    request = inputs.make_request(KEY, prompt, 0, sampling)
    ends = np.full(len(TEXTS), -1, np.int32)
    ends[2] = 6
    return prompt, request._replace(limit=prompt.length + NEW, eos=ends)


def arrivals(encodes: bool) -> list[Arrival]:
    both = make_requests(encodes)
    rows = range(len(TEXTS))
    return [Arrival(*jax.tree.map(lambda x, i=i: x[i : i + 1], both)) for i in rows]


@functools.cache
def pair(name: str):
    world, drafter = PAIRS[name]
    case = BY_NAME[drafter]
    decoder, params = case.decoder(world(), GAMMA), case.params(world())
    return decoder, params, serving.build(decoder, SLOTS, ROWS)


@functools.cache
def decode_batch(name: str) -> list[tuple[list[int], int]]:
    """Returns the texts of a batch that is decoded at once, and the calls of the
    target."""
    decoder, params, _ = pair(name)
    prompt, request = make_requests(decoder.target.encodes)
    output = generate.build(decoder, SLOTS)(params, prompt, request)
    spans = output.tokens, prompt.length, output.length, output.counts.calls
    each = zip(*map(np.asarray, spans), strict=True)
    return [(ids[start:end].tolist(), calls) for ids, start, end, calls in each]


def serve_texts(server: serving.Server, name: str) -> list[tuple[list[int], int]]:
    decoder, params, _ = pair(name)
    each = serving.serve(server, params, arrivals(decoder.target.encodes))
    texts = {it.index: (it.tokens.tolist(), it.calls) for it in each}
    return [texts[i] for i in range(len(TEXTS))]


FAST = "gpt-adaptive", "t5-anchored"


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=() if x in FAST else pytest.mark.slow) for x in PAIRS],
)
def test_a_refilled_rows_text_is_that_of_its_request(name):
    assert serve_texts(pair(name)[2], name) == decode_batch(name)


# What a row before leaves, if it is not written over, shows in the text after it.
LEFT = [("gpt-adaptive", x) for x in ("tokens", "target_cache", "draft_cache")]
LEFT += [("gpt-adaptive", "budget"), ("t5-anchored", "context")]
LEFT += [("gpt-renewal", "policy")]


@pytest.mark.parametrize(("name", "field"), LEFT)
def test_what_is_left_of_the_row_before_shows(name, field):
    server = pair(name)[2]

    def admit(params, state, request, **others):
        old = jax.tree.map(np.array, getattr(state, field))
        state, request = server.admit(params, state, request, **others)
        return state._replace(**{field: old}), request

    assert serve_texts(server._replace(admit=admit), name) != decode_batch(name)


def test_nothing_is_compiled_for_a_request():
    """This holds for any row, prompt, limit, temperature, end and key; a wider prompt
    is compiled."""
    decoder, params, _ = pair("gpt-adaptive")
    server = serving.build(decoder, SLOTS, ROWS)
    serve_texts(server, "gpt-adaptive")
    programs = server.begin, server.admit, server.step
    state, request = server.begin(params, *arrivals(False)[0][:2])
    assert has_ended(request, state).tolist() == [True] * ROWS
    sizes = [it._cache_size() for it in programs]
    two = arrivals(False)[:1] + arrivals(False) * 3
    assert len([*serving.serve(server, params, two)]) == 22
    assert [it._cache_size() for it in programs] == sizes == [1, 1, 1]
    wide = make_prompt([[1] * 9])
    wide = Arrival(wide, two[0].request._replace(start=wide.length, limit=wide.length))
    assert [it.tokens.size for it in serving.serve(server, params, [wide])] == [0]
    assert [it._cache_size() for it in programs] == [2, 2, 1]


# Each with a state or a cache of another kind.
OTHERS = ("early_exit", "intersection", "copying_else", "tree_grown", "lookahead")
OTHERS += ("anchored", "datastore", "recycling", "renewal", "strings", "medusa")


def kinds():
    for name in OTHERS:
        case, world = BY_NAME[name], T5() if name == "anchored" else GPT()
        one = arrivals(world.target.encodes)[0][:2]
        yield name, case.decoder(world, GAMMA), case.params(world), *one
    for case in model_cases.MODULES:
        world, prompt = case.world(), case.prompt(1)
        request = inputs.make_request(KEY, prompt, 1, make_sampling(1, 1.0))
        params = Params(world.target_weights)
        yield case.name, Decoder(world.target), params, prompt, request


def test_every_leaf_of_a_state_is_of_rows():
    for name, decoder, params, *one in kinds():
        server = serving.build(decoder, SLOTS, ROWS)
        batch = jax.eval_shape(server.begin, params, *one)
        prompt, request = one
        new = dict(row=np.int32(1), prompt=prompt, new_request=request)
        after = jax.eval_shape(server.admit, params, *batch, **new)
        assert after == batch, name
        assert {leaf.shape[0] for leaf in jax.tree.leaves(batch)} == {ROWS}, name


def test_requests_come_when_they_come():
    _, params, server = pair("gpt-adaptive")
    later = [each._replace(at=0.05 * i) for i, each in enumerate(arrivals(False))]
    told = [*serving.serve(server, params, iter(later))]
    for it in told:
        assert it.arrived == later[it.index].at <= it.admitted < it.ended
        assert len(it.tokens) / (GAMMA + 1) <= it.calls <= max(len(it.tokens), 1)
    assert [it.ended for it in told] == sorted(it.ended for it in told)
    only = arrivals(False)[0]._replace(at=0.3)  # it is waited for with nothing to do
    (it,) = serving.serve(server, params, [only])
    assert it.arrived == 0.3 <= it.admitted and it.index == 0


def test_what_is_not_of_the_batchs_kind_is_refused():
    _, params, server = pair("gpt-adaptive")
    first, second, *_ = arrivals(False)
    several = second.request._replace(eos=np.full((1, 2), -1, np.int32))
    cut = second.request._replace(sampling=make_sampling(1, 1.0, top_k=3))
    two = Arrival(*make_requests(False))
    for other in (second._replace(request=several), second._replace(request=cut), two):
        with pytest.raises(ValueError, match="not of its batch's kind: give one row"):
            list(serving.serve(server, params, [first, other]))
    late = second._replace(request=second.request._replace(limit=np.int32([SLOTS])))
    with pytest.raises(ValueError, match="build with slots="):
        list(serving.serve(server, params, [first, late]))


def test_logits_that_are_no_law_end_it():
    _, params, server = pair("gpt-adaptive")
    lost = params._replace(target=jax.tree.map(lambda x: x * np.nan, params.target))
    with pytest.raises(FloatingPointError, match="token 0 of its text: the target's"):
        list(serving.serve(server, lost, arrivals(False)))


def test_a_server_has_a_row():
    with pytest.raises(ValueError, match=r"^a server has at least one row; got 0$"):
        serving.build(Decoder(tiny.markov(12)), SLOTS, rows=0)
