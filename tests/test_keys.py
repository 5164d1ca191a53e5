"""Draws depend only on seeds and keys, whatever JAX's settings are."""

import re
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import generate, keys, native, probs
from specjax.decode_config import setting_type
from specjax.drafters import autoregressive
from specjax.drafts.models import build_law
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.runtime import hosts, jax_flags
from specjax.step import Decoder
from specjax.types import Params
from tests.support import tiny
from tests.support.jax_settings import use_settings

ROOT = Path(__file__).resolve().parents[1]
HIGHEST = 2**32 - 1
# Settings of JAX that are read where programs are traced or numbers drawn.
TRACED = {
    "jax_default_prng_impl": "unsafe_rbg",
    "jax_random_seed_offset": 1,
    "jax_threefry_partitionable": False,
    "jax_high_dynamic_range_gumbel": True,
    "jax_enable_x64": True,
    "jax_default_matmul_precision": "bfloat16",
    "jax_debug_nans": True,
    "jax_debug_infs": True,
    "jax_debug_key_reuse": True,
    "jax_check_tracer_leaks": True,
    "jax_softmax_custom_jvp": False,
}
# Further values, of settings that have more than two.
OTHERS = (
    ("jax_default_prng_impl", "rbg"),
    ("jax_default_matmul_precision", "default"),
    ("jax_default_matmul_precision", "F64_F64_F64"),
    ("jax_legacy_prng_key", "error"),
    ("jax_explicit_x64_dtypes", "error"),
    ("jax_error_checking_behavior_divide", "raise"),
    ("jax_error_checking_behavior_oob", "raise"),
    *((name, value) for name, (value, *_) in jax_flags.REFUSED.items()),
)


def own_key(seed: int) -> jax.Array:
    """Returns a user's key, of the kind that is set, whose seed JAX changes by an
    offset."""
    return jax.random.key(seed - jax.config.values["jax_random_seed_offset"])


def noise() -> list[np.ndarray]:
    """Returns what is drawn with keys that are made in every way, row by row."""
    roots = keys.split(own_key(3), 2)
    rows = jax.vmap(keys.root_key)(jnp.arange(2))
    at = jnp.array([3, 5], jnp.int32)
    drawn = [keys.uniform(key, 1, (2,)) for key in (roots, rows)]
    drawn += [keys.gumbel(keys.iteration(rows, at), at, 7)]
    return [*map(np.asarray, drawn)]


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg", "philox4x32"])
def test_rows_of_other_keys_draw_other_numbers(impl):
    """Under vmap, rbg draws with the first key for every row."""
    key = keys.split(jax.random.key(0, impl=impl), 64)
    assert keys.is_safe(key)
    drawn = np.asarray(keys.uniform(key, 0))
    assert np.unique(drawn).size == 64
    with pytest.raises(ValueError, match="must be typed keys of threefry2x32"):
        keys.uniform(jax.random.split(jax.random.key(0, impl=impl), 2), 0)


def test_all_bits_of_a_key_count():
    data = jnp.array([[1, 2, 1, 2], [1, 2, 3, 4], [1, 2, 3, 5], [3, 4, 1, 2]])
    made = keys.make_safe(jax.random.wrap_key_data(data.astype(jnp.uint32), impl="rbg"))
    assert len({tuple(row) for row in jax.random.key_data(made).tolist()}) == 4
    assert keys.make_safe(made) is made


def test_noise_is_the_same_whatever_jax_is_set_to():
    with native.products(native.XLA):  # under one of these flags compiled code rests
        wanted = noise()
        with use_settings(TRACED):
            jax.tree.map(np.testing.assert_array_equal, noise(), wanted)


class Decoded(NamedTuple):
    """tokens [B, L] that a pair of tables writes, with every setting of sampling; the
    logarithm [B] of their probability; and the law [B, L, V] of each next token of some
    texts, computed by layers."""

    tokens: np.ndarray
    logprob: np.ndarray
    law: np.ndarray


