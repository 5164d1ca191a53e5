"""T5 is T5: the published sizes and names, the papers' arithmetic, and the contract.

Axes: B rows, T tokens, I input tokens, S cache slots, V vocabulary.
"""

import functools
import itertools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.errors import ScopeParamNotFoundError

from specjax import probs
from specjax.exactness.noise import NEXT_TO_ONE
from specjax.inputs import pad
from specjax.models import t5
from specjax.models.cache import KeyValues
from specjax.models.t5 import Inputs
from specjax.models.t5_layers import bucket
from specjax.types import Prompt, Sampling
from tests.support import tiny_t5
from tests.support.tiny_t5 import SMALL, TARGET, logits_by_hand, quick_jit, ruin

B, T, SLOTS = 3, 5, 12
WORLD = tiny_t5.world()
MODEL, WEIGHTS = WORLD.target, WORLD.target_weights
SOURCES = [[5, 9, 2, 17, 11, 3, 1], [7, 7, 20], [4]]
INPUTS = Inputs(*pad(SOURCES))
TEXTS = [[0, 12, 3, 8, 25], [0, 5, 21, 7, 2], [0, 28, 1, 0, 14]]
TOKENS, ZERO = jnp.array(TEXTS), jnp.zeros(B, jnp.int32)
PROMPT = Prompt(TOKENS, ZERO + T, INPUTS)


@quick_jit
def call(tokens, start, cache, params=WEIGHTS):
    """Logits [B, T, V] of one call, and the cache after it."""
    features, cache = MODEL.apply(params, tokens, start, cache)
    return MODEL.readout(params, features), cache


@functools.cache
def fresh() -> t5.Cache:
    return quick_jit(MODEL.init, static_argnums=2)(WEIGHTS, PROMPT, SLOTS)


@functools.cache
def whole():
    return quick_jit(lambda *given: t5.logits(TARGET, *given))


def close(one, other, atol: float = 1e-4) -> None:
    np.testing.assert_allclose(one, other, atol=atol)


# Parameters.

tree_of = t5.abstract_params
V1_1_SMALL = t5.Config(32128, 512, 1024, 8, 8, 6, 64)
V1_0_SMALL = t5.Config(32128, 512, 2048, 6, 6, 8, 64, gated=False, tied=True)
SIZES = {
    "tiny": (t5.Config(32128, 8, 16, 2, 2, 4, 3), 518_240, 52),
    "v1.1 small": (V1_1_SMALL, 76_961_152, 190),
    "v1.1 xxl": (t5.Config(32128, 4096, 10240, 24, 24, 64, 64), 11_135_332_352, 558),
    "v1.0 small": (V1_0_SMALL, 60_506_624, 131),
}


@pytest.mark.parametrize(("config", "count", "leaves"), SIZES.values(), ids=SIZES)
def test_a_published_model_has_its_published_size(config, count, leaves):
    sizes = [leaf.size for leaf in jax.tree.leaves(tree_of(config))]
    assert (sum(sizes), len(sizes)) == (count, leaves)


def test_the_number_of_parameters_is_their_sum():
    config, count, _ = SIZES["tiny"]
    assert t5.num_params(config) == count


def names_of_t5x(config: t5.Config) -> dict[str, tuple]:
    """T5X's flat names, and shapes."""
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
    found = {"token_embedder/embedding": (config.vocab, config.dim)}
    depths = config.encoder_layers, config.decoder_layers
    for stack, depth in zip(("encoder", "decoder"), depths, strict=True):
        found[f"{stack}/relpos_bias/rel_embedding"] = config.num_heads, 32
        found[f"{stack}/{stack}_norm/scale"] = norm
        here = {name: shape for (of, name), shape in layer.items() if of == stack}
        for i in range(depth):
            found |= {f"{stack}/layers_{i}/{name}": here[name] for name in here}
    if not config.tied:
        found["decoder/logits_dense/kernel"] = config.dim, config.vocab
    return found


def flat(tree, is_leaf=None) -> dict:
    """Leaves by the path to them."""
    found = jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf)
    return {jax.tree_util.keystr(p, simple=True, separator="/"): x for p, x in found}


