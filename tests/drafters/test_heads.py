"""Heads that read the target's hidden states are tested with states that are known.

Axes: B rows, G = gamma or nodes of a tree, V vocabulary.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from specjax import generate, policies, probs, trees
from specjax.drafters import (
    autoregressive,
    best_first,
    eagle,
    eagle3,
    grown,
    heads,
    medusa,
    nothing,
    tree,
)
from specjax.drafters.rollout import draw_coupled
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import gpt, llama, penalties
from specjax.models.constrained import constrained
from specjax.quantized import Dynamic, Int8
from specjax.step import Decoder, build_step
from specjax.types import Drafter, Model, Params, Policy, TargetCall
from specjax.verifiers import gumbel, recursive, token
from tests.models.test_constrained import RULES as ONE_IN_THREE
from tests.support import head_mutants, recurrent, slow, tiny, tiny_llama
from tests.support.drafted import Drafted, drafts_by_step
from tests.support.recurrent import KINDS, Copy

# The first is read in three portions, of which the second ends before the last.
PROMPT = make_prompt([[i % recurrent.V for i in range(19)], [1, 2, 3] * 4, [7], [3, 1]])
BATCH, NEW, SLOTS = 4, 12, 40
TOLERANCE = 2e-4


def chain(model: Model) -> Drafter:
    return autoregressive.build(model, 3)


def build_fixed_tree(model: Model) -> Drafter:
    return tree.build(model, (-1, -1, 0, 1, 2))


def build_grown_tree(model: Model) -> Drafter:
    return grown.build(model, 5, (0.3, 0.2), 3)


def build_best_first(model: Model) -> Drafter:
    return best_first.build(model, 5, width=2, longest=3)


def make_decoder(
    drafter: Drafter, target: Model | None = None, policy: Policy | None = None
) -> Decoder:
    rule = token.verifier if drafter.siblings is None else recursive.verifier
    return Decoder(target or recurrent.build(), drafter, rule, policy)


def wrong_laws(
    kind: str,
    build: Callable[[Model], Drafter],
    *,
    change: Callable[[Copy], Copy] = lambda head: head,
    target: Model | None = None,
    policy: Policy | None = None,
) -> float:
    """Returns the largest distance between the laws of drafts and those of a head that
    copies the target's states, over several steps with rejected tokens."""
    plain = recurrent.copy(kind, other=0.8)
    head = change(plain)
    decoder = make_decoder(build(head.model), target, policy)
    params = Params(recurrent.weights(kind), head.params)
    steps = drafts_by_step(decoder, params, PROMPT, steps=3)
    assert any((one.draft.num > 0).any() for one in steps)
    return max(distance(kind, plain, one) for one in steps)


def distance(kind: str, head: Copy, now: Drafted) -> float:
    laws = np.asarray(jax.jit(probs.dense)(now.draft.law))
    parents = np.asarray(trees.parents(now.draft))
    found = 0.0
    for row, text in enumerate(now.texts()):
        if len(text) < 2 and kind in ("medusa", "blockwise"):
            continue  # nothing is known yet
        paths: dict[int, list[int]] = {-1: []}
        drafted = now.draft.tokens[row, : now.draft.num[row]].tolist()
        for node, token_id in enumerate(drafted):
            above = paths[int(parents[row, node])]
            wanted = recurrent.law(kind, head, [*text, *above])
            found = max(found, np.abs(laws[row, node] - wanted).max())
            paths[node] = [*above, token_id]
    return float(found)


SHAPES = [(kind, chain) for kind in KINDS]
SHAPES += [(kind, build_fixed_tree) for kind in KINDS]
SHAPES += [("eagle", build_grown_tree)]


@pytest.mark.parametrize(
    ("kind", "build"),
    slow.mark_slow_unless(
        lambda case: (
            case in (("medusa", chain), ("eagle", build_grown_tree), ("eagle3", chain))
        ),
        SHAPES,
    ),
)
def test_a_draft_s_laws_are_those_of_the_states_of_its_own_path(kind, build):
    """Rows have different lengths, prompts are read in portions, and some tokens were
    rejected."""
    assert wrong_laws(kind, build) < TOLERANCE


def test_drafts_may_be_shorter_than_gamma():
    """The target is then called on fewer tokens and returns fewer states."""
    policy = policies.heuristic(start=1, least=1)._replace(widths=(1, 2))
    assert wrong_laws("eagle", chain, policy=policy) < TOLERANCE


