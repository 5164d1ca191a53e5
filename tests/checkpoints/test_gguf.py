"""GGUF files read as the models, the tokenizers and the templates that were written."""

import functools

import jax
import numpy as np
import pytest

import specjax
from specjax import checkpoints, zoo
from specjax.models.llama import Config, Rotation, Stretch
from tests.support import tiny_llama

gguf = pytest.importorskip("gguf")

from sentencepiece import SentencePieceProcessor  # noqa: E402
from sentencepiece import sentencepiece_model_pb2 as formats  # noqa: E402

from tests.support import gguf_files  # noqa: E402

LLAMA3 = Rotation(500000.0, stretch=Stretch(8.0, 1.0, 4.0, 8192))
FAMILIES = {
    "llama": Config(29, 16, 24, 2, 4, 2, 6, tied=True, positions=64),
    "llama 3": Config(29, 16, 24, 2, 2, 1, 64, rotation=LLAMA3, positions=64),
    "linear": Config(29, 16, 24, 2, 4, 2, 6, rotation=Rotation(50.0, 4.0), positions=9),
    "qwen2": Config(29, 16, 24, 2, 4, 2, 4, "qwen2", biased=True, positions=64),
    "qwen3": Config(29, 16, 24, 2, 3, 1, 8, "qwen3", positions=64),
    "gemma2": tiny_llama.GEMMA2._replace(positions=64, scale=None),
    "gemma3": tiny_llama.GEMMA3._replace(
        positions=64, local=(0, 1), local_rotation=Rotation(10_000.0)
    ),
}
TEXT = "def f(x):\n    return x + 1234  # it's  ok, they'LL\n\n\té漢😀"
CHAT = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"


weights = functools.partial(tiny_llama.weights, seed=1)


def written(folder, config, *more, **how):
    return gguf_files.write(folder / "a.gguf", config, weights(config), *more, **how)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_read_as_it_was(tmp_path, name):
    config = FAMILIES[name]
    read, params = checkpoints.load(written(tmp_path, config)), weights(config)
    assert read.config == config._replace(eps=read.config.eps)
    assert np.isclose(read.config.eps, config.eps)
    assert (read.start, read.ends) == (1, (2, 3))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), read.params, params
    )


def test_what_is_quantised_is_multiplied_out_and_said(tmp_path):
    config = Config(32, 32, 32, 1, 1, 1, 32, positions=64)
    kind = gguf.GGMLQuantizationType.Q8_0
    read = checkpoints.load(written(tmp_path, config, quantized=kind))
    assert read.stored == "Q8_0 9, F32 3"
    embedding = np.asarray(weights(config)["embedding"])
    wanted = gguf.quants.dequantize(gguf.quants.quantize(embedding, kind), kind)
    np.testing.assert_array_equal(read.params["embedding"], wanted)
    assert 1e-4 < np.abs(wanted - embedding).max() < 0.05


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"llama.rope.scaling.type": "yarn"}, "rope.scaling.type is 'yarn'"),
        ({"llama.rope.dimension_count": 2}, "rope.dimension_count is 2; known is 6"),
        ({"llama.expert_count": 8}, "expert_count is 8"),
        ({"llama.rope.scaling.type": "linear"}, "factor must be a number"),
        ({"llama.block_count": None}, "llama.block_count must be a whole number"),
        ({"llama.attention.head_count": [4, 2]}, "head_count must be a whole number"),
        ({"llama.logit_scale": 2.0}, "llama.logit_scale may change"),
        ({"adapter.type": "lora"}, "adapter.type may change"),
        ({"split.count": 3}, "one of 3 parts"),
        ({"general.architecture": "mamba"}, "known are llama, qwen2"),
    ],
)
def test_metadata_that_may_change_the_model_are_refused_by_name(tmp_path, more, named):
    path = written(tmp_path, FAMILIES["llama"], more)
    with pytest.raises(ValueError, match=named) as refused:
        checkpoints.load(path)
    assert "\n" not in str(refused.value)


def test_frequencies_that_are_not_llama_3s_are_refused(tmp_path):
    odd = Rotation(500000.0, stretch=Stretch(8.0, 1.0, 4.0, 4096))
    path = written(tmp_path, FAMILIES["llama 3"]._replace(rotation=odd))
    with pytest.raises(ValueError, match="not Llama 3's"):
        checkpoints.load(path)


def test_a_file_that_is_cut_short_is_refused_in_one_line(tmp_path):
    path = written(tmp_path, FAMILIES["llama"])
    whole = path.read_bytes()
    for kept in (0, 3, 100, len(whole) // 2):
        path.write_bytes(whole[:kept])
        with pytest.raises(ValueError, match="no whole GGUF file") as refused:
            checkpoints.load(path)
        assert "\n" not in str(refused.value)


def tokenizer_of(tmp_path, keys):
    config = FAMILIES["llama"]._replace(vocab=len(keys["ggml.tokens"]))
    return specjax.load(written(tmp_path, config, tokenizer=keys)).tokenizer


def test_pieces_are_merged_as_sentencepiece_merges_them(tmp_path):
    file = zoo.FOLDER / "tokenizer.model"
    pieces = formats.ModelProto.FromString(file.read_bytes()).pieces
    read = tokenizer_of(
        tmp_path,
        {
            "ggml.model": "llama",
            "ggml.tokens": [x.piece for x in pieces],
            "ggml.scores": [x.score for x in pieces],
            "ggml.token_type": [x.type for x in pieces],
            "ggml.add_space_prefix": False,
            "chat_template": CHAT,
        },
    )
    ids = SentencePieceProcessor(model_file=str(file)).encode(TEXT)
    assert read.encode(TEXT) == [1, *ids]
    assert read.decode([1, *ids, 2]) == TEXT
    assert read.converse([{"role": "user", "content": TEXT}]) == [1, *ids]


# A vocabulary of bytes, with digits that merge: only a cut before keeps them apart.
LETTERS = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256))]
LETTERS += [chr(256 + i) for i in range(68)]
DIGITS = {
    "smollm": "1|2|3|4",
    "gpt-2": "1234",
    "llama-bpe": "123|4",
    "qwen2": "1|2|3|4",
}


@pytest.mark.parametrize("pre", DIGITS)
def test_bytes_are_cut_as_the_file_says(tmp_path, pre):
    tokens = ["<s>", "</s>", *LETTERS, "12", "123", "1234"]
    keys = {
        "ggml.model": "gpt2",
        "ggml.pre": pre,
        "ggml.tokens": tokens,
        "ggml.token_type": [3, 3] + [1] * (len(tokens) - 2),
        "ggml.merges": ["1 2", "12 3", "123 4"],
    }
    read = tokenizer_of(tmp_path, keys)
    ids = read.encode("1234")
    assert "|".join(map(read.token, ids)) == DIGITS[pre]
    assert read.decode([0, *read.encode(TEXT), 1]) == TEXT
    assert read.encode("</s>") == [1]


def test_a_tokenizer_of_an_unknown_kind_is_refused_by_name(tmp_path):
    keys = {"ggml.tokens": ["a"] * 29, "ggml.token_type": [1] * 29}
    for more, named in (
        ({"ggml.model": "rwkv"}, "tokenizer.ggml.model is 'rwkv'"),
        ({"ggml.model": "llama"}, "lacks tokenizer.ggml.scores"),
        (
            {"ggml.model": "gpt2", "ggml.pre": "tekken", "ggml.merges": ["a b"]},
            "tokenizer.ggml.pre is 'tekken'",
        ),
    ):
        with pytest.raises(ValueError, match=named):
            tokenizer_of(tmp_path, keys | more)
