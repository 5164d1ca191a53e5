"""Heads that are read from folders agree with their forward passes, written out by
name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specjax import drafts, generate, probs
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig
from specjax.drafters.rollout import draw_independent
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import families, gpt, t5
from specjax.step import Decoder
from specjax.text.programs import prepare, program
from specjax.types import Hidden, Params
from tests.support import head_folders, slow, tiny, tiny_llama
from tests.support.head_folders import (
    MEDUSA_HEADS,
    PLACES,
    SAID,
    WHOLE,
    D,
    V,
    norm,
    target,
)

TEXT = [3, 1, 4, 1, 5, 9, 2, 6]
TEXTS = TEXT, TEXT[:3]
PLAIN = {"norm_before_residual": False}
FLAGGED = {"norm_before_residual": True, "fc_norm": True, "norm_output": True}
JOINED = {"norm_before_residual": False, "norm_before_fc": True}
NESTED = {"eagle_config": {"norm_before_fc": True, PLACES: [0, 2, 1]}}


def softmax(z):
    return np.exp(z - z.max()) / np.exp(z - z.max()).sum()


def draft_three(whole, source):
    """Returns three drafted tokens after each of `TEXTS`, and the law of each, [B, 3,
    V]."""
    drafter, prompt = source.drafter(3), make_prompt(TEXTS)
    params = Params(whole.params, source.params)
    request = make_request(jax.random.key(0), prompt, 8, make_sampling(2, 1.0))

    @jax.jit
    def run():
        decoder = Decoder(whole.model, drafter)
        state = generate.prefill(decoder, params, prompt, 20)
        made = drafter.draft(request.key, params.draft, request, state)[0]
        return made.tokens, probs.dense(made.law)

    return map(np.asarray, run())


def hidden(whole, text) -> Hidden:
    """Returns the target's hidden states for all tokens of a text but the last, [T,
    D]."""

    @jax.jit
    def run(tokens):
        zero = jnp.zeros(1, jnp.int32)
        features, _ = whole.model.apply(whole.params, tokens, zero, None)
        return whole.model.hidden(features)

    return jax.tree.map(lambda x: np.float64(x[0]), run(jnp.array([text[:-1]])))


EAGLE3 = [
    ("speculators", PLAIN | {"kind": "llama"}, (0, 1, 2)),
    ("speculators", FLAGGED | {"kind": "qwen3"}, (0, 1, 2)),
    ("speculators", JOINED | {"kind": "llama"}, (0, 1, 2)),
    ("midlayer", {}, (2, 2, 1)),  # EAGLE's
    ("midlayer", NESTED, (1, 3, 2)),  # SpecForge's, which counts outputs of layers
]


@pytest.mark.parametrize(
    ("layout", "flags", "taps"),
    slow.mark_slow_unless(lambda case: case[0] == "midlayer", EAGLE3),
)
def test_laws_of_eagle_3_are_those_of_its_forward_pass(layout, flags, taps, tmp_path):
    """Both the first token, after the target's states, and later ones, after the head's
    own, are compared."""
    folder = head_folders.write_eagle3(tmp_path / "head", layout, **flags)
    whole, source = drafts.pair(target(), str(folder))
    assert whole.config.taps == source.taps == taps
    places = ", ".join(map(str, taps))
    assert source.name == f"head, of states that enter layers {places}"
    tokens, laws = draft_three(whole, source)
    embedding = np.float64(whole.params["embedding"])
    for row, text in enumerate(TEXTS):
        known = hidden(whole, text).taps
        for place in range(3):
            after = [*text, *tokens[row, :place].tolist()]
            z = head_folders.eagle3_logits(folder, embedding, known, after)
            wanted = np.zeros(V)
            wanted[SAID] = softmax(z)
            np.testing.assert_allclose(laws[row, place], wanted, atol=1e-5)


@pytest.mark.parametrize("fields", [{}, {"qkv_bias": True}])
def test_laws_of_eagle_are_those_of_its_forward_pass(fields, tmp_path):
    """Both the target's embedding and another one are tested."""
    folder = head_folders.write_eagle(tmp_path / "head", **fields)
    if fields:
        file = folder / "model.safetensors"
        arrays = load_file(file)
        arrays["embed_tokens.weight"] *= 2
        save_file(arrays, file)
    whole, source = drafts.pair(target(), str(folder))
    assert source.name == "head, of the last layer's states"
    assert source.files == (folder / "config.json", folder / "model.safetensors")
    assert ("embedding" in source.params["head"]) == bool(fields)
    assert source.params["target"]["embedding"] is whole.params["embedding"]
    tables = {"readout": np.float64(whole.params["readout"])}
    tokens, laws = draft_three(whole, source)
    for row, text in enumerate(TEXTS):
        known = hidden(whole, text).last
        for place in range(3):
            after = [*text, *tokens[row, :place].tolist()]
            z = head_folders.eagle_logits(folder, tables, known, after)
            np.testing.assert_allclose(laws[row, place], softmax(z), atol=1e-5)


