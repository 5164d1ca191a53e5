"""Kernels by default: who chooses them, and what takes the place of one that errs.

On a CPU a TPU's kernel runs by its interpreter, and this machine is said to be a TPU.
"""

import functools
import json
import os
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels import dispatch, fuse, laws
from pallas_kernels.fuse import Options
from pallas_kernels.tpu import mosaic as mosaic_tpu
from specjax import fused, probs
from specjax.drafters import rollout
from specjax.fused import CHOICES, Sizes, choose, first_use, same_tokens
from specjax.fused.same_tokens import Functions, within
from specjax.sides import CERTAIN, TABLE
from specjax.verifiers import block, gumbel, lenient, sigmoid, token
from tests.pallas_kernels.test_fused import without_q
from tests.support.kernel_cases import A100, CPU, H200, V5E

SIZES = Sizes(4, 2, 300)
LARGE = Sizes(1, 5, 32000)
IMPORTED = """
import sys
from specjax import fused
from specjax.verifiers import token
fused.choose("auto", token.verifier, fused.Sizes(1, 5, 32000))
names = "pallas_kernels", "jax.experimental.pallas"
assert not [name for name in sys.modules if name.startswith(names)]
"""


class Chip(NamedTuple):
    """What `jax.devices()` would say."""

    platform: str = "tpu"
    device_kind: str = "TPU v5 lite"


def refuses(*arguments):
    raise TypeError("compared")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECJAX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels.json"


@pytest.fixture
def tpu(cache, monkeypatch):
    """This machine, as if it were one; gives the file that keeps comparisons."""
    interpreted = functools.partial(fuse.wire, options=Options(interpret=True))
    monkeypatch.setattr(fuse, "wire", interpreted)
    monkeypatch.setattr(fused, "here", Chip)
    fused.tell.cache_clear()
    return cache


# Who is chosen.


def test_a_cpu_runs_the_reference_and_imports_no_kernel():
    for rule in (token.verifier, gumbel.verifier):
        chosen = choose("auto", rule, LARGE)
        assert chosen.verifier is rule and chosen.alone is token.verifier
        assert chosen.draw is rollout.for_rule(rule)
        names = dict.fromkeys(("verify", "draw", "baseline"), "reference")
        assert chosen.record == {"asked": "auto", **names, "why": fused.CPU}
    own = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", IMPORTED], check=True, env=own)


@pytest.mark.parametrize(
    ("device", "rule", "sizes", "verify", "draw"),
    [
        (H200, token.verifier, LARGE, "mosaic_gpu", "mosaic_gpu"),
        (V5E, token.verifier, LARGE, "mosaic_tpu", "mosaic_tpu"),
        (A100, token.verifier, LARGE, "onepass", "onepass"),
        (CPU, token.verifier, LARGE, "reference", "reference"),
        (H200, lenient.build(0.5, "scaled"), LARGE, "mosaic_gpu", "mosaic_gpu"),
        (H200, sigmoid.build(-1e3, 1e3), LARGE, "mosaic_gpu", "mosaic_gpu"),
        (H200, sigmoid.build(-1e3, 1e3, "float16"), LARGE, "reference", "mosaic_gpu"),
        (H200, block.verifier, LARGE, "reference", "mosaic_gpu"),
        (H200, gumbel.verifier, LARGE, "reference", "reference"),
        (H200, token.verifier, LARGE._replace(draft=TABLE), "onepass", "mosaic_gpu"),
        (H200, token.verifier, LARGE._replace(draft=CERTAIN), "mosaic_gpu", "none"),
        (H200, token.verifier, LARGE._replace(gamma=0), "mosaic_gpu", "none"),
        (H200, token.verifier, LARGE._replace(vocab=255), "onepass", "onepass"),
    ],
)
def test_by_device_rule_and_shape(device, rule, sizes, verify, draw):
    """For a device that is not there; nothing is compared."""
    chosen = choose("auto", rule, sizes, device)
    record = chosen.record
    assert (record["verify"], record["draw"]) == (verify, draw)
    assert record["asked"] == "auto" and record["why"]
    baseline = record["baseline"]
    plain = choose("auto", token.verifier, sizes._replace(gamma=0), device)
    assert baseline == plain.record["verify"]
    assert (chosen.alone.verify is token.verify) == (baseline == "reference")
    assert (chosen.verifier.verify is rule.verify) == (verify == "reference")
    own = rollout.for_rule(rule)
    assert (chosen.draw is own) == (rule.coupled or device is CPU)
    assert verify in fused.line(record) and record["why"] in fused.line(record)


def test_a_rule_is_that_of_the_librarys_own_verify_alone():
    mine = token.verifier._replace(verify=lambda *arguments: token.verify(*arguments))
    chosen = choose("auto", mine, LARGE, H200)
    assert chosen.record["verify"] == "reference"
    assert chosen.verifier.verify is mine.verify
    assert choose("auto", token.verifier, LARGE, H200).record["verify"] != "reference"


