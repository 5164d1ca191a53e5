"""What cannot decode is refused before any compute, with what to do instead."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import checkpoints, generate, keys, policies
from specjax.drafters import autoregressive, copying, early_exit, random
from specjax.inputs import (
    bucket,
    bucketed,
    check,
    make_prompt,
    make_request,
    make_sampling,
)
from specjax.step import Decoder
from specjax.types import (
    Encoded,
    Features,
    Model,
    Params,
    Prompt,
    Request,
    Sampling,
)
from tests.support import tiny

SLOTS, NEW, GAMMA = 20, 8, 3


def untouchable(model: Model) -> Model:
    def refuse(*_):
        raise AssertionError("a model was traced before its input was checked")

    return model._replace(init=refuse, apply=refuse, readout=refuse)


class Arguments(NamedTuple):
    """Of a run."""

    decoder: Decoder
    slots: int
    params: Params
    prompt: Prompt
    request: Request

    def run(self) -> Any:
        run = generate.build(self.decoder, self.slots)
        return run(self.params, self.prompt, self.request)


Change = Callable[[Arguments], Arguments]


@pytest.fixture(scope="module")
def good() -> Arguments:
    world = tiny.transformers()
    target, draft = untouchable(world.target), untouchable(world.draft)
    decoder = Decoder(target, autoregressive.build(draft, GAMMA))
    prompt = make_prompt([[1, 2, 3], [4]])
    sampling = make_sampling(2, 1.0, top_k=5, top_p=0.9, min_p=0.1)
    request = make_request(jax.random.key(0), prompt, NEW, sampling)
    params = Params(world.target_weights, world.draft_weights)
    return Arguments(decoder, SLOTS, params, prompt, request)


def test_good_input_does_reach_the_models(good):
    states = np.zeros((2, 2, 6), jnp.bfloat16)
    hearing = heard(), heard(states, Encoded)
    for change in (prompt(), prompt(inputs=INPUTS), encodes(INPUTS), *hearing):
        with pytest.raises(AssertionError, match="was traced"):
            change(good).run()


def having(*path: str, **fields) -> Change:
    """The arguments with other fields of what the path leads to."""
    arrays = {k: np.array(v) if isinstance(v, list) else v for k, v in fields.items()}

    def change(node, path=path):
        if not path:
            return node._replace(**arrays)
        name, *rest = path
        return node._replace(**{name: change(getattr(node, name), rest)})

    return change


prompt, request = (functools.partial(having, name) for name in ("prompt", "request"))
sampling = functools.partial(having, "request", "sampling")
target = functools.partial(having, "decoder", "target")
drafter = functools.partial(having, "decoder", "drafter")
INPUTS = np.array([[5, 28], [7, 0]]), np.array([2, 1])


def encodes(inputs) -> Change:
    """A target with an encoder, which is to read these."""
    change, reading = target(encodes=True), prompt(inputs=inputs)
    return lambda good: reading(change(good))


def inputs(tokens=INPUTS[0], length=INPUTS[1]) -> Change:
    return prompt(inputs=(np.array(tokens), np.array(length)))


def heard(frames=None, kind=Features) -> Change:
    """A target that hears windows of 4 frames and 3 bands, and what it is to hear."""
    reads = Features((4, 3)), Encoded((2, 6))
    frames = np.zeros((2, 4, 3), np.float32) if frames is None else frames
    change = target(reads=reads, encodes=True)
    reading = prompt(inputs=kind(frames))
    return lambda good: reading(change(good))


DAMAGED = np.full((2, 4, 3), np.nan, np.float32)


def without_a_weight(good: Arguments) -> Arguments:
    weights = {k: v for k, v in good.params.target.items() if k != "readout"}
    return having("params", target=weights)(good)


def with_a_weight_of_another_shape(good: Arguments) -> Arguments:
    weights = good.params.draft | {"embedding": np.zeros((29, 17))}
    return having("params", draft=weights)(good)


REFUSED = [
    (drafter(vocab=7), r"vocabulary of 7, the target one of 29.*same tokens"),
    (without_a_weight, r"target's parameters.*readout: missing, not \(16, 29\)"),
    (with_a_weight_of_another_shape, r"draft's.*embedding: \(29, 17\), not \(29, 16\)"),
    (having("params", draft=()), r"the draft's parameters .*load .*embedding: missing"),
    (prompt(tokens=[1, 2, 3]), "make_prompt"),
    (prompt(length=[3, 1, 1]), "make_prompt"),
    (prompt(length=[3, 0]), r"must be in 1\.\.3.*start token"),
    (prompt(length=[4, 1]), r"must be in 1\.\.3"),
    (prompt(tokens=[[1, 2, 29], [4, 0, 0]]), r"in 0\.\.28.*to 29.*tokenizer"),
    (prompt(tokens=[[1, 2, 3], [-1, 0, 0]]), r"in 0\.\.28; got -1"),
    (prompt(tokens=np.ones((2, SLOTS + 1), int)), r"build with slots=21 plus"),
    (request(start=[1]), "make_request"),
    (request(limit=[[9, 9]]), "make_request"),
    (request(eos=[1, 2, 3]), "make_request"),
    (request(eos=[[[1]], [[2]]]), "make_request"),
    (request(key=jax.random.split(jax.random.key(0), 3)), "make_request"),
    (request(limit=[2, 9]), r"end there or later.*limits \[2 9\]"),
    (request(start=[2, 1]), r"start at its prompt's length.*starts \[2 1\]"),
    (request(key=jax.random.PRNGKey(0)), r"typed keys: use jax\.random\.key"),
    (prompt(tokens=[[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]]), r"integers; got float"),
    (request(limit=[17, 9]), r"reach 17 tokens.*gamma \+ 1 = 4.*slots=21"),
    (target(slots=10), r"knows 10 positions.* prompt has 3 tokens: ask for 7 new tok"),
    (target(slots=3), r"target knows 3 positions.*3 tokens: shorten the prompt$"),
    (target(portion=GAMMA), r"writes 4 tokens.*take back 3: draft at most 2, or build"),
    (sampling(temperature=[1.0, -0.1]), r"temperature must be at least 0.*-0\.1"),
    (sampling(temperature=[1.0, np.nan]), r"temperature must be at least 0.*nan"),
    (sampling(temperature=[1.0, np.inf]), r"temperature must be at least 0.*inf"),
    (sampling(top_k=[5, 0]), r"top_k must be at least 1; leave top_k out"),
    (sampling(top_p=[0.0, 0.5]), r"top_p must be in \(0, 1\]; leave top_p out"),
    (sampling(top_p=[1.1, 0.5]), r"top_p must be in \(0, 1\].*got 1\.1"),
    (sampling(min_p=[-0.1, 0.5]), r"min_p must be in \[0, 1\]; leave min_p out"),
    (sampling(min_p=[0.1, 1.5]), r"min_p must be in \[0, 1\].*got 1\.5"),
    (
        sampling(temperature=1.0),
        r"temperature has shape \(\) for 2 rows.*jnp\.full",
    ),
    (sampling(top_k=[5, 5, 5]), r"top_k has shape \(3,\) for 2 rows.*jnp\.full"),
    (encodes(None), r"reads its task from prompt\.inputs and there are none"),
    (
        inputs(tokens=[5, 7]),
        r"prompt\.inputs must be tokens \[2, S\] and lengths \[2\]",
    ),
    (inputs(length=[2]), r"prompt\.inputs must be tokens \[2, S\] and lengths \[2\]"),
    (inputs(length=[2, 0]), r"lengths of prompt\.inputs must be in 1\.\.2; got 0 to 2"),
    (inputs(length=[3, 1]), r"lengths of prompt\.inputs must be in 1\.\.2; got 1 to 3"),
    (inputs(tokens=[[5, 29], [7, 0]]), r"ids of prompt\.inputs must be in 0\.\.28.*29"),
    (target(reads=(Features((4, 3)),)), r"as types\.Features, not NoneType"),
    (heard(DAMAGED, lambda x: (x, x)), r"types\.Features or types\.Encoded, not tuple"),
    (heard(np.zeros((2, 4, 3), int)), r"inputs\.frames must be floating.*got int"),
    (heard(DAMAGED[:1]), r"frames must be \(2, 4, 3\), of 2 rows.*got \(1, 4, 3\)"),
    (heard(DAMAGED[..., :2]), r"frames must be \(2, 4, 3\).*got \(2, 4, 2\)"),
    (heard(DAMAGED, Encoded), r"states must be \(2, 2, 6\).*got \(2, 4, 3\)"),
    (heard(DAMAGED), r"inputs\.frames must be finite: is the recording damaged\?"),
    (prompt(inputs=Features(DAMAGED)), r"the target reads no speech: load a Whisper"),
    (inputs(tokens=[[5, 2], [-1, 0]]), r"ids of prompt\.inputs must be.*got -1 to 5"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_decode_is_refused_before_any_compute(good, change, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        change(good).run()


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("jax_numpy_dtype_promotion", "strict"),
        ("jax_numpy_rank_promotion", "raise"),
    ],
)
def test_flags_of_jax_that_nothing_runs_under_are_named(good, flag, value):
    before = getattr(jax.config, flag)
    jax.config.update(flag, value)
    try:
        for run in (good.run, lambda: checkpoints.load("code_small")):
            with pytest.raises(ValueError, match=f"^{flag} is '{value}', .*update"):
                run()
    finally:
        jax.config.update(flag, before)


def test_noise_is_the_same_in_64_bit_jax():
    key, at = jax.random.split(jax.random.key(0), 2), jnp.array([3, 5], jnp.int32)

    def noise():
        return keys.uniform(key, 1, (2,)), keys.gumbel(key, at, 7)

    wanted = noise()
    with jax.enable_x64(True):
        jax.tree.map(np.testing.assert_array_equal, noise(), wanted)


def test_a_stream_is_checked_too(good):
    bad = sampling(top_k=[5, 0])(good)
    with pytest.raises(ValueError, match="top_k"):
        next(generate.build_stream(*bad[:2])(*bad[2:]))


def test_the_buffer_that_a_message_asks_for_is_enough(good):
    tight = request(limit=[SLOTS - GAMMA - 1, 9])(good)
    check(*tight)
    with pytest.raises(ValueError, match=f"slots={SLOTS} or more"):
        check(*tight._replace(slots=SLOTS - 1))
    check(*target(slots=11)(good))  # the longest text, whatever room a step needs
    check(*drafter(slots=4)(good))  # it drafts nothing beyond them
    check(*target(trained=11)(good))


def test_texts_beyond_what_a_model_was_trained_for_are_told_of(good):
    with pytest.warns(UserWarning, match="reach 11 tokens .* trained for 10 "):
        check(*target(trained=10)(good))


def test_no_setting_is_needed_but_the_temperature(good):
    check(*request(sampling=Sampling(jnp.array([0.0, 2.0])))(good))


@pytest.mark.parametrize("texts", [[], [[1], []]])
def test_an_empty_prompt(texts):
    with pytest.raises(ValueError, match="start token"):
        make_prompt(texts)


def test_prompts_share_widths_where_there_is_room():
    asked = [1, 2, 8, 9, 16, 17, 100, 512, 513, 768, 769]
    shared = [1, 8, 8, 16, 16, 32, 128, 512, 768, 768, 1024]
    assert [bucket(width) for width in asked] == shared
    assert [bucket(9, most) for most in (16, 15)] == [16, 9]
    prompt = make_prompt([[1, 2, 3], [4]], [[5], [6, 7]])
    wide = bucketed(prompt)
    assert wide.tokens.tolist() == [[1, 2, 3] + [0] * 5, [4] + [0] * 7]
    assert wide.inputs[0].tolist() == [[5] + [0] * 7, [6, 7] + [0] * 6]
    lengths = wide.length.tolist(), wide.inputs[1].tolist()
    assert lengths == ([3, 1], [1, 2])
    assert bucketed(prompt, 7).tokens.shape == (2, 3)
    assert bucketed(prompt._replace(inputs=Features(DAMAGED))).inputs.frames is DAMAGED


MODEL = tiny.markov(4)
BUILDERS = [
    (lambda: autoregressive.build(MODEL, -1), r"gamma must be at least 0.*got -1"),
    (
        lambda: autoregressive.build(MODEL._replace(portion=2), 2),
        r"gamma = 2 writes 3 tokens a step and the draft's layers .* at most 1, or",
    ),
    (lambda: copying.build(0), "at least 1; got 0 and 3"),
    (lambda: copying.build(2, longest=0), "at least 1; got 2 and 0"),
    (lambda: random.build(4, 0), "at least 1.*got 0"),
    (lambda: early_exit.build(MODEL, lambda cache: cache, 0), "at least 1.*got 0"),
    (lambda: policies.heuristic(start=0), "least <= start; got least=1, start=0"),
    (lambda: policies.heuristic(start=2, least=3), "got least=3, start=2"),
    (lambda: policies.heuristic(least=0), "got least=0"),
]


@pytest.mark.parametrize(("build", "message"), BUILDERS, ids=range(len(BUILDERS)))
def test_builders_refuse_what_could_not_draft(build, message):
    with pytest.raises(ValueError, match=message):
        build()
