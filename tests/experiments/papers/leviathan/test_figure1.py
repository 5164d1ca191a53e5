"""Traces of Figures 1 and 5: the text of any other decoding, told step by step."""

import json
import re
from typing import NamedTuple

import jax
import numpy as np
import pytest

from experiments import run
from experiments.papers.leviathan import figure1
from experiments.records import records
from experiments.training import tokenizer
from specjax import configs, generate, sides, tokenizers, zoo
from specjax.cli import demo
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import gpt, t5
from specjax.sides import Side
from specjax.step import Decoder
from specjax.tokenizers import Tokenizer
from specjax.types import Params, Prompt
from tests.support import tiny, tiny_t5

pytestmark = pytest.mark.slow

CONFIG = gpt.Config(8192, dim=16, mlp_dim=32, num_layers=1, num_heads=2)
PIECES = 360
T5_CONFIG = tiny_t5.TARGET._replace(vocab=384, pieces=PIECES, decoder_layers=1)
NEW, GAMMA = 14, 3
KINDS = ("accepted", "rejected", "added")
PREFIX = "translate English to German: "
SENTENCES = run.ROOT / "experiments/tasks/data/sentences.jsonl"


class Case(NamedTuple):
    """A pair that compiles fast, what it is asked, and its tokens."""

    pair: list[Side]
    prompt: str
    begun: Prompt
    tokenizer: Tokenizer


@pytest.fixture(scope="module", autouse=True)
def small_tokenizer(tmp_path_factory):
    """A small tokenizer in the place of the bundled T5 family's."""
    path = tmp_path_factory.mktemp("tokenizer") / "t5.model"
    lines = map(json.loads, SENTENCES.read_text("utf-8").splitlines())
    documents = [line[side] for line in lines for side in ("source", "target")]
    path.write_bytes(tokenizer.train_t5(documents, PIECES))
    small = tokenizers.read(path, t5.PAD, (t5.END,), encodes=True)
    named = {"code": zoo.tokenizer(), "t5": small}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo, "tokenizer", lambda name="code": named[name])
        yield


def pair_of(model, weights, config, share) -> list[Side]:
    """The draft is the target with some noise."""
    target = weights(config, 0)
    draft = tiny.mixed(target, weights(config, 1), share)
    return [sides.of_model("p", model, target), sides.of_model("q", model, draft)]


@pytest.fixture(scope="module", params=["decoder", "encoder-decoder"])
def case(request):
    if request.param == "decoder":
        prompt = "def add(a, b):\n"
        pair = pair_of(gpt.build(CONFIG), tiny.weights, CONFIG, 0.1)
        code = zoo.tokenizer()
        begun = make_prompt([code.encode(prompt)])
        return Case(pair, prompt, begun, code)
    prompt = f"{PREFIX}We had no bread left."
    pair = pair_of(t5.build(T5_CONFIG), tiny_t5.weights, T5_CONFIG, 0.1)
    begun = make_prompt([[t5.PAD]], [zoo.tokenizer("t5").encode(prompt)])
    return Case(pair, prompt, begun, zoo.tokenizer("t5"))


@pytest.fixture(scope="module")
def trace(case):
    return figure1.build(*case.pair, case.prompt, GAMMA, NEW).run()


def decode(case: Case, gamma: int) -> generate.Output:
    """The whole loop, greedily and to the limit."""
    target, draft = case.pair
    sampling = make_sampling(1, 0.0)
    request = make_request(jax.random.key(1), case.begun, NEW, sampling)
    decoder = Decoder(target.model)
    if gamma:
        decoder = decoder._replace(drafter=draft.drafter(gamma))
    slots = int(request.limit[0]) + gamma + 1
    params = Params(target.params, draft.params if gamma else None)
    loop = tiny_t5.quick_jit(generate.build_loop(decoder, slots))
    return loop(params, case.begun, request)


@pytest.fixture(scope="module")
def alone(case):
    """The ids of the greedy text by the target alone."""
    return text_of(case, decode(case, 0))


