"""Text becomes ids and text again, with every kind of tokenizer file.

What is expected of a folder is what transformers made of it; that we and it agree on
many more is `tests/test_parity_tokenizers.py`.
"""

import json
import shutil
import sys

import numpy as np
import pytest

from specjax import tokenizers, zoo
from specjax.text import streaming
from specjax.tokenizers import chat
from specjax.tokenizers.folder import special_ids
from tests.support import text_folders, tokenizer_folders
from tests.support.tokenizer_folders import token

pytest.importorskip("tokenizers")

TEXT = "def add(a, b):\n    return 'é🙂'"
MESSAGES = [{"role": "user", "content": "<b>"}, {"role": "bot", "content": "é"}]


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    """A folder with a tokenizer.json, and the library's own tokenizer."""
    folder, library = tmp_path_factory.mktemp("bpe"), text_folders.bpe()
    library.save(str(folder / "tokenizer.json"))
    return folder, library


def test_the_bundled_ones_put_the_ids_around_that_their_models_want():
    code, t5 = zoo.tokenizer(), zoo.tokenizer("t5")
    ids = code.encode("def add(")
    assert ids[0] == code.start == zoo.START and zoo.END not in ids
    assert code.decode([*ids, zoo.END, zoo.PAD]) == "def add("
    ids = t5.encode("I see.")
    assert ids[-1:] == [*t5.ends] == [1] and ids.count(1) == 1
    assert (code.vocab, t5.vocab) == (8192, 6000)
    # Ids beyond a SentencePiece vocabulary have no text.
    assert t5.decode([t5.start, *ids, 6000, 6015]) == "I see."
    assert t5.piece(6015) == "<6015>"


def test_a_file_that_is_written_anew_is_another_tokenizer(tmp_path):
    file = shutil.copy(zoo.FOLDER / "tokenizer.model", tmp_path / "a.model")
    first = tokenizers.read(file)
    assert tokenizers.read(file) is first
    shutil.copy(zoo.FOLDER / "t5.model", file)
    second = tokenizers.read(file)
    assert second.vocab != first.vocab
    (tmp_path / "tokenizer_config.json").write_text("{}")  # which says how it is read
    assert tokenizers.read(file) is not second


def test_a_tokenizer_json_gives_the_ids_of_its_library(byte_level):
    folder, library = byte_level
    own = tokenizers.read(folder, start=0, ends=(0,))
    assert own.encode(TEXT) == library.encode(TEXT).ids
    assert own.decode([0, *own.encode(TEXT), 0]) == TEXT
    assert own.encode(text_folders.END) == [0]
    assert (own.vocab, own.start, own.ends) == (library.get_vocab_size(), 0, (0,))
    assert own.file == folder / "tokenizer.json" and own.piece(299) == "<299>"
    for tokenizer in own, zoo.tokenizer():  # pieces are the text in parts on one line
        ids = tokenizer.encode("def add(a):\n    return a")
        assert "".join(map(tokenizer.piece, ids[-9:])).endswith("\\n    return a")


def test_a_tokenizer_json_neither_cuts_nor_pads_and_an_input_ends_once(tmp_path):
    from tokenizers import processors

    library = text_folders.bpe()
    bare = library.encode(TEXT).ids
    library.enable_truncation(4)
    library.enable_padding(length=99)
    library.save(str(tmp_path / "tokenizer.json"))
    read = tokenizers.read
    assert read(tmp_path / "tokenizer.json").encode(TEXT) == bare
    # With an encoder the end is there, whether the file's template adds it or not.
    assert read(tmp_path, ends=(0,), encodes=True).encode(TEXT) == [*bare, 0]
    library.post_processor = processors.TemplateProcessing(
        single=f"$A {text_folders.END}", special_tokens=[(text_folders.END, 0)]
    )
    library.save(str(tmp_path / "other.json"))
    assert read(tmp_path / "other.json", None, (0,), True).encode(TEXT) == [*bare, 0]


# Folders of Hugging Face without a tokenizer.json.

