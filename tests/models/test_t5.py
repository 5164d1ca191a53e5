"""T5 computes the papers' arithmetic and reads its input, and drafts can copy from
it."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate
from specjax.drafters import copying
from specjax.inputs import make_prompt, make_request, make_sampling, pad
from specjax.models import t5
from specjax.models.t5 import bucket
from specjax.step import Decoder
from specjax.types import Params
from tests.support import tiny_t5
from tests.support.model_cases import IDS, INPUTS, TOKENS, B, T, assert_close
from tests.support.tiny_t5 import TARGET

WORLD = tiny_t5.world()
MODEL, WEIGHTS = WORLD.target, WORLD.target_weights


def expected_bucket(distance: int, both_ways: bool) -> int:
    """Returns the bucket of a query's position minus a key's, in exact arithmetic.

    Half of a side's buckets are one distance each; bucket `exact + k` begins where
    (distance / exact) ** exact reaches (128 / exact) ** k.
    """
    side = 16 if both_ways else 32
    exact, away = side // 2, abs(distance) if both_ways else max(distance, 0)
    number = away
    if away >= exact:
        reached = Fraction(away, exact) ** exact
        number = exact + max(
            k for k in range(exact) if reached >= Fraction(128, exact) ** k
        )
    return number + (side if both_ways and distance < 0 else 0)


@pytest.mark.parametrize("both_ways", [True, False])
def test_buckets_are_those_of_the_definition(both_ways):
    buckets = bucket(np.arange(-300, 301), both_ways)
    assert buckets.dtype == np.int32
    wanted = [expected_bucket(distance, both_ways) for distance in range(-300, 301)]
    np.testing.assert_array_equal(buckets, wanted)
    assert set(buckets) == set(range(32)) - ({16} if both_ways else set())


# Of the first three ids after the last token of each text, as a second implementation
# computed them, of numpy and in float64: a text after its input, nothing padded.
V1_1 = [-1.1257, -3.3784, -2.8607], [-1.2947, -1.5463, -4.1349]
V1_1 = np.array([*V1_1, [-2.435, -2.9216, -2.5292]])
V1_0 = [-3.1641, -3.7852, 6.4063], [-3.2823, -0.2455, 7.04], [-3.342, -3.8764, 5.1861]
EARLIER = dict(gated=False, tied=True, encoder_layers=2, own_bias=True)
RECORDED = {
    "v1.1": (TARGET, V1_1),
    "v1.0, own bias": (TARGET._replace(**EARLIER), V1_0),
    "scaled, all ids": (TARGET._replace(pieces=None, scaled=True), V1_1 / 16**0.5),
}


@pytest.mark.parametrize(("config", "recorded"), RECORDED.values(), ids=RECORDED)
def test_logits_are_those_of_the_papers(config, recorded):
    params, run = tiny_t5.weights(config, 3), functools.partial(t5.logits, config)
    logits = jax.jit(run)(params, INPUTS, TOKENS)
    assert_close(logits[:, -1, :3], recorded, 2e-4)


def test_padding_of_the_vocabulary_is_minus_infinity():
    """This holds where its ids would otherwise have the largest logits."""
    kernel = WEIGHTS["decoder"]["logits_dense"]["kernel"]
    kernel = kernel.at[:, TARGET.pieces :].multiply(5.0)
    params = {"decoder": {"logits_dense": {"kernel": kernel}}}
    x = jnp.float32(4 * np.random.default_rng(0).normal(size=(B, T, TARGET.dim)))
    masked, plain = (
        t5.readout(config, params, x)
        for config in (TARGET, TARGET._replace(pieces=None))
    )
    assert (masked[..., IDS:] == -np.inf).all() and np.isfinite(plain).all()
    np.testing.assert_array_equal(masked[..., :IDS], plain[..., :IDS])


def enlarge_feed_forward(path, leaf):
    """Returns feed-forward layers whose gates, products and outputs exceed float16."""
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    large = {"wi_0": 300.0, "wi_1": 300.0, "wo": 30.0}
    return leaf * next((by for part, by in large.items() if part in name), 1.0)


def test_features_beyond_float16_are_kept_in_float32():
    params = jax.tree_util.tree_map_with_path(enlarge_feed_forward, WEIGHTS)

    def logits(**options) -> np.ndarray:
        run = functools.partial(t5.logits, TARGET._replace(**options))
        return np.asarray(jax.jit(run)(params, INPUTS, TOKENS))

    wanted = logits()
    assert_close(logits(dtype="float16", joined=True), wanted, 0.05)


def test_what_stands_in_an_input_is_copied_from_there():
    """Each input is copied up to its own end, although the target ignores it."""
    params = jax.tree.map(lambda leaf: leaf, WEIGHTS)
    for layer in ("layers_0", "layers_1"):
        out = params["decoder"][layer]["encoder_decoder_attention"]["out"]
        out["kernel"] = jnp.zeros_like(out["kernel"])
    prompt, new, width = make_prompt([[0], [0, 5, 7], [0, 3], [0]]), 20, 24
    run = generate.build(Decoder(MODEL, copying.build(3)), width + 4)  # one program
    sampling = make_sampling(4, 0.0)
    request = make_request(jax.random.key(0), prompt, new, sampling)

    def write_texts(inputs):
        about = prompt._replace(inputs=inputs)
        output = jax.device_get(run(Params(params), about, request))
        rows = zip(output.tokens, output.length, strict=True)
        return [row[:end].tolist() for row, end in rows], output.counts

    texts, _ = write_texts(pad([[1]] * 4, width))
    unwritten = min({*range(IDS)}.difference(*texts))
    tokens, length = pad(texts, width)
    cut = jnp.minimum(length, jnp.array([99, 12, 9, 99]))
    nowhere = pad([[unwritten] * width] * 4)
    entire, of_all = write_texts((tokens, length))
    short, of_some = write_texts((tokens, cut))
    none, of_none = write_texts(nowhere)
    assert entire == short == none == texts
    assert (of_all.accepted >= new // 2).all() and (of_some.accepted > 0).all()
    less = of_some.accepted < of_all.accepted
    np.testing.assert_array_equal(less, [False, True, True, False])
    assert not of_none.drafted.any()
