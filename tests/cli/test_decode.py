"""Prompts are decoded in blocks: when workers die or the command is stopped, no text is
lost or written twice, and each text is the one that a single process writes."""

import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from specjax import pretrained, text, zoo
from specjax.cli import (
    blocks,
    content,
    decode,
    environment,
    local,
    texts_folder,
    workers,
)
from specjax.decode_config import change
from specjax.models import gpt
from specjax.runtime import console, locks
from tests import conftest

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["def f(x", "import a", "class A", "for i in", "x = ", "def g(", "return"]
FLAGS = ["--target", "code_small", "--draft", "bigram", "--tokens", "6"]
FLAGS += ["--temperature", "1", "--batch", "4"]


def setting(folder: Path, *flags: str) -> decode.Setting:
    """Returns the setting of a folder with prompts.jsonl, as `decode.main` reads it."""
    argv = [str(folder / "prompts.jsonl"), "--out", str(folder / "out"), *flags]
    return decode.make_setting(decode.make_parser().parse_args(argv))


def write_prompts(folder: Path, texts: list[str]) -> None:
    """Writes a file of prompts with an empty line before each third one."""
    lines = [json.dumps({"prompt": text}) + "\n" for text in texts]
    lines[2::3] = [f"  \n{line}" for line in lines[2::3]]
    (folder / "prompts.jsonl").write_text("".join(lines))


