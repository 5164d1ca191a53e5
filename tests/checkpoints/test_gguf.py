"""GGUF files are read as the models, tokenizers and templates that were written."""

import functools
import struct

import jax
import numpy as np
import pytest

import specjax
from specjax import checkpoints, zoo
from specjax.models.llama import Config, Rotation, Stretch
from specjax.tokenizers import gguf_file
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


def write_model(folder, config, **how):
    return gguf_files.write(folder / "a.gguf", config, weights(config), **how)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_read_as_it_was(tmp_path, name):
    config = FAMILIES[name]
    read, params = checkpoints.load(write_model(tmp_path, config)), weights(config)
    assert read.config == config._replace(eps=read.config.eps)
    assert np.isclose(read.config.eps, config.eps)
    assert (read.start, read.ends) == (1, (2, 3))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), read.params, params
    )


def test_what_is_quantised_is_multiplied_out_and_said(tmp_path):
    config = Config(32, 32, 32, 1, 1, 1, 32, positions=64)
    kind = gguf.GGMLQuantizationType.Q8_0
    read = checkpoints.load(write_model(tmp_path, config, quantized=kind))
    assert read.stored == "Q8_0 9, F32 3"
    embedding = np.asarray(weights(config)["embedding"])
    wanted = gguf.quants.dequantize(gguf.quants.quantize(embedding, kind), kind)
    np.testing.assert_array_equal(read.params["embedding"], wanted)
    assert 1e-4 < np.abs(wanted - embedding).max() < 0.05


def test_a_type_is_read_whatever_the_rank(tmp_path):
    """This includes norms, which are vectors, and doubles; arrays that are not weights
    are refused."""
    config = Config(32, 32, 32, 1, 1, 1, 32, positions=64)
    wanted = weights(config)
    kinds = gguf.GGMLQuantizationType
    for kind, atol in ((kinds.BF16, 2e-2), (kinds.F16, 1e-3), (kinds.F64, 0)):
        path = write_model(tmp_path, config, quantized=kind, vectors=True)
        read = checkpoints.load(path)
        assert read.stored == f"{kind.name} 12"
        jax.tree.map(
            lambda a, b, atol=atol: np.testing.assert_allclose(a, b, atol=atol),
            *(read.params, wanted),
        )
    path = write_model(tmp_path, config, quantized=kinds.I16, vectors=True)
    with pytest.raises(ValueError, match=r"is stored as I16, which .*: convert"):
        checkpoints.load(path)


def test_a_quantised_vector_is_multiplied_out(tmp_path):
    config = Config(32, 32, 32, 1, 1, 1, 32, positions=64)
    kind = gguf.GGMLQuantizationType.Q8_0
    read = checkpoints.load(write_model(tmp_path, config, quantized=kind, vectors=True))
    scale = np.asarray(weights(config)["norm"]["scale"])
    wanted = gguf.quants.dequantize(gguf.quants.quantize(scale, kind), kind)
    np.testing.assert_array_equal(read.params["norm"]["scale"], wanted)


@pytest.mark.parametrize(
    ("at", "number", "named"),
    [
        (4, b"\0\0\0\3", "is big-endian: `gguf-convert-endian"),
        (4, b"\1\0\0\0", "is of version 1 of GGUF; known are 2 and 3"),
        (0, b"GGML", "not a whole GGUF file .it does not begin with GGUF"),
        (16, b"\xff" * 8, "not a whole GGUF file"),
    ],
)
def test_a_header_of_another_kind_is_refused(tmp_path, at, number, named):
    path = write_model(tmp_path, FAMILIES["llama"])
    data = bytearray(path.read_bytes())
    data[at : at + len(number)] = number
    path.write_bytes(data)
    with pytest.raises(ValueError, match=named) as refused:
        checkpoints.load(path)
    assert "\n" not in str(refused.value)