@pytest.mark.parametrize("kind", ["medusa", "eagle3"])
def test_what_is_observed_twice_is_as_if_it_were_once(kind):
    head, target = recurrent.copy(kind), recurrent.build()
    params = recurrent.weights(kind)

    @jax.jit
    def observe_repeatedly(times: int):
        cache = head.model.init(head.params, PROMPT, SLOTS)
        states, _ = target.apply(params, PROMPT.tokens, 0 * PROMPT.length, None)
        count = PROMPT.length - 2
        seen = TargetCall(
            PROMPT.tokens, None, count, count, 0 * count, target.hidden(states)
        )

        def observe(_, cache):
            return head.model.observe(head.params, cache, seen)

        return jax.lax.fori_loop(0, times, observe, cache)

    once, twice = observe_repeatedly(1), observe_repeatedly(2)
    assert any(leaf.any() for leaf in jax.tree.leaves(once))
    jax.tree.map(np.testing.assert_array_equal, once, twice)


def count_greedy_texts(kind: str, build: Callable[[Model], Drafter]):
    """Returns the counts of greedy texts that a head drafts which copies everything."""
    head = recurrent.copy(kind)
    run = generate.build(make_decoder(build(head.model)), SLOTS)
    request = make_request(jax.random.key(0), PROMPT, NEW, make_sampling(BATCH, 0.0))
    return run(Params(recurrent.weights(kind), head.params), PROMPT, request).counts


