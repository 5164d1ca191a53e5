"""A value of the wrong type in any field of any family is refused in one line."""

import functools
import json
import math

import pytest

from specjax.checkpoints import fields as field
from specjax.checkpoints import gguf, huggingface, name_tables, names_llama
from specjax.tokenizers import gguf as tokenizer
from tests.checkpoints import test_defaults as plain
from tests.support import format_defaults as table

WRONG = (
    *(["relu"], [None], [[]], [], {"a": 1}, {}, "text", "", None, True, False),
    *(-1, 0, 1.5, math.nan, 10**30),
)
# What may have what of these: fields that are many things, or are not read.
GEMMA3 = table.LLAMA_SIZES | {"model_type": "gemma3_text"}


def stays_one_line(read, named: str, *, file: str) -> None:
    """Asserts that a file is either read, or refused in one line that names the field
    and the file."""
    try:
        read()
    except ValueError as error:
        said = str(error)
        assert "\n" not in said and named in said and file in said, said


@pytest.mark.parametrize("kind", [*table.CONFIGS, "gemma3"])
def test_fields_of_a_config_are_refused_by_name(kind):
    family = name_tables.BY_MODEL_TYPE[kind]
    stated = {"model_type": kind} | table.SIZES.get(kind, {"text_config": GEMMA3})
    named = {row.key for row in table.CONFIGS.get(kind, ())}
    aliases = getattr(family, "ALIASES", {})
    named |= {*stated, *aliases, *field.READ, *field.QUANTIZED, "architectures"}

    def read(fields: dict) -> None:
        family.ends(fields, family.read_config(fields, "float32"))

    read(stated)
    for name in sorted(named - {"model_type"}):
        for value in WRONG:
            again = functools.partial(read, stated | {name: value})
            stays_one_line(again, name, file="config.json")


@pytest.mark.parametrize("value", WRONG[:4] + WRONG[4:7] + WRONG[9:10])
def test_ids_of_generation_config_are_refused_by_the_files_name(tmp_path, value):
    (tmp_path / huggingface.GENERATION).write_text(json.dumps({"eos_token_id": value}))
    again = functools.partial(huggingface.generation, tmp_path)
    stays_one_line(again, "eos_token_id", file=huggingface.GENERATION)


@pytest.mark.parametrize("kind", gguf.KINDS)
def test_keys_of_a_header_are_refused_by_name(kind):
    at = f"{kind}."
    names = {*plain.SIZES, *gguf.READ, *gguf.NEUTRAL, *gguf.SAY_NOTHING, gguf.EPS}
    stated = {at + name: value for name, value in plain.SIZES.items()}
    stated |= {"general.architecture": kind, f"{at}attention.sliding_window": 8}

    def read(fields: dict) -> None:
        read = gguf.config_fields(plain.make_contents(fields))
        names_llama.read_config(read, "float32")

    read(stated)
    for key in (*(at + x for x in sorted(names)), "general.architecture"):
        for value in WRONG:
            again = functools.partial(read, stated | {key: value})
            stays_one_line(again, key, file="a.gguf")


TOKENIZER = (
    *("model", "pre", "tokens", "token_type", "scores", "merges", "add_bos_token"),
    *("add_eos_token", "add_space_prefix", "bos_token_id", "eot_token_id"),
)


@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_keys_of_a_headers_tokenizer_are_refused_by_name(model):
    at, texts = "tokenizer.ggml.", plain.BYTES if model == "gpt2" else plain.PIECES
    stated = {f"{at}model": model, f"{at}tokens": texts, f"{at}merges": ["1 2"]}

    def read(fields: dict) -> None:
        tokenizer.config(plain.make_contents(fields))

    read(stated)
    for key in (*(at + name for name in TOKENIZER), tokenizer.TEMPLATE):
        for value in WRONG:
            again = functools.partial(read, stated | {key: value})
            stays_one_line(again, key, file="a.gguf")