def test_the_header_is_that_of_the_library(tmp_path):
    keys = byte_pairs("gpt-2") | {"ggml.scores": [0.5, -1.5], "ggml.flags": [True]}
    more = {"some.empty": [], "some.text": "漢\n", "some.small": 3}
    path = write_model(tmp_path, FAMILIES["llama"], more=more, tokenizer=keys)
    held, theirs = gguf_file.open_file(path), gguf.GGUFReader(path)
    fields = {x: of.contents() for x, of in theirs.fields.items()}
    assert held.fields == {x: y for x, y in fields.items() if x[:5] != "GGUF."}
    tensors = {
        x.name: (tuple(map(int, x.shape[::-1])), x.tensor_type.name, x.data_offset)
        for x in theirs.tensors
    }
    assert {x: tuple(y)[:3] for x, y in held.tensors.items()} == tensors


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"llama.rope.scaling.type": "yarn"}, "rope.scaling.type is 'yarn'"),
        ({"llama.rope.dimension_count": 2}, "rope.dimension_count is 2; known is 6"),
        ({"llama.expert_count": 8}, "expert_count is 8"),
        ({"llama.attention.value_length": 4}, "value_length is 4; known is 6"),
        ({"llama.attention.value_length": None}, "value_length is 4; known is 6"),
        (
            {"llama.attention.layer_norm_rms_epsilon": None},
            "layer_norm_rms_epsilon must be a number",
        ),
        ({"llama.rope.freq_base": "wide"}, "freq_base must be a number above 0"),
        ({"tokenizer.ggml.bos_token_id": "<s>"}, "has '<s>' where the format has int"),
        ({"llama.block_count": None}, "llama.block_count must be a whole number"),
        ({"llama.attention.head_count": [4, 2]}, "head_count must be a whole number"),
        ({"llama.logit_scale": 2.0}, "llama.logit_scale may change"),
        ({"adapter.type": "lora"}, "has no model of its own"),
        ({"general.type": "mmproj"}, "general.type is 'mmproj'"),
        ({"split.count": 3}, "one of 3 parts"),
        ({"general.architecture": "mamba"}, "known are llama, qwen2"),
    ],
)
def test_metadata_that_may_change_the_model_are_refused_by_name(tmp_path, more, named):
    path = write_model(tmp_path, FAMILIES["llama"], more=more)
    with pytest.raises(ValueError, match=named) as refused:
        checkpoints.load(path)
    assert "\n" not in str(refused.value)


def test_keys_of_other_tools_are_let_pass(tmp_path):
    foreign = {"mradermacher.quantized_by": "somebody", "llama.pooling_type": 0}
    foreign |= {"llama.tensor_data_layout": "Meta AI original pth"}
    foreign |= {"llama.attention.sliding_window": 4}  # which llama.cpp reads elsewhere
    foreign |= {"llama.attention.head_count_kv": [2, 2]}
    read = checkpoints.load(write_model(tmp_path, FAMILIES["llama"], more=foreign))
    plain = checkpoints.load(write_model(tmp_path, FAMILIES["llama"]))
    assert (read.config, read.ends) == (plain.config, plain.ends)


def test_a_file_is_known_by_what_it_begins_with(tmp_path):
    keys = byte_pairs("gpt-2")
    config = FAMILIES["llama"]._replace(vocab=len(keys["ggml.tokens"]))
    path = write_model(tmp_path, config, tokenizer=keys)
    for name in ("A.GGUF", "sha256-0a1b", "model.bin"):
        other = path.with_name(name)
        other.write_bytes(path.read_bytes())
        read = specjax.load(other)
        assert (read.tokenizer_file, read.config.num_layers) == (other, 2)


def test_frequencies_that_are_not_llama_3s_are_refused(tmp_path):
    odd = Rotation(500000.0, stretch=Stretch(8.0, 1.0, 4.0, 4096))
    path = write_model(tmp_path, FAMILIES["llama 3"]._replace(rotation=odd))
    with pytest.raises(ValueError, match="not Llama 3's"):
        checkpoints.load(path)


def test_a_file_that_is_cut_short_is_refused_in_one_line(tmp_path):
    path = write_model(tmp_path, FAMILIES["llama"])
    whole = path.read_bytes()
    for kept in (0, 3, 100, len(whole) // 2, len(whole) - 40):
        path.write_bytes(whole[:kept])
        with pytest.raises(ValueError, match="not a whole GGUF file") as refused:
            checkpoints.load(path)
        assert "\n" not in str(refused.value)


def test_a_text_of_more_bytes_than_can_be_counted_is_refused(tmp_path):
    path = tmp_path / "a.gguf"
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1)  # no tensors, one key
    texts = struct.pack("<IIQ", 9, 8, 2) + struct.pack("<Q", 2**64 - 1)  # a list of two
    path.write_bytes(head + struct.pack("<Q", 1) + b"k" + texts + bytes(16))
    with pytest.raises(ValueError, match="not a whole GGUF file"):
        gguf_file.open_file(path)


