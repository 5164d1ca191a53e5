"""The files of a folder of Hugging Face that describe its tokenizer, other than the
vocabulary.

`tokenizer_config.json` names a class, special tokens and added ones; older folders have
the tokens in `special_tokens_map.json` and `added_tokens.json`.
"""

import json
import reprlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple


class Special(NamedTuple):
    """The ids around a text.

    start: the id that a text starts with, None for none. ends: ids that each end it; an
    input of an encoder ends with the first. encodes: whether the model reads its
    prompts by an encoder.
    """

    start: int | None
    ends: tuple[int, ...]
    encodes: bool


class Coder(NamedTuple):
    """The functions of a `specjax.tokenizers.Tokenizer`, which describes them.

    bare: text -> ids, to which no start or end is added; special tokens are read only
    where the text contains their names."""

    bare: Callable[[str], list[int]]
    encode: Callable[[str], list[int]]
    decode: Callable[[Iterable[int]], str]
    piece: Callable[[int], str]
    vocab: int
    token: Callable[[int], str | None]
    token_bytes: Callable[[int], bytes | None]
    silent: frozenset[int]


CONFIG, MAP = "tokenizer_config.json", "special_tokens_map.json"
ADDED, TEMPLATE = "added_tokens.json", "chat_template.jinja"
MODEL = "config.json"  # which may name the tokenizer's class
OPENAI = "*.tiktoken"  # OpenAI's vocabularies of Whisper
READ = CONFIG, MAP, ADDED, TEMPLATE, OPENAI
GENERIC = "TokenizersBackend"
LISTS = "extra_special_tokens", "additional_special_tokens"
FLAGS = "special", "normalized", "lstrip", "rstrip", "single_word"
SPECIAL = tuple(f"{x}_token" for x in "bos eos unk sep pad cls mask".split())

# The class of a model_type whose folders name none, or a wrong one where it is generic:
# transformers then reads the vocabulary as the file itself says.
BY_MODEL_TYPE = {
    "gpt2": "GPT2Tokenizer",
    "t5": "T5Tokenizer",
    "mt5": "T5Tokenizer",
    "umt5": "T5Tokenizer",
    "mistral": GENERIC,
    "gemma": "GemmaTokenizer",
    "gemma2": "GemmaTokenizer",
    "gemma3": "GemmaTokenizer",
    "gemma3_text": "GemmaTokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "whisper": "WhisperTokenizer",
}
ALIASES = dict.fromkeys(("PreTrainedTokenizer", "PythonBackend"), GENERIC)
ALIASES |= {"PreTrainedTokenizerFast": GENERIC, "MT5Tokenizer": "T5Tokenizer"}
ALIASES |= {"BartTokenizer": "RobertaTokenizer"}