@pytest.mark.parametrize("config", [V1_1_SMALL, V1_0_SMALL], ids=["v1.1", "v1.0"])
def test_parameters_have_the_names_and_shapes_of_t5x(config):
    leaves = flat(tree_of(config))
    assert {name: leaf.shape for name, leaf in leaves.items()} == names_of_t5x(config)
    assert {leaf.dtype for leaf in leaves.values()} == {jnp.dtype("float32")}


AXES = {
    "embedding": ("vocab", "embed"),
    "rel_embedding": ("heads", "relpos_buckets"),
    "scale": ("embed",),
    "query": ("embed", "joined_heads"),
    "key": ("embed", "joined_heads"),
    "value": ("embed", "joined_heads"),
    "out": ("joined_heads", "embed"),
    "wi": ("embed", "mlp"),
    "wi_0": ("embed", "mlp"),
    "wi_1": ("embed", "mlp"),
    "wo": ("mlp", "embed"),
    "logits_dense": ("embed", "vocab"),
}


@pytest.mark.parametrize("gated", [True, False])
def test_every_parameter_names_its_axes(gated):
    config = TARGET._replace(gated=gated, tied=not gated)
    boxed = jax.eval_shape(lambda: t5.init_params(jax.random.key(0), config))
    boxes = flat(boxed, lambda leaf: isinstance(leaf, nn.LogicallyPartitioned))
    specs = flat(t5.partition_specs(config))
    assert boxes.keys() == specs.keys() == names_of_t5x(config).keys()
    for name, box in boxes.items():
        kind = name.removesuffix("/kernel").split("/")[-1]
        assert box.names == tuple(specs[name]) == AXES[kind], name
        assert len(box.names) == box.value.ndim


# Distances.

DISTANCES = np.arange(-300, 301)


def in_float32(distance: np.ndarray, both_ways: bool) -> np.ndarray:
    """Each operation rounded to float32, in the order that the weights were trained in:
    the logarithm of a quotient, divided by that of the widest, times the buckets."""
    side = 16 if both_ways else 32
    exact, single = side // 2, np.float32
    away = np.abs(distance) if both_ways else np.maximum(distance, 0)
    octaves = np.log(np.maximum(away, 1).astype(single) / single(exact))
    octaves = octaves / single(np.log(128 / exact)) * single(side - exact)
    assert octaves.dtype == np.float32
    wide = np.minimum(exact + octaves.astype(int), side - 1)
    return np.where(away < exact, away, wide) + side * (both_ways & (distance < 0))


def exactly(distance: np.ndarray, both_ways: bool) -> list[int]:
    return [tiny_t5.bucket(int(one), both_ways) for one in distance]


@pytest.mark.parametrize("definition", [exactly, in_float32])
@pytest.mark.parametrize("both_ways", [True, False])
def test_buckets_are_those_of_the_definition(definition, both_ways):
    found = bucket(DISTANCES, both_ways)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, definition(DISTANCES, both_ways))
    assert set(found) == set(range(32)) - ({16} if both_ways else set())


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
    "v1.0": TARGET._replace(gated=False, tied=True),
    "gated, tied, own bias": TARGET._replace(
        tied=True, encoder_layers=2, own_bias=True
    ),
    "relu, untied, scaled": TARGET._replace(gated=False, pieces=None, scaled=True),
}


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_logits_are_those_of_the_papers(config):
    params = tiny_t5.weights(config, 3)
    run = quick_jit(lambda *given: t5.logits(config, *given))
    found = run(params, INPUTS, TOKENS)
    assert found.dtype == jnp.float32
    for row, source, text in zip(found, SOURCES, TEXTS, strict=True):
        close(row, logits_by_hand(config, params, source, text))
    first = config, params, SOURCES[0], TEXTS[0]
    other = logits_by_hand(*first, of=lambda distance, both_ways: abs(distance))
    assert np.abs(found[0, :, :29] - other[:, :29]).max() > 0.1  # it notices sides


