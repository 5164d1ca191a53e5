"""Folders of EAGLE-3 heads, against the forward pass written out by their names.

Axes: T tokens, H features of the head, D of the target, A taps, K ids of the head.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specjax import drafts, generate, probs
from specjax.checkpoints import Pretrained
from specjax.decode_config import DecodeConfig
from specjax.inputs import make_prompt, make_request, make_sampling
from specjax.models import families, gpt, t5
from specjax.step import Decoder
from specjax.text.programs import prepare, program
from specjax.types import Hidden, Params
from tests.support import tiny, tiny_llama

WHOLE = tiny_llama.LLAMA
D, V, A = WHOLE.dim, WHOLE.vocab, 3
H, HEADS, KEYS, WIDTH, WIDE = D, 2, 1, 4, 10
SAID = np.array([1, 4, 5, 9, 11, 12, 17, 20, 28])
TEXT = [3, 1, 4, 1, 5, 9, 2, 6]
PLACES = [0, 1, 2]
PLAIN = {"norm_before_residual": False}
FLAGGED = {"norm_before_residual": True, "fc_norm": True, "norm_output": True}
JOINED = {"norm_before_residual": False, "norm_before_fc": True}


def target() -> Pretrained:
    params = tiny_llama.worlds(WHOLE, 4)().target_weights
    return Pretrained("tiny", WHOLE, families.build(WHOLE), params)


def write(folder: Path, *, kind: str = "llama", **flags: Any) -> Path:
    """Writes a head of arbitrary weights as speculators does."""
    rng = np.random.default_rng(1)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(scale=shape[-1] ** -0.5, size=shape).astype(np.float32)

    def scale(size: int) -> np.ndarray:
        return (1 + 0.3 * rng.normal(size=size)).astype(np.float32)

    one = "layers.0"
    arrays = {
        "fc.weight": normal(H, A * D),
        f"{one}.hidden_norm.weight": scale(H),
        f"{one}.input_layernorm.weight": scale(H),
        f"{one}.post_attention_layernorm.weight": scale(H),
        f"{one}.self_attn.q_proj.weight": normal(HEADS * WIDTH, 2 * H),
        f"{one}.self_attn.k_proj.weight": normal(KEYS * WIDTH, 2 * H),
        f"{one}.self_attn.v_proj.weight": normal(KEYS * WIDTH, 2 * H),
        f"{one}.self_attn.o_proj.weight": normal(H, HEADS * WIDTH),
        f"{one}.mlp.gate_proj.weight": normal(WIDE, H),
        f"{one}.mlp.up_proj.weight": normal(WIDE, H),
        f"{one}.mlp.down_proj.weight": normal(H, WIDE),
        "norm.weight": 3 * scale(H),
        "lm_head.weight": normal(SAID.size, H),
        "d2t": SAID - np.arange(SAID.size),
        "t2d": np.isin(np.arange(V), SAID),
    }
    if kind == "qwen3":
        arrays[f"{one}.self_attn.q_norm.weight"] = scale(WIDTH)
        arrays[f"{one}.self_attn.k_norm.weight"] = scale(WIDTH)
    if flags.get("norm_before_fc"):
        arrays["input_norm.weight"] = scale(A * D)
    if flags.get("fc_norm"):
        arrays |= {f"fc_norm.{i}.weight": scale(D) for i in range(A)}
    layer = {
        "model_type": kind,
        "vocab_size": V,
        "hidden_size": H,
        "intermediate_size": WIDE,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "head_dim": WIDTH,
        "rms_norm_eps": 1e-6,
        "rope_theta": 100.0,
    }
    config = {
        "speculators_model_type": "eagle3",
        "transformer_layer_config": layer,
        "draft_vocab_size": SAID.size,
        "eagle_aux_hidden_state_layer_ids": PLACES,
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "tiny", "architectures": []},
        },
        **flags,
    }
    folder.mkdir(exist_ok=True)
    save_file(arrays, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def turned(x: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Rotary positions of x [T, heads, WIDTH]."""
    angle = places[:, None, None] * 100.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
    a, b = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def logits(folder: Path, embedding: np.ndarray, taps: list, text: list) -> np.ndarray:
    """Returns the logits [K] after a text, of which the target was called on all but
    the last tokens: as many as the taps [T, D] have; the rest was drafted."""
    flags = json.loads((folder / "config.json").read_text())
    w = {
        name: np.float64(x)
        for name, x in load_file(folder / "model.safetensors").items()
    }
    if flags.get("fc_norm"):
        taps = [norm(tap, w[f"fc_norm.{i}.weight"]) for i, tap in enumerate(taps)]
    joined = np.concatenate(taps, -1)
    if flags.get("norm_before_fc"):
        joined = norm(joined, w["input_norm.weight"])
    states = [*(joined @ w["fc.weight"].T)]
    one = "layers.0."
    for end in range(len(states) + 1, len(text) + 1):
        e, g = embedding[text[1:end]], np.array(states[: end - 1])
        normed = norm(g, w[one + "hidden_norm.weight"])
        x = np.concatenate([norm(e, w[one + "input_layernorm.weight"]), normed], -1)
        q, k, v = (
            (x @ w[f"{one}self_attn.{each}_proj.weight"].T).reshape(len(x), -1, WIDTH)
            for each in "qkv"
        )
        if one + "self_attn.q_norm.weight" in w:
            q = norm(q, w[one + "self_attn.q_norm.weight"])
            k = norm(k, w[one + "self_attn.k_norm.weight"])
        places = np.arange(len(x))
        q, k = turned(q, places), turned(k, places)
        k, v = (np.repeat(each, HEADS // KEYS, axis=1) for each in (k, v))
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(WIDTH)
        scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        mixed = np.einsum("hts,shd->thd", scores, v).reshape(len(x), -1)
        y = normed if flags["norm_before_residual"] else g
        y = y + mixed @ w[one + "self_attn.o_proj.weight"].T
        h = norm(y, w[one + "post_attention_layernorm.weight"])
        h = silu(h @ w[one + "mlp.gate_proj.weight"].T) * (
            h @ w[one + "mlp.up_proj.weight"].T
        )
        z = (y + h @ w[one + "mlp.down_proj.weight"].T)[-1]
        states.append(norm(z, w["norm.weight"]) if flags.get("norm_output") else z)
    return norm(z, w["norm.weight"]) @ w["lm_head.weight"].T


@pytest.mark.parametrize(
    ("kind", "flags"), [("llama", PLAIN), ("qwen3", FLAGGED), ("llama", JOINED)]
)
def test_a_head_s_laws_are_those_of_its_forward_pass(kind, flags, tmp_path):
    """Of tokens that follow the target's states, and of those that follow its own."""
    folder = write(tmp_path / "head", kind=kind, **flags)
    whole, source = drafts.pair(target(), str(folder))
    assert whole.config.taps == source.taps == (0, 1, 2)
    drafter, prompt = source.drafter(3), make_prompt([TEXT, TEXT[:3]])
    params = Params(whole.params, source.params)
    request = make_request(jax.random.key(0), prompt, 8, make_sampling(2, 1.0))

    @jax.jit
    def drafted():
        decoder = Decoder(whole.model, drafter)
        state = generate.prefill(decoder, params, prompt, 20)
        made = drafter.draft(request.key, params.draft, request, state)[0]
        return made.tokens, probs.dense(made.law)

    @jax.jit
    def taps(tokens) -> Hidden:
        zero = jnp.zeros(1, jnp.int32)
        features, _ = whole.model.apply(whole.params, tokens, zero, None)
        return whole.model.hidden(features).taps

    tokens, laws = map(np.asarray, drafted())
    embedding = np.float64(whole.params["embedding"])
    for row, text in enumerate([TEXT, TEXT[:3]]):
        known = [np.float64(tap[0]) for tap in taps(jnp.array([text[:-1]]))]
        for place in range(3):
            after = [*text, *tokens[row, :place].tolist()]
            z = logits(folder, embedding, known, after)
            wanted = np.zeros(V)
            wanted[SAID] = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            np.testing.assert_allclose(laws[row, place], wanted, atol=1e-5)


def test_taps_are_what_enters_each_layer():
    """The last norm of each is what a model of so many layers returns."""
    shapes = (tiny.TARGET, tiny.transformers), (WHOLE, tiny_llama.worlds(WHOLE, 4))
    tokens, zero = jnp.array([TEXT]), jnp.zeros(1, jnp.int32)
    for config, world in shapes:
        params, family = world().target_weights, families.of(config)

        def apply(config, params=params):
            model = families.build(config)
            return model.hidden(model.apply(params, tokens, zero, None)[0])

        hidden = jax.jit(apply, static_argnums=0)(config._replace(taps=(0, 1, 2)))
        every = jax.jit(apply, static_argnums=0)(config)
        assert every.taps == ()
        np.testing.assert_array_equal(every.last, hidden.last)
        first = jax.jit(apply, static_argnums=0)(family.first_layers(config, 1)).last
        scale = params.get("norm", {}).get("scale", 1.0)
        for tap, wanted in ((hidden.taps[1], first), (hidden.taps[2], hidden.last)):
            np.testing.assert_allclose(norm(np.asarray(tap), scale), wanted, atol=1e-5)
        embedded = params["embedding"][tokens]
        np.testing.assert_allclose(hidden.taps[0], embedded, atol=1e-6)


def ids(draft: str | None, rule: str = "token") -> np.ndarray:
    """Returns the greedy texts of two prompts, whose target is named without taps."""
    config = DecodeConfig(gamma=4, temperature=0.0, new_tokens=9, rule=rule)
    job = prepare(target(), draft, [{"tokens": TEXT}, {"tokens": [7]}], config)
    output = program(job.key)(job.params, job.prompt, job.request)
    return np.stack(
        [
            row[at : at + 9]
            for row, at in zip(output.tokens, job.prompt.length, strict=True)
        ]
    )


def test_texts_by_a_head_are_those_of_its_target(tmp_path):
    """By name, as a chain and as trees."""
    folder, alone = write(tmp_path / "head", **PLAIN), ids(None)
    np.testing.assert_array_equal(ids(str(folder)), alone)
    for options in ("width=2", "best=2,longest=2"):
        texts = ids(f"tree:draft={folder},{options}", "recursive")
        np.testing.assert_array_equal(texts, alone)


BREAKS = [
    ({"norm_before_residual": ...}, "readers disagree on what that means"),
    ({"speculators_model_type": "peagle"}, "only eagle3 is read"),
    ({"speculators_config": {}}, "no proposal_methods"),
    ({"transformer_layer_config": "llama"}, "must be an object"),
    ({"eagle_aux_hidden_state_layer_ids": [0, 1, 3]}, "taps name place 3"),
    ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, "fc.weight"),
    ({"target_hidden_size": 32}, "those of tiny have"),
    ({"draft_vocab_size": 8}, "lm_head.weight"),
    ({"norm_before_fc": True}, "input_norm.weight"),
    ({"norm_before_fc": True, "fc_norm": True}, "not both"),
]


@pytest.mark.parametrize(("fields", "words"), BREAKS)
def test_what_a_head_does_not_say_or_fit_is_refused(fields, words, tmp_path):
    folder = write(tmp_path / "head", **PLAIN)
    stated = json.loads((folder / "config.json").read_text()) | fields
    kept = {name: value for name, value in stated.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(kept))
    with pytest.raises(ValueError, match=words):
        drafts.load_draft(str(folder), target())


def test_d2t_of_ids_and_surplus_arrays_are_refused(tmp_path):
    folder = write(tmp_path / "head", **PLAIN)
    arrays = load_file(folder / "model.safetensors")
    for changed, words in (
        ({"d2t": SAID}, "name other ids; id i of a head is"),
        ({"mask_hidden": np.zeros((1, 1, D), np.float32)}, "surplus"),
    ):
        save_file(arrays | changed, folder / "model.safetensors")
        with pytest.raises(ValueError, match=words):
            drafts.load_draft(str(folder), target())
    other = Pretrained("t5", t5.Config(37, 15, 23, 1, 3, 3, 5), None, {})
    with pytest.raises(ValueError, match="layers are not tapped"):
        drafts.load_draft(str(folder), other)
    with pytest.raises(ValueError, match="taps name place 4, and there are 0"):
        gpt.check(tiny.TARGET._replace(taps=(4,)))