# Special tokens that a class has where its folder does not name them.
END = "<|endoftext|>"
DEFAULTS = {
    "LlamaTokenizer": {"bos": "<s>", "eos": "</s>", "unk": "<unk>"},
    "GemmaTokenizer": {x: f"<{x}>" for x in ("bos", "eos", "unk", "pad", "mask")},
    "T5Tokenizer": {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
    "ByT5Tokenizer": {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
    "GPT2Tokenizer": {"bos": END, "eos": END, "unk": END},
    "WhisperTokenizer": {"bos": END, "eos": END, "unk": END},
    "Qwen2Tokenizer": {"eos": END, "unk": END, "pad": END},
    "RobertaTokenizer": {
        **{"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>"},
        **{"pad": "<pad>", "cls": "<s>", "mask": "<mask>"},
    },
}


class TokenizerConfig(NamedTuple):
    """The contents of the files of a folder that describe its tokenizer.

    A token is a dictionary: its content, and how it is found in a text.

    Attributes:
      kind: the class of the tokenizer, None where nothing tells.
      fields: those of `tokenizer_config.json`.
      named: special tokens by name, such as bos_token; the class's own where the folder
        has none.
      extra: further special tokens, None where `tokenizer_config.json` lists none.
      older: those of `special_tokens_map.json`, which count where the vocabulary has
        none.
      added: id -> an added token.
      described: whether a file exists only for the tokenizer.
    """

    kind: str | None
    fields: dict[str, Any]
    named: dict[str, dict[str, Any]]
    extra: list[dict[str, Any]] | None
    older: list[dict[str, Any]]
    added: dict[int, dict[str, Any]]
    described: bool


def read(folder: Path) -> TokenizerConfig:
    """Reads the files of a folder. Raises ValueError for a file that is not JSON, or a
    token that is invalid."""
    fields, model = read_json(folder / CONFIG), read_json(folder / MODEL)
    kind = tokenizer_class(fields, model)
    described = any((folder / x).is_file() for x in (CONFIG, MAP, ADDED, TEMPLATE))
    decoder = fields.get("added_tokens_decoder")
    older: dict[str, Any] = {}
    if not isinstance(decoder, dict):
        older = read_json(folder / MAP)
        fields |= {x: value for x, value in older.items() if x not in LISTS[1:]}
    names = (x for x in fields if x.endswith("_token") and fields[x])
    named = {x: token(fields[x]) for x in names if isinstance(fields[x], str | dict)}
    by_name, extra = fields.get(LISTS[0]), first_list(fields, *LISTS)
    if isinstance(by_name, dict):  # such as image_token
        named |= {x: token(value) for x, value in by_name.items()}
    if isinstance(decoder, dict):
        pairs = [(x, value) for x, value in decoder.items() if isinstance(value, dict)]
        added = {int(x): token(y, special=False) for x, y in pairs if x.isdecimal()}
    else:
        special = {x["content"] for x in (*named.values(), *(extra or ()))}
        ids = [x for x in read_json(folder / ADDED).items() if type(x[1]) is int]
        added = {i: token(text, special=text in special) for text, i in ids}
    flags = {value["content"]: value for value in added.values()}
    own = DEFAULTS.get(kind or "", {})
    lacking = [f"{x}_token" for x in own if f"{x}_token" not in fields]
    named |= {x: token(own[x.removesuffix("_token")]) for x in lacking}
    first = [x for x in SPECIAL if x in named]
    named = {x: named[x] for x in (*first, *named)}
    named = {x: flags.get(y["content"], y) for x, y in named.items()}
    return TokenizerConfig(
        kind,
        fields,
        named,
        extra,
        older=first_list(older, LISTS[1]) or [],
        added=dict(sorted(added.items())),
        described=described,
    )


def first_list(fields: dict[str, Any], *names: str) -> list[dict[str, Any]] | None:
    """Returns the tokens in the first of these lists that exists; None if none
    exists."""
    lists = [fields[x] for x in names if isinstance(fields.get(x), list) and fields[x]]
    return [*map(token, lists[0])] if lists else None


def tokenizer_class(fields: dict[str, Any], model: dict[str, Any]) -> str | None:
    """Returns the class that `tokenizer_config.json` and `config.json` name, as
    transformers 5 finds it, without a final "Fast"; None where neither names one."""
    name: Any = fields.get("tokenizer_class") or model.get("tokenizer_class")
    name = name.removesuffix("Fast") if isinstance(name, str) else None
    usual = BY_MODEL_TYPE.get(str(model.get("model_type")))
    wrong = usual == GENERIC or model.get("model_type") == "qwen2"
    return usual if name is None or wrong else ALIASES.get(name, name)


def token(value: Any, *, special: bool = True) -> dict[str, Any]:
    """Returns a token of the folder, a text or a dict, as a dict of its text and its
    flags. Raises ValueError for a dict without a text."""
    flags = {"special": special, "normalized": not special}
    if not isinstance(value, dict):
        return {"content": str(value)} | flags
    flags |= {x: value[x] for x in FLAGS if isinstance(value.get(x), bool)}
    if not isinstance(value.get("content"), str):
        raise ValueError(f"a token of the folder has no content: {reprlib.repr(value)}")
    return {"content": value["content"]} | flags


def extra_ids(config: TokenizerConfig, otherwise: int) -> int:
    """Returns how many tokens <extra_id_n> there are. Raises ValueError for a value
    that is not a number."""
    count = config.fields.get("extra_ids", otherwise)
    if type(count) is not int or not 0 <= count <= 10_000:
        raise ValueError(f"{CONFIG}: extra_ids is {count!r}: want a number of tokens")
    return count


def special_ids(folder: Path) -> tuple[int | None, int | None]:
    """Returns the ids of bos_token and eos_token, each None where the folder does not
    name it."""
    config = read(folder)
    ids: dict[Any, Any] = {x["content"]: i for i, x in config.added.items()}
    if not ids and config.named:
        listed = read_json(folder / "tokenizer.json").get("added_tokens") or ()
        ids = {x.get("content"): x.get("id") for x in listed if isinstance(x, dict)}
    bos, eos = (config.named.get(f"{name}_token", {}) for name in ("bos", "eos"))
    return ids.get(bos.get("content")), ids.get(eos.get("content"))


def read_json(file: Path) -> dict[str, Any]:
    """Reads a file that holds one JSON object; {} if the file does not exist. Raises
    ValueError for anything else."""
    if not file.is_file():
        return {}
    try:
        fields = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        raise ValueError(f"{file} is not JSON: download it again") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{file} holds no JSON object: download it again")
    return fields