def test_what_is_asked_for_is_neither_compared_nor_replaced(tpu, monkeypatch):
    monkeypatch.setattr(same_tokens, "problem", refuses)
    for asked in ("mosaic_tpu", "onepass", "reference"):
        chosen = choose(asked, token.verifier, SIZES)
        assert chosen.record["verify"] == chosen.record["asked"] == asked
        assert chosen.record["why"] == "asked for"
    assert not tpu.exists()


def test_names_are_those_of_the_kernels():
    assert CHOICES == ("auto", *dispatch.NAMES)
    with pytest.raises(ValueError, match="no kernels 'cuda': choose one of auto, ref"):
        choose("cuda", token.verifier, SIZES)
    with pytest.raises(ValueError, match="triton needs a GPU"):
        choose("triton", token.verifier, SIZES, CPU)


# The first use.


def test_the_first_use_compares_and_the_next_one_knows(tpu, monkeypatch, capsys):
    first = choose("auto", token.verifier, SIZES)
    assert first.record["verify"] == first.record["draw"] == "mosaic_tpu"
    assert first.record["why"].endswith("gave the reference's tokens on first use")
    ((key, kept),) = json.loads(tpu.read_text()).items()
    assert kept == "same"
    for part in ("TPU v5 lite", jax.__version__, "kernels ", "batch=4"):
        assert part in key
    monkeypatch.setattr(same_tokens, "problem", refuses)
    assert choose("auto", token.verifier, SIZES).record == first.record
    assert capsys.readouterr().err == ""
    # Another shape, or other versions, are another first use.
    for change in (
        lambda: choose("auto", token.verifier, SIZES._replace(batch=5)),
        lambda: choose("auto", lenient.build(0.5), SIZES),
    ):
        assert "TypeError: compared" in change().record["why"]
    monkeypatch.setattr(fused, "versions", lambda: "jax 99")
    assert "TypeError: compared" in choose("auto", token.verifier, SIZES).record["why"]


def test_the_baseline_of_a_rule_without_kernels_is_compared_too(tpu, monkeypatch):
    seen = []
    monkeypatch.setattr(
        same_tokens, "problem", lambda *arguments: seen.append(arguments)
    )
    chosen = choose("auto", gumbel.verifier, SIZES)
    assert chosen.record["baseline"] == "mosaic_tpu" != chosen.record["verify"]
    ((plain, fused, sizes),) = seen
    assert plain.verifier is token.verifier and fused.verifier is chosen.alone
    assert sizes == SIZES._replace(gamma=0)
    choose("auto", block.verifier, SIZES)  # its drafts, and the baseline
    assert [sizes.gamma for *_, sizes in seen] == [0, SIZES.gamma, 0]


@pytest.mark.parametrize(
    ("name", "broken", "problem"),
    [
        ("left", without_q, "draws and verdicts differ by more than rounding"),
        ("merged", lambda *arguments: None, "AttributeError: "),
    ],
)
def test_a_kernel_that_errs_is_replaced(
    tpu, monkeypatch, capsys, name, broken, problem
):
    monkeypatch.setattr(laws, name, broken)
    chosen = choose("auto", token.verifier, SIZES)
    record = chosen.record
    assert record["asked"] == "auto"
    assert record["verify"] == record["draw"] == "onepass"
    assert record["why"].startswith("mosaic_tpu on TPU v5 lite: ")
    assert problem in record["why"]
    monkeypatch.setattr(same_tokens, "problem", refuses)
    assert choose("auto", token.verifier, SIZES).record == record  # kept
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"in the place of {record['why']}" in told


def test_what_stands_in_decodes_as_the_reference(tpu, monkeypatch):
    def fails(*arguments):
        raise RuntimeError("INTERNAL: no layout\nand more")

    monkeypatch.setattr(mosaic_tpu, "verdict", fails)
    chosen = choose("auto", token.verifier, SIZES)
    assert chosen.record["why"].endswith("RuntimeError: INTERNAL: no layout")
    case = same_tokens.case(SIZES, 1)
    kept = choose("onepass", token.verifier, SIZES)
    state = type("State", (), {"length": jnp.ones(4, jnp.int32)})
    request = type("Request", (), {"sampling": case.sampling})
    key = jax.random.split(jax.random.key(2), 4)
    ids = [
        np.asarray(by.draw(key, request, state)(case.p[:, 0], 0)[0])
        for by in (chosen, kept, fused.reference())
    ]
    np.testing.assert_array_equal(ids[0], ids[1])
    np.testing.assert_array_equal(ids[0], ids[2])


# What is kept.


