"""No drafter, rule, policy or tree uses a key for two draws.

Whole steps are recorded (`specjax.exactness.draws`). Axes: B rows, G = gamma.
"""

import ast
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, keys, policies, verifiers
from specjax.drafters import tree
from specjax.exactness import draws
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.step import Decoder
from specjax.topologies import kary, likeliest, paths
from specjax.types import Params
from tests.support import tiny, tiny_whisper
from tests.support.drafter_cases import BY_NAME
from tests.support.key_mistakes import MISTAKES, branches, chain

SLOW = pytest.mark.slow
LOGITS = jnp.log(jnp.array([0.5, 0.3, 0.2]))
BOTH = Params(LOGITS, LOGITS)
GAMMAS = range(1, 9)
BRIEF = {("renewal", 4), ("copying_short", 2), ("tree_grown", 3), ("tree_forked", 2)}
BRIEF |= {("hierarchy_three", 3)}
SPECJAX = Path(draws.__file__).parents[1]


def find_problems(decoder: Decoder, params: Params = BOTH) -> list[str]:
    gamma, vocab = decoder.drafter.gamma, decoder.target.vocab
    prompt, key = draws.make_requests(gamma, vocab)
    return draws.problems(draws.record_step(decoder, params, prompt, key))


@pytest.mark.parametrize(
    ("name", "gamma"),
    [
        pytest.param(name, gamma, marks=() if (name, gamma) in BRIEF else SLOW)
        for name in BY_NAME
        for gamma in GAMMAS
    ],
)
def test_no_key_serves_two_draws(name, gamma):
    """Every drafter is tested, also those with other or reduced vocabularies."""
    world, case = tiny.tables(3 + gamma), BY_NAME[name]
    assert find_problems(case.decoder(world, gamma), case.params(world)) == []


@pytest.mark.parametrize(
    ("rule", "gamma"),
    [
        pytest.param(rule, gamma, marks=() if (rule, gamma) == ("match", 3) else SLOW)
        for rule in verifiers.spellings()
        for gamma in GAMMAS
    ],
)
def test_of_every_rule(rule, gamma):
    """`specjax certify` claims this for each kind of draft that an exact rule
    verifies."""
    assert find_problems(chain(gamma, rule)) == []


@SLOW
@pytest.mark.parametrize("rule", verifiers.names())
def test_of_every_rule_and_kind_of_draft(rule):
    assert draws.check_rule(verifiers.find(rule))[1] == []


@SLOW
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("policy", policies.POLICIES)
def test_of_every_policy(policy, gamma):
    assert find_problems(chain(gamma, "token", policy)) == []
    assert find_problems(chain(gamma, "gumbel", policy)) == []


@SLOW
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("siblings", [tree.WITH, tree.WITHOUT])
def test_of_every_topology(siblings, gamma):
    for topology in (kary.build(3), likeliest.build([0.6, 0.4, 0.3]), paths.build(3)):
        assert find_problems(branches(topology(gamma), siblings)) == []


@pytest.mark.parametrize(
    ("nodes", "shapes"), [(10, 3046), pytest.param(12, 20298, marks=SLOW)]
)
def test_of_two_draws_of_a_tree_none_has_the_others_slot(nodes, shapes):
    """The arithmetic of slots is tested on all trees of up to that many nodes."""
    assert draws.check_shapes(nodes) == (shapes, 0)


def test_a_tree_asks_for_the_slots_that_arithmetic_says():
    parent = -1, -1, 0, 1, 2  # two levels of as many nodes, then fewer
    assert find_problems(branches(parent, tree.WITH)) == []


@SLOW
def test_as_do_two_hundred_others():
    shapes = [parent for parent in draws.tree_shapes(12) if len(parent) > 3]
    for i, parent in enumerate(shapes[:: len(shapes) // 200]):
        siblings = (tree.WITH, tree.WITHOUT)[i % 2]
        assert find_problems(branches(parent, siblings)) == [], parent


def test_each_node_is_drawn_by_the_noise_of_its_own_slot():
    """The ids of a tree are computed one by one from the keys that name them."""
    parent, batch = (-1, -1, 0, 0, 2, 4), 50
    key = jax.random.split(jax.random.key(0), batch)
    prompt = make_prompt([[0]] * batch)
    request = make_request(key, prompt, 8, make_sampling(batch, 1.0))

    def tokens(siblings: str) -> np.ndarray:
        decoder = branches(parent, siblings)

        @jax.jit
        def draft():
            state = generate.prefill(decoder, BOTH, prompt, 16)
            return decoder.drafter.draft(key, LOGITS, request, state)[0].tokens

        return np.asarray(draft())

    noise = np.asarray(jax.jit(lambda: keys.gumbels(key, np.arange(6), 3))())
    ahead = LOGITS + noise
    np.testing.assert_array_equal(tokens(tree.WITH), ahead.argmax(-1))
    order = np.argsort(-ahead, axis=-1)
    rank = [parent[:node].count(above) for node, above in enumerate(parent)]
    wanted = order[:, np.array(parent) + 1, rank]
    np.testing.assert_array_equal(tokens(tree.WITHOUT), wanted)


@SLOW
def test_of_a_model_that_hears():
    world, case = tiny_whisper.world(), BY_NAME["early_exit"]
    prompt, key = draws.make_requests(2, world.target.vocab)
    prompt = prompt._replace(inputs=tiny_whisper.sounds(key.size))
    found = draws.record_step(case.decoder(world, 2), case.params(world), prompt, key)
    assert draws.problems(found) == []


def test_nor_do_the_steps_of_a_whole_text():
    """The loop itself is tested, which names each step by the length at which the last
    one ended."""
    decoder = branches((-1, -1, 0, 1, 2))
    recorder, prompt = draws.Recorder(), make_prompt([[0]])
    request = make_request(jax.random.key(0), prompt, 40, make_sampling(1, 1.0))
    loop = generate.build_loop(recorder.watch(decoder), 60)
    with recorder.recording():
        out = jax.jit(loop)(BOTH, prompt, request)
    jax.effects_barrier()
    assert draws.problems(recorder) == []
    calls = sum(draw.who == draws.RULE for draw in recorder.draws)
    assert calls == out.counts.calls[0] > 5


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_mistakes_are_seen(mistake, monkeypatch):
    found = find_problems(mistake(monkeypatch))
    assert any(re.search(MISTAKES[mistake], problem) for problem in found), found


def test_only_keys_draws():
    """Only `specjax.keys` draws with JAX; functions that derive keys from keys draw
    nothing. The exceptions draw no tokens of texts: random problems for the soak,
    initial weights, and the choice of training texts."""
    makers = {"key", "split", "fold_in", "key_data", "wrap_key_data", "key_impl"}
    found = {
        (str(path.relative_to(SPECJAX)), node.attr)
        for path in SPECJAX.rglob("*.py")
        if "random" in (text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and "jax.random" == ast.unparse(node.value)
        if node.attr not in makers
    }
    assert found == {
        ("keys.py", "uniform"),
        ("keys.py", "gumbel"),
        ("exactness/nasty.py", "uniform"),
        ("training/draft_kinds.py", "normal"),
        ("training/target_states.py", "uniform"),
    }
    for path in SPECJAX.rglob("*.py"):
        text = path.read_text("utf-8")
        assert "from jax import random" not in text and "jax.random import" not in text