def decode_and_score(batch: int = 3) -> Decoded:
    world, deep = tiny.tables(), tiny.transformers()
    drafter = autoregressive.build(world.draft, 2)
    decoder = Decoder(world.target, drafter, logprobs=True)
    prompt = make_prompt([[i] for i in range(batch)])
    sampling = make_sampling(batch, 0.9, top_k=3, top_p=0.95, min_p=0.01)
    request = make_request(own_key(0), prompt, 12, sampling)
    params = Params(world.target_weights, world.draft_weights)
    out = generate.build(decoder, 16)(params, prompt, request)
    shallow = build_law(deep.shallow)
    texts = make_prompt([[i, 5, 8 + i] for i in range(batch)])
    law = jax.jit(lambda *of: probs.dense(shallow(*of)))
    return Decoded(
        *hosts.read(
            (out.tokens, out.logprob, law(deep.shallow_weights, texts, sampling))
        )
    )


def difference(wanted: Decoded) -> str | None:
    """Returns how JAX's settings change what is decoded, or their error."""
    refused = [
        f"{name} is {value!r}, and specjax {why}:"
        f" jax.config.update({name!r}, {other!r})"
        for name, (value, other, why) in jax_flags.REFUSED.items()
        if jax.config.values[name] == value
    ]
    try:
        seen = decode_and_score()
    except Exception as error:
        return None if [str(error)] == refused else repr(error)[:200]
    if refused:
        return "not refused"
    if not np.array_equal(seen.tokens, wanted.tokens):
        return "other tokens"
    close = [np.allclose(*x, atol=1e-6) for x in zip(seen[1:], wanted[1:], strict=True)]
    kinds = [x.dtype for x in seen] == [x.dtype for x in wanted]
    return None if all(close) and kinds else "another law"


def test_texts_and_laws_are_the_same_whatever_jax_is_set_to():
    wanted = decode_and_score()
    with use_settings(TRACED):
        assert difference(wanted) is None


# Settings under which nothing is computed, or that need what is not here.
APART = {"jax_no_execution", "jax_no_tracing", "jax_distributed_debug"}


def settings() -> list[tuple[str, object]]:
    """Returns every other value of each setting of JAX that has two, and those named
    above."""
    others = [*OTHERS]
    for name, (kind, *_) in jax.config.meta.items():
        value = jax.config.values[name]
        if name in APART or "cache" in name or "profil" in name or "pgle" in name:
            continue
        if kind is bool:
            others.append((name, not value))
        elif name in TRACED and TRACED[name] != value:
            others.append((name, TRACED[name]))
    return others


@pytest.mark.slow
def test_texts_and_laws_are_the_same_by_every_setting_alone_or_it_is_refused():
    wanted, differ = decode_and_score(), {}
    for name, value in settings():
        with use_settings({name: value}):
            differ[name, value] = difference(wanted)
    assert {how: why for how, why in differ.items() if why} == {}


def test_every_key_is_made_in_one_place():
    """Other keys would be of the kind that a user has set. The canary runs older
    versions, which have no such place."""
    made = re.compile(r"random\.(key|PRNGKey)\b")
    files = [*(ROOT / "specjax").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]
    makers = {file.stem for file in files if made.search(file.read_text("utf-8"))}
    assert makers == {"keys", "side"}


# Seeds.


@pytest.mark.parametrize("seed", [0, 7, 2**31, HIGHEST, np.uint32(HIGHEST)])
def test_a_seed_is_jaxs_own_key_in_every_width(seed):
    wanted = jax.random.key_data(jax.random.key(int(seed))).tolist()
    for wide in (False, True):
        with jax.enable_x64(wide):
            assert jax.random.key_data(keys.root_key(seed)).tolist() == wanted


@pytest.mark.parametrize("seed", [-1, 2**32, 2**63, 1.0, "0", None, True, [0]])
def test_other_seeds_are_refused(seed):
    with pytest.raises(ValueError, match=f"^seed must be a whole .* to {HIGHEST}; got"):
        keys.root_key(seed)


def test_commands_have_the_same_seeds():
    assert setting_type("seed")(str(HIGHEST)) == HIGHEST == keys.SEEDS - 1


def test_samples_have_keys_that_no_seed_has():
    every = keys.root_key(jnp.arange(3), jnp.arange(4)[:, None])
    data = jax.random.key_data(every).reshape(-1, 2)
    assert len({tuple(row) for row in data.tolist()}) == 12
    assert np.count_nonzero(data[:, 0]) == 9  # a seed's own key begins with 0
