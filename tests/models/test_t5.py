"""T5 is T5: the papers' arithmetic, its encoder, and drafts copied from its input."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.drafters import copying
from specjax.inputs import make_prompt, pad
from specjax.models import t5
from specjax.models.t5 import bucket
from specjax.step import Decoder
from specjax.types import Params
from tests.support import tiny_t5
from tests.support.model_cases import (
    IDS,
    INPUTS,
    SOURCES,
    TEXTS,
    TOKENS,
    B,
    T,
    close,
    greedy,
)
from tests.support.tiny_t5 import TARGET, logits_by_hand

WORLD = tiny_t5.world()
MODEL, WEIGHTS = WORLD.target, WORLD.target_weights

DISTANCES = np.arange(-300, 301)


@pytest.mark.parametrize("both_ways", [True, False])
def test_buckets_are_those_of_the_definition(both_ways):
    buckets = bucket(DISTANCES, both_ways)
    assert buckets.dtype == np.int32
    exact = [tiny_t5.bucket(int(each), both_ways) for each in DISTANCES]
    np.testing.assert_array_equal(buckets, exact)
    assert set(buckets) == set(range(32)) - ({16} if both_ways else set())


VARIANTS = {
    "v1.1": TARGET,
    "v1.0, own bias": TARGET._replace(
        gated=False, tied=True, encoder_layers=2, own_bias=True
    ),
    "scaled, all ids": TARGET._replace(pieces=None, scaled=True),
}


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_logits_are_those_of_the_papers(config):
    params = tiny_t5.weights(config, 3)
    run = jax.jit(functools.partial(t5.logits, config))
    logits = run(params, INPUTS, TOKENS)
    for row, source, text in zip(logits, SOURCES, TEXTS, strict=True):
        close(row, logits_by_hand(config, params, source, text))


def test_padding_of_the_vocabulary_is_minus_infinity():
    """Also where its ids would be the loudest."""
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


def grown(path, leaf):
    """Feed-forward layers whose gates, products and outputs are beyond float16."""
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    large = {"wi_0": 300.0, "wi_1": 300.0, "wo": 30.0}
    return leaf * next((by for part, by in large.items() if part in name), 1.0)


def test_features_beyond_float16_are_kept_in_float32():
    params = jax.tree_util.tree_map_with_path(grown, WEIGHTS)

    def logits(**options) -> np.ndarray:
        run = functools.partial(t5.logits, TARGET._replace(**options))
        return np.asarray(jax.jit(run)(params, INPUTS, TOKENS))

    wanted = logits()
    close(logits(dtype="float16", joined=True), wanted, 0.05)


def test_what_stands_in_an_input_is_copied_from_there():
    """As far as each input goes, by weights that let nothing of it to the text."""
    params = jax.tree.map(lambda leaf: leaf, WEIGHTS)
    for layer in ("layers_0", "layers_1"):
        out = params["decoder"][layer]["encoder_decoder_attention"]["out"]
        out["kernel"] = jnp.zeros_like(out["kernel"])
    prompt, new = make_prompt([[0], [0, 5, 7], [0, 3], [0]]), 20

    def written(inputs):
        about = prompt._replace(inputs=inputs)
        output = greedy(Decoder(MODEL, copying.build(3)), Params(params), about, new)
        rows = zip(output.tokens, output.length, strict=True)
        return [row[:end].tolist() for row, end in rows], output.counts

    texts, _ = written(pad([[1]] * 4))
    unwritten = min({*range(IDS)}.difference(*texts))
    tokens, length = pad(texts)
    cut = jnp.minimum(length, jnp.array([99, 12, 9, 99]))
    nowhere = pad([[unwritten] * 24] * 4)
    entire, of_all = written((tokens, length))
    short, of_some = written((tokens, cut))
    none, of_none = written(nowhere)
    assert entire == short == none == texts
    assert (of_all.accepted >= new // 2).all() and (of_some.accepted > 0).all()
    less = of_some.accepted < of_all.accepted
    np.testing.assert_array_equal(less, [False, True, True, False])
    assert not of_none.drafted.any()
