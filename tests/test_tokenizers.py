"""Text to ids and back, by every kind of file that a tokenizer comes in."""

import json
import shutil
import sys

import pytest

from specjax import tokenizers, zoo
from specjax.tokenizers import chat
from specjax.tokenizers.huggingface import special_ids
from tests.support import text_folders

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


def test_a_tokenizer_json_gives_the_ids_of_its_library(byte_level):
    folder, library = byte_level
    own = tokenizers.read(folder, start=0, ends=(0,))
    assert own.encode(TEXT) == library.encode(TEXT).ids
    assert own.decode([0, *own.encode(TEXT), 0]) == TEXT
    assert own.encode(text_folders.END) == [0]
    assert (own.vocab, own.start, own.ends) == (library.get_vocab_size(), 0, (0,))
    assert own.file == folder / "tokenizer.json" and own.piece(299) == "<299>"


def test_pieces_are_the_text_in_parts_on_one_line(byte_level):
    for tokenizer in (tokenizers.read(byte_level[0]), zoo.tokenizer()):
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
    assert read(tmp_path / "other.json", None, 0, True).encode(TEXT) == [*bare, 0]


def test_gpt2s_two_files_are_the_same_tokenizer(byte_level, tmp_path):
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


def test_the_most_complete_file_of_a_folder_is_read(byte_level, tmp_path):
    shutil.copy(zoo.FOLDER / "t5.model", tmp_path / "spiece.model")
    assert tokenizers.beside(tmp_path).name == "spiece.model"
    shutil.copy(byte_level[0] / "tokenizer.json", tmp_path)
    assert tokenizers.beside(tmp_path).name == "tokenizer.json"


@pytest.mark.parametrize("which", ["code", "bytes"])
def test_a_stream_is_the_text_and_holds_back_broken_characters(which, byte_level):
    bundled = which == "code"
    own = zoo.tokenizer() if bundled else tokenizers.read(byte_level[0])
    text = "x = '\U0001f642 \u6f22'"
    ids = own.encode(text)
    growing = [ids[:i] for i in range(1, len(ids) + 1)]
    assert any("\ufffd" in own.decode(some) for some in growing)
    parts = list(tokenizers.stream(own, growing))
    assert "".join(parts) == text and not any("\ufffd" in part for part in parts)
    assert len([part for part in parts if part]) > 4
    cut = list(tokenizers.stream(own, growing[:-1]))
    assert "".join(cut) == own.decode(ids[:-1])


def test_without_the_library_it_is_named(byte_level, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    shutil.copy(byte_level[0] / "tokenizer.json", tmp_path)
    with pytest.raises(ValueError, match=r"pip install tokenizers"):
        tokenizers.read(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "spiece.model", "mine", "a.json"])
def test_a_damaged_file_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"\xff{")
    with pytest.raises(ValueError, match=f"{name} is no"):
        tokenizers.read(tmp_path / name)


def test_a_folder_without_a_tokenizer_is_told(tmp_path):
    for path in (tmp_path, tmp_path / "absent.model"):
        with pytest.raises(ValueError, match="no tokenizer at"):
            tokenizers.read(path)


# Conversations.


def templated(folder, template: str, **fields):
    told = {"chat_template": template, **fields}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder


def test_a_conversation_is_rendered_as_the_template_says(tmp_path):
    pytest.importorskip("jinja2")
    named = [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]
    start = {"bos_token": {"content": "<s>"}}
    for template, fields, rendered in (
        ("{{ bos_token }}" + text_folders.TEMPLATE, {}, "user: <b>\nbot: é\nbot:"),
        ("{{ bos_token }}", start, "<s>"),
        ("{{ messages[0] | tojson }}", {}, '{"role": "user", "content": "<b>"}'),
        (named, {}, "d"),
    ):
        templated(tmp_path, template, **fields)
        assert chat.render(tmp_path, MESSAGES) == rendered
    (tmp_path / "chat_template.jinja").write_text("of its own file")
    assert chat.render(tmp_path, MESSAGES) == "of its own file"


def test_its_ids_get_nothing_around_them(byte_level, tmp_path):
    pytest.importorskip("jinja2")
    shutil.copy(byte_level[0] / "tokenizer.json", tmp_path)
    templated(tmp_path, "{{ bos_token }}hi", bos_token=text_folders.END)
    own = tokenizers.read(tmp_path, 0, (0,), encodes=True)
    assert own.converse(MESSAGES) == [0, *byte_level[1].encode("hi").ids]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for %}", "refuses"),
        ("{{ messages.missing.x }}", "refuses"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ 1 // 0 }}", "refuses"),
    ],
)
def test_a_template_that_refuses_or_escapes_is_told(tmp_path, template, message):
    pytest.importorskip("jinja2")
    with pytest.raises(ValueError, match=message):
        chat.render(templated(tmp_path, template), MESSAGES)


def test_without_a_template_or_jinja_the_fix_is_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r'no chat template: write \{"prompt"'):
        chat.render(tmp_path, MESSAGES)
    templated(tmp_path, "hi")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setitem(sys.modules, "jinja2.sandbox", None)
    with pytest.raises(ValueError, match=r"pip install jinja2"):
        chat.render(tmp_path, MESSAGES)


def test_special_ids_are_those_that_the_folder_names(tmp_path):
    assert special_ids(tmp_path) == (None, None)
    added = {"7": {"content": "<s>"}, "8": {"content": "</s>"}}
    templated(tmp_path, "", eos_token="</s>", added_tokens_decoder=added)
    assert special_ids(tmp_path) == (None, 8)
    (tmp_path / "tokenizer_config.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"tokenizer_config\.json is not JSON"):
        special_ids(tmp_path)