def test_the_check_notices_scaled_scores_and_unscaled_features():
    for config, wrong in (
        (TARGET, ("decoder", "layers_0", "encoder_decoder_attention", "query")),
        (TARGET, ("encoder", "layers_0", "attention", "query")),
        (VARIANTS["v1.0"], ("decoder", "decoder_norm")),
    ):
        params = tiny_t5.weights(config, 3)
        right = logits_by_hand(config, params, SOURCES[0], TEXTS[0])
        leaf = functools.reduce(lambda tree, name: tree[name], wrong, params)
        leaf.update(jax.tree.map(lambda x: x * 8**-0.5, dict(leaf)))
        found = logits_by_hand(config, params, SOURCES[0], TEXTS[0])
        assert np.abs(found[:, :29] - right[:, :29]).max() > 0.1


def test_each_logit_depends_on_its_input_and_on_tokens_up_to_it():
    """By gradients: on every input token, on no padding, on nothing later."""
    order = np.arange(32)
    text, source = order[None, :T], Inputs(order[None, T : T + 8], jnp.array([5]))

    def squares(embedding):
        params = WEIGHTS | {"token_embedder": {"embedding": embedding}}
        logits = t5.logits(SMALL, params, source, text)[0, :, : SMALL.pieces]
        return jnp.sum(logits**2, axis=-1)

    jacobian = quick_jit(jax.jacrev(squares))(WEIGHTS["token_embedder"]["embedding"])
    influence = np.abs(jacobian).max(-1) > 0  # of an id on the logits of a slot
    np.testing.assert_array_equal(influence[:, :T], np.tri(T, dtype=bool))
    np.testing.assert_array_equal(influence[:, T:], [order[T:] < T + 5] * T)


# Decoding with a cache.


@pytest.mark.parametrize("cut", range(2 ** (T - 1)), ids=lambda cut: f"{cut:04b}")
def test_chunks_of_any_size_give_the_logits_of_the_whole(cut):
    ends = [i + 1 for i in range(T - 1) if cut >> i & 1] + [T]
    cache, start, found = fresh(), 0, []
    for end in ends:
        logits, cache = call(TOKENS[:, start:end], ZERO + start, cache)
        found.append(logits)
        start = end
    close(jnp.concatenate(found, axis=1), whole()(WEIGHTS, INPUTS, TOKENS))


def test_rows_may_stand_at_different_slots():
    """Rewritten after a rejection: what lies beyond a row's start is stale."""
    first, cache = call((TOKENS + 3) % 29, ZERO, fresh())
    prefix = jnp.array([1, 3, 2])
    kept = jnp.arange(T) < prefix[:, None]
    _, cache = call(jnp.where(kept, TOKENS, 28 - TOKENS), ZERO, cache)
    index = prefix[:, None] + jnp.arange(2)
    block = jnp.take_along_axis(TOKENS, index, axis=1)
    logits, _ = call(block, prefix, cache)
    wanted = whole()(WEIGHTS, INPUTS, TOKENS)
    close(logits, jnp.take_along_axis(wanted, index[:, :, None], axis=1))
    assert np.abs(first - wanted)[:, :, :29].max() > 0.1  # stale would show


def test_stale_slots_and_padding_of_inputs_are_never_read():
    _, cache = call(TOKENS, ZERO, fresh())
    start = jnp.array([3, 5, 4])
    clean, _ = call(TOKENS[:, :1], start, cache)
    ruined, _ = call(TOKENS[:, :1], start, ruin(cache, start, INPUTS.length))
    np.testing.assert_array_equal(clean, ruined)
    for own, read in ((start - 1, INPUTS.length), (start, INPUTS.length - 1)):
        ruined, _ = call(TOKENS[:, :1], start, ruin(cache, own, read))
        assert (np.abs(ruined - clean)[:, 0, :29].max(-1) > 0.1).all()


