"""Kernels are chosen by default, and the reference replaces one that is wrong."""

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
from pallas_kernels.dispatch import Device
from pallas_kernels.fuse import Options
from pallas_kernels.tpu import mosaic as mosaic_tpu
from specjax import fused, probs
from specjax.drafters import rollout
from specjax.drafts.source import CERTAIN, TABLE
from specjax.fused import CHOICES, Sizes, choose, first_use, over_mesh, same_tokens
from specjax.fused.same_tokens import Functions, selects_id
from specjax.runtime import mesh
from specjax.verifiers import block, gumbel, lenient, sigmoid, token
from tests.pallas_kernels.test_fused import without_q
from tests.support.kernel_cases import A100, BACKENDS, CPU, H200, V5E

T4, B200 = Device("gpu", "Tesla T4", (7, 5)), Device("gpu", "NVIDIA B200", (10, 0))
V4, V6E = Device("tpu", "TPU v4"), Device("tpu", "TPU v6 lite")
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
    """A device as `jax.devices()` would describe it."""

    platform: str = "tpu"
    device_kind: str = "TPU v5 lite"


def raise_type_error(*arguments):
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
    monkeypatch.setattr(fused, "default_device", Chip)
    fused.print_once.cache_clear()
    return cache


def test_a_cpu_runs_the_reference_and_imports_no_kernel():
    names = dict.fromkeys(("verify", "draw", "baseline"), "reference")
    record = choose("auto", token.verifier, LARGE).record
    assert record == {"asked": "auto", **names, "why": fused.CPU}
    own = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", IMPORTED], check=True, env=own)


def test_on_a_mesh_each_device_has_what_it_was_compared_for(tpu, monkeypatch):
    """Each device is compared on its own rows, and on all rows where a draft needs
    all."""
    compared = []
    monkeypatch.setattr(first_use, "find_problem", lambda key, _: compared.append(key))
    with mesh.using("data=1"):
        record = choose("auto", token.verifier, SIZES).record
    assert record["verify"] == record["draw"] == "mosaic_tpu"
    assert record["why"].endswith(over_mesh.BY_ROWS) and len(compared) == 1
    assert str(SIZES) in compared[0]


GPU, TPU, XLA, PLAIN = "mosaic_gpu", "mosaic_tpu", "onepass", "reference"
TOKEN = token.verifier
CHOSEN = [
    (H200, TOKEN, {}, GPU, GPU),
    (B200, TOKEN, {}, GPU, GPU),
    (V4, TOKEN, {}, TPU, TPU),
    (V5E, TOKEN, {}, TPU, TPU),
    (V6E, TOKEN, {}, TPU, TPU),
    (T4, TOKEN, {}, XLA, XLA),
    (A100, TOKEN, {}, XLA, XLA),
    (CPU, TOKEN, {}, PLAIN, PLAIN),
    (H200, lenient.build(0.5, "scaled"), {}, GPU, GPU),
    (H200, sigmoid.build(-1e3, 1e3), {}, GPU, GPU),
    (H200, sigmoid.build(-1e3, 1e3, "float16"), {}, PLAIN, GPU),
    (H200, block.verifier, {}, PLAIN, GPU),
    (H200, gumbel.verifier, {}, PLAIN, PLAIN),
    (H200, TOKEN._replace(verify=lambda *at: token.verify(*at)), {}, PLAIN, GPU),
    (H200, TOKEN, dict(draft=TABLE), XLA, GPU),
    (H200, TOKEN, dict(draft=CERTAIN), GPU, "none"),
    (H200, TOKEN, dict(gamma=0), GPU, "none"),
    (H200, TOKEN, dict(gamma=128), XLA, GPU),
    (H200, TOKEN, dict(vocab=255), XLA, XLA),
    (H200, TOKEN, dict(vocab=262145), XLA, XLA),
    (V4, TOKEN, dict(vocab=256000), XLA, TPU),  # 16 MiB of vector memory
    (V5E, TOKEN, dict(batch=64, gamma=20, vocab=128256), XLA, TPU),
    (V5E, TOKEN, dict(batch=64, vocab=128256), TPU, TPU),
]


