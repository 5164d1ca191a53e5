"""T5 is T5: the published sizes and names, the papers' arithmetic, and its encoder.

That it decodes as every model does is in `test_models.py`.
Axes: B rows, T tokens, I input tokens, S cache slots, V vocabulary.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.errors import ScopeParamNotFoundError
from flax.traverse_util import flatten_dict

from specjax.models import t5
from specjax.models.t5 import Inputs, bucket
from tests.support import tiny_t5
from tests.support.model_cases import (
    IDS,
    INPUTS,
    SLOTS,
    SOURCES,
    T5,
    TEXTS,
    TOKENS,
    ZERO,
    B,
    T,
    close,
    differs,
    fresh,
    program,
)
from tests.support.tiny_t5 import TARGET, logits_by_hand

WORLD = tiny_t5.world()
MODEL, WEIGHTS = WORLD.target, WORLD.target_weights

# Parameters.

SIZES = {
    "v1.1 small": (t5.Config(32128, 512, 1024, 8, 8, 6, 64), 76_961_152, 190),
    "v1.1 xxl": (t5.Config(32128, 4096, 10240, 24, 24, 64, 64), 11_135_332_352, 558),
    "v1.0 small": (
        t5.Config(32128, 512, 2048, 6, 6, 8, 64, gated=False, tied=True),
        60_506_624,
        131,
    ),
}


def shapes_of_t5x(config: t5.Config) -> dict[str, tuple]:
    """By T5X's flat names."""
    wide, mlp = config.num_heads * config.head_width, config.mlp_dim
    expand, contract = (config.dim, wide), (wide, config.dim)
    attention = dict.fromkeys(("query", "key", "value"), expand) | {"out": contract}
    into = ("wi_0", "wi_1") if config.gated else ("wi",)
    dense = dict.fromkeys(into, (config.dim, mlp)) | {"wo": (mlp, config.dim)}
    norm, layer = (config.dim,), {}
    for kernels, stack, part, before in (
        (attention, "encoder", "attention", "attention"),
        (dense, "encoder", "mlp", "mlp"),
        (attention, "decoder", "self_attention", "self_attention"),
        (attention, "decoder", "encoder_decoder_attention", "cross_attention"),
        (dense, "decoder", "mlp", "mlp"),
    ):
        layer[stack, f"pre_{before}_layer_norm/scale"] = norm
        layer |= {(stack, f"{part}/{k}/kernel"): v for k, v in kernels.items()}
    shapes = {"token_embedder/embedding": (config.vocab, config.dim)}
    depths = config.encoder_layers, config.decoder_layers
    for stack, depth in zip(("encoder", "decoder"), depths, strict=True):
        shapes[f"{stack}/relpos_bias/rel_embedding"] = config.num_heads, 32
        shapes[f"{stack}/{stack}_norm/scale"] = norm
        here = {name: shape for (of, name), shape in layer.items() if of == stack}
        for i in range(depth):
            shapes |= {f"{stack}/layers_{i}/{name}": here[name] for name in here}
    if not config.tied:
        shapes["decoder/logits_dense/kernel"] = config.dim, config.vocab
    return shapes


@pytest.mark.parametrize("config", T5.variants, ids=["v1.1", "v1.0"])
def test_parameters_have_the_names_and_shapes_of_t5x(config):
    leaves = flatten_dict(t5.abstract_params(config), sep="/")
    assert {name: leaf.shape for name, leaf in leaves.items()} == shapes_of_t5x(config)


@pytest.mark.parametrize(("config", "count", "leaves"), SIZES.values(), ids=SIZES)
def test_a_published_model_has_its_published_size(config, count, leaves):
    """By the shapes that `abstract_params` was compared with."""
    sizes = [math.prod(shape) for shape in shapes_of_t5x(config).values()]
    assert (sum(sizes), len(sizes)) == (count, leaves)


# Distances.

DISTANCES = np.arange(-300, 301)


def exactly(distance: np.ndarray, both_ways: bool) -> list[int]:
    return [tiny_t5.bucket(int(each), both_ways) for each in distance]


