"""Text becomes ids and text again as in transformers, for each folder.

transformers reads the very files that we read: every class, flag and list of tokens.
"""

import random

import pytest

from specjax import tokenizers
from tests.support import text_folders
from tests.support import tokenizer_folders as folders
from tests.support.tokenizer_folders import token

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

TALK = {str(n): token(f"<|{x}|>", special=True) for n, x in enumerate(("start", "end"))}
SPACES = "the quick", "fox", " ", "  ", "\n", "\n\n", "\t"
WORDS = "it's We'LL 2024 <tag> é e\u0301 größer 漢字 🙂 \u2581 {x} ﬁ \u00a0 . <s> </s>"
WORDS += " <bos> <eos> <pad> <unk> <|endoftext|> <|start|> <|end|> word <wide>"
FRAGMENTS = [*SPACES, *f"{WORDS} <extra_id_0> <extra_id_9> <start>".split(" ")]


def describe_class(name: str, **fields) -> dict:
    return {"tokenizer_class": name} | fields


def number_tokens(first: int, *tokens: dict) -> dict:
    return {str(first + i): value for i, value in enumerate(tokens)}


NEW = (
    token("<|start|>", special=True),
    token("<|end|>", special=True),
    token("word", single_word=True),
    token("<wide>", lstrip=True, rstrip=True, normalized=True),
)
AS_TOKEN = {"__type": "AddedToken"}
LEGACY = {"<|start|>": 0, "<|end|>": 1, "word": 2}  # after the vocabulary's last
FLAGS = [
    {},
    {"add_bos_token": True},
    {"add_bos_token": False, "add_eos_token": True},
    {"legacy": True, "add_bos_token": True},
    {"legacy": False},
    {"add_prefix_space": False, "legacy": False},
    {"add_prefix_space": True, "bos_token": None},
    {"bos_token": "<|start|>", "add_bos_token": True, "eos_token": "<|end|>"},
    {"additional_special_tokens": ["<|start|>", "<extra_id_0>"], "extra_ids": 1},
    {"extra_special_tokens": {"image_token": "<|end|>"}, "sound_token": "word"},
    {"extra_ids": 10, "pad_token": token("<|end|>", lstrip=True) | AS_TOKEN},
]
FAMILIES = {
    "Llama": ("LlamaTokenizer", "tokenizer_model", folders.llama),
    "Gemma": ("GemmaTokenizer", "tokenizer_model", folders.gemma),
    "generic": ("PreTrainedTokenizerFast", "tokenizer_model", folders.llama),
    "Gemma by its file": ("PreTrainedTokenizerFast", "tokenizer_model", folders.gemma),
    "T5 by its file": ("PreTrainedTokenizer", "tokenizer_model", folders.t5),
    "T5": ("T5Tokenizer", "spiece_model", folders.t5),
    "mT5": ("T5Tokenizer", "spiece_model", lambda: folders.t5(True)),
}


def sizes(model: bytes) -> int:
    from sentencepiece import SentencePieceProcessor

    return SentencePieceProcessor(model_proto=model).vocab_size()


def cases():
    for family, (name, file, model) in FAMILIES.items():
        special = {"additional_special_tokens": ["<|start|>"], "eos_token": "<|end|>"}
        for i, flags in enumerate(FLAGS):
            config, count = describe_class(name, **flags), sizes(model())
            count += flags.get("extra_ids", 100) if name == "T5Tokenizer" else 0
            legacy = {text: count + i for text, i in LEGACY.items()}
            base = {file: model(), "config_json": {"model_type": "none"}}
            yield f"{family} {i}", base | {"tokenizer_config_json": config}
            new = config | {"added_tokens_decoder": number_tokens(count, *NEW)}
            yield f"{family} {i} new", base | {"tokenizer_config_json": new}
            old = {"added_tokens_json": legacy, "special_tokens_map_json": special}
            yield f"{family} {i} old", base | {"tokenizer_config_json": config} | old
    for model_type in ("mistral", "gemma2", "mt5"):
        file, model = "tokenizer_model", folders.llama()
        if model_type == "mt5":
            file, model = "spiece_model", folders.t5(True)
        if model_type == "gemma2":
            model = folders.gemma()
        config = {"add_bos_token": True, "extra_ids": 0}
        files = {file: model, "config_json": {"model_type": model_type}}
        yield f"{model_type}, no class", files | {"tokenizer_config_json": config}
        if model_type == "mistral":
            config |= describe_class("LlamaTokenizer")
            yield model_type, files | {"tokenizer_config_json": config}
    for name in ("GPT2Tokenizer", "Qwen2Tokenizer", "RobertaTokenizer"):
        files = folders.vocabulary(name)
        count = len(files["vocab_json"])
        decoder = {"added_tokens_decoder": number_tokens(count, *NEW)}
        config = {"config_json": {"model_type": "none"}}
        for i, flags in enumerate([*FLAGS, decoder, decoder | FLAGS[7]]):
            told = {"tokenizer_config_json": describe_class(name, **flags)}
            yield f"{name} {i}", files | config | told
        old = {"added_tokens_json": {text: count + i for text, i in LEGACY.items()}}
        yield f"{name} old", files | config | told | old
    extra = [f"<extra_id_{i}>" for i in range(125)]
    sure = {x: token(f"<{x[:3]}>") for x in ("pad_token", "unk_token")}
    sure = {x: AS_TOKEN | value for x, value in sure.items()}
    for i, fields in enumerate(({}, {"additional_special_tokens": extra}, sure)):
        told = {"tokenizer_config_json": describe_class("ByT5Tokenizer", **fields)}
        yield f"ByT5 {i}", told | {"config_json": {"model_type": "t5"}}
    whole = {"tokenizer_json": text_folders.bpe().to_str()}
    count = text_folders.bpe().get_vocab_size()
    config = {"added_tokens_decoder": number_tokens(count, *NEW)}
    for i, flags in enumerate(FLAGS):
        told = describe_class("PreTrainedTokenizerFast", **flags)
        yield f"whole {i}", whole | {"tokenizer_config_json": told}
        yield f"whole {i} new", whole | {"tokenizer_config_json": told | config}


CASES = dict(cases())


@pytest.mark.parametrize("name", CASES)
def test_ids_and_texts_are_those_of_transformers(name, tmp_path):
    folder = folders.write(tmp_path, **CASES[name])
    reference = transformers.AutoTokenizer.from_pretrained(folder)
    own = tokenizers.read(folder)
    assert own.vocab == len(reference)
    draw = random.Random(name)
    for _ in range(40):
        text = "".join(draw.choices(FRAGMENTS, k=draw.randint(0, 9)))
        ids = reference(text).input_ids
        assert own.encode(text) == ids, text
        assert own.decode(ids) == reference.decode(ids, skip_special_tokens=True)
