"""The pair that writes images gives the target's own images, call by call, as an audit
finds."""

import numpy as np
import pytest

import specjax
from experiments import tasks
from experiments.exactness import faults
from experiments.papers.leviathan import images
from experiments.tasks import digits
from specjax import drafts, generate, zoo
from specjax.exactness import audit_row
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.keys import root_key
from specjax.measure.texts import Protocol
from specjax.types import Params
from tests.support import slow
from tests.support.settings import make

GAMMA = 4


@pytest.fixture(scope="module")
def pair():
    return drafts.pair(*map(specjax.load, zoo.IMAGE_MODELS))


def test_greedy_images_are_the_targets_own(pair):
    target, _ = pair
    found = images.measure(pair, gamma=GAMMA, temperature=0.0, seed=0)
    prompt = make_prompt(tasks.read("digits").prompts.tokens)
    request = make_request(root_key(0), prompt, digits.PIXELS, make_sampling(10, 0.0))
    alone = generate.autoregressive(target.model, 1 + digits.PIXELS + 1)
    own = np.asarray(alone(Params(target.params), prompt, request).tokens)
    steps = [image["steps"] for image in found["images"]]
    written = [
        [id for it in each for id in it["accepted"] + it["added"]] for each in steps
    ]
    np.testing.assert_array_equal(written, own[:, 1 : 1 + digits.PIXELS])
    assert np.max(written) < digits.SHADES and len({*map(tuple, written)}) == 10
    assert found["target_calls"] == sum(map(len, steps)) < found["tokens"] / 2
    for it in (step for each in steps for step in each):
        drafted = len(it["accepted"] + it["rejected"] + it["untested"])
        assert drafted <= GAMMA and len(it["rejected"]) <= 1
    assert (target.start, target.ends) == (None, ())


@pytest.mark.parametrize(
    "fault", slow.mark_slow_after(1, [None, faults.draft_temperature])
)
def test_sampled_images_pass_the_audit_and_those_of_a_fault_fail(
    pair, fault, monkeypatch
):
    monkeypatch.setattr(faults, "HOTTER", 2.0)  # few images show less than many
    protocol = make(
        Protocol,
        task="digits",
        temperature=1.0,
        tokens=6400,
        gamma=GAMMA,
        new_tokens=digits.PIXELS,
        batch=100,
    )
    prompts = tasks.read("digits").prompts
    found = audit_row.measure_audit(pair, prompts, protocol, fault)
    assert found["impossible"] == 0 and found["tokens"] == 6400
    assert found["passed"] == (fault is None)
    assert found["p_value"] > 0.01 if fault is None else found["p_value"] < 1e-6


def test_a_model_of_other_ids_writes_no_images():
    target = specjax.load("code_small")
    with pytest.raises(ValueError, match="has 8192 ids, and images of digits have 27"):
        images.build(target, "bigram", gamma=1, temperature=0.0)


def test_an_image_is_its_class_and_then_its_shades():
    shades = np.arange(2 * digits.PIXELS).reshape(2, digits.SIDE, digits.SIDE) % 17
    several = digits.Images(shades, np.array([3, 0]))
    first, second = digits.documents(several)
    assert first == [20, *(i % 17 for i in range(64))] and second[0] == 17
    left, same, right = np.split(digits.shift(several).shades, 3)
    np.testing.assert_array_equal(same, shades)
    np.testing.assert_array_equal(left[..., :-1], shades[..., 1:])
    np.testing.assert_array_equal(right[..., 1:], shades[..., :-1])
    assert not left[..., -1].any() and not right[..., 0].any()
    assert digits.shift(several).digits.tolist() == [3, 0] * 3


def test_the_images_are_those_of_scikit_learn():
    pytest.importorskip("sklearn")
    parts = digits.load()
    sizes = {name: len(some.digits) for name, some in parts.items()}
    assert sizes == {"train": 1500, "held_out": 297}
    for some in parts.values():
        assert some.shades.min() == 0 and some.shades.max() == digits.SHADES - 1
        assert {*some.digits.tolist()} == {*range(digits.CLASSES)}