def test_garbage_behind_an_input_changes_nothing():
    behind = jnp.arange(INPUTS.tokens.shape[1]) >= INPUTS.length[:, None]
    clean = whole()(WEIGHTS, INPUTS, TOKENS)
    for garbage in (28, 31):
        tokens = jnp.where(behind, garbage, INPUTS.tokens)
        found = whole()(WEIGHTS, Inputs(tokens, INPUTS.length), TOKENS)
        np.testing.assert_array_equal(found, clean)
    longer = whole()(WEIGHTS, Inputs(tokens, INPUTS.length + behind.any(1)), TOKENS)
    changed = np.abs(longer - clean)[:, :, :29].max((1, 2)) > 0.1
    np.testing.assert_array_equal(changed, behind.any(1))  # it does if it is read


def test_neither_batch_mates_nor_widths_enter():
    """A row alone, in an array as wide as its own input, and in a wider one."""
    together = whole()(WEIGHTS, INPUTS, TOKENS)
    for row, width in ((1, 3), (2, 9)):
        inputs = Inputs(*pad([SOURCES[row]], width))
        alone = whole()(WEIGHTS, inputs, TOKENS[row : row + 1])
        close(alone[0], together[row], atol=1e-5)


def without(params, *names: str):
    """The tree less every part of these names."""
    if not isinstance(params, dict):
        return params
    return {k: without(v, *names) for k, v in params.items() if k not in names}


def test_a_call_does_no_work_of_the_encoder():
    """After `init` the encoder's weights, and those that read it, may be gone."""
    logits, _ = call(TOKENS, ZERO, fresh())
    rest = without(WEIGHTS, "encoder")
    for name in ("layers_0", "layers_1"):
        reading = rest["decoder"][name]["encoder_decoder_attention"]
        rest["decoder"][name]["encoder_decoder_attention"] = without(
            reading, "key", "value"
        )
    found, _ = call(TOKENS, ZERO, fresh(), rest)
    np.testing.assert_array_equal(found, logits)
    for name in ("query", "key"):  # the text's own keys are needed: the check notices
        with pytest.raises(ScopeParamNotFoundError):
            call(TOKENS, ZERO, fresh(), without(rest, name))
    with pytest.raises(ScopeParamNotFoundError):
        MODEL.init(rest, PROMPT, SLOTS)


def test_an_early_exit_is_the_first_layers():
    _, cache = call(TOKENS, ZERO, fresh())
    shallow = WORLD.shallow

    @quick_jit
    def run(params):
        cache = shallow.init(params, PROMPT, SLOTS)
        return shallow.apply(params, TOKENS, ZERO, cache)[1]

    cut = run(WEIGHTS)
    jax.tree.map(lambda a, b: close(a, b, 1e-5), cut, WORLD.cut(cache))
    assert len(cut.own) == len(cut.read) == 1 < len(cache.own)


def test_joined_layers_compute_what_apart_ones_do():
    """One buffer for all decoder layers: calls of many tokens and of one."""
    model = t5.build(TARGET._replace(joined=True))
    joined, apart, start = model.init(WEIGHTS, PROMPT, SLOTS), fresh(), ZERO
    run = quick_jit(model.apply)
    for tokens, more in ((TOKENS, [T, 2, 4]), (TOKENS[:, :1], 1), (TOKENS[:, :3], 0)):
        wanted, apart = call(tokens, start, apart)
        features, joined = run(WEIGHTS, tokens, start, joined)
        close(model.readout(WEIGHTS, features), wanted, 1e-5)
        for i, layer in enumerate(apart.own):
            mine = KeyValues(*joined.own[i])
            jax.tree.map(functools.partial(close, atol=1e-6), mine, layer)
        start = start + jnp.broadcast_to(jnp.array(more), B)
    assert len(jax.tree.leaves(joined.own)) == 2 < len(jax.tree.leaves(apart.own))
    (cut,) = joined.own[:1]  # as of an early exit
    jax.tree.map(lambda a, b: close(a, b, 1e-6), KeyValues(*cut), apart.own[0])