def text_of(case: Case, output: generate.Output) -> np.ndarray:
    begin, end = int(case.begun.length[0]), int(output.length[0])
    return np.asarray(output.tokens)[0, begin:end]


def shown(case: Case, ids) -> list[str]:
    return [case.tokenizer.piece(token) for token in ids]


def emitted(trace):
    return [it for step in trace["steps"] for it in step["accepted"] + step["added"]]


def test_the_steps_are_those_of_speculative_decoding(case, trace, alone):
    """And their pieces are the text that the target alone writes."""
    output = decode(case, GAMMA)
    assert len(set(alone)) > 2
    assert emitted(trace) == shown(case, alone) == shown(case, text_of(case, output))
    accepted = sum(len(step["accepted"]) for step in trace["steps"])
    assert trace["target_calls"] == len(trace["steps"]) == int(output.counts.calls[0])
    assert accepted == int(output.counts.accepted[0])


def test_what_a_trace_reports(case, trace):
    assert trace["tokens"] == NEW > trace["target_calls"]
    assert (trace["target"], trace["draft"]) == ("p", "q")
    assert (trace["prompt"], trace["gamma"]) == (case.prompt, GAMMA)
    assert trace["temperature"] == 0.0


def test_a_step_is_gamma_drafts_and_one_more(trace):
    for step in trace["steps"]:
        assert tuple(step) == KINDS
        assert len(step["accepted"] + step["rejected"]) <= GAMMA
        assert len(step["rejected"]) <= 1
    for step in trace["steps"][:-1]:
        assert len(step["added"]) == 1
        whole = len(step["accepted"]) == GAMMA
        assert whole == (not step["rejected"])
    for kind in KINDS:
        assert any(step[kind] for step in trace["steps"])


def test_without_drafts_every_call_adds_one_token(case, alone):
    trace = figure1.build(*case.pair, case.prompt, 0, 5).run()
    expected = shown(case, alone[:5])
    assert [step["added"] for step in trace["steps"]] == [[it] for it in expected]
    assert trace["target_calls"] == 5


def begun_with(case, begun, end, monkeypatch) -> dict:
    """The trace of another beginning and another end of text."""
    monkeypatch.setattr(figure1, "begin", lambda target, prompt: (begun, end))
    return figure1.build(*case.pair, case.prompt, GAMMA, NEW).run()


def test_it_stops_where_the_text_ends(case, alone, monkeypatch):
    at = int(np.argmax(alone != alone[0]))
    end = int(alone[at])
    trace = begun_with(case, case.begun, end, monkeypatch)
    assert trace["tokens"] == at + 1
    assert emitted(trace)[-1] == shown(case, [end])[0]


def test_a_prompt_begins_and_ends_as_its_models_do(case):
    prompt, ends = figure1.begin(case.pair[0], case.prompt)
    assert jax.tree.all(jax.tree.map(np.array_equal, prompt, case.begun))
    assert ends == case.tokenizer.ends


