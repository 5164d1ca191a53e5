"""Prompts of a user or of a file become tokens, and anything else is refused."""

import gzip
import json
import lzma

import pytest

from specjax import prompts, zoo
from specjax.models import gpt, t5
from specjax.pretrained import Pretrained
from specjax.prompts import questions, text_files
from tests.support import text_folders

CODE, T5 = zoo.tokenizer(), zoo.tokenizer("t5")


def bundled_model(name: str) -> Pretrained:
    """Returns a model that has a tokenizer and no weights."""
    if name == "t5":
        config, start, ends = text_folders.T5, T5.start, T5.ends
        model, file = t5.build(config), T5.file
    else:
        config = gpt.Config(8192, 16, 32, 1, 2)
        start, ends, model, file = CODE.start, CODE.ends, gpt.build(config), CODE.file
    return Pretrained(name, config, model, None, "float32", (), start, ends, file)


def write_prompts(tmp_path, *lines: str | bytes):
    path = tmp_path / "prompts.jsonl"
    raw = [line if isinstance(line, bytes) else line.encode() for line in lines]
    path.write_bytes(b"\n".join(raw) + b"\n")
    return path


def test_lines_of_a_file_begin_texts(tmp_path):
    first, last = b'\xef\xbb\xbf{"prompt": "def f("}', '{"prompt": "a\u2028b"}'
    path = write_prompts(tmp_path, first, "", '{"tokens": [1, 300], "id": 3}', last)
    read = prompts.read(path, bundled_model("code"))
    assert read.inputs is None and read.ends == (zoo.END,)
    assert read.tokens == [CODE.encode("def f("), [1, 300], CODE.encode("a\u2028b")]
    lines = [
        "def f(",
        {"tokens": [1, 300], "id": 3},
        "a\u2028b",
    ]  # a list is read likewise, and no question of a file is behind it
    assert len(read.questions) == 3 and read.questions[1].id == 3
    assert prompts.from_list(lines, bundled_model("code")) == read._replace(
        questions=()
    )
    lines[1] = (1, 300)
    assert prompts.from_list(tuple(lines), bundled_model("code")).tokens == read.tokens


def test_an_encoder_reads_them_and_its_texts_begin_anew(tmp_path):
    path = write_prompts(tmp_path, '{"prompt": "No."}', '{"tokens": [7]}')
    read = prompts.read(path, bundled_model("t5"))
    assert read.tokens == [[t5.PAD], [t5.PAD]] and read.ends == (t5.END,)
    assert read.inputs == [T5.encode("No."), [7]]


def chat_model(tmp_path) -> Pretrained:
    """Returns a model that has a tokenizer with a chat template."""
    for library in ("tokenizers", "jinja2"):
        pytest.importorskip(library)
    folder = text_folders.gpt2(tmp_path / "gpt2")
    return bundled_model("code")._replace(tokenizer_file=folder / "tokenizer.json")


def test_a_conversation_is_read_by_the_folders_template(tmp_path):
    model = chat_model(tmp_path)
    folder = model.tokenizer_file.parent
    line = {"messages": [{"role": "user", "content": "def"}]}
    (ids,) = prompts.from_list([line], model).tokens
    assert model.tokenizer.decode(ids) == "user: def\nbot:"
    # A list of messages is one conversation; in a list of prompts it is one of them.
    assert prompts.from_list(line["messages"], model).tokens == [ids]
    several = [line["messages"], "x", line]
    assert prompts.from_list(several, model).tokens == [
        ids,
        model.tokenizer.encode("x"),
        ids,
    ]
    asked = "{{ tools[0].name }}{{ documents is none }}{{ think }}"
    (folder / "chat_template.jinja").write_text(asked)
    more = {"tools": [{"name": "a"}], "chat_template_kwargs": {"think": False}}
    (ids,) = prompts.from_list([line | more], model).tokens
    assert model.tokenizer.decode(ids) == "aTrueFalse"
    with pytest.raises(ValueError, match="no chat template"):
        prompts.from_list([line], bundled_model("code"))