@pytest.mark.parametrize(
    ("kind", "build"),
    slow.mark_slow_after(
        2,
        [
            ("blockwise", build_fixed_tree),
            ("eagle3", chain),
            ("medusa", chain),
            ("eagle", build_best_first),
        ],
    ),
)
def test_a_head_that_copies_the_target_is_always_accepted(kind, build):
    """At temperature 0; a row of one token has no state yet for heads that read
    several."""
    counts = count_greedy_texts(kind, build)
    calls = np.full(BATCH, NEW // 4)
    if kind in ("medusa", "blockwise"):
        calls[2] += 1
    np.testing.assert_array_equal(counts.calls, calls)


@pytest.mark.parametrize(
    "mutant",
    slow.mark_slow_unless(
        lambda mutant: (mutant.kind, mutant.name) == ("blockwise", head_mutants.TAKEN),
        head_mutants.MUTANTS,
    ),
    ids=lambda mutant: f"{mutant.kind}: {mutant.name}",
)
def test_mutants_are_seen(mutant):
    build = build_fixed_tree if mutant.tree else chain
    with mutant.make() as broken:
        found = wrong_laws(
            mutant.kind,
            lambda model: broken.drafter(build(model)),
            change=broken.head,
            target=broken.target,
        )
    assert found > 20 * TOLERANCE


def test_every_mistake_is_made_in_every_kind_of_head_that_can_have_it():
    kinds = {}
    for kind, name, *_ in head_mutants.MUTANTS:
        kinds.setdefault(name, set()).add(kind)
    assert kinds.pop("d2t taken as ids") == {"eagle3_reduced"}
    assert all(found == {*KINDS} - {"eagle3_reduced"} for found in kinds.values())
    assert len(kinds) == 5


def test_d2t_that_is_read_as_ids_is_refused():
    """It is read, though, where the sums happen to be ids in ascending order."""
    head = recurrent.copy("eagle3_reduced")
    config = eagle3.Config(
        head_layer(), recurrent.D, (0, 1, 2), draft_vocab=recurrent.SAID.size
    )
    with pytest.raises(ValueError, match="as offsets"):
        eagle3.parameters(
            config, head.params["head"], head.params["target"], recurrent.SAID
        )
    with pytest.raises(ValueError, match="must give 7 ids"):
        eagle3.parameters(config, head.params["head"], head.params["target"])


def head_layer():
    return llama.Config(recurrent.V, recurrent.D, 4, 1, 1, 1, 2)


def test_what_cannot_be_is_refused():
    layer = head_layer()
    with pytest.raises(ValueError, match="not both"):
        eagle3.head(
            eagle3.Config(layer, 16, (1,), norm_taps=True, norm_before_join=True)
        )
    with pytest.raises(ValueError, match="it needs its own"):
        eagle3.head(eagle3.Config(layer, 24, (1,)))
    with pytest.raises(ValueError, match="share the target's readout"):
        medusa.head(medusa.Config(11, 16, 2, mlp_dim=8))
    with pytest.raises(ValueError, match="3 heads draft 3 tokens; gamma is 4"):
        medusa.build(medusa.Config(11, 16, 3), 4)
    drafter = chain(recurrent.copy("eagle").model)
    with pytest.raises(ValueError, match="no `hidden` that gives them"):
        build_step(recurrent.build()._replace(hidden=None), drafter)


# Targets of every kind: the texts are theirs, whatever a head drafts.

GEMMA = tiny_llama.GEMMA3  # whose first layer has a window, of several portions
BFLOAT = tiny_llama.LLAMA._replace(dtype="bfloat16")
WIDE = gpt.Config(256, 64, 128, 2, 2)  # whose matrices are large enough for eight bits
TARGETS = {
    "windows": (GEMMA, tiny_llama.build, 38),
    "bfloat16": (BFLOAT, tiny_llama.build, 4),
    "int8": (WIDE, gpt.build, 2),
    "int8_dynamic": (WIDE, gpt.build, 2),
    "int8 cache": (tiny.TARGET._replace(cache="int8"), gpt.build, 2),
    "penalties": (tiny.TARGET, gpt.build, 2),
    "grammar": (tiny.TARGET, gpt.build, 2),
}
RULES = {"penalties": penalties.build(presence=2.0, last=6), "grammar": ONE_IN_THREE}


def make_head(kind: str, config, target: Model, params) -> tuple[Model, Any]:
    """Returns a head with arbitrary weights for a target, and its parameters."""
    layer = llama.Config(config.vocab, config.dim, 8, 1, 2, 1, 4, dtype=config.dtype)

    def draw(shapes):
        return tiny.draw_params(shapes, 3, lambda name, noise: noise / 2)

    if kind == "eagle3":
        sizes = eagle3.Config(layer, config.dim, (0, 1, 2))
        own = draw(eagle3.abstract_params(sizes))
        return eagle3.head(sizes), eagle3.parameters(sizes, own, params)
    if kind == "eagle":
        model = eagle.head(eagle.Config(layer), target.readout)
        own = draw(eagle.abstract_params(eagle.Config(layer)))
        return model, heads.with_target(own, params)
    wide = 8 if kind == "blockwise" else None
    at_once = medusa.Config(
        config.vocab, config.dim, 3, mlp_dim=wide, dtype=config.dtype
    )
    own = draw(medusa.abstract_params(at_once))
    return medusa.head(at_once, target.readout), heads.with_target(own, params)


@pytest.mark.parametrize(
    ("kind", "name"),
    slow.mark_slow_unless(
        lambda case: case in (("eagle3", "windows"), ("blockwise", "int8 cache")),
        itertools.product(KINDS[:4], TARGETS),
    ),
)
def test_texts_are_those_of_a_target_of_any_kind(kind, name):
    """A head with arbitrary weights drafts; without a draft, calls have as many tokens.
    The rule that promises it gives the same texts for the same keys."""
    config, build, seed = TARGETS[name]
    module = tiny if isinstance(config, gpt.Config) else tiny_llama
    target = build(config._replace(taps=(0, 1, 2)))
    params = module.weights(config._replace(cache=None), seed)
    if name in ("int8", "int8_dynamic"):
        params = tiny.quantize_params(params, name)
        wanted = Int8 if name == "int8" else Dynamic
        assert isinstance(params["readout"], wanted)
    head, of_head = make_head(kind, config, target, params)
    if (rules := RULES.get(name)) is not None:
        target, head = constrained(target, rules), constrained(head, rules)
    both = Params(params, of_head)
    request = make_request(jax.random.key(0), PROMPT, NEW, make_sampling(BATCH, 1.5))
    texts = []
    for drafter in (autoregressive.build(head, 3, draw_coupled), nothing.build(3)):
        run = generate.build(Decoder(target, drafter, gumbel.verifier), SLOTS)
        texts.append(jax.device_get(run(both, PROMPT, request)))
    np.testing.assert_array_equal(texts[0].tokens, texts[1].tokens)
    counts = texts[0].counts
    assert 0 < counts.accepted.sum() < counts.tested.sum()


# What a step carries.


@functools.cache
def jaxpr(name: str) -> str:
    """Returns the program of a step of the tiny GPT with its usual draft."""
    world = tiny.transformers()
    target = world.target
    if name == "tapped":
        target = gpt.build(tiny.TARGET._replace(taps=(0, 1, 2)))
    if name == "unreadable":
        target = target._replace(hidden=None)
    decoder = Decoder(target, autoregressive.build(world.draft, 2))
    params = Params(world.target_weights, world.draft_weights)
    prompt = make_prompt([[1, 2, 3], [0]])
    request = make_request(jax.random.key(0), prompt, 8, make_sampling(2, 1.0))
    state = jax.eval_shape(lambda: generate.prefill(decoder, params, prompt, 20))
    return jax.jit(build_step(*decoder)).lower(params, request, state).as_text()


def test_a_step_of_a_drafter_that_needs_none_carries_no_hidden_states():
    """The program is the same for a target that returns no hidden states and for one
    with taps."""
    assert jaxpr("plain") == jaxpr("unreadable") == jaxpr("tapped")