def test_another_prompt_gives_another_text(case, alone, monkeypatch):
    """Broken twin: what is traced is not what was asked, of the same length."""

    def half(ids):
        return np.where(ids > 9, ids // 2, ids)

    begun = case.begun._replace(tokens=half(case.begun.tokens))
    if begun.inputs:
        begun = begun._replace(inputs=(half(begun.inputs[0]), begun.inputs[1]))
    other = begun_with(case, begun, -1, monkeypatch)
    assert other["tokens"] == NEW
    assert emitted(other) != shown(case, alone)


def test_another_tokenizers_pieces_are_another_text(case, alone, monkeypatch):
    """Broken twin: the ids are right, and the names are those of the other models."""
    other = zoo.tokenizer("code" if case.pair[0].encodes else "t5")
    wrong = case.tokenizer._replace(piece=other.piece)
    monkeypatch.setattr(figure1, "tokenizer_of", lambda target: wrong)
    trace = figure1.build(*case.pair, case.prompt, GAMMA, NEW).run()
    assert emitted(trace) != shown(case, alone)


def test_a_newline_stays_on_its_line():
    code = zoo.tokenizer()
    ids = code.encode("a\nb")[1:]
    assert "\n" in code.decode(ids)
    shown = figure1.pieces(demo.Step(ids, [], [], 0), code)
    assert "".join(shown["accepted"]) == "a\\nb"


def test_what_cannot_be_traced_is_refused(case):
    (target, draft), prompt = case.pair, case.prompt
    with pytest.raises(ValueError, match="name a model as the target"):
        figure1.build(sides.ngram(2), draft, prompt, GAMMA)
    with pytest.raises(ValueError, match="tokens must be at least 1"):
        figure1.build(target, draft, prompt, GAMMA, tokens=0)
    with pytest.raises(ValueError, match="gamma must be at least 0"):
        figure1.build(target, draft, prompt, -1)
    with pytest.raises(ValueError, match="same tokens on both sides"):
        figure1.build(target, sides.random(8), prompt, GAMMA)


def test_a_draft_with_an_encoder_needs_a_target_with_one():
    model = gpt.build(CONFIG._replace(vocab=T5_CONFIG.vocab))
    encodes = sides.of_model("q", t5.build(T5_CONFIG), None)
    with pytest.raises(ValueError, match="q reads the prompt with an encoder and p"):
        figure1.build(sides.of_model("p", model, None), encodes, "a", GAMMA)


def built(folder, row, gamma, new_tokens, bindings=()):
    """The measurement of a row's file, its case and its prompt."""
    whole = configs.build(records.row(folder, row, bindings))
    assert whole.table == folder and whole.row.scale == "laptop"
    case, prompt = whole.row.measurement.run.args
    assert case.decoder.drafter.gamma == gamma
    assert int(case.request.limit[0] - case.request.start[0]) == new_tokens
    return {path.name for path in whole.row.measurement.inputs}, case, prompt


@pytest.mark.parametrize("gamma", [3, 7])
def test_the_rows_decode_a_function_with_the_bundled_pair(gamma):
    inputs, case, prompt = built("figure1", f"gamma_{gamma}", gamma, 48)
    assert case.names == zoo.MODELS and prompt.startswith("def read_config(")
    assert inputs == {*(f"{it}.safetensors" for it in zoo.MODELS), "tokenizer.model"}


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory) -> list[str]:
    """Bindings that put tiny weights in the place of the bundled T5 pair."""
    folder, bindings = tmp_path_factory.mktemp("pair"), []
    for seed, name in enumerate(("t5_target", "t5_small")):
        path = folder / f"{name}.safetensors"
        zoo.save(path, T5_CONFIG, tiny_t5.weights(T5_CONFIG, seed))
        bindings.append(f"{name}/sides.model.name = '{path}'")
    return bindings


def test_the_rows_of_figure_5_translate_some_sentences(stand_ins):
    """The same ones; the folder has no other row."""
    rows = {f"ende_gamma_{gamma}": gamma for gamma in (3, 7)}
    assert records.rows("figure5").keys() == rows.keys()
    lines = SENTENCES.read_text("utf-8").splitlines()
    sources, prompts = [json.loads(line)["source"] for line in lines], set()
    for row, gamma in rows.items():
        inputs, case, prompt = built("figure5", row, gamma, 112, stand_ins)
        prompts.add(prompt)
        assert case.names == ("t5_target", "t5_small")
        assert prompt.startswith(PREFIX)
        joined = re.split(r"(?<=\.) ", prompt.removeprefix(PREFIX))
        assert len(joined) == 4 and set(joined) <= set(sources)
        tokens, length = case.prompt.inputs
        assert tokens[0, : length[0]].tolist() == zoo.tokenizer("t5").encode(prompt)
        assert int(case.request.eos[0]) == t5.END
        assert inputs == {"t5_target.safetensors", "t5_small.safetensors", "t5.model"}
    assert len(prompts) == 1