FORMS = [  # MT-bench of the hub, Spec-Bench, SPEED-Bench as it is prepared
    {"prompt_id": "m-10", "category": "math", "prompt": ["1?", "2?"]},
    {"question_id": 9, "category": "math", "turns": ["3?"], "prompt": "3?"},
    {"messages": [{"role": "user", "content": x} for x in ("4?", "5?")]},
]


def test_every_turn_is_a_prompt_behind_the_models_answers(tmp_path):
    model, heard = chat_model(tmp_path), []
    path = tmp_path / "turns.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, FORMS)).encode()))

    def answer(conversations):
        heard.extend(map(model.tokenizer.decode, conversations))
        return ["so"] * len(conversations)

    read = prompts.read(path, model, answer)
    texts = list(map(model.tokenizer.decode, read.tokens))
    behind = "user: {}\nassistant: so\nuser: {}\nbot:".format
    alone = "user: {}\nbot:".format
    assert heard == [alone("1?"), alone("4?")]
    second = behind("1?", "2?"), alone("3?"), alone("4?"), behind("4?", "5?")
    assert texts == [alone("1?"), *second]
    assert read.questions[1] == ("m-10", "math", "", 1, "2?")
    assert [each.id for each in read.questions] == ["m-10", "m-10", 9, 2, 2]
    few = questions.Chosen(per_category=1, longest=len(read.tokens[2]))
    short = prompts.read(path, model, answer, few)  # of math 9 is before m-10
    assert [each.id for each in short.questions] == [9, 2] and short.left_out == 1
    with pytest.raises(ValueError, match="line 1: there are 2 turns, and no model"):
        prompts.read(path, model)
    with pytest.raises(ValueError, match="raise --longest"):
        prompts.read(path, model, answer, questions.Chosen(longest=1))


def test_lines_are_read_in_one_way(tmp_path):
    """This holds for any compression, and for files as editors or spreadsheets write
    them."""
    lines = [
        b'\xef\xbb\xbf{"prompt": "def f(", "id": null, "category": 0}\r\n',
        b"\r\n",
    ]
    lines.append('{"prompt": "a\u2028b\x85", "tokens": null, "id": 7}'.encode())
    raw = b"".join(lines)
    for name, content in (
        ("a.jsonl", raw),
        ("a.jsonl.gz", gzip.compress(raw)),
        ("a.jsonl.xz", lzma.compress(raw)),
        ("packed.jsonl", gzip.compress(raw)),
    ):
        (tmp_path / name).write_bytes(content)
        read = prompts.read(tmp_path / name, bundled_model("code"))
        assert read.tokens == [CODE.encode("def f("), CODE.encode("a\u2028b\x85")]
        kinds = [(each.id, each.category) for each in read.questions]
        assert kinds == [(0, "0"), (7, "")]
        assert [n for n, _ in text_files.numbered_lines(tmp_path / name)] == [1, 3]