def test_laws_of_medusa_are_those_of_all_heads_in_its_file(tmp_path):
    """The file has one head more than config.json says."""
    folder = head_folders.write_medusa(tmp_path / "head")
    whole, source = drafts.pair(target(), str(folder))
    assert source.name == f"head, {MEDUSA_HEADS} heads of the last layer's states"
    _, laws = draft_three(whole, source)
    for row, text in enumerate(TEXTS):
        last = hidden(whole, text).last[-1]
        for head in range(MEDUSA_HEADS):
            z = head_folders.medusa_logits(folder, last, head)
            np.testing.assert_allclose(laws[row, head], softmax(z), atol=1e-5)
    with pytest.raises(ValueError, match="3 heads draft 3 tokens; gamma is 4"):
        source.drafter(4, draw_independent)


def test_laws_of_blockwise_heads_are_by_the_targets_readout(tmp_path):
    folder = head_folders.write_blockwise(tmp_path / "head")
    whole, source = drafts.pair(target(), str(folder))
    assert source.name == f"head, {MEDUSA_HEADS} heads with the target's readout"
    assert source.params["target"]["readout"] is whole.params["readout"]
    readout = np.float64(whole.params["readout"])
    _, laws = draft_three(whole, source)
    for row, text in enumerate(TEXTS):
        last = hidden(whole, text).last[-1]
        for head in range(MEDUSA_HEADS):
            z = head_folders.blockwise_logits(folder, readout, last, head)
            np.testing.assert_allclose(laws[row, head], softmax(z), atol=1e-5)


def test_taps_are_what_enters_each_layer():
    """The last norm, applied to each tap, gives what a model with that many layers
    returns."""
    two = tiny_llama.LLAMA
    shapes = (tiny.TARGET, tiny.transformers), (two, tiny_llama.worlds(two, 4))
    tokens, zero = jnp.array([TEXT]), jnp.zeros(1, jnp.int32)
    for config, world in shapes:
        params, family = world().target_weights, families.of(config)

        def apply(config, params=params):
            model = families.build(config)
            return model.hidden(model.apply(params, tokens, zero, None)[0])

        taps = jax.jit(apply, static_argnums=0)(config._replace(taps=(0, 1, 2)))
        every = jax.jit(apply, static_argnums=0)(config)
        assert every.taps == ()
        np.testing.assert_array_equal(every.last, taps.last)
        first = jax.jit(apply, static_argnums=0)(family.first_layers(config, 1)).last
        scale = params.get("norm", {}).get("scale", 1.0)
        for tap, wanted in ((taps.taps[1], first), (taps.taps[2], taps.last)):
            np.testing.assert_allclose(norm(np.asarray(tap), scale), wanted, atol=1e-5)
        embedded = params["embedding"][tokens]
        np.testing.assert_allclose(taps.taps[0], embedded, atol=1e-6)


def ids(draft: str | None, rule: str = "token", gamma: int = 4) -> np.ndarray:
    """Returns the greedy texts of two prompts, for a target that is named without
    taps."""
    config = DecodeConfig(gamma=gamma, temperature=0.0, new_tokens=9, rule=rule)
    job = prepare(target(), draft, [{"tokens": TEXT}, {"tokens": [7]}], config)
    output = program(job.key)(job.params, job.prompt, job.request)
    return np.stack(
        [
            row[at : at + 9]
            for row, at in zip(output.tokens, job.prompt.length, strict=True)
        ]
    )


@pytest.mark.slow
def test_texts_by_a_head_are_those_of_its_target(tmp_path):
    """The head is named by its folder, and drafts chains and trees."""
    folder, alone = head_folders.write_eagle3(tmp_path / "head", **PLAIN), ids(None)
    for name, write in (
        ("eagle", head_folders.write_eagle),
        ("medusa", head_folders.write_medusa),
        ("blockwise", head_folders.write_blockwise),
    ):
        chain = ids(str(write(tmp_path / name)), gamma=3)
        np.testing.assert_array_equal(chain, alone)
    np.testing.assert_array_equal(ids(str(folder)), alone)
    for options in ("width=2", "best=2,longest=2"):
        texts = ids(f"tree:draft={folder},{options}", "recursive")
        np.testing.assert_array_equal(texts, alone)


def test_a_target_without_taps_is_refused(tmp_path):
    folder = head_folders.write_eagle3(tmp_path / "head", **PLAIN)
    other = Pretrained("t5", t5.Config(37, 15, 23, 1, 3, 3, 5), None, {})
    with pytest.raises(ValueError, match="layers are not tapped"):
        drafts.load_draft(str(folder), other)
    with pytest.raises(ValueError, match="taps name place 4, and there are 0"):
        gpt.check(tiny.TARGET._replace(taps=(4,)))
    assert D == WHOLE.dim