NEW = {"400": token("<|a|>", special=True), "401": token("new")}
LLAMA = {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": NEW}
AROUND = {"legacy": True, "add_bos_token": True, "add_eos_token": True}
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}
GEMMA = {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True}
T5 = {"tokenizer_class": "T5Tokenizer"}
MARKED = "é<|a|> x</s>\nnew"
COMPOSED = f"a 12e\u0301\n\nx{text_folders.END}"
BYTES = "a \u0120 1 2 e \u00cc \u0123 \u010a \u010a x <|endoftext|>"  # as GPT-2's
QWEN = "a \u0120 1 2 \u00c3 \u00a9 \u010a \u010a x <|endoftext|>"
GPT2 = {"tokenizer_class": "GPT2Tokenizer"}
QWEN2 = {"tokenizer_class": "Qwen2Tokenizer"}
ROBERTA = {"tokenizer_class": "RobertaTokenizer"}
BYT5 = {"tokenizer_class": "ByT5Tokenizer"}
BARE = LLAMA | {"add_prefix_space": False}
TOLD = LLAMA | GENERIC | {"add_bos_token": True}
ENDED = T5 | {"added_tokens_decoder": {"156": token("~")}}
PREFIXED = GPT2 | {"add_prefix_space": True}
AS_BYTES = "<0xC3> <0xA9> <0x20> <extra_id_1> </s>"
FEW = T5 | {"extra_ids": 3}
BEGUN = "<s> ␣é <|a|> ␣ x </s> ␣ <0x0A> new </s>"
FOLDERS = [  # configuration, text, tokens (␣ is SentencePiece's mark), text as decoded
    (LLAMA, MARKED, "␣é <|a|> ␣ x </s> <0x0A> new", "é x\nnew"),
    (LLAMA | AROUND, MARKED, BEGUN, "é x \nnew"),
    (BARE, MARKED, "é <|a|> ␣ x </s> <0x0A> new", "é x\nnew"),
    (TOLD, MARKED, "<s> ␣é <|a|> ␣ ␣ x </s> ␣ <0x0A> new", "é  x \nnew"),
    (GEMMA, "é  <bos>x<start>", "<bos> é ␣ ␣ <bos> x <start>", "é  x<start>"),
    (ENDED, "é <extra_id_0>\nx~", "␣ é <extra_id_0> ␣ x ~ </s>", "é x~"),
    (FEW, "é x<extra_id_2>", "␣ é ␣ x <extra_id_2> </s>", "é x"),
    (GPT2, COMPOSED, BYTES, COMPOSED[:-13]),
    (PREFIXED, "a", "\u0120a", " a"),
    (QWEN2, COMPOSED, QWEN, "a 12é\n\nx"),
    (ROBERTA, "a<mask>x", "<s> a <mask> x </s>", "ax"),
    (BYT5, "é <extra_id_1></s>", AS_BYTES, "é "),
]


def write_folder(folder, config):
    """Writes a folder with this configuration, and with the vocabulary of its class."""
    files = tokenizer_folders.vocabulary(config["tokenizer_class"])
    return tokenizer_folders.write(folder, tokenizer_config_json=config, **files)


@pytest.mark.parametrize(("config", "text", "names", "decoded"), FOLDERS)
def test_a_folder_is_read_as_its_class_says(config, text, names, decoded, tmp_path):
    own = tokenizers.read(write_folder(tmp_path, config))
    ids = own.encode(text)
    assert [own.token(i).replace("\u2581", "␣") for i in ids] == names.split()
    assert own.decode(ids) == decoded


def test_older_folders_have_their_tokens_in_files_of_their_own(tmp_path):
    bare = {"tokenizer_class": "LlamaTokenizer"}
    folder = tokenizer_folders.write(
        write_folder(tmp_path, bare),
        added_tokens_json={"<|a|>": 400, "new": 401},
        special_tokens_map_json={"eos_token": {"content": "<|a|>"}},
    )
    own = tokenizers.read(folder)
    assert own.encode("é<|a|>new")[1:] == [400, 401]
    assert own.decode([400, 401]) == "new" and special_ids(folder) == (None, 400)


def test_a_piece_that_was_kept_free_has_the_name_that_the_folder_gives_it(tmp_path):
    named = LLAMA | {"added_tokens_decoder": {"300": token("<turn>", special=True)}}
    own = tokenizers.read(write_folder(tmp_path, named))
    assert own.encode("é<turn>")[1:] == [300] and own.token(300) == "<turn>"