def read(path: Path) -> list[str]:
    """Returns the texts in the order of their indices."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["index"] for row in rows] == [*range(len(rows))]
    return [row["text"] for row in rows]


def echo_request(asked: decode.Setting, first: int, lines: list) -> list[dict]:
    """Answers with the request and with the place where it runs."""
    rows = enumerate(lines, first)
    texts = (f"{i} {line} {json.loads(raw)['prompt']}" for i, (line, raw) in rows)
    return [{"text": text} for text in texts]


class Dying:
    """A launcher whose workers are lost at random, before or after they wrote; each
    worker gets `more` too."""

    def __init__(self, chance: float, *more):
        self.chance, self.more = chance, more
        self.random, self.lost = random.Random(0), 0

    def submit(self, function, *arguments):
        return Job(self, lambda: function(*arguments, *self.more))

    def draw(self) -> bool:
        dies = self.random.random() < self.chance
        self.lost += dies
        return dies


class Job:
    def __init__(self, launcher: Dying, run):
        self.launcher, self.run = launcher, run

    def done(self) -> bool:
        return self.launcher.random.random() < 0.5

    def result(self):
        for step in (lambda: None, self.run):
            answer = step()
            if self.launcher.draw():
                raise RuntimeError("the worker is gone")
        return answer

    def cancel(self, check: bool) -> None:
        self.launcher.lost += 1


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(workers, "POLL", 0)


def test_a_hundred_thousand_prompts_survive_their_workers(tmp_path, at_once, capsys):
    texts = [f"text {i}" for i in range(100_000)]
    write_prompts(tmp_path, texts)
    asked, launcher = setting(tmp_path, "--block", "512"), Dying(0.2, echo_request)
    decode.prepare(asked)
    begin = lambda block: launcher.submit(decode.work, asked, block)  # noqa: E731
    going = workers.run_tasks(
        begin, decode.missing_blocks(asked), workers=8, attempts=50, label=str
    )
    done = [next(going)[0].number for _ in range(60)]
    going.close()  # as Ctrl-C does
    going = workers.run_tasks(
        begin, decode.missing_blocks(asked), workers=8, attempts=50, label=str
    )
    done += [block.number for block, how in going if not how.died]
    assert len(done) == len({*done}) and launcher.lost > 40
    assert "its worker died" in capsys.readouterr().out
    assert decode.finish(asked) == len(texts)
    line = [i + 1 + (i + 1) // 3 for i in range(len(texts))]
    assert read(asked.folder / "texts.jsonl") == [
        f"{i} {line[i]} {text}" for i, text in enumerate(texts)
    ]


def test_a_document_has_what_went_wrong_and_what_is_there(
    tmp_path, at_once, monkeypatch, capsys
):
    write_prompts(tmp_path, TEXTS)
    argv = [str(tmp_path / "prompts.jsonl"), "--out", str(tmp_path / "out")]
    told = {"folder": str(tmp_path / "out"), "blocks": 3}
    there = told | {"file": str(tmp_path / "out" / "texts.jsonl"), "failed": {}}
    gone = "3 workers died in turn (the worker is gone)"
    gone = {f"block {i}": gone for i in range(3)}
    for chance, document in (
        (1.0, told | {"file": None, "texts": 0, "decoded": 0, "failed": gone}),
        (0.0, there | {"texts": 7, "decoded": 7}),
        (0.0, there | {"texts": 7, "decoded": 0}),
    ):
        if document["decoded"] == 0 and not document["failed"]:
            # As a command leaves it that is killed once all texts are in one file.
            (tmp_path / "out" / "blocks").mkdir()
            (tmp_path / "out" / "blocks" / "0.a.jsonl").touch()
        launcher = Dying(chance, echo_request)
        monkeypatch.setattr(workers, "make_launcher", lambda *_, made=launcher: made)
        code = decode.main([*argv, "--block", "3", "--json"])
        found = json.loads(capsys.readouterr().out)
        assert found.pop("seconds") >= 0 and found == document
        assert code == bool(document["failed"])
    assert not (tmp_path / "out" / "blocks").exists()


def test_a_block_that_lost_a_text_is_told(tmp_path):
    write_prompts(tmp_path, TEXTS)
    asked = setting(tmp_path, "--block", "3")
    for block in decode.missing_blocks(asked):
        assert decode.work(asked, block, echo_request)[0] == 0
    (block, *_) = decode.list_blocks(asked)
    path = blocks.texts_path(asked.folder, block)
    whole = path.read_text().splitlines(keepends=True)
    for wrong in (whole[:2], whole[:1] * 3, whole + whole[-1:]):
        path.write_text("".join(wrong))
        with pytest.raises(ValueError, match="same command again"):
            decode.finish(asked)
    assert not (asked.folder / "texts.jsonl").exists()


def test_texts_are_the_same_in_other_blocks(tmp_path):
    write_prompts(tmp_path, TEXTS)
    asked, found = setting(tmp_path, *FLAGS), {}
    for size in (7, 3):
        for block in blocks.split_file(asked.prompts, size):
            lines = blocks.read_lines(asked.prompts, block)
            found[size, block.first] = decode.decode_lines(asked, block.first, lines)
    assert found[7, 0] == [*found[3, 0], *found[3, 3], *found[3, 6]]
    assert len({row["text"] for row in found[7, 0]}) == len(TEXTS)
    assert {(row["tokens"], row["ended"]) for row in found[7, 0]} == {(6, False)}
    lines = blocks.read_lines(asked.prompts, block)
    other = decode.decode_lines(change(asked, seed=1), 0, lines)
    assert other != found[3, 6]


def test_a_target_decodes_alone(tmp_path):
    """`--draft none` and `--gamma 0` load no draft, also where the default draft would
    be counts, which draft one token or more."""
    write_prompts(tmp_path, TEXTS[:2])
    greedy, found = [*FLAGS[:6], "--batch", "2", "--block", "2"], []
    for flags in ([], ["--draft", "none"], ["--gamma", "0"]):
        asked = setting(tmp_path, *greedy, *flags)
        decode.check_models(asked)
        (block,) = decode.list_blocks(asked)
        lines = blocks.read_lines(asked.prompts, block)
        found.append(decode.decode_lines(asked, block.first, lines))
        assert (decode.load_models(asked)[1] is None) == bool(flags)
    assert found[0] == found[1] == found[2]


@pytest.fixture
def own(tmp_path, monkeypatch) -> list[str]:
    """The flags of a pair of files of one's own, and of a rule; `FILES` of them."""
    write_prompts(tmp_path, TEXTS)
    shutil.copy(zoo.FOLDER / "code_small.safetensors", tmp_path / FILES[0])
    shutil.copy(zoo.FOLDER / "tokenizer.model", tmp_path)
    (tmp_path / FILES[2]).write_text("def main():")
    (tmp_path / FILES[3]).write_text("from specjax.verifiers.token import verifier\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(workers, "make_launcher", lambda *_: Dying(0, echo_request))
    return [
        *(str(tmp_path / "prompts.jsonl"), "--out", str(tmp_path / "out")),
        *("--target", str(tmp_path / FILES[0]), "--block", "3"),
        *("--draft", f"datastore:{tmp_path / FILES[2]}", "--rule", "own_rule:verifier"),
    ]


FILES = "m.safetensors", "tokenizer.model", "store.txt", "own_rule.py"


def test_texts_of_two_contents_of_one_name_never_meet(
    own, tmp_path, at_once, refused, capsys
):
    assert decode.main(own) == 0
    texts = (tmp_path / "out" / "texts.jsonl").read_bytes()
    write_prompts(tmp_path, [*TEXTS, "more"])
    capsys.readouterr()
    for name in FILES:
        file = tmp_path / name
        held, mark = file.read_bytes(), file.stat()
        more = {FILES[1]: held + b"\x78\x01", FILES[3]: held[:-1] + b" "}
        file.write_bytes(more.get(name, held[:-1] + bytes([held[-1] ^ 1])))
        os.utime(file, ns=(mark.st_atime_ns, mark.st_mtime_ns))
        said = refused(decode.main, own)
        assert f"decoded with another content of {name}: name another --out" in said
        file.write_bytes(held)
    assert (tmp_path / "out" / "texts.jsonl").read_bytes() == texts
    assert decode.main(own) == 0  # with the first contents it goes on
    held = json.loads((tmp_path / "out" / "setting.json").read_text())
    assert {*FILES} == held["content"].keys()
    del held["content"]
    (tmp_path / "out" / "setting.json").write_text(json.dumps(held))
    capsys.readouterr()
    assert "an older version, which did not record the weights" in refused(
        decode.main, own
    )


def test_a_worker_sees_what_changed_since_it_was_given_work(own, tmp_path):
    asked = decode.make_setting(decode.make_parser().parse_args(own))
    files = decode.check_models(asked)[1]
    asked = asked._replace(content=content.read(files))
    first, second, _ = decode.list_blocks(asked)
    assert decode.work(asked, first, echo_request)[:2] == (0, "")
    with (tmp_path / FILES[0]).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\0")
    os.utime(tmp_path / FILES[0], (1, 1))
    code, said, _ = decode.work(asked, second, echo_request)
    assert code == 2 and said.startswith(f"{FILES[0]} changed while texts were decoded")
    assert not blocks.texts_path(asked.folder, second).exists()


def test_a_folder_is_worked_on_by_one_command(own, tmp_path, refused):
    with locks.lock_folder(tmp_path / "out"):
        said = refused(decode.main, own)
        assert f"in use by process {os.getpid()} on " in said
        assert [file.name for file in (tmp_path / "out").iterdir()] == [locks.NAME]
    assert decode.main(own) == 0 and not (tmp_path / "out" / locks.NAME).exists()


def test_a_stopped_command_cancels_its_workers(own, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    def leave(code):
        raise SystemExit(code)

    launcher = Dying(0, echo_request)
    monkeypatch.setattr(workers, "make_launcher", lambda *_: launcher)
    monkeypatch.setattr(decode.Bar, "update", stop)
    monkeypatch.setattr(console, "leave", leave)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as stopped:
        decode.main([*own, "--workers", "3"])
    assert stopped.value.code == 130 and launcher.lost == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "stopped; start the same command again to continue"


def test_a_worker_stands_where_its_parent_does(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("HERE = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setenv("PYTHONPATH", f"elsewhere{os.pathsep}")
    world, variables = environment.current(), environment.import_variables()
    places = variables["PYTHONPATH"].split(os.pathsep)
    assert places[-1] == str(tmp_path / "elsewhere") and str(ROOT) in places
    assert "" not in places and variables["PYTHONSAFEPATH"] == "1"
    monkeypatch.chdir("/")
    monkeypatch.setattr(sys, "path", ["/nowhere"])
    assert (
        environment.run_in_environment(world, importlib.import_module, "beside").HERE
        == 3
    )
    assert Path.cwd() == tmp_path and sys.path[-1] == "/nowhere"


def test_every_prompt_is_one_that_the_target_can_go_on_with(
    own, tmp_path, monkeypatch, refused
):
    config = gpt.Config(8192, 16, 32, 1, 2, positions=64, learned=True)
    model = pretrained.describe(tmp_path / FILES[0])
    model = model._replace(config=config, model=gpt.build(config))
    monkeypatch.setattr(decode, "check_models", lambda _: (model, ()))
    path, rows = tmp_path / "prompts.jsonl", '{"prompt": "x"}\n{"tokens": %s}\n'
    path.write_text(rows % ([5] * 53))
    said = refused(decode.main, [*own, "--tokens", "12"])
    assert (
        f"{path}, line 2: the prompt has 53 tokens, --tokens asks for 12 more" in said
    )
    assert not (tmp_path / "out").exists()
    path.write_text(rows % ([5] * 52))
    assert blocks.check(path, model, 12) == 2


def test_what_cannot_be_decoded_is_one_line(tmp_path, monkeypatch, refused):
    """The error comes before anything is written."""
    write_prompts(tmp_path, TEXTS)
    monkeypatch.setattr(workers, "GPUS", (str(tmp_path / "gpu*"),))
    files = {
        "none": "\n",
        "three": '\n{"prompt": "a"}\n{"prompt": 3}\n',
        "turns": '{"turns": ["a", "b"]}\n',
        "ids": '{"prompt": "a"}\n{"tokens": [8192]}\n',
        "chat": '{"messages": [{"role": "user", "content": "x"}]}\n',
    }
    for name, lines in files.items():
        (tmp_path / f"{name}.jsonl").write_text(lines)
    for words, said in (
        ("none.jsonl", "is empty"),
        ("p.jsonl.xz", "p.jsonl.xz"),
        ("three.jsonl", "three.jsonl, line 3: prompt must be one text; got 3"),
        ("turns.jsonl", "turns.jsonl, line 1: there are 2 turns"),
        ("ids.jsonl", "ids.jsonl, line 2: id 8192 is not in 0..8191"),
        ("chat.jsonl", "chat.jsonl, line 1: "),
        (
            "prompts.jsonl --target speech_target",
            "speech_target reads recordings and no",
        ),
        ("prompts.jsonl --target code_targt", "code_target has a name like it"),
        ("prompts.jsonl --target copying", "copying only drafts"),
        ("prompts.jsonl --draft code_smal", "a draft may also be copying"),
        ("prompts.jsonl --draft tree:code_smal", "a draft may also be copying"),
        ("prompts.jsonl --draft copying:far=2", "'far=2' is not an option"),
        ("prompts.jsonl --gpus 1", "--gpus 1: there is no GPU here"),
        ("prompts.jsonl --cpus 2", "--cpus is not for --on local: leave it out"),
        ("prompts.jsonl --on slurm --address a", "--address is not for --on slurm"),
        ("prompts.jsonl --on ray --partition a", "--partition is not for --on ray"),
    ):
        name, *flags = words.split()
        out = ["--out", tmp_path / "out"]
        assert said in refused(decode.main, [tmp_path / name, *out, *flags])
        assert not (tmp_path / "out").exists()


def test_a_local_worker_has_its_time_and_the_gpus_that_are_visible(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(local, "DEVICES", str(tmp_path / "gpu*"))
    for number in range(3):
        (tmp_path / f"gpu{number}").touch()
    launcher = local.Local(tmp_path / "workers", 0, 2, [])
    for named, devices in (
        (None, ["0", "1"]),
        ("5, 3,4", ["5", "3"]),
        ("GPU-a", ["GPU-a"]),
        ("-1", []),
        ("", []),
    ):
        monkeypatch.delenv(local.VISIBLE, raising=False)
        if named is not None:
            monkeypatch.setenv(local.VISIBLE, named)
        assert launcher.devices() == devices, named
    job = launcher.submit(time.sleep, 60)  # of no minutes
    assert job.done()
    assert workers.read_outcome(job) == workers.Outcome(True, local.LATE)


def test_mended_prompts_cost_their_own_blocks(
    tmp_path, at_once, monkeypatch, capsys, refused
):
    """Only their blocks are decoded again, whether all blocks were decoded before or
    one failed; another setting is refused, and so is a file that shares no block."""

    argv = [str(tmp_path / "prompts.jsonl"), "--out", str(tmp_path / "out"), "--json"]

    def main(*flags: str) -> dict:
        monkeypatch.setattr(workers, "make_launcher", lambda *_: Dying(0, echo_request))
        code = decode.main([*argv, *flags])
        found = json.loads(capsys.readouterr().out)
        assert code == bool(found["failed"])
        return found

    texts = list(TEXTS)
    write_prompts(tmp_path, texts)
    with monkeypatch.context() as patch:
        patch.setattr(decode, "work", lambda *_: (2, "none can be had", "here"))
        assert main("--block", "2")["texts"] == 0
    assert main("--block", "3")["decoded"] == 7  # a folder without texts is new
    for place, new, decoded in (2, "mended", 3), (6, "also", 1):
        texts[place] = new
        write_prompts(tmp_path, texts)
        for again in (decoded, 0):
            assert main()["decoded"] == again
        rows = read(tmp_path / "out" / "texts.jsonl")
        assert [row.split(maxsplit=2)[2] for row in rows] == texts
    texts += ["more", "and more", "and one"]
    write_prompts(tmp_path, texts)
    assert main()["decoded"] == 4
    other_gamma = "decoded with gamma 4", ["--gamma", "9"]
    for said, flags in other_gamma, ("may have changed", []):
        assert said in refused(decode.main, [*argv, *flags])
        write_prompts(tmp_path, ["first", *texts])


def test_a_line_has_its_prompts_name_and_how_its_text_ended(tmp_path, monkeypatch):
    (tmp_path / "prompts.jsonl").write_text(
        '{"prompt": "a", "id": "x"}\n{"prompt": "bc", "question_id": 7}\n'
    )
    asked = setting(tmp_path, *FLAGS)
    both = [[5, 1], [6]] * 2, ["end", "length"] * 2
    done = text.Generated(["a", "b"] * 2, None, 1, 3, 0.0, "exact", *both)
    monkeypatch.setattr(text, "run", lambda *_: done)
    (block,) = blocks.split_file(asked.prompts, 8)
    assert decode.work(asked, block)[:2] == (0, "")
    rows = blocks.texts_path(asked.folder, block).read_text().splitlines()
    assert [*map(json.loads, rows)] == [
        {"index": 0, "id": "x", "text": "a", "tokens": 2, "ended": True},
        {"index": 1, "question_id": 7, "text": "b", "tokens": 1, "ended": False},
    ]


def test_prompts_that_change_meanwhile_are_told(tmp_path):
    write_prompts(tmp_path, TEXTS)
    asked = setting(tmp_path)
    (block,) = blocks.split_file(asked.prompts, 8)
    write_prompts(tmp_path, ["def h(x", *TEXTS[1:]])
    code, said, _ = decode.work(asked, block, echo_request)
    assert code == 2 and "was changed during the run" in said


@pytest.mark.parametrize(
    ("count", "at_once", "flags", "size"),
    [
        (7, 1, [], 32),
        (7, 1, ["--batch", "2"], 2),
        (640, 1, [], 80),
        (640, 2, [], 40),
        (10**6, 4, [], 1024),
        (10**6, 4, ["--block", "4096"], 4096),
    ],
)
def test_blocks_are_some_for_each_worker(count, at_once, flags, size, tmp_path):
    assert (
        decode.with_block_size(setting(tmp_path, *flags), count, at_once).block == size
    )


def running_workers(ancestor: int) -> list[int]:
    """Returns the workers of a process, which are its children or Ray's."""
    parents, found = {}, []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ProcessLookupError):
            parents[int(path.name)] = int((path / "stat").read_text().split()[-49])
    for process in parents:
        above = process
        while above in parents and above != ancestor:
            above = parents[above]
        with contextlib.suppress(OSError, ProcessLookupError):
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            at_work = b"specjax.cli.local" in command or b"ray::work" in command
            found += [process] if above == ancestor and at_work else []
    return found


@pytest.mark.slow
@pytest.mark.parametrize("on", ["local", "ray"])
def test_workers_that_are_killed_lose_no_text(on, tmp_path, monkeypatch):
    """The drafter lies beside the prompts, in a folder that the workers see too. When
    the command is stopped it prints one line and leaves no worker."""
    if on == "ray" and not find_spec(on):
        pytest.skip(f"needs the launcher of --on {on}")
    write_prompts(tmp_path, TEXTS)
    shutil.copy(ROOT / "docs" / "my_parts.py", tmp_path)
    flags = [*FLAGS, "--draft", "my_parts:repeat"]
    argv = [sys.executable, "-m", "specjax", "decode", "prompts.jsonl", *flags]
    argv += ["--out", "out", "--block", "2", "--workers", "2", "--on", on]
    own = os.environ | {"JAX_PLATFORMS": "cpu"}
    own |= {"PYTHONPATH": os.path.relpath(ROOT, tmp_path)}
    own |= {"JAX_COMPILATION_CACHE_DIR": str(conftest.CACHE)}
    own |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    how = dict(env=own, cwd=tmp_path, text=True, stdout=subprocess.PIPE)
    how |= dict(stderr=subprocess.PIPE, start_new_session=True)
    killed = 0
    for last in (False, True):
        with subprocess.Popen(argv, **how) as going:
            while going.poll() is None and killed < 2:
                time.sleep(0.5)
                for worker in running_workers(going.pid)[:1]:
                    os.kill(worker, signal.SIGKILL)
                    killed += 1
            line = going.stdout.readline()
            if not last:
                going.send_signal(signal.SIGTERM)
            said, errors = line + going.stdout.read(), going.stderr.read()
        assert going.returncode == (0 if last else 143), said + errors
        lines = [x for x in errors.splitlines() if not x.startswith("blocks: ")]
        told = "stopped; start the same command again to continue"
        assert lines == ([] if last else [told]) and not running_workers(going.pid)
    assert killed == 2
    monkeypatch.syspath_prepend(tmp_path)
    asked = setting(tmp_path, *flags)
    (block,) = blocks.split_file(asked.prompts, 99)
    alone = decode.decode_lines(asked, 0, blocks.read_lines(asked.prompts, block))
    texts = [row["text"] for row in alone]
    assert read(tmp_path / "out" / "texts.jsonl") == texts
    assert not (tmp_path / "out" / "blocks").exists()


def test_texts_of_one_form_are_of_no_other(tmp_path, refused):
    """The settings in their folder and the names of the blocks tell forms apart."""
    (tmp_path / "a.lark").write_text('start: "a"', "utf-8-sig")
    free = setting(tmp_path)
    regex = setting(tmp_path, "--regex", "a|b")
    grammar = setting(tmp_path, "--grammar", str(tmp_path / "a.lark"))
    assert grammar.form == ("grammar", 'start: "a"') and free.form is None
    described = [*map(texts_folder.describe, (free, regex, grammar))]
    assert "form" not in described[0] and described[1]["regex"] == "a|b"
    assert texts_folder.differences(described[1], described[0]) == ["regex 'a|b'"]
    assert texts_folder.differences(described[0], described[1]) == ["regex None"]
    write_prompts(tmp_path, TEXTS[:1])
    each = (one._replace(block=1) for one in (free, regex))
    assert len({next(texts_folder.list_blocks(one)).how for one in each}) == 2
    argv = [tmp_path / "prompts.jsonl", "--out", tmp_path / "out"]
    said = refused(decode.main, [*argv, "--schema", "absent.json"])
    assert "absent.json cannot be read" in said
    if find_spec("outlines_core"):
        said = refused(decode.main, [*argv, "--regex", "(a"])
        assert "regex '(a' cannot be read" in said
