"""Input that cannot be decoded is refused before any compute, with the fix."""

import functools
import os
import subprocess
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import checkpoints, generate, policies, trees
from specjax.drafters import (
    anchored,
    autoregressive,
    best_first,
    copying,
    datastore,
    early_exit,
    forked,
    grown,
    lookahead,
    ngram,
    nothing,
    random,
    recycling,
    suffix,
    tree,
)
from specjax.inputs import bucket, check, make_prompt, make_sampling, pad_to_bucket
from specjax.inputs import make_request as asked
from specjax.runtime import jax_flags
from specjax.step import Decoder
from specjax.topologies import kary, likeliest, paths
from specjax.types import Encoded, Features, Model, Params, Prompt, Request, Sampling
from tests.support import tiny
from tests.support.jax_settings import use_settings

SLOTS, NEW, GAMMA = 20, 8, 3


def refuse_calls(model: Model) -> Model:
    def refuse(*_):
        raise AssertionError("a model was traced before its input was checked")

    return model._replace(init=refuse, apply=refuse, readout=refuse)


class Arguments(NamedTuple):
    """The arguments of a run."""

    decoder: Decoder
    slots: int
    params: Params
    prompt: Prompt
    request: Request

    def run(self) -> Any:
        run = generate.build(self.decoder, self.slots)
        return run(self.params, self.prompt, self.request)


@pytest.fixture(scope="module")
def good() -> Arguments:
    world = tiny.transformers()
    target, draft = refuse_calls(world.target), refuse_calls(world.draft)
    decoder = Decoder(target, autoregressive.build(draft, GAMMA))
    prompt = make_prompt([[1, 2, 3], [4]])
    sampling = make_sampling(2, 1.0, top_k=5, top_p=0.9, min_p=0.1)
    request = asked(jax.random.key(0), prompt, NEW, sampling)
    params = Params(world.target_weights, world.draft_weights)
    return Arguments(decoder, SLOTS, params, prompt, request)


def test_a_request_has_an_id_a_row_or_several(good):
    request = functools.partial(
        asked, good.request.key, good.prompt, NEW, make_sampling(2, 0.0)
    )
    for none in ((), [], -1):
        assert request(none).eos.tolist() == [-1, -1]
    for single in (3, (3,), np.int64(3)):
        assert request(single).eos.tolist() == [3, 3]
    assert request((3, 5)).eos.tolist() == [[3, 5]] * 2


def replace_fields(good: Arguments, fields: dict) -> Arguments:
    """Returns the arguments with other fields, each named by its path."""

    def replace_field(node, path: list[str], value):
        value = (
            replace_field(getattr(node, path[0]), path[1:], value)
            if path[1:]
            else value
        )
        return node._replace(**{path[0]: value})

    for path, value in fields.items():
        value = np.array(value) if isinstance(value, list) else value
        good = replace_field(good, path.split("."), value)
    return good


prompt, request, sampling, target = (
    lambda folder=folder, **fields: {f"{folder}{k}": v for k, v in fields.items()}
    for folder in ("prompt.", "request.", "request.sampling.", "decoder.target.")
)
TOKENS, LENGTH = np.array([[5, 28], [7, 0]]), np.array([2, 1])
READS = Features((4, 3)), Encoded((2, 6))
DAMAGED = np.full((2, 4, 3), np.nan, np.float32)


def inputs(tokens=TOKENS, length=LENGTH) -> dict:
    return prompt(inputs=(np.array(tokens), np.array(length)))


def encodes(inputs) -> dict:
    """Returns a target with an encoder, and these inputs for it."""
    return target(encodes=True) | prompt(inputs=inputs)


def speech_target(inputs) -> dict:
    """Returns a target whose encoder reads windows of 4 frames and 3 bands, and these
    inputs."""
    return target(reads=READS) | encodes(inputs)