@pytest.mark.parametrize(("device", "rule", "sizes", "verify", "draw"), CHOSEN)
def test_by_device_rule_and_shape(device, rule, sizes, verify, draw):
    """The devices are absent; the rule is the library's own `verify`."""
    sizes = LARGE._replace(**sizes)
    chosen = choose("auto", rule, sizes, device=device)
    record = chosen.record
    assert (record["verify"], record["draw"]) == (verify, draw)
    plain = choose("auto", TOKEN, sizes._replace(gamma=0), device=device)
    assert record["baseline"] == plain.record["verify"]
    for by, own, name in (
        (chosen.alone, TOKEN, record["baseline"]),
        (chosen.verifier, rule, verify),
    ):
        assert (by.verify is own.verify) == (name == "reference")
    assert (chosen.draw is rollout.for_rule(rule)) == (rule.coupled or device is CPU)
    assert verify in fused.line(record) and record["why"] in fused.line(record)


def test_what_is_asked_for_is_neither_compared_nor_replaced(tpu, monkeypatch):
    monkeypatch.setattr(same_tokens, "problem", raise_type_error)
    for asked in ("mosaic_tpu", "onepass", "reference"):
        chosen = choose(asked, TOKEN, SIZES)
        assert chosen.record["verify"] == chosen.record["asked"] == asked
    assert not tpu.exists()


REFUSED = [
    (A100, GPU, "sm_80, and Mosaic needs sm_90"),
    (T4, "triton", "older than what Triton compiles for"),
    (CPU, "triton", "triton needs a GPU"),
    (CPU, "cuda", "no kernels 'cuda': choose one of auto, ref"),
]


@pytest.mark.parametrize(("device", "asked", "message"), REFUSED)
def test_what_cannot_run_is_refused_before_it_is_lowered(device, asked, message):
    with pytest.raises(ValueError, match=message):
        choose(asked, TOKEN, LARGE, device=device)


def test_names_are_those_of_the_kernels():
    assert CHOICES == ("auto", *dispatch.NAMES)
    assert {each.name for each in BACKENDS} == {*dispatch.NAMES} - {PLAIN}
    record = choose("triton", TOKEN, LARGE, device=A100).record
    assert record["verify"] == "triton"


def test_the_first_use_compares_and_the_next_one_knows(tpu, monkeypatch, capsys):
    first = choose("auto", TOKEN, SIZES)
    assert first.record["verify"] == first.record["draw"] == "mosaic_tpu"
    ((key, kept),) = json.loads(tpu.read_text()).items()
    assert kept == "same"
    for part in ("TPU v5 lite", jax.__version__, "kernels ", "batch=4"):
        assert part in key
    monkeypatch.setattr(same_tokens, "problem", raise_type_error)
    assert choose("auto", TOKEN, SIZES).record == first.record
    assert capsys.readouterr().err == ""
    # Another shape, or other versions, are another first use.
    another = SIZES._replace(batch=5)
    for rule, sizes in ((TOKEN, another), (lenient.build(0.5), SIZES)):
        assert "TypeError: compared" in choose("auto", rule, sizes).record["why"]
    monkeypatch.setattr(fused, "versions", lambda: "jax 99")
    assert "TypeError: compared" in choose("auto", TOKEN, SIZES).record["why"]


def test_the_baseline_of_a_rule_without_kernels_is_compared_too(tpu, monkeypatch):
    seen = []
    monkeypatch.setattr(same_tokens, "problem", lambda *given: seen.append(given))
    chosen = choose("auto", gumbel.verifier, SIZES)
    assert chosen.record["baseline"] == "mosaic_tpu" != chosen.record["verify"]
    ((plain, fused, sizes),) = seen
    assert plain.verifier is TOKEN and fused.verifier is chosen.alone
    assert sizes == SIZES._replace(gamma=0)
    choose("auto", block.verifier, SIZES)  # its drafts, and the baseline
    assert [sizes.gamma for *_, sizes in seen] == [0, SIZES.gamma, 0]


def raise_internal_error(*arguments):
    raise RuntimeError("INTERNAL: no layout\nand more")


@pytest.mark.parametrize(
    ("module", "name", "broken", "problem"),
    [
        (
            laws,
            "residual_weight",
            without_q,
            "draws and verdicts differ by more than rounding",
        ),
        (
            mosaic_tpu,
            "verdict",
            raise_internal_error,
            "RuntimeError: INTERNAL: no layout",
        ),
    ],
)
def test_a_kernel_that_errs_is_replaced(
    tpu, monkeypatch, capsys, module, name, broken, problem
):
    monkeypatch.setattr(module, name, broken)
    record = choose("auto", TOKEN, SIZES).record
    assert record["verify"] == record["draw"] == "onepass"
    assert record["why"].startswith("mosaic_tpu on TPU v5 lite: ")
    assert record["why"].endswith(problem)
    monkeypatch.setattr(same_tokens, "problem", raise_type_error)
    assert choose("auto", TOKEN, SIZES).record == record  # kept
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"instead of {record['why']}" in told


