"""A key that a file lacks gets the value that the format's own reader gives it.

Whoever adds a default adds its line: keys are found in the code by its syntax.
"""

import ast
from pathlib import Path

import pytest

import specjax
from specjax.checkpoints import gguf, name_tables, names_llama
from specjax.tokenizers import gguf as tokenizer
from specjax.tokenizers.gguf_file import Contents, Tensor
from specjax.tokenizers.gguf_vocabulary import vocabulary
from specjax.tokenizers.huggingface import LEVEL
from tests.support import format_defaults as table

ROOT = Path(specjax.__file__).parent
# What asks for a key of a file, which is its first argument or its second.
READS = {"get", "size", "truth", "token", "tokens", "number", "number_or_none"}
READS |= {"read_value", "read_list"}


def rows(of: dict) -> list:
    return [
        pytest.param(kind, row, id=f"{kind}-{row.key}")
        for kind, rows in of.items()
        for row in rows
    ]


def make_contents(fields: dict, tensors: tuple = ()) -> Contents:
    whole = Tensor((300, 32), "F32", 0, 0)
    named = {"token_embd.weight": whole} | dict.fromkeys(tensors, whole)
    return Contents(Path("a.gguf"), fields, named)


def read_or_refused(read, *args):
    try:
        return read(*args)
    except ValueError as error:
        assert "\n" not in str(error)
        return str(error)


def check_default(read, row, without: dict, key: str) -> None:
    """Asserts that a missing key means the value that the format's reader takes for it,
    and not another value."""
    missing = read_or_refused(read, without)
    assert missing == read_or_refused(read, without | {key: row.value}), row
    assert missing != read_or_refused(read, without | {key: row.other}), row


SIZES = {
    "block_count": 7,
    "context_length": 64,
    "embedding_length": 32,
    "feed_forward_length": 48,
    "attention.head_count": 4,
    "attention.layer_norm_rms_epsilon": 1e-6,
}
# Without these the keys would say nothing.
BESIDE = {
    "rope.scaling.type": {"rope.scaling.factor": 4.0},
    "attention.sliding_window_pattern": {"attention.sliding_window": 8},
    "rope.freq_base_swa": {"attention.sliding_window": 8},
}


@pytest.mark.parametrize(("kind", "row"), rows(table.GGUF))
def test_a_header_without_a_key_is_read_as_llama_cpp_reads_it(kind, row):
    stated = {f"{kind}.{x}": y for x, y in (SIZES | BESIDE.get(row.key, {})).items()}
    stated["general.architecture"] = kind

    def read(fields: dict) -> dict:
        read = gguf.config_fields(make_contents(fields))
        return read | {"config": names_llama.read_config(read, "float32")}

    assert isinstance(read(stated), dict)
    check_default(read, row, stated, f"{kind}.{row.key}")


@pytest.mark.parametrize("kind", gguf.KINDS)
def test_no_default_of_transformers_stands_for_a_key_of_gguf(kind):
    stated = {f"{kind}.{x}": y for x, y in SIZES.items()}
    fields = gguf.config_fields(make_contents(stated | {"general.architecture": kind}))
    assert names_llama.KINDS[gguf.KINDS[kind]].read.keys() <= fields.keys()


PIECES = [*(f"<{i}>" for i in range(295)), "ab", "bc", "a", "b", "c"]
BYTES = [*sorted(LEVEL, key=LEVEL.get), *(f"<{i}>" for i in range(43)), "12"]
TEXT = "ab c12 , it's"


@pytest.mark.parametrize(("kind", "row"), rows(table.GGUF_TOKENIZER))
def test_a_tokenizer_without_a_key_is_read_as_llama_cpp_reads_it(kind, row):
    library = pytest.importorskip("tokenizers")
    model, pre = kind.split(" ")
    texts, build = (
        (BYTES, tokenizer.byte_pairs)
        if model == "gpt2"
        else (PIECES, tokenizer.scored_pieces)
    )
    at = "tokenizer.ggml."
    stated = {f"{at}model": model, f"{at}tokens": texts, f"{at}merges": ["1 2"]}
    if row.key != "pre":
        stated[f"{at}pre"] = pre
    if row.key != "scores":
        stated[f"{at}scores"] = [-1.0 * i for i in range(300)]

    def read(fields: dict) -> tuple:
        of = make_contents(fields)
        config = tokenizer.config(of)
        return config, vocabulary(of), build(library, of, config).to_str()

    assert isinstance(read(stated), tuple)
    check_default(read, row, stated, at + row.key)


WITH = {
    "max_window_layers": {"use_sliding_window": True, "sliding_window": 8},
    "use_sliding_window": {"max_window_layers": 0},
    "attn_logit_softcapping": {},
}


@pytest.mark.parametrize(("kind", "row"), rows(table.CONFIGS))
def test_a_config_without_a_field_is_read_as_transformers_reads_it(kind, row):
    family = name_tables.BY_MODEL_TYPE[kind]
    stated = {x: y for x, y in table.SIZES[kind].items() if x != row.key}
    stated |= {"model_type": kind} | WITH.get(row.key, {})
    if kind.startswith("qwen") and row.key in ("sliding_window", "layer_types"):
        stated |= {"use_sliding_window": True, "max_window_layers": 0}

    def read(fields: dict) -> tuple:
        config = family.read_config(fields, "float32")
        return config, family.ends(fields, config)

    assert isinstance(read(stated), tuple)
    check_default(read, row, stated, row.key)


def test_the_table_has_every_field_with_a_default():
    for kind, of in names_llama.KINDS.items():
        stated = {row.key for row in table.CONFIGS[kind]}
        sizes = {x for x in names_llama.SIZES if of.read[x] is None}
        assert {*of.read, *of.only} - sizes == stated, kind


def keys_read_by(path: Path) -> set[str]:
    """Returns the keys that a module reads by name; those in f-strings as they are
    written."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        for key in node.args[:2] if name in READS else ():
            if isinstance(key, ast.JoinedStr):
                found.add(ast.unparse(key)[2:-1].removeprefix("{AT}"))
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                found.add(key.value)
    return found


def test_every_key_with_a_default_has_its_line():
    tabled = {row.key for of in table.CONFIGS.values() for row in of}
    tabled |= {*names_llama.SIZES}
    header = {row.key for of in table.GGUF.values() for row in of}
    header.add(table.OF_LAYERS.key)
    vocab = {row.key for of in table.GGUF_TOKENIZER.values() for row in of}
    vocab.add("{NAMED.get(name, name)}_token_id")
    lines = {
        "checkpoints/gguf.py": header,
        "tokenizers/gguf.py": vocab,
        "tokenizers/gguf_vocabulary.py": vocab,
    }
    modules = [*ROOT.glob("checkpoints/**/*.py"), *ROOT.glob("tokenizers/*.py")]
    for path in modules:
        module = path.relative_to(ROOT).as_posix()
        known = lines.get(module, tabled if "/names_" in module else set())
        asked = table.ASKED.get(module, {})
        found = keys_read_by(path)
        assert found <= known | asked.keys(), f"{module} needs lines in format_defaults"
        assert asked.keys() <= found, f"lines of {module} that stand for nothing"