def test_good_input_does_reach_the_models(good):
    hearing = Features(np.zeros((2, 4, 3), "f4")), Encoded(np.zeros((2, 2, 6), "f2"))
    for fields in (
        {},
        inputs(),
        encodes((TOKENS, LENGTH)),
        *map(speech_target, hearing),
    ):
        with pytest.raises(AssertionError, match="was traced"):
            replace_fields(good, fields).run()


WIDE = tiny.transformers().draft_weights | {"embedding": np.zeros((29, 17))}
REFUSED = [
    (
        {"decoder.drafter.vocab": 7},
        r"vocabulary of 7, the target one of 29.*same tokens",
    ),
    ({"params.target": {}}, r"target's parameters.*embedding: missing, not \(29"),
    ({"params.draft": WIDE}, r"draft's.*embedding: \(29, 17\), not \(29, 16\)"),
    (prompt(tokens=[1, 2, 3]), "make_prompt"),
    (prompt(length=[3, 0]), r"must be in 1\.\.3.*start token"),
    (prompt(tokens=[[1, 2, 29], [4, 0, 0]]), r"in 0\.\.28.*to 29.*tokenizer"),
    (prompt(tokens=np.ones((2, SLOTS + 1), int)), r"build with slots=21 plus"),
    (request(start=[1]), "make_request"),
    (request(eos=[[[1]], [[2]]]), "make_request"),
    (request(key=jax.random.split(jax.random.key(0), 3)), "make_request"),
    (request(limit=[2, 9]), r"end there or later.*limits \[2 9\]"),
    (request(start=[2, 1]), r"start at its prompt's length.*starts \[2 1\]"),
    (request(key=jax.random.PRNGKey(0)), r"typed keys.*make_request"),
    (prompt(tokens=[[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]]), r"integers; got float"),
    (prompt(length=[3.0, 1.0]), r"lengths of a prompt must be integers; got float"),
    (request(limit=[17, 9]), r"reach 17 tokens.*gamma \+ 1 = 4.*slots=21"),
    (target(slots=10), r"knows 10 positions.* prompt has 3 tokens: ask for 7 new tok"),
    (target(slots=3), r"target knows 3 positions.*3 tokens: shorten the prompt$"),
    (target(portion=GAMMA), r"writes 4 tokens.*take back 3: draft at most 2, or build"),
    (
        sampling(temperature=[1.0, np.nan]),
        r"temperature must be 0, which is.*nan",
    ),
    (sampling(top_k=[5, 0]), r"top_k must be at least 1; leave top_k out"),
    (sampling(top_p=[0.0, 0.5]), r"top_p must be in \(0, 1\]; leave top_p out"),
    (sampling(min_p=[-0.1, 0.5]), r"min_p must be in \[0, 1\]; leave min_p out"),
    (sampling(temperature=1.0), r"temperature has shape \(\) for 2 rows.*jnp\.full"),
    (encodes(None), r"reads its task from prompt\.inputs and there are none"),
    (inputs(tokens=[5, 7]), r"inputs must be tokens \[2, S\] and lengths \[2\]"),
    (inputs(length=[2, 0]), r"lengths of prompt\.inputs must be in 1\.\.2; got 0 to 2"),
    (inputs(tokens=[[5, 29], [7, 0]]), r"ids of prompt\.inputs must be in 0\.\.28.*29"),
    (target(reads=(Features((4, 3)),)), r"as types\.Features, not NoneType"),
    (
        speech_target((DAMAGED, DAMAGED)),
        r"types\.Features or types\.Encoded, not tuple",
    ),
    (
        speech_target(Features(np.zeros((2, 4, 3), int))),
        r"frames must be floating.*got int",
    ),
    (
        speech_target(Features(DAMAGED[..., :2])),
        r"frames must be \(2, 4, 3\).*got \(2, 4, 2\)",
    ),
    (speech_target(Encoded(DAMAGED)), r"states must be \(2, 2, 6\).*got \(2, 4, 3\)"),
    (
        speech_target(Features(DAMAGED)),
        r"frames must be finite: is the recording damaged\?",
    ),
    (prompt(inputs=Features(DAMAGED)), r"the target reads no speech: load a Whisper"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_decode_is_refused_before_any_compute(good, fields, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        replace_fields(good, fields).run()


@pytest.mark.parametrize("flag", jax_flags.REFUSED)
def test_flags_of_jax_that_nothing_runs_under_are_named(good, flag):
    value = jax_flags.REFUSED[flag][0]
    for run in (good.run, lambda: checkpoints.load("code_small")):
        with use_settings({flag: value}):
            with pytest.raises(ValueError, match=f"^{flag} is '{value}', "):
                run()


def test_flags_of_xla_are_named_by_one_word_before_jax_computes(monkeypatch):
    own = "--xla_gpu_graph_min_graph_size=3"
    told = "import jax, specjax; from specjax.measure.row import machine;"
    told += "print(jax.numpy.ones(1), *machine()['xla_flags'])"
    setting = {"SPECJAX_XLA": "graphs", "XLA_FLAGS": own}
    done = subprocess.run(
        [sys.executable, "-c", told],
        env=os.environ | setting,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["[1.]", *jax_flags.SETS["graphs"], own], done.stderr
    # By default there are none, and what is not in force is refused.
    jnp.ones(1).block_until_ready()
    have = jax_flags.xla_flags()
    for word, message in (("graph", "names no flags"), ("graphs", "JAX's first use")):
        monkeypatch.setenv("SPECJAX_XLA", word)
        jax_flags.set_xla()
        with pytest.raises(ValueError, match=f"^SPECJAX_XLA={word} .*{message}"):
            jax_flags.check()
    assert jax_flags.xla_flags() == have


def test_a_stream_is_checked_too(good):
    bad = replace_fields(good, sampling(top_k=[5, 0]))
    with pytest.raises(ValueError, match="top_k"):
        next(generate.build_stream(*bad[:2])(*bad[2:]))


def test_the_buffer_that_a_message_asks_for_is_enough(good):
    tight = replace_fields(good, request(limit=[SLOTS - GAMMA - 1, 9]))
    with pytest.raises(ValueError, match=f"slots={SLOTS} or more"):
        check(*tight._replace(slots=SLOTS - 1))
    # The longest text, whatever room a step needs; drafts of nothing beyond them.
    check(*tight)
    for fields in (target(slots=11, trained=11), {"decoder.drafter.slots": 4}):
        check(*replace_fields(good, fields))
    hot = Sampling(jnp.array([0.0, 2.0]))  # all that it needs
    check(*replace_fields(good, request(sampling=hot)))


def test_texts_beyond_what_a_model_was_trained_for_are_told_of(good):
    with pytest.warns(UserWarning, match="reach 11 tokens .* trained for 10 "):
        check(*replace_fields(good, target(trained=10)))


def test_prompts_share_widths_where_there_is_room():
    asked = [1, 2, 8, 9, 16, 17, 100, 512, 513, 768, 769]
    shared = [1, 8, 8, 16, 16, 32, 128, 512, 768, 768, 1024]
    assert [bucket(width) for width in asked] == shared
    assert [bucket(9, most) for most in (16, 15)] == [16, 9]
    prompt = make_prompt([[1, 2, 3], [4]], [[5], [6, 7]])
    wide = pad_to_bucket(prompt)
    assert wide.tokens.tolist() == [[1, 2, 3] + [0] * 5, [4] + [0] * 7]
    assert wide.inputs[0].tolist() == [[5] + [0] * 7, [6, 7] + [0] * 6]
    assert (*wide.length, *wide.inputs[1]) == (3, 1, 1, 2)
    assert pad_to_bucket(prompt, 7).tokens.shape == (2, 3)
    assert (
        pad_to_bucket(prompt._replace(inputs=Features(DAMAGED))).inputs.frames
        is DAMAGED
    )


MODEL = tiny.markov(4)
BUILDERS = [
    (lambda: make_prompt([[1], []]), "start token"),
    (lambda: ngram.build(8, 0, 2), "at least 1; got 0 and 2"),
    (lambda: autoregressive.build(MODEL, -1), r"gamma must be at least 0.*got -1"),
    (
        lambda: autoregressive.build(MODEL._replace(portion=2), 2),
        r"gamma = 2 writes 3 tokens a step and the draft's layers .* at most 1, or",
    ),
    (lambda: copying.build(0), "at least 1; got 0 and 3"),
    (lambda: random.build(4, 0), "at least 1.*got 0"),
    (lambda: early_exit.build(MODEL, lambda cache: cache, 0), "at least 1.*got 0"),
    (lambda: policies.heuristic(start=0), "least <= start; got least=1, start=0"),
    (lambda: copying.build(3, 3, 4), "least must be from 1 to longest, 3; got 4"),
    (lambda: datastore.index([[]]), "a store needs a text of one token or more"),
    (lambda: trees.check(()), "is not a tree"),
    (lambda: trees.check((-1, 1)), "is not a tree"),
    (lambda: trees.check((-1, -2)), "is not a tree"),
    (lambda: tree.build(MODEL, (0,)), "is not a tree"),
    (lambda: tree.build(MODEL, (-1, 0, -1)), "is not in levels"),
    (lambda: tree.build(MODEL, (-1,), siblings="twins"), "drawn 'with' or 'without'"),
    (
        lambda: best_first.build(MODEL, 4, width=0, longest=2),
        "one of each; got 4 nodes, 0 children",
    ),
    (lambda: forked.build(MODEL, 4, 0), "copy at least one"),
    (lambda: forked.build(MODEL, 4, 3), "no more than are drawn"),
    (lambda: grown.build(MODEL, 4, ()), "a probability from 0 to 1"),
    (lambda: grown.build(MODEL, 4, (1.5,)), "a probability from 0 to 1"),
    (lambda: kary.build(0), "width must be at least 1"),
    (lambda: paths.build(0), "at least one path"),
    (lambda: likeliest.build([1.2]), "probabilities from 0 to 1"),
    (lambda: nothing.build(-1), "at least 0"),
    (lambda: lookahead.build(0), "gamma of at least 1.* got 0, 4 and 512"),
    (lambda: lookahead.build(4, 1), "n-grams of 2 tokens or more.* got 4, 1 and 512"),
    (lambda: lookahead.build(4, 2, 3), "a pool of at least gamma; got 4, 2 and 3"),
]


@pytest.mark.parametrize(("build", "message"), BUILDERS, ids=range(len(BUILDERS)))
def test_builders_refuse_what_could_not_draft(build, message):
    with pytest.raises(ValueError, match=message):
        build()


LEAST = [
    (lambda: nothing.build(0), 0),
    (lambda: autoregressive.build(MODEL, 0), 0),
    (lambda: autoregressive.build(MODEL._replace(portion=2), 1), 1),
    (lambda: early_exit.build(MODEL, lambda cache: cache, 1), 1),
    (lambda: random.build(4, 1), 1),
    (lambda: ngram.build(8, 1, 1), 1),
    (lambda: copying.build(1, 1, 1), 1),
    (lambda: copying.build(1, 2, 2), 1),
    (lambda: suffix.build(1, 1), 1),
    (lambda: anchored.build(1), 1),
    (lambda: datastore.build(1, 1), 1),
    (lambda: recycling.build(4, 1), 1),
    (lambda: recycling.build(4, 1, (-1,)), 1),
    (lambda: lookahead.build(1, 2, 1), 1),
    (lambda: tree.build(MODEL, (-1,)), 1),
    (lambda: best_first.build(MODEL, 1, width=1, longest=1), 1),
    (lambda: grown.build(MODEL, 1, (0.0,)), 1),
    (lambda: grown.build(MODEL, 1, (1.0,)), 1),
    (lambda: forked.build(MODEL, 2, 1), 2),
]


@pytest.mark.parametrize(("build", "gamma"), LEAST, ids=range(len(LEAST)))
def test_builders_take_the_least_that_they_say(build, gamma):
    assert build().gamma == gamma