def test_a_comparison_that_ended_the_process_is_a_fault(cache):
    def ends():
        assert first_use.UNFINISHED in cache.read_text()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first_use.find_problem("one", ends)
    assert first_use.read() == {}  # a person stopped it: that says nothing
    first_use.store("one", f"{first_use.UNFINISHED}{cache}")
    problem = first_use.find_problem("one", lambda: pytest.fail("compared"))
    assert problem.endswith(f"remove {cache}")


def test_nothing_is_lost_where_nothing_can_be_kept(cache, monkeypatch):
    cache.parent.mkdir()
    for damaged in (b"{", b"[]", b"\xff"):
        cache.write_bytes(damaged)
        assert first_use.read() == {}
        assert first_use.find_problem("one", lambda: None) is None
    assert first_use.read() == {"one": "same"}
    monkeypatch.setenv("SPECJAX_CACHE", "/dev/null/nowhere")
    seen = []
    for _ in range(2):
        assert (
            first_use.find_problem("one", lambda: seen.append(1) or "wrong") == "wrong"
        )
    assert len(seen) == 2


def test_a_token_is_within_reach_of_its_uniform_or_a_fault():
    """There are weights of three blocks, and uniforms on the ends of a block and of an
    id."""
    w = np.random.default_rng(0).random(600)
    w[[5, 300]] = 0
    blocks = np.add.reduceat(w, [0, 256, 512]) / w.sum()
    inside = np.cumsum(w[256:512]) / w[256:512].sum()
    u = np.array([blocks[0] + blocks[1] / 2, inside[9] - 1e-7])
    assert probs.pick(jnp.float32(w)[None], jnp.float32(u)[None]) == 256 + 9
    reach = 1e-6
    near = [x for x in (9, 264, 265, 266, 267) if selects_id(w, w, u, x, reach)]
    assert near == [265, 266] and not selects_id(w, w, u, 266, 1e-9)
    u = np.array([blocks[0] - 1e-7, 0.5])
    for start in (0, 256):  # of either block
        part = w[start : start + 256]
        middle = int(np.searchsorted(np.cumsum(part) / part.sum(), 0.5))
        assert selects_id(w, w, u, start + middle, reach)
    for outside in (-1, 600, 5, 300):
        assert not selects_id(w, w, np.array([0.0, 0.0]), outside, 1.0)


@functools.cache
def reference():
    """Returns a case, and the verdict of the reference on it."""
    case, plain = same_tokens.random_case(SIZES, 3), Functions(TOKEN, probs.draw)
    run = jax.jit(functools.partial(same_tokens.run, plain, True, False))
    return case, jax.device_get(run(case, None))


def test_a_coin_next_to_its_chance_may_fall_either_way():
    """The first row has one token more or less, as a uniform decides."""
    case, wanted = reference()
    ours = wanted.verdict
    n, tokens = ours.num_accepted.copy(), ours.tokens.copy()
    n[0] += 1 if n[0] < SIZES.gamma else -1
    tokens[0, : n[0]] = wanted.ids[0, : n[0]]
    other = wanted._replace(verdict=ours._replace(num_accepted=n, tokens=tokens))
    compare = functools.partial(same_tokens.compare, TOKEN)
    assert compare(case, wanted, wanted) is None
    assert compare(case, wanted, other).startswith("1 of 12 draws and verdicts")
    at = min(ours.num_accepted[0], n[0])
    coin = case.noise.accept.at[0, at].set(ours.accept_prob[0, at] * (1 + 1e-6))
    near = case._replace(noise=case.noise._replace(accept=coin))
    assert compare(near, wanted, other) is None
    tokens[0, 0] += 1  # a token before n that was not drafted
    assert compare(near, wanted, other) or n[0] == 0


WRONG = [("accept_prob", 2e-3), ("accept_prob", np.nan)]
WRONG += [("tokens", 1), ("num_accepted", 100)]


@pytest.mark.parametrize(("name", "more"), WRONG)
def test_a_wrong_verdict_is_a_fault(name, more):
    case, wanted = reference()
    value = getattr(wanted.verdict, name)
    wrong = {name: value + value.dtype.type(more)}
    other = wanted._replace(verdict=wanted.verdict._replace(**wrong))
    assert same_tokens.compare(TOKEN, case, wanted, other)
