"""Folders of heads with arbitrary weights, and the heads' forward passes written out.

Each pass reads the arrays of a folder by their names and knows nothing else of how they
are used here. Axes: T tokens, H features of the head, D of the target, A taps, V ids of
the target, K of the head.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from specjax.checkpoints import Pretrained
from specjax.models import families
from tests.support import tiny_llama

WHOLE = tiny_llama.LLAMA._replace(num_layers=4)
D, V, A = WHOLE.dim, WHOLE.vocab, 3
H, HEADS, KEYS, WIDTH, WIDE = D, 2, 1, 4, 10
SAID = np.array([1, 4, 5, 9, 11, 12, 17, 20, 28])
BASE = 100.0  # of the layer's rotary positions
MEDUSA_HEADS, MEDUSA_LAYERS = 3, 2
ONE = "layers.0"
PLACES = "eagle_aux_hidden_state_layer_ids"


def target(layers: int = WHOLE.num_layers) -> Pretrained:
    config = WHOLE._replace(num_layers=layers)
    params = tiny_llama.worlds(config, 4)().target_weights
    return Pretrained("tiny", config, families.build(config), params)


class Draws:
    """Arbitrary arrays, the same in every run."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)

    def normal(self, *shape: int) -> np.ndarray:
        scale = shape[-1] ** -0.5
        return self.rng.normal(scale=scale, size=shape).astype(np.float32)

    def scale(self, size: int) -> np.ndarray:
        return (1 + 0.3 * self.rng.normal(size=size)).astype(np.float32)

    def layer(self, one: str, wide: int) -> dict[str, np.ndarray]:
        """Returns a decoder layer without its first norm, whose attention reads `wide`
        features."""
        return {
            f"{one}.post_attention_layernorm.weight": self.scale(H),
            f"{one}.self_attn.q_proj.weight": self.normal(HEADS * WIDTH, wide),
            f"{one}.self_attn.k_proj.weight": self.normal(KEYS * WIDTH, wide),
            f"{one}.self_attn.v_proj.weight": self.normal(KEYS * WIDTH, wide),
            f"{one}.self_attn.o_proj.weight": self.normal(H, HEADS * WIDTH),
            f"{one}.mlp.gate_proj.weight": self.normal(WIDE, H),
            f"{one}.mlp.up_proj.weight": self.normal(WIDE, H),
            f"{one}.mlp.down_proj.weight": self.normal(H, WIDE),
        }


def layer_fields(kind: str = "llama") -> dict[str, Any]:
    """Returns the sizes of a head's layer, as config.json has them."""
    return {
        "model_type": kind,
        "vocab_size": V,
        "hidden_size": H,
        "intermediate_size": WIDE,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "head_dim": WIDTH,
        "rms_norm_eps": 1e-6,
        "rope_theta": BASE,
    }


def write(folder: Path, fields: dict[str, Any], arrays: dict, name: str) -> Path:
    """Writes config.json, and the arrays to a file with this name."""
    folder.mkdir(exist_ok=True)
    save_file(arrays, folder / name)
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


def write_eagle3(
    folder: Path, layout: str = "speculators", *, kind: str = "llama", **flags: Any
) -> Path:
    """Writes an EAGLE-3 head. layout: "speculators", or "midlayer" of EAGLE and
    SpecForge."""
    draws, one = Draws(), ONE if layout == "speculators" else layout
    arrays = {
        "fc.weight": draws.normal(H, A * D),
        f"{one}.hidden_norm.weight": draws.scale(H),
        f"{one}.input_layernorm.weight": draws.scale(H),
        **draws.layer(one, 2 * H),
        "norm.weight": 3 * draws.scale(H),
        "lm_head.weight": draws.normal(SAID.size, H),
        "d2t": SAID - np.arange(SAID.size),
        "t2d": np.isin(np.arange(V), SAID),
    }
    if kind == "qwen3":
        arrays[f"{one}.self_attn.q_norm.weight"] = draws.scale(WIDTH)
        arrays[f"{one}.self_attn.k_norm.weight"] = draws.scale(WIDTH)
    if (flags.get("eagle_config", {}) | flags).get("norm_before_fc"):
        arrays["input_norm.weight"] = draws.scale(A * D)
    if flags.get("fc_norm"):
        arrays |= {f"fc_norm.{i}.weight": draws.scale(D) for i in range(A)}
    fields = {"draft_vocab_size": SAID.size, **flags}
    if layout == "speculators":
        fields = {
            "speculators_model_type": "eagle3",
            "transformer_layer_config": layer_fields(kind),
            PLACES: [0, 1, 2],
            "speculators_config": {
                "algorithm": "eagle3",
                "proposal_methods": [
                    {"proposal_type": "greedy", "speculative_tokens": 3}
                ],
                "verifier": {"name_or_path": "tiny", "architectures": []},
            },
            **fields,
        }
    else:
        fields = {**layer_fields(kind), "architectures": ["LlamaForCausalLM"], **fields}
    return write(folder, fields, arrays, "model.safetensors")


