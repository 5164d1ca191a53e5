"""What a person or a file asks, as a model reads it; and what is no prompt."""

import pytest

from specjax import prompts, zoo
from specjax.models import gpt, t5
from specjax.pretrained import Pretrained
from tests.support import text_folders

CODE, T5 = zoo.tokenizer(), zoo.tokenizer("t5")


def bundled(name: str) -> Pretrained:
    """A model that reads and has no weights."""
    if name == "t5":
        config, start, ends = text_folders.T5, T5.start, T5.ends
        model, file = t5.build(config), T5.file
    else:
        config = gpt.Config(8192, 16, 32, 1, 2)
        start, ends, model, file = CODE.start, CODE.ends, gpt.build(config), CODE.file
    return Pretrained(name, config, model, None, "float32", (), start, ends, file)


def written(tmp_path, *lines: str | bytes):
    path = tmp_path / "prompts.jsonl"
    raw = [line if isinstance(line, bytes) else line.encode() for line in lines]
    path.write_bytes(b"\n".join(raw) + b"\n")
    return path


def test_lines_of_a_file_begin_texts(tmp_path):
    first, last = b'\xef\xbb\xbf{"prompt": "def f("}', '{"prompt": "a\u2028b"}'
    path = written(tmp_path, first, "", '{"tokens": [1, 300], "id": 3}', last)
    read = prompts.read(path, bundled("code"))
    assert read.inputs is None and read.ends == (zoo.END,)
    assert read.tokens == [CODE.encode("def f("), [1, 300], CODE.encode("a\u2028b")]
    lines = ["def f(", {"tokens": [1, 300]}, "a\u2028b"]  # a list is read likewise
    assert prompts.of(lines, bundled("code")) == read


def test_an_encoder_reads_them_and_its_texts_begin_anew(tmp_path):
    path = written(tmp_path, '{"prompt": "No."}', '{"tokens": [7]}')
    read = prompts.read(path, bundled("t5"))
    assert read.tokens == [[t5.PAD], [t5.PAD]] and read.ends == (t5.END,)
    assert read.inputs == [T5.encode("No."), [7]]


def test_a_conversation_is_read_by_the_folders_template(tmp_path):
    for library in ("tokenizers", "jinja2"):
        pytest.importorskip(library)
    folder = text_folders.gpt2(tmp_path / "gpt2")
    model = bundled("code")._replace(tokenizer_file=folder / "tokenizer.json")
    line = {"messages": [{"role": "user", "content": "def"}]}
    (ids,) = prompts.of([line], model).tokens
    assert model.tokenizer.decode(ids) == "user: def\nbot:"
    asked = "{{ tools[0].name }}{{ documents is none }}{{ think }}"
    (folder / "chat_template.jinja").write_text(asked)
    more = {"tools": [{"name": "a"}], "chat_template_kwargs": {"think": False}}
    (ids,) = prompts.of([line | more], model).tokens
    assert model.tokenizer.decode(ids) == "aTrueFalse"
    with pytest.raises(ValueError, match="no chat template"):
        prompts.of([line], bundled("code"))


def test_without_text_there_is_the_start_token():
    model = bundled("code")
    assert prompts.start(model).tokens == prompts.of([""], model).tokens == [[1]]
    bare = model._replace(start=None, ends=())
    assert prompts.of(["x"], bare).ends == ()
    with pytest.raises(ValueError, match="no start token"):
        prompts.start(bare)
    with pytest.raises(ValueError, match="no start token"):
        prompts.of([""], bare)


TALK = '"messages": [{"role": "user", "content": "x"}]'
DEEP = '{"prompt": ' + "[" * 100_000
BAD = [
    (b'{"prompt": "\xff"}', "not UTF-8"),
    ('{"prompt": "a\\ud800"}', r"\\ud800"),
    ('{"prompt": 3}', "prompt must be one text"),
    (DEEP, "nested too deeply"),
    ("{", "not JSON"),
    ('"x"', "want "),
    ('{"prompt": "x", "tokens": [1]}', "want "),
    ('{"tokens": []}', "tokens is empty"),
    ('{"tokens": "1 2"}', "list of ids"),
    ('{"tokens": [true]}', "list of ids"),
    ('{"tokens": [1, 8192]}', r"id 8192 is not in 0\.\.8191"),
    ('{"tokens": [1' + "0" * 5000 + "]}", "not JSON"),
    ('{"tokens": [1' + "0" * 4000 + "]}", r"id 10+\.\.\. is not in"),
    ('{"messages": []}', "list of messages"),
    ('{"messages": [{"role": "user"}]}', "a message is"),
    ('{"messages": [{"role": "user", "content": 3}]}', "content must be one text"),
    (f'{{{TALK}, "tools": [1]}}', "tools must be a list of objects"),
    (f'{{{TALK}, "documents": {{}}}}', "documents must be a list of objects"),
    (f'{{{TALK}, "chat_template_kwargs": {{"messages": 1}}}}', "must be an object of"),
]


def test_a_line_that_is_no_prompt_is_named_in_one_short_line(tmp_path):
    for line, reason in BAD:
        path = written(tmp_path, '{"prompt": "x"}', line)
        with pytest.raises(ValueError, match=reason) as error:
            prompts.read(path, bundled("code"))
        message = str(error.value)
        assert message.startswith(f"{path}, line 2: ")
        assert "\n" not in message and len(message) < len(str(path)) + 240
        message.encode()
    with pytest.raises(ValueError, match="has no line"):
        prompts.read(written(tmp_path, " "), bundled("code"))


def test_what_is_no_list_of_prompts_is_told():
    for several in "def f(", {"prompt": "x"}, 3, []:
        with pytest.raises(ValueError, match="prompts"):
            prompts.of(several, bundled("code"))
    with pytest.raises(ValueError, match=r"prompt 1: prompt holds \\ud800"):
        prompts.of(["x", "\ud800"], bundled("code"))
    model = bundled("code")._replace(model=gpt.build(gpt.Config(50, 16, 32, 1, 2)))
    with pytest.raises(ValueError, match="is this its tokenizer"):
        prompts.of(["def add("], model)