def test_a_folder_that_is_not_understood_is_refused(tmp_path):
    files = {"spiece_model": tokenizer_folders.llama()}
    unknown = {"tokenizer_class": "XLNetTokenizer"}
    far = LLAMA | {"added_tokens_decoder": {"500": token("far")}}
    for number, (config, message, held) in enumerate(
        (
            (unknown, "names tokenizer_class XLNetTokenizer", files),
            (unknown, "names tokenizer_class ", tokenizer_folders.pairs()),
            (far, "says that far is id", files),
            (T5 | {"extra_ids": "many"}, "extra_ids is 'many'", files),
            (LLAMA | {"added_tokens_decoder": {"400": {}}}, "has no content", files),
        )
    ):
        folder = tmp_path / str(number)
        tokenizer_folders.write(folder, tokenizer_config_json=config, **held)
        with pytest.raises(ValueError, match=message) as caught:
            tokenizers.read(folder)
        assert "\n" not in str(caught.value)


def test_two_files_without_a_word_are_gpt2s(byte_level, tmp_path):
    folder, library = byte_level
    library.model.save(str(tmp_path))
    parted, whole = (tokenizers.read(x, 0, (0,)) for x in (tmp_path, folder))
    assert parted.file.name == "vocab.json"
    text = TEXT + text_folders.END
    assert parted.encode(text) == whole.encode(text)
    assert parted.decode(parted.encode(text)) == TEXT
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(ValueError, match=r"merges\.txt is missing"):
        tokenizers.read(tmp_path)


@pytest.fixture(scope="module", params=["code", "bytes", "llama"])
def in_bytes(request, byte_level, tmp_path_factory):
    """A tokenizer that spells some characters in bytes."""
    folder = {"code": zoo.FOLDER, "bytes": byte_level[0]}.get(request.param)
    folder = folder or write_folder(tmp_path_factory.mktemp("llama"), LLAMA)
    return tokenizers.read(folder, start=1, ends=(2,))


def test_a_stream_is_the_text_and_holds_back_broken_characters(in_bytes):
    text = "x = '\U0001f642 \u6f20'"
    ids = in_bytes.encode(text)
    growing = [ids[:i] for i in range(1, len(ids) + 1)]
    assert any("\ufffd" in in_bytes.decode(some) for some in growing)
    parts = list(tokenizers.stream(in_bytes, growing))
    assert "".join(parts) == text and not any("\ufffd" in part for part in parts)
    assert len([part for part in parts if part]) > 4
    cut = list(tokenizers.stream(in_bytes, growing[:-1]))
    assert "".join(cut) == in_bytes.decode(ids[:-1])


def test_what_ids_spell_is_the_text(in_bytes):
    """It is equal byte by byte, without special ids and ids that do not exist."""
    spelled = [in_bytes.token_bytes(i) for i in in_bytes.encode(f"x {TEXT}")]
    assert b"".join(filter(None, spelled)).strip() == f"x {TEXT}".encode()
    assert [in_bytes.token_bytes(i) for i in (1, 2, 10**6)] == [None] * 3


def test_what_is_whole_before_a_broken_character_is_kept(in_bytes):
    """The bytes of two characters, the second of which is incomplete, are one run of
    tokens."""
    ids = in_bytes.encode("\U0001f642\U0001f642")
    whole, cut = np.array(ids), len(ids) - 1
    assert in_bytes.decode(ids[:cut]).rstrip("\ufffd").strip() == "\U0001f642"
    assert in_bytes.decode(ids[:cut]).endswith("\ufffd")
    behind = streaming.continuation(in_bytes, whole, cut, len(ids))
    assert behind.endswith("\U0001f642") and behind.count("\U0001f642") == 1


def test_a_file_that_cannot_be_read_is_named(byte_level, monkeypatch, tmp_path):
    for path in (tmp_path, tmp_path / "absent.model"):
        with pytest.raises(ValueError, match="no tokenizer at"):
            tokenizers.read(path)
    for name in "tokenizer.json", "spiece.model", "mine", "a.json":
        (tmp_path / name).write_bytes(b"\xff{")
        with pytest.raises(ValueError, match=f"{name} is no"):
            tokenizers.read(tmp_path / name)
    # Of a folder the most complete file is read.
    assert tokenizers.find_file(tmp_path).name == "tokenizer.json"
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"pip install 'specjax\[hf\]'"):
        whole = byte_level[0] / "tokenizer.json"
        tokenizers.read(shutil.copy(whole, tmp_path / "b.json"))