def write_eagle(folder: Path, **fields: Any) -> Path:
    """Writes a head of EAGLE-1 or 2, which repeats its target's embedding."""
    draws = Draws()
    arrays = {
        "embed_tokens.weight": np.array(target().params["embedding"]),
        "fc.weight": draws.normal(H, 2 * H),
        "fc.bias": 0.3 * draws.normal(H),
        **draws.layer(ONE, H),
    }
    if fields.get("qkv_bias"):
        for each, heads in {"q": HEADS, "k": KEYS, "v": KEYS}.items():
            bias = draws.normal(heads * WIDTH)
            arrays[f"{ONE}.self_attn.{each}_proj.bias"] = bias
    fields = layer_fields() | {"architectures": ["LlamaForCausalLM"]} | fields
    return write(folder, fields, arrays, "model.safetensors")


def write_medusa(
    folder: Path,
    heads: int = MEDUSA_HEADS,
    *,
    dim: int = D,
    vocab: int = V,
    **fields: Any,
) -> Path:
    """Writes Medusa's heads; config.json says one head less than there are."""
    draws, arrays = Draws(), {}
    for i in range(heads):
        for j in range(MEDUSA_LAYERS):
            arrays[f"{i}.{j}.linear.weight"] = draws.normal(dim, dim)
            arrays[f"{i}.{j}.linear.bias"] = draws.normal(dim)
        arrays[f"{i}.{MEDUSA_LAYERS}.weight"] = draws.normal(vocab, dim)
    fields = {
        "medusa_num_heads": heads - 1,
        "medusa_num_layers": MEDUSA_LAYERS,
        "base_model_name_or_path": "tiny",
        **fields,
    }
    return write(folder, fields, arrays, "medusa_lm_head.safetensors")


def write_blockwise(folder: Path, **fields: Any) -> Path:
    """Writes blockwise parallel heads, which have no readout of their own."""
    draws, count = Draws(), MEDUSA_HEADS
    arrays = {
        "in": draws.normal(D, count, WIDE),
        "in_bias": draws.normal(count, WIDE),
        "out": draws.normal(count, WIDE, D),
        "out_bias": draws.normal(count, D),
    }
    sizes = {"num_heads": count, "hidden_size": D, "intermediate_size": WIDE}
    fields = {"model_type": "blockwise_parallel_heads", **sizes, **fields}
    return write(folder, fields, arrays, "model.safetensors")


def change(folder: Path, **fields: Any) -> None:
    """Changes fields of config.json; `...` removes a field."""
    stated = json.loads((folder / "config.json").read_text()) | fields
    kept = {name: value for name, value in stated.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(kept))


