"""Every family keeps the contract of a model: add a case to
`support/model_cases.py`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from specjax import chunks
from specjax.drafters import nothing
from specjax.inputs import make_prompt
from specjax.models import gpt, llama, t5
from specjax.types import Branches
from tests.support import drafter_cases, slow, tiny
from tests.support.model_cases import (
    CASES,
    GEMMA2,
    GEMMA3,
    IDS,
    INPUTS,
    LLAMA,
    MODULES,
    SLOTS,
    T5,
    TOKENS,
    WHISPER,
    ZERO,
    B,
    T,
    assert_close,
    differ_by_token,
    make_branches,
    whole_text_logits,
    write_greedy,
)

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
# Styles of Llama's kind differ in numbers, of which chunks ask.
each_module = pytest.mark.parametrize("case", MODULES, ids=lambda case: case.name)


@pytest.mark.parametrize("case", (LLAMA, *MODULES), ids=lambda case: case.name)
def test_each_logit_depends_on_all_tokens_up_to_it_and_on_none_after(case):
    """A logit does not depend on tokens outside a window; with an input, it depends on
    all of it but the padding."""
    text, read = jnp.arange(T)[None], np.arange(T, T + 8)
    inputs = t5.Inputs(jnp.asarray(read[None]), jnp.array([5]))
    inputs = case.inputs(1) if case.hears else inputs
    flat = flatten_dict(case.world().target_weights)
    # A tied readout stays as it is.
    flat = {("readout",): flat[case.embedding].T} | flat
    small = case.small
    small = small._replace(tied=False) if "tied" in small._fields else small

    @jax.jit
    @jax.jacrev
    def jacobian(table):
        """Returns the derivative of a sum of squares for each token."""
        params = unflatten_dict(flat | {case.embedding: table})
        logits = case.whole(small, params, text, inputs)[0, :, :IDS]
        return jnp.sum(logits**2, axis=-1)

    influence = np.abs(jacobian(flat[case.embedding])).max(-1) > 0
    unseen = np.tri(T, k=-(case.sees or T), dtype=bool)
    np.testing.assert_array_equal(influence[:, :T], np.tri(T, dtype=bool) & ~unseen)
    expected = (read < T + 5) & case.encodes & (not case.hears)
    np.testing.assert_array_equal(influence[:, T : T + 8], [expected] * T)


@each_module
def test_chunks_of_any_size_give_the_logits_of_the_whole(case):
    """They also leave the same cache."""
    cache, start, logits = case.fresh(), 0, []
    for width in (2, 1, 2):
        chunk, cache = case.call(TOKENS[:, start : start + width], ZERO + start, cache)
        logits.append(chunk)
        start += width
    together = np.concatenate(logits, axis=1)
    assert together.dtype == whole_text_logits(case).dtype == jnp.float32
    assert_close(together, whole_text_logits(case))
    logits, at_once = case.call(TOKENS, ZERO, case.fresh())
    assert_close(logits, whole_text_logits(case))
    jax.tree.map(lambda a, b: assert_close(a, b, 1e-5), cache, at_once)


@each_case
def test_rows_may_stand_at_different_slots(case):
    """Some slots are written again, as after a rejection: what is beyond a row's start
    is stale."""
    _, cache = case.call((TOKENS + 3) % IDS, ZERO, case.fresh())
    prefix = np.array([1, 3, 2], np.int32)
    kept = np.arange(T) < prefix[:, None]
    stale, cache = case.call(np.where(kept, TOKENS, 28 - TOKENS), ZERO, cache)
    index = prefix[:, None] + np.arange(2)
    expected = np.take_along_axis(whole_text_logits(case), index[:, :, None], axis=1)
    both = np.take_along_axis(TOKENS, index, axis=1)
    logits, _ = case.call(both, prefix, cache)
    assert_close(logits, expected)
    first, cache = case.call(both[:, :1], prefix, cache)
    second, _ = case.call(both[:, 1:], prefix + 1, cache)
    assert_close(np.concatenate([first, second], axis=1), expected)
    assert differ_by_token(stale, whole_text_logits(case))[
        ~kept
    ].all()  # stale would show


def ruin_cache(case, cache, own, read=INPUTS.length):
    """Returns a cache with huge numbers in the slots from own [B] on, and from slot
    read [B] on in what was read."""
    if not case.encodes:
        return tiny.ruin_slots(cache, own)
    read = read * 0 + case.config.states if case.hears else read
    own, read = tiny.ruin_slots(cache.own, own), tiny.ruin_slots(cache.read, read)
    return cache._replace(own=own, read=read)


@each_module
def test_what_is_stale_is_never_read(case):
    """This is what is beyond a row's length, and beyond its input."""
    _, cache = case.call(TOKENS, ZERO, case.fresh())
    start = np.array([3, 5, 4], np.int32)
    clean, _ = case.call(TOKENS[:, :1], start, cache)
    logits, _ = case.call(TOKENS[:, :1], start, ruin_cache(case, cache, start))
    np.testing.assert_array_equal(clean, logits)
    wrong = [(start - 1, INPUTS.length)]
    of_ids = case.encodes and not case.hears
    wrong += [(start, INPUTS.length - 1)] if of_ids else []
    for slots in wrong:  # the check notices
        logits, _ = case.call(TOKENS[:, :1], start, ruin_cache(case, cache, *slots))
        assert differ_by_token(logits, clean).all()