def test_decoding_on_a_cpu_does_not_copy_its_caches():
    """In a loop: but for those on entry, no copy of what is cached."""

    def decode(params, cache, tokens):
        def body(i, carry):
            features, cache = MODEL.apply(params, carry[0], i[None], carry[1])
            chosen = MODEL.readout(params, features).argmax(-1)
            return chosen.astype(jnp.int32), cache

        return jax.lax.fori_loop(0, 4, body, (tokens, cache))

    one = jax.tree.map(lambda leaf: leaf[:1], fresh())
    program = jax.jit(decode).lower(WEIGHTS, one, TOKENS[:1, :1]).compile()
    for part in (one.own, one.read):
        leaves = jax.tree.leaves(part)
        shapes = {",".join(map(str, leaf.shape)) for leaf in leaves}
        copies = [re.findall(rf"\[{x}\]\S* copy\(", program.as_text()) for x in shapes]
        assert sum(map(len, copies)) <= len(leaves)


def test_bfloat16_runs():
    """Features and cache are bfloat16, logits float32 and not far from exact."""
    config = TARGET._replace(dtype="bfloat16")
    model = t5.build(config)

    @quick_jit
    def run(params):
        cache = model.init(params, PROMPT, SLOTS)
        features, cache = model.apply(params, TOKENS, ZERO, cache)
        return features, cache, model.readout(params, features)

    features, cache, logits = run(WEIGHTS)
    leaves = jax.tree.leaves((features, cache.own, cache.read))
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype("bfloat16")}
    assert logits.dtype == jnp.float32
    exact = whole()(WEIGHTS, INPUTS, TOKENS)[:, :, :29]
    off = np.abs(logits[:, :, :29] - exact)
    assert 0 < off.mean() < 0.03 * np.abs(exact).mean()


# A padded vocabulary.

SETTINGS = {
    "T 1": {},
    "T 3": {"temperature": 3.0},
    "T 0": {"temperature": 0.0},
    "top-k 30": {"top_k": 30},
    "top-k 32": {"top_k": 32},
    "top-p 1": {"top_p": 1.0},
    "top-p near 1": {"top_p": NEXT_TO_ONE},
    "min-p 0": {"min_p": 0.0},
}


@quick_jit
def read_out(features):
    """With ids that are padding, and without; they would be the loudest."""
    kernel = WEIGHTS["decoder"]["logits_dense"]["kernel"]
    kernel = kernel.at[:, TARGET.pieces :].multiply(5.0)
    params = {"decoder": {"logits_dense": {"kernel": kernel}}}
    configs = TARGET, TARGET._replace(pieces=None)
    return [t5.readout(config, params, features) for config in configs]


def test_padding_of_the_vocabulary_is_minus_infinity():
    x = np.random.default_rng(0).normal(size=(B, T, TARGET.dim))
    masked, plain = read_out(jnp.float32(4 * x))
    assert (masked[..., 29:] == -np.inf).all() and np.isfinite(plain).all()
    np.testing.assert_array_equal(masked[..., :29], plain[..., :29])


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_padding_of_the_vocabulary_is_never_drawn(setting):
    """Nor has it a probability, whatever the settings; without `pieces` it would."""
    each = np.concatenate([np.linspace(0, 1, 62, endpoint=False), [0.5, NEXT_TO_ONE]])
    u = jnp.asarray(list(itertools.product([0.0, NEXT_TO_ONE], each)), jnp.float32)
    rows = len(u)
    if setting:  # all given, so that they share a compilation
        setting = {"top_k": 32, "top_p": 1.0, "min_p": 0.0} | setting
    setting = {"temperature": 1.0} | setting
    sampling = Sampling(**{name: jnp.full(rows, x) for name, x in setting.items()})
    x = WEIGHTS["decoder"]["logits_dense"]["kernel"][:, 30]
    masked, plain = read_out(jnp.tile(x, (rows, 1)))
    drawn, chance = draw(masked, sampling, u)
    assert drawn.max() < 29 and (chance == 0).all()
    drawn, chance = draw(plain, sampling, u)
    assert drawn.max() >= 29 and (chance > 0).any()


@quick_jit
def draw(logits, sampling, u):
    """An id a row, and the probabilities of the ids 29 .. 31 [3, rows]."""
    law = probs.standardize(logits, sampling)
    at = jax.vmap(lambda token: probs.at(law, jnp.full(len(u), token)))
    return probs.sample(law, u), at(jnp.arange(29, 32))