@pytest.mark.parametrize("both_ways", [True, False])
def test_buckets_are_those_of_the_definition(both_ways):
    buckets = bucket(DISTANCES, both_ways)
    assert buckets.dtype == np.int32
    np.testing.assert_array_equal(buckets, exactly(DISTANCES, both_ways))
    assert set(buckets) == set(range(32)) - ({16} if both_ways else set())


def keys_less_queries(distance, both_ways):
    return exactly(-distance, both_ways)


def the_other_sides(distance, both_ways):
    return exactly(distance, not both_ways)


def rounds_down_at_the_borders(distance, both_ways):
    """As float32 does with another order of its operations."""
    return exactly(distance - np.sign(distance) * (np.abs(distance) == 64), both_ways)


@pytest.mark.parametrize(
    "wrong", [keys_less_queries, the_other_sides, rounds_down_at_the_borders]
)
def test_the_check_notices_wrong_buckets(wrong):
    assert any((bucket(DISTANCES, w) != wrong(DISTANCES, w)).any() for w in (0, 1))


# The arithmetic, against numpy in float64, row by row and with nothing padded.

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
    first = config, params, SOURCES[0], TEXTS[0]
    other = logits_by_hand(*first, of=lambda distance, both_ways: abs(distance))
    assert differs(logits[0], other).any()  # it notices sides


def test_the_check_notices_scaled_scores_and_unscaled_features():
    for config, wrong in (
        (TARGET, ("decoder", "layers_0", "encoder_decoder_attention", "query")),
        (TARGET, ("encoder", "layers_0", "attention", "query")),
        (VARIANTS["v1.0, own bias"], ("decoder", "decoder_norm")),
    ):
        params = tiny_t5.weights(config, 3)
        right = logits_by_hand(config, params, SOURCES[0], TEXTS[0])
        leaf = functools.reduce(lambda tree, name: tree[name], wrong, params)
        leaf.update(jax.tree.map(lambda x: x * 8**-0.5, dict(leaf)))
        other = logits_by_hand(config, params, SOURCES[0], TEXTS[0])
        assert differs(other, right).any()


# The encoder.


def test_garbage_behind_an_input_changes_nothing():
    behind = jnp.arange(INPUTS.tokens.shape[1]) >= INPUTS.length[:, None]
    run = jax.jit(functools.partial(t5.logits, TARGET))
    clean = run(WEIGHTS, INPUTS, TOKENS)
    for garbage in (28, 31):
        tokens = jnp.where(behind, garbage, INPUTS.tokens)
        logits = run(WEIGHTS, Inputs(tokens, INPUTS.length), TOKENS)
        np.testing.assert_array_equal(logits, clean)
    longer = run(WEIGHTS, Inputs(tokens, INPUTS.length + behind.any(1)), TOKENS)
    changed = differs(longer, clean).any(1)
    np.testing.assert_array_equal(changed, behind.any(1))  # it does if it is read


def without(params, *names: str):
    """The tree less every part of these names."""
    if not isinstance(params, dict):
        return params
    return {k: without(v, *names) for k, v in params.items() if k not in names}


def test_a_call_does_no_work_of_the_encoder():
    """After `init` the encoder's weights, and those that read it, may be gone."""
    run, cache = program(T5), fresh(T5)
    logits, _ = run(WEIGHTS, TOKENS, ZERO, cache)
    rest = without(WEIGHTS, "encoder")
    for name in ("layers_0", "layers_1"):
        reading = rest["decoder"][name]["encoder_decoder_attention"]
        rest["decoder"][name]["encoder_decoder_attention"] = without(
            reading, "key", "value"
        )
    without_it, _ = run(rest, TOKENS, ZERO, cache)
    np.testing.assert_array_equal(without_it, logits)
    for name in ("query", "key"):  # the text's own keys are needed: the check notices
        with pytest.raises(ScopeParamNotFoundError):
            run(without(rest, name), TOKENS, ZERO, cache)
    with pytest.raises(ScopeParamNotFoundError):
        MODEL.init(rest, T5.prompt(), SLOTS)


def test_padding_of_the_vocabulary_is_minus_infinity():
    """Also where its ids would be the loudest; that such ids are never drawn is
    `test_probs.py`'s."""
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


# In float16.


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