# Conversations.


def write_template(folder, template: str, **fields):
    told = {"chat_template": template, **fields}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder


def test_a_conversation_is_rendered_as_the_template_says(tmp_path):
    pytest.importorskip("jinja2")
    named = {"tool_use": "t", "default": "d"}
    named = [{"name": name, "template": text} for name, text in named.items()]
    start = {"bos_token": {"content": "<s>"}}
    image = {"extra_special_tokens": {"image_token": "<i>"}, "sep_token": "<sep>"}
    block = "{% generation %}{% set y = 1 %}a{{ y }}{% endgeneration %}"
    leaves = "{% for m in messages %}x{% break %}{% endfor %}"
    options = "separators=(',', ':'), sort_keys=True"
    for template, fields, rendered in (
        ("{{ bos_token }}" + text_folders.TEMPLATE, {}, "user: <b>\nbot: é\nbot:"),
        ("{{ bos_token }}", start, "<s>"),
        ("{{ messages[0] | tojson }}", {}, '{"role": "user", "content": "<b>"}'),
        ("{{ {'é': 1, 'b': 2} | tojson(" + options + ") }}", {}, '{"b":2,"é":1}'),
        ("{{ tools is none }}{{ documents is none }}", {}, "TrueTrue"),
        ("{{ sep_token }}{{ image_token }}", image, "<sep><i>"),
        ("{% for x in [1] %}" + block + "{{ y }}{% endfor %}", {}, "a1"),
        (leaves, {}, "x"),
        ("{{ strftime_now('%Y') | int > 2000 }}", {}, "True"),
        (named, {}, "d"),
    ):
        write_template(tmp_path, template, **fields)
        assert chat.render(tmp_path, MESSAGES) == rendered
    assert chat.render(tmp_path, MESSAGES, {"tools": []}) == "t"
    (tmp_path / "chat_template.jinja").write_text("of its own file")
    assert chat.render(tmp_path, MESSAGES) == "of its own file"
    (tmp_path / "chat_templates").mkdir()
    (tmp_path / "chat_templates" / "tool_use.jinja").write_text(
        "{{ tools }}{{ think }}"
    )
    assert chat.render(tmp_path, MESSAGES, {"tools": [], "think": 0}) == "[]0"


def test_its_ids_get_nothing_around_them(byte_level, tmp_path):
    pytest.importorskip("jinja2")
    # Older folders name special tokens beside their template.
    (older := tmp_path / "older").mkdir()
    (older / "special_tokens_map.json").write_text('{"bos_token": "<s>"}')
    assert chat.render(write_template(older, "{{ bos_token }}"), MESSAGES) == "<s>"
    shutil.copy(byte_level[0] / "tokenizer.json", tmp_path)
    write_template(tmp_path, "{{ bos_token }}hi", bos_token=text_folders.END)
    own = tokenizers.read(tmp_path, 0, (0,), encodes=True)
    assert own.converse(MESSAGES) == [0, *byte_level[1].encode("hi").ids]


def test_a_template_that_refuses_or_escapes_is_told(tmp_path, monkeypatch):
    pytest.importorskip("jinja2")
    with pytest.raises(ValueError, match=r'no chat template: write \{"prompt"'):
        chat.render(tmp_path, MESSAGES)
    for template, message in (
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for %}", "refuses"),
        ("{{ messages.missing.x }}", "refuses"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ 1 // 0 }}", "refuses"),
    ):
        with pytest.raises(ValueError, match=message):
            chat.render(write_template(tmp_path, template), MESSAGES)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setitem(sys.modules, "jinja2.sandbox", None)
    with pytest.raises(ValueError, match=r"pip install 'specjax\[hf\]'"):
        chat.render(write_template(tmp_path, "hi"), MESSAGES)


def test_special_ids_are_those_that_the_folder_names(tmp_path):
    assert special_ids(tmp_path) == (None, None)
    added = {"7": {"content": "<s>"}, "8": {"content": "</s>"}}
    write_template(tmp_path, "", eos_token="</s>", added_tokens_decoder=added)
    assert special_ids(tmp_path) == (None, 8)
    (tmp_path / "tokenizer_config.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"tokenizer_config\.json is not JSON"):
        special_ids(tmp_path)