@each_module
def test_an_early_exit_is_the_first_layers(case):
    """Its cache is that of these layers, and its weights are the whole model's."""
    world, cache = case.world(), case.call(TOKENS, ZERO, case.fresh())[1]

    @jax.jit
    def run(params):
        cache = world.shallow.init(params, case.prompt(), SLOTS)
        return world.shallow.apply(params, TOKENS, ZERO, cache)[1]

    shallow = run(world.target_weights)
    jax.tree.map(lambda a, b: assert_close(a, b, 1e-5), shallow, world.cut(cache))
    assert len(case.own(shallow)) == 1 < len(case.own(cache))


@each_module
def test_bfloat16_activations_leave_float32_logits(case):
    """Features and caches are bfloat16, and the logits are near the exact ones."""
    model = case.build(case.config._replace(dtype="bfloat16"))

    @jax.jit
    def run(params):
        cache = model.init(params, case.prompt(), SLOTS)
        features, cache = model.apply(params, TOKENS, ZERO, cache)
        return features, model.readout(params, features), cache

    features, logits, cache = run(case.world().target_weights)
    layers = cache._replace(length=()) if isinstance(cache, t5.Cache) else cache
    dtypes = {leaf.dtype for leaf in jax.tree.leaves((features, layers))}
    assert dtypes == {jnp.dtype("bfloat16")} and logits.dtype == jnp.float32
    exact = whole_text_logits(case)[..., :IDS]
    off = np.abs(logits[..., :IDS] - exact)
    assert 0 < off.mean() < 0.03 * np.abs(exact).mean()


@each_case
def test_every_parameter_names_its_axes_and_is_counted(case):
    """An axis has one size under each name, except those that a config gives several
    sizes."""
    for config in filter(None, (case.config, case.other)):
        init, sizes = functools.partial(case.module.init_params, config=config), {}
        boxes, specs, shapes = (
            flatten_dict(tree, sep="/")
            for tree in (
                jax.eval_shape(init, jax.random.key(0)),
                case.module.partition_specs(config),
                case.module.abstract_params(config),
            )
        )
        assert boxes.keys() == specs.keys() == shapes.keys()
        for name, box in boxes.items():
            assert box.names == tuple(specs[name]) and None not in box.names, name
            assert box.value.shape == shapes[name].shape, name
            assert shapes[name].dtype == jnp.float32
            for axis, size in zip(box.names, box.value.shape, strict=True):
                same = sizes.setdefault(axis, size) == size
                assert same or axis in ("positions", "bands", "joined_heads"), name
        total = sum(leaf.size for leaf in shapes.values())
        assert case.module.num_params(config) == total


MISTRAL = llama.Config(32000, 4096, 14336, 32, 32, 8, 128)
GEMMA2_2B = llama.Config(256000, 2304, 9216, 26, 8, 4, 256, "gemma2", tied=True)
SIZES = {
    "97M of Leviathan et al., Section 4.2": (gpt, gpt.PAPER_97M, 97_222_656),
    "6M of Leviathan et al., Section 4.2": (gpt, gpt.PAPER_6M, 5_668_864),
    "Mistral 7B": (llama, MISTRAL, 7_241_732_096),
    "Gemma 2 2B": (llama, GEMMA2_2B, 2_614_341_888),
}


@pytest.mark.parametrize(("module", "config", "count"), SIZES.values(), ids=SIZES)
def test_a_published_model_has_its_published_size(module, config, count):
    """The count is computed from one layer and the rest, because all layers are alike.
    `experiments/gpu/paper_size` tests the sizes that files of `gin_configs/models`
    state."""
    each = (config._replace(num_layers=depth) for depth in (1, 2))
    one, two = map(module.num_params, each)
    assert one + (config.num_layers - 1) * (two - one) == count


# Texts: the target's own, whatever drafts them.

NOTHING = drafter_cases.Case("nothing", lambda world, gamma: nothing.drafter)
DRAFTERS = drafter_cases.BY_NAME | {"nothing": NOTHING}
DRAFTED = [(T5, "early_exit"), (GEMMA2, "autoregressive")]
DRAFTED += [(WHISPER, "autoregressive"), (T5, "autoregressive")]
DRAFTED += [
    (GEMMA3, "early_exit"),
    (T5, "nothing"),
    (T5, "copying"),
    (WHISPER, "copying"),
]
# Rings take the first in several portions, and the second in a part of one.
BEGUN = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [8], [9, 7, 9, 3, 2]]