def test_what_is_no_file_of_lines_is_told(tmp_path):
    for name, content, reason in (
        ("a.jsonl.xz", b"{}", "is not a .xz file"),
        ("b.jsonl.gz", gzip.compress(b"{}" * 99)[:-9], "is damaged"),
        ("c.jsonl.zst", b"\x28\xb5\x2f\xfd\x04", "is compressed: run zstd -d"),
        ("d.jsonl", b'{"prompt": "x"}\r{"prompt": "y"}\r', "lines end with"),
        ("a.parquet", b"PAR1", "is a Parquet table: write its rows as JSON lines"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=reason):
            prompts.read(tmp_path / name, bundled_model("code"))


def test_ids_are_in_order_as_a_person_counts():
    lines = [{"id": f"b-{i}", "category": "x"} for i in (10, 9, 2)]
    lines.insert(1, {"id": 1, "category": "stem"})
    assert questions.select(lines, questions.Chosen(2)) == [1, 2, 3]
    of_task = questions.Chosen(task="mt_bench")
    assert questions.select(lines, of_task) == [1]
    assert questions.select(lines, questions.Chosen(task="stem")) == [1]
    with pytest.raises(
        ValueError, match="no question belongs to y: the file has mt_bench, x"
    ):
        questions.select(lines, questions.Chosen(task="y"))
    about = questions.make_question(lines[0] | {"category": "stem"}, 0, 0, "")
    assert questions.group_name(about, "task") == "mt_bench"
    with pytest.raises(ValueError, match="question b-10 has no sub_category: write it"):
        questions.select(lines, questions.Chosen(by="sub_category"))
    with pytest.raises(
        ValueError, match="several lines have question_id b-10: give each"
    ):
        questions.select([*lines, lines[0]], questions.Chosen(unique=True))


def test_without_text_there_is_the_start_token():
    model = bundled_model("code")
    assert (
        prompts.start_prompt(model).tokens
        == prompts.from_list([""], model).tokens
        == [[1]]
    )
    bare = model._replace(start=None, ends=())
    assert prompts.from_list(["x"], bare).ends == ()
    with pytest.raises(ValueError, match="no start token"):
        prompts.start_prompt(bare)
    with pytest.raises(ValueError, match="no start token"):
        prompts.from_list([""], bare)


TALK = '"messages": [{"role": "user", "content": "x"}]'
DEEP = '{"prompt": ' + "[" * 100_000
BAD = [
    (b'{"prompt": "\xff"}', "not UTF-8"),
    ('{"prompt": "a\\ud800"}', r"\\ud800"),
    ('{"prompt": 3}', "prompt must be one text"),
    (DEEP, "nested too deeply"),
    ("{", "not JSON"),
    ('"x"', "write "),
    ('{"prompt": "x", "tokens": [1]}', "write "),
    ('{"tokens": []}', "tokens is empty"),
    ('{"tokens": "1 2"}', "list of ids"),
    ('{"tokens": [true]}', "list of ids"),
    ('{"tokens": [1, 8192]}', r"id 8192 is not in 0\.\.8191"),
    ('{"tokens": [1' + "0" * 5000 + "]}", "not JSON"),
    ('{"tokens": [1' + "0" * 4000 + "]}", r"id 10+\.\.\. is not in"),
    ('{"messages": []}', "list of messages"),
    ('{"messages": [{"role": "user", "content": null}]}', "a message is"),
    ('{"messages": [{"role": "user", "content": 3}]}', "content must be one text"),
    ('{"turns": []}', "turns must be a list of texts"),
    ('{"turns": ["x", 3]}', "a turn must be one text"),
    (f'{{{TALK}, "turns": ["x"]}}', "write "),
    ('{"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM"]}', "prepare.py"),
    (f'{{{TALK}, "tools": [1]}}', "tools must be a list of objects"),
    (f'{{{TALK}, "documents": {{}}}}', "documents must be a list of objects"),
    (f'{{{TALK}, "chat_template_kwargs": {{"messages": 1}}}}', "must be an object of"),
]


def test_a_line_that_is_no_prompt_is_named_in_one_short_line(tmp_path):
    for line, reason in BAD:
        path = write_prompts(tmp_path, '{"prompt": "x"}', line)
        with pytest.raises(ValueError, match=reason) as error:
            prompts.read(path, bundled_model("code"))
        message = str(error.value)
        assert message.startswith(f"{path}, line 2: ")
        assert "\n" not in message and len(message) < len(str(path)) + 240
        message.encode()
    with pytest.raises(ValueError, match="is empty"):
        prompts.read(write_prompts(tmp_path, " "), bundled_model("code"))


def test_what_is_no_list_of_prompts_is_told():
    for several in "def f(", {"prompt": "x"}, 3, []:
        with pytest.raises(ValueError, match="prompts"):
            prompts.from_list(several, bundled_model("code"))
    with pytest.raises(ValueError, match=r"prompt 1: prompt has \\ud800"):
        prompts.from_list(["x", "\ud800"], bundled_model("code"))
    model = bundled_model("code")._replace(
        model=gpt.build(gpt.Config(50, 16, 32, 1, 2))
    )
    with pytest.raises(ValueError, match="is this its tokenizer"):
        prompts.from_list(["def add("], model)
