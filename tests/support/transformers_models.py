"""Random models of every family, written by transformers, with its logits and its
texts.

Their sizes are such as nothing else has, and all their numbers are random, norms and
biases too: none can stand in for another. Llamas' windows are shorter than the texts,
and their rotary positions are scaled within them.
Axes: B rows, I input tokens, F frames, M bands, T tokens, V vocabulary.
"""

from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import t5
from specjax.types import Features
from tests.support.tiny_whisper import TOKENS, VOCAB

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

torch.set_num_threads(1)  # these are too small for more
transformers.utils.logging.disable_progress_bar()
BATCH, POSITIONS, NEW, WINDOW = 3, 32, 14, 5
LENGTHS = (150, 3, 41)  # of T5's inputs: to the last bucket of distances, and short
BANDS, FRAMES = 7, 26

LLAMA = dict(vocab_size=37, hidden_size=18, intermediate_size=23, num_hidden_layers=3)
LLAMA |= dict(num_attention_heads=3, num_key_value_heads=1, head_dim=6)
LLAMA |= dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
LLAMA |= dict(max_position_embeddings=64)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0)
LLAMA3 |= dict(high_freq_factor=4.0, original_max_position_embeddings=16)
LONG = dict(rope_type="linear", factor=8.0, rope_theta=1e4)
QWEN = dict(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1)
GEMMA2 = dict(sliding_window=WINDOW, query_pre_attn_scalar=9)
CAPS = dict(attn_logit_softcapping=2.0, final_logit_softcapping=3.0)
LOCAL = dict(rope_type="default", rope_theta=100.0)
TURNS = dict(full_attention=LONG, sliding_attention=LOCAL)
TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
GEMMA3 = GEMMA2 | dict(layer_types=TYPES, rope_parameters=TURNS)
VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1)
VISION |= dict(num_attention_heads=2, image_size=28, patch_size=14)
IMAGES = dict(image_token_index=30, boi_token_index=31, eoi_token_index=32)
V1_1 = dict(vocab_size=41, d_model=15, d_kv=5, d_ff=24, num_heads=3, num_layers=1)
V1_1 |= dict(feed_forward_proj="gated-gelu", num_decoder_layers=3)
V1_1 |= dict(tie_word_embeddings=False)
OWN_READOUT = ("v1_1", "silu", "mt5")
WHISPER = dict(vocab_size=VOCAB, num_mel_bins=BANDS, d_model=18)
WHISPER |= dict(max_source_positions=FRAMES // 2, max_target_positions=POSITIONS)
WHISPER |= dict(encoder_layers=2, decoder_layers=3)
WHISPER |= dict(encoder_attention_heads=3, decoder_attention_heads=3)
WHISPER |= dict(encoder_ffn_dim=4 * 18, decoder_ffn_dim=4 * 18)
WHISPER |= {f"{name}_token_id": TOKENS.end for name in ("pad", "bos", "eos")}
WHISPER |= dict(decoder_start_token_id=TOKENS.start)
WHISPER |= dict(suppress_tokens=[], begin_suppress_tokens=[])
SIZES = {
    "GPT2": dict(bos_token_id=1, eos_token_id=2, n_positions=POSITIONS),
    **{called: dict(decoder_start_token_id=0) for called in ("T5", "MT5", "UMT5")},
    "Whisper": WHISPER,
}  # and LLAMA
V1_0 = dict(vocab_size=37, d_model=16, d_kv=5, d_ff=23, num_heads=3, num_layers=2)
ONE_HEAD = dict(vocab_size=33, d_model=9, d_kv=7, d_ff=8, num_heads=1, num_layers=3)
UNTIED = dict(vocab_size=31, n_embd=8, n_head=2, n_layer=3, n_inner=19)
UNTIED |= dict(tie_word_embeddings=False, activation_function="gelu_pytorch_tanh")
BIASED = dict(rope_parameters=LONG, attention_bias=True, mlp_bias=True)
CASES = {
    "gpt2": ("GPT2", dict(vocab_size=37, n_embd=15, n_head=3, n_layer=2)),
    "gpt2_untied": ("GPT2", UNTIED),
    "llama": ("Llama", {}),
    "llama3": ("Llama", dict(rope_parameters=LLAMA3, tie_word_embeddings=True)),
    "llama_long": ("Llama", BIASED),
    "mistral": ("Mistral", dict(sliding_window=WINDOW)),
    "qwen2": ("Qwen2", {}),
    "qwen2_local": ("Qwen2", QWEN),
    "qwen3": ("Qwen3", dict(attention_bias=True)),
    "gemma": ("Gemma", {}),
    "gemma2": ("Gemma2", GEMMA2 | CAPS),
    "gemma3": ("Gemma3Text", GEMMA3),
    "gemma3_images": ("Gemma3", GEMMA3),
    "v1_0": ("T5", V1_0 | dict(feed_forward_proj="relu")),
    "v1_1": ("T5", V1_1),
    "one_head": ("T5", ONE_HEAD | dict(num_decoder_layers=1, feed_forward_proj="relu")),
    # v1.1 as transformers 5 begins it: the readout is the embedding, but not scaled.
    "v1_1_shared": ("T5", V1_1),
    "silu": ("T5", V1_1 | dict(feed_forward_proj="gated-silu")),
    "mt5": ("MT5", V1_1 | dict(num_layers=2)),
    "umt5": ("UMT5", V1_1 | dict(num_layers=2)),
    "whisper": ("Whisper", {}),
}
T5S = "T5", "MT5", "UMT5"


class Written(NamedTuple):
    """A model of transformers, the name of its class, and the folder that it wrote."""

    name: str
    called: str
    model: object
    folder: Path

    @property
    def vocab(self) -> int:
        config = self.model.config
        return getattr(config, "text_config", config).vocab_size


def make_config(called: str, **fields):
    fields = {**SIZES.get(called, LLAMA), **fields}
    if called != "Gemma3":
        return getattr(transformers, f"{called}Config")(**fields)
    text = transformers.Gemma3TextConfig(**fields)
    vision = transformers.SiglipVisionConfig(**VISION)
    of = dict(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    return transformers.Gemma3Config(**of, **IMAGES)


def find_class(called: str):
    kinds = dict.fromkeys(("Gemma3", "Whisper", *T5S), "ForConditionalGeneration")
    kind = (kinds | {"GPT2": "LMHeadModel"}).get(called, "ForCausalLM")
    return getattr(transformers, called.removesuffix("Text") + kind)


def make_model(called: str, config, own_readout: bool = False):
    """Returns a random model. own_readout: whether a T5 has a readout of its own, and
    not its embedding."""
    seeds = {**dict.fromkeys(T5S, (2, 0.2)), "GPT2": (3, 0.4), "Whisper": (0, 0.4)}
    seed, spread = seeds.get(called, (3, 0.3))
    torch.manual_seed(seed)
    model = find_class(called)(config).eval()
    if own_readout:
        head = torch.randn(config.vocab_size, config.d_model)
        model.lm_head.weight = torch.nn.Parameter(head)
    with torch.no_grad():
        for path, leaf in model.named_parameters():
            leaf.add_(spread * torch.randn_like(leaf))
            bare = called == "T5" and not config.is_gated_act
            if bare and leaf.ndim == 2 and path != "shared.weight":
                leaf.mul_(2)  # or each token repeats the last, which is the readout
        if called == "Whisper":  # a text of different tokens, not all of them times
            positions = model.model.decoder.embed_positions.weight
            positions.add_(2.0 * torch.randn_like(positions))
            model.proj_out.weight[TOKENS.first_time :] *= 0.5
    return model


def write(name: str, folder: Path, dtype=None, **options) -> Written:
    called, fields = CASES[name]
    model = make_model(called, make_config(called, **fields), name in OWN_READOUT)
    if called not in SIZES:
        model.generation_config.eos_token_id = [2, 11]
    model.to(dtype or torch.float32).save_pretrained(folder, **options)
    model = model if dtype is None else load_folder(called, folder)
    return Written(name, called, model, folder)


def load_folder(called: str, folder: Path):
    read = find_class(called).from_pretrained
    return read(folder, dtype=torch.float32).eval()


def make_inputs(called: str, vocab: int) -> tuple[list[dict], object]:
    """Returns the inputs of texts: row by row for transformers, and in one batch for
    us."""
    rng = np.random.default_rng(0)
    if called in T5S:
        inputs = rng.integers(2, vocab, (BATCH, max(LENGTHS)))
        inputs[np.arange(max(LENGTHS)) >= np.array(LENGTHS)[:, None]] = t5.PAD
        rows = [row[:n] for row, n in zip(inputs, LENGTHS, strict=True)]
        theirs = [{"input_ids": torch.tensor(row)[None]} for row in rows]
        return theirs, t5.Inputs(jnp.asarray(inputs, jnp.int32), jnp.array(LENGTHS))
    if called == "Whisper":
        sounds = rng.standard_normal((BATCH, FRAMES, BANDS)).astype(np.float32)
        theirs = [{"input_features": torch.tensor(row.T)[None]} for row in sounds]
        return theirs, Features(jnp.asarray(sounds))
    return [{}] * BATCH, None


def prompts(called: str) -> list[list[int]]:
    """Returns prompts of different lengths; those of T5 are equal, and its inputs
    differ."""
    if called in T5S:
        return [[t5.PAD]] * BATCH
    if called == "Whisper":
        return [[TOKENS.start, 22, 25], [TOKENS.start], [TOKENS.start, 23, 24, 29]]
    return [[1, 5, 9, 4, 20, 6, 3, 8, 30], [1], [1, 7]]


def texts(vocab: int, length: int = POSITIONS) -> np.ndarray:
    """Returns texts [B, T] with as many tokens as there are positions, which are many
    windows."""
    return np.random.default_rng(1).integers(3, vocab, (BATCH, length))


def logits(model, called: str, tokens: np.ndarray) -> np.ndarray:
    """Returns logits [B, T, V] by transformers, in double precision if the model is:
    rounding in its single precision is sometimes above our tolerance."""
    config = model.config
    vocab = getattr(config, "text_config", config).vocab_size
    about, _ = make_inputs(called, vocab)
    name = "decoder_input_ids" if about[0] else "input_ids"
    if "input_features" in about[0]:
        about = [{k: x.to(model.dtype) for k, x in row.items()} for row in about]
    with torch.no_grad():
        rows = [
            model(**{name: torch.tensor(row)[None]}, **more).logits.float().numpy()
            for row, more in zip(tokens, about, strict=True)
        ]
    return np.concatenate(rows)


def greedy_texts(written: Written) -> list[list[int]]:
    """Returns the greedy text of each row, decoded alone, with its prompt and up to its
    end."""
    options = dict(max_new_tokens=NEW, do_sample=False)
    about, _ = make_inputs(written.called, written.vocab)
    rows = []
    for prompt, more in zip(prompts(written.called), about, strict=True):
        ids = torch.tensor([prompt])
        generate = written.model.generate
        if written.called == "Whisper":  # without what its long form does besides
            generate = transformers.GenerationMixin.generate
            given = written.model, more["input_features"]
            row = generate(*given, decoder_input_ids=ids, **options)
        elif more:
            # Its cache has as many layers as the encoder, too few for some of these.
            row = generate(**more, use_cache=False, **options)
        else:
            mask = torch.ones_like(ids)
            row = generate(ids, attention_mask=mask, pad_token_id=0, **options)
        rows.append(row[0].tolist())
    return rows