def load_tokenizer(tmp_path, keys):
    config = FAMILIES["llama"]._replace(vocab=len(keys["ggml.tokens"]))
    return specjax.load(write_model(tmp_path, config, tokenizer=keys)).tokenizer


def test_pieces_are_merged_as_sentencepiece_merges_them(tmp_path):
    file = zoo.FOLDER / "tokenizer.model"
    pieces = formats.ModelProto.FromString(file.read_bytes()).pieces
    read = load_tokenizer(
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


def byte_pairs(pre):
    tokens = ["<s>", "</s>", *LETTERS, "12", "123", "1234"]
    return {
        "ggml.model": "gpt2",
        "ggml.pre": pre,
        "ggml.tokens": tokens,
        "ggml.token_type": [3, 3] + [1] * (len(tokens) - 2),
        "ggml.merges": ["1 2", "12 3", "123 4"],
        "ggml.add_bos_token": False,
    }


@pytest.mark.parametrize("pre", DIGITS)
def test_bytes_are_cut_as_the_file_says(tmp_path, pre):
    read = load_tokenizer(tmp_path, byte_pairs(pre))
    ids = read.encode("1234")
    assert "|".join(map(read.token, ids)) == DIGITS[pre]
    assert read.decode([0, *read.encode(TEXT), 1]) == TEXT
    assert read.encode("</s>") == [1]
    # llama.cpp composes no characters.
    assert [*map(read.token, read.encode("e\u0301"))] == ["e", "\u00cc", "\u0123"]


# Of Llama 3 as it was converted at first: no key names the end of a turn.
NAMED = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|file_sep|>"]


def test_tokens_that_end_a_text_are_known_by_their_names(tmp_path):
    keys = byte_pairs("llama-bpe")
    count, pairs = len(keys["ggml.tokens"]), dict.fromkeys(("bos", "eos", "eot"))
    keys |= {"ggml.tokens": keys["ggml.tokens"] + NAMED, "ggml.add_bos_token": None}
    keys["ggml.token_type"] = keys["ggml.token_type"] + [3, 3, 1, 1]
    keys["chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}"
    first, last, turn, part = range(count, count + 4)
    ids = {f"tokenizer.ggml.{x}_token_id": i for x, i in pairs.items()}
    ids |= {"tokenizer.ggml.bos_token_id": first, "tokenizer.ggml.eos_token_id": last}
    config = FAMILIES["llama"]._replace(vocab=count + 4)
    read = specjax.load(write_model(tmp_path, config, more=ids, tokenizer=keys))
    # "</s>" is a name of an end too.
    assert (read.start, read.ends) == (first, (last, part, 1, turn))
    word = read.tokenizer.encode("4")[1:]
    assert read.tokenizer.encode("4") == [first, *word]
    # Written as a word in the file, and special by its name.
    assert read.tokenizer.encode("4<|eot_id|>") == [first, *word, turn]
    assert read.tokenizer.decode([first, *word, turn]) == "4"
    for text in ("4", "<|begin_of_text|>4"):  # each once, whoever writes it
        talk = [{"role": "user", "content": text}]
        assert read.tokenizer.converse(talk) == [first, *word]


def test_a_start_that_is_a_word_is_still_a_word(tmp_path):
    """Without the key llama.cpp starts with token 11, whatever that token is."""
    config = FAMILIES["llama"]._replace(vocab=len(byte_pairs("gpt-2")["ggml.tokens"]))
    more = {"tokenizer.ggml.bos_token_id": None}
    read = specjax.load(
        write_model(tmp_path, config, more=more, tokenizer=byte_pairs("gpt-2"))
    )
    word = read.tokenizer.token(11)
    assert read.start == 11 and read.tokenizer.encode(word) == [11]
    assert read.tokenizer.decode([11]) == word


def test_a_tokenizer_of_an_unknown_kind_is_refused_by_name(tmp_path):
    keys = {"ggml.tokens": ["a"] * 29, "ggml.token_type": [1] * 29}
    for more, named in (
        ({"ggml.model": "rwkv"}, "tokenizer.ggml.model is 'rwkv'"),
        ({"ggml.model": ["gpt2"]}, "has .'gpt2'. where the format has str"),
        ({"ggml.model": "gpt2"}, "lacks tokenizer.ggml.merges"),
        (
            {"ggml.model": "gpt2", "ggml.pre": "tekken", "ggml.merges": ["a b"]},
            "tokenizer.ggml.pre is 'tekken'",
        ),
    ):
        with pytest.raises(ValueError, match=named):
            load_tokenizer(tmp_path, keys | more)