def test_a_comparison_that_ended_the_process_is_a_fault(cache):
    def ends():
        assert first_use.BEGUN in cache.read_text()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first_use.judged("one", ends)
    assert first_use.read() == {}  # a person stopped it: that says nothing
    first_use.keep("one", f"{first_use.BEGUN}{cache}")
    problem = first_use.judged("one", lambda: pytest.fail("compared"))
    assert problem.endswith(f"remove {cache}")


def test_nothing_is_lost_where_nothing_can_be_kept(cache, monkeypatch):
    cache.parent.mkdir()
    for damaged in (
        "{",
        "[]",
        "\udcff".encode("utf-8", "surrogateescape").decode("latin1"),
    ):
        cache.write_text(damaged, "latin1")
        assert first_use.read() == {}
        assert first_use.judged("one", lambda: None) is None
    assert first_use.read() == {"one": "same"}
    monkeypatch.setenv("SPECJAX_CACHE", "/dev/null/nowhere")
    seen = []
    for _ in range(2):
        assert first_use.judged("one", lambda: seen.append(1) or "wrong") == "wrong"
    assert len(seen) == 2


def test_the_file_is_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("SPECJAX_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert first_use.path() == tmp_path / "specjax" / "kernels.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert first_use.path() == tmp_path / ".cache" / "specjax" / "kernels.json"


# What rounding explains.


def test_a_token_is_within_reach_of_its_uniform_or_a_fault():
    """Weights of three blocks; uniforms on the ends of a block and of an id."""
    w = np.random.default_rng(0).random(600)
    w[[5, 300]] = 0
    blocks = np.add.reduceat(w, [0, 256, 512]) / w.sum()
    inside = np.cumsum(w[256:512]) / w[256:512].sum()
    u = np.array([blocks[0] + blocks[1] / 2, inside[9] - 1e-7])
    token_ = int(probs.pick(jnp.float32(w)[None], jnp.float32(u)[None])[0])
    assert token_ == 256 + 9
    reach = 1e-6
    assert within(w, w, u, 265, reach) and within(w, w, u, 266, reach)
    assert not within(w, w, u, 264, reach) and not within(w, w, u, 267, reach)
    assert not within(w, w, u, 266, 1e-9)
    assert not within(w, w, u, 9, reach)  # of another block
    u = np.array([blocks[0] - 1e-7, 0.5])
    first, second = (
        int(np.searchsorted(np.cumsum(x) / x.sum(), 0.5)) for x in (w[:256], w[256:512])
    )
    assert within(w, w, u, first, reach) and within(w, w, u, 256 + second, reach)
    for outside in (-1, 600, 5, 300):
        assert not within(w, w, np.array([0.0, 0.0]), outside, 1.0)


@functools.cache
def reference():
    """A case, and what the reference makes of it."""
    case, plain = same_tokens.case(SIZES, 3), Functions(token.verifier, probs.draw)
    run = jax.jit(functools.partial(same_tokens.run, plain, True, False))
    return case, jax.device_get(run(case, None))


def seen(change):
    """A case, what the reference makes of it, and the same with another verdict."""
    case, wanted = reference()
    return case, wanted, wanted._replace(verdict=change(wanted.verdict))


def moved(verdict):
    """One token more of the first row, as a coin decides it."""
    n = verdict.num_accepted.copy()
    n[0] += 1 if n[0] < SIZES.gamma else -1
    return verdict._replace(num_accepted=n)


def test_a_coin_next_to_its_chance_may_fall_either_way():
    case, wanted, other = seen(moved)
    ours, shifted = wanted.verdict, other.verdict
    at = min(ours.num_accepted[0], shifted.num_accepted[0])
    tokens = shifted.tokens.copy()
    tokens[0, : shifted.num_accepted[0]] = wanted.ids[0, : shifted.num_accepted[0]]
    other = other._replace(verdict=shifted._replace(tokens=tokens))
    compare = functools.partial(same_tokens.compare, token.verifier)
    assert compare(case, wanted, wanted) is None
    assert compare(case, wanted, other).startswith("1 of 12 draws and verdicts")
    coin = case.noise.accept.at[0, at].set(ours.accept_prob[0, at] * (1 + 1e-6))
    near = case._replace(noise=case.noise._replace(accept=coin))
    assert compare(near, wanted, other) is None
    tokens[0, 0] += 1  # a token before n that was not drafted
    assert compare(near, wanted, other) or shifted.num_accepted[0] == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v._replace(accept_prob=v.accept_prob + np.float32(2e-3)),
        lambda v: v._replace(accept_prob=v.accept_prob * np.float32("nan")),
        lambda v: v._replace(tokens=v.tokens + 1),
        lambda v: v._replace(num_accepted=v.num_accepted + 100),
    ],
)
def test_a_wrong_verdict_is_a_fault(change):
    case, wanted, other = seen(change)
    assert same_tokens.compare(token.verifier, case, wanted, other)