@pytest.mark.parametrize(
    ("case", "name"),
    slow.mark_slow_after(3, DRAFTED),
    ids=lambda each: getattr(each, "name", each),
)
def test_greedy_texts_are_the_argmax_of_a_full_recomputation(case, name):
    world, drafter = case.world(), DRAFTERS[name]
    prompt = make_prompt(BEGUN)._replace(inputs=case.inputs())
    output = write_greedy(
        drafter.decoder(world, 3), drafter.params(world), prompt, new=20
    )
    run = jax.jit(functools.partial(case.whole, case.config))
    logits = run(world.target_weights, output.tokens, case.inputs())
    tiny.check_greedy(output, prompt.length, logits, least=6)
    if name in ("autoregressive", "early_exit"):
        accepted, tested = output.counts.accepted, output.counts.tested
        assert 0 < accepted.sum() < tested.sum()


# A call whose tokens are a tree: its slots apart from its positions.

# Each row has a tree of its own: of each node, those from a root to it. The last has a
# path longer than windows are, whose root lies in a later slot than its position.
PATHS = [
    [[0], [1], [0, 2], [0, 3]],
    [[0], [0, 1], [0, 2], [0, 2, 3]],
    [[0], [1], [1, 2], [1, 2, 3]],
]
TREE = make_branches(PATHS)
NODES = np.array([[4, 9, 17, 2], [11, 6, 20, 13], [3, 22, 7, 15]], np.int32)
START = np.array([T, 3, 4], np.int32)


def path_logits(case, cache, start=START) -> np.ndarray:
    """Returns the logits after each node, computed from the chain that is its path."""
    logits = []
    for node in range(4):
        chain, last = np.zeros((B, 3), np.int32), [len(row[node]) - 1 for row in PATHS]
        for row, of_row in enumerate(PATHS):
            chain[row, : last[row] + 1] = NODES[row, np.array(of_row[node])]
        each = np.asarray(case.call(chain, start, cache)[0])
        logits.append(each[np.arange(B), last])
    return np.stack(logits, axis=1)


@each_module
def test_each_path_of_a_tree_gives_the_logits_of_the_chain_that_it_is(case):
    """Rows begin at different slots, and an earlier call has already written there. Of
    two calls, the second sees those tokens of the first that its branches name."""
    _, cache = case.call(TOKENS, ZERO, case.fresh())
    expected = path_logits(case, cache)
    logits, _ = case.call(NODES, START, cache, TREE)
    assert_close(logits, expected)
    head = Branches(TREE.depth[:, :2], TREE.sees[:, :2, :2])
    first, after = case.call(NODES[:, :2], START, cache, head)
    tail = TREE._replace(sees=TREE.sees[:, 2:])
    second, _ = case.call(NODES[:, 2:], START + 2, after, tail)
    assert_close(np.concatenate([first, second], axis=1), expected)
    # The check notices what is seen besides, and where tokens stand.
    chain = np.tri(len(NODES[0]), dtype=bool)
    in_slots = TREE._replace(depth=jnp.zeros_like(TREE.depth) + jnp.arange(4))
    for wrong in (TREE._replace(sees=TREE.sees | chain), in_slots):
        other, _ = case.call(NODES, START, cache, wrong)
        off = np.abs(np.asarray(other)[..., :IDS] - expected[..., :IDS])
        assert (off.max(-1) > 1e-2).any(axis=1).all()


@each_module
def test_a_kept_path_is_as_if_it_had_been_a_chain(case):
    """The tree may hold any other nodes; the caches are compared by the logits after
    the next tokens."""
    _, cache = case.call(TOKENS, ZERO, case.fresh())
    _, after = case.call(NODES, START, cache, TREE)
    deepest = [max(row, key=len) for row in PATHS]
    path = np.array([(*row, 2, 3)[:2] if len(row) < 2 else row[:2] for row in deepest])
    path = np.maximum(path, np.arange(2))  # beyond a path each stays where it is
    keep = jax.jit(case.world().target.keep)
    moved = keep(after, START, path)
    chain = np.take_along_axis(NODES, path, axis=1)
    count = np.array([min(len(row), 2) for row in deepest])
    _, wanted = case.call(chain, START, cache)
    following = np.array([[8], [3], [19]], np.int32)
    expected, _ = case.call(following, START + count, wanted)
    logits, _ = case.call(following, START + count, moved)
    assert_close(logits, expected)
    other, _ = case.call(following, START + count, after)
    assert differ_by_token(
        other, expected
    ).any()  # the check notices what was not moved


@each_module
def test_a_tree_without_a_cache_sees_itself_alone(case):
    cache = case.fresh()._replace(own=None) if case.encodes else None
    expected = path_logits(case, case.fresh(), ZERO)
    assert_close(case.call(NODES, ZERO, cache, TREE)[0], expected)


@each_module
def test_a_tree_of_more_than_a_portion_is_refused(case):
    model = chunks.read_in_portions(case.world().target, 3)
    with pytest.raises(ValueError, match="a tree of 4 tokens is one call: draft at"):
        model.apply(case.world().target_weights, NODES, ZERO, case.fresh(), TREE)