def weights(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the fields and the arrays of a folder."""
    (file,) = folder.glob("*.safetensors")
    arrays = {name: np.float64(x) for name, x in load_file(file).items()}
    return json.loads((folder / "config.json").read_text()), arrays


def norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def rotate(x: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns x [T, heads, WIDTH] with rotary positions."""
    angle = places[:, None, None] * BASE ** (-np.arange(0, WIDTH, 2) / WIDTH)
    a, b = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def layer(
    w: dict[str, np.ndarray], one: str, x: np.ndarray, stream: np.ndarray
) -> np.ndarray:
    """Returns the last token's stream [H] after a layer that reads x [T, ...]."""

    def product(name: str) -> np.ndarray:
        name = f"{one}.self_attn.{name}_proj"
        y = x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)
        return y.reshape(len(x), -1, WIDTH)

    q, k, v = map(product, "qkv")
    if f"{one}.self_attn.q_norm.weight" in w:
        q = norm(q, w[f"{one}.self_attn.q_norm.weight"])
        k = norm(k, w[f"{one}.self_attn.k_norm.weight"])
    places = np.arange(len(x))
    q, k = rotate(q, places), rotate(k, places)
    k, v = (np.repeat(each, HEADS // KEYS, axis=1) for each in (k, v))
    scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(WIDTH)
    scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    mixed = np.einsum("hts,shd->thd", scores, v).reshape(len(x), -1)
    y = (stream + mixed @ w[f"{one}.self_attn.o_proj.weight"].T)[-1]
    h = norm(y, w[f"{one}.post_attention_layernorm.weight"])
    gate, up = (h @ w[f"{one}.mlp.{i}_proj.weight"].T for i in ("gate", "up"))
    return y + (silu(gate) * up) @ w[f"{one}.mlp.down_proj.weight"].T


# Logits after a text, of which the target was called on all but the last tokens: as
# many as its states [T, D] have; the rest was drafted.


def eagle3_logits(
    folder: Path, embedding: np.ndarray, taps: list[np.ndarray], text: list[int]
) -> np.ndarray:
    """Returns the logits [K] of the next token."""
    flags, w = weights(folder)
    one = ONE if f"{ONE}.hidden_norm.weight" in w else "midlayer"
    flags = flags.get("eagle_config", {}) | flags
    if flags.get("fc_norm"):
        taps = [norm(tap, w[f"fc_norm.{i}.weight"]) for i, tap in enumerate(taps)]
    joined = np.concatenate(taps, -1)
    if flags.get("norm_before_fc"):
        joined = norm(joined, w["input_norm.weight"])
    states = [*(joined @ w["fc.weight"].T)]
    for end in range(len(states) + 1, len(text) + 1):
        e, g = embedding[text[1:end]], np.array(states[: end - 1])
        normed = norm(g, w[f"{one}.hidden_norm.weight"])
        read = norm(e, w[f"{one}.input_layernorm.weight"])
        stream = normed if flags.get("norm_before_residual") else g
        z = layer(w, one, np.concatenate([read, normed], -1), stream)
        states.append(norm(z, w["norm.weight"]) if flags.get("norm_output") else z)
    return norm(z, w["norm.weight"]) @ w["lm_head.weight"].T


def eagle_logits(
    folder: Path, tables: dict[str, np.ndarray], last: np.ndarray, text: list[int]
) -> np.ndarray:
    """Returns the logits [V], with the embedding in the folder and the target's
    readout."""
    _, w = weights(folder)
    states = [*last]
    for end in range(len(states) + 1, len(text) + 1):
        e, g = w["embed_tokens.weight"][text[1:end]], np.array(states[: end - 1])
        x = np.concatenate([e, g], -1) @ w["fc.weight"].T + w.get("fc.bias", 0)
        states.append(layer(w, ONE, x, x))
    return states[-1] @ tables["readout"]


def medusa_logits(folder: Path, last: np.ndarray, head: int) -> np.ndarray:
    """Returns the logits [V] of one head after a token's state [D]."""
    fields, w = weights(folder)
    x, count = last, fields["medusa_num_layers"]
    for j in range(count):
        name = f"{head}.{j}.linear"
        x = x + silu(w[f"{name}.weight"] @ x + w[f"{name}.bias"])
    return w[f"{head}.{count}.weight"] @ x


def blockwise_logits(
    folder: Path, readout: np.ndarray, last: np.ndarray, head: int
) -> np.ndarray:
    """Returns the logits [V] of one head after a token's state [D]; readout: [D, V],
    the target's."""
    _, w = weights(folder)
    hidden = np.maximum(last @ w["in"][:, head] + w["in_bias"][head], 0)
    return (last + hidden @ w["out"][head] + w["out_bias"][head]) @ readout
