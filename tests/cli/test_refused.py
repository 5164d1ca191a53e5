"""Mistakes in commands end in one line that names the fix, with exit code 2 and without
compute; so does Ctrl-C.

Every command's errors are in the tables of this file.
"""

import copy
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from specjax import pretrained
from specjax.cli import audit, compare, demo, measure, microscope, run, transcribe
from specjax.cli.saving import Saving
from specjax.exactness import certify, soak
from specjax.measure import jsonl
from specjax.models import gpt
from specjax.runtime import console
from tests.cli.test_compare import RECORD, record, write
from tests.support import text_folders

DECODING = (audit, demo, measure, microscope)
HUGE = str(2**70)
SEED, COUNT, GAMMA = "4294967295", "at least 1 and at most 1000000", "at most 1000"
WARM = "temperature must be 0, which is argmax, or from 1.18e-38 to 10000; got"

# Flags that are refused before weights are read: command, flags, what is printed.
TYPED = [
    (measure, "--temperature -1", f"--temperature: {WARM} -1.0"),
    (measure, "--temperature nan", WARM),
    (measure, "--texts 0", f"--texts: must be a whole number, {COUNT}; got '0'"),
    (measure, "--tokens 1e10", COUNT),
    (measure, f"--tokens {'9' * 5000}", f"; got '{'9' * 37}...'"),
    (measure, "--batch 0", COUNT),
    (measure, "--rounds 0", COUNT),
    (measure, "--gammas 1 100000000", GAMMA),
    (measure, f"--seed {HUGE}", SEED),
    *[(command, "--dtype float16", "'bfloat16', 'int8'") for command in DECODING],
    *[(command, "--kernels hope", "'reference'") for command in DECODING],
    (measure, "--by hope", "'category', 'task', 'sub_category'"),
    (measure, "--by task --gammas 2 3", "with one gamma: write one, as in --gammas 5"),
    (measure, "--specdec FOLDER --batch 2", "leave --texts and --batch out"),
    (measure, "--longest 0", COUNT),
    (measure, "--mesh heads=2", "--mesh: write a mesh as data=4,model=2"),
    *[(command, "--mesh data=999", "needs 999 devices, and") for command in DECODING],
    (transcribe, "a.wav --mesh data=999", "needs 999 devices, and"),
    (measure, "--policy hope", "choose one of none, adaptive, confidence"),
    (measure, "--policy no_such:mine", "No module named 'no_such'"),
    (measure, "--policy math:pi", "math:pi is of class float: name an object of class"),
    (measure, "--policy adaptive:up", "start must be a whole number; got 'up'"),
    (measure, "--top-k 2.5", "top_k must be a whole number, at least 1; leave top_k"),
    (audit, "--top-p 1.5", "--top-p/--top_p: top_p must be in (0, 1]; leave top_p out"),
    (demo, "--min-p -1", "min_p must be in [0, 1]"),
    (microscope, "--gammas -1", "at least 1 and at most 1000"),
    (audit, "--tokens 1e10", "at most 1000000000"),
    (audit, "--level nan", "above 0 and below 1"),
    (audit, "--gamma 100000000", GAMMA),
    (
        demo,
        "--K -1",
        f"--K/--gamma: gamma must be a whole number, at least 0 and {GAMMA}",
    ),
    (demo, "--temperature inf", WARM),
    (demo, "--n_tokens_to_generate 0", COUNT),
    (demo, "--gammas 4", "--gammas"),
    *[(command, "--rule sigmod:9", "choose one of block") for command in DECODING],
    (demo, "--policy none:3", "write none"),
    (soak, "--draws inf", "at least 1 and at most 1e+15"),
    (soak, "--from -1", "at least 0"),
    (soak, "--rule lenient", "'token'"),
    (certify, "--rule hope", "choose one of block"),
    (certify, "--policy hope", "choose one of none"),
    (run, "", "name a row"),
    (run, "--gin_file", "expected one argument"),
]

UNREAD = "--data FOLDER/prompts.jsonl --tokenizer FOLDER/wrong.model"
LONG = "--target FOLDER/gpt2/a --draft FOLDER/gpt2/a"
BARE = "--target FOLDER/gpt2/bare --draft copying --data FOLDER/ids.jsonl"
PAGE = "--target absent --out FOLDER/other.jsonl --report FOLDER/page.html"
HEARS = "--target speech_target --draft speech_small"
NO_MODEL = "is not a SentencePiece model"
# Flags that are refused once what they name was looked at.
READ = [
    (measure, "--target absent", "no checkpoint at 'absent'"),
    (measure, "--draft bigram --target unigram", "only drafts"),
    (measure, "--draft hope", "a draft may also be copying:longest=3,least=1"),
    (audit, "--draft copying:size=2", "write copying:longest=3"),
    (microscope, "--draft early_exit", "lacks layers: write early_exit:LAY"),
    (demo, "--draft early_exit:8", "has 8 layers, of which 1 to 7 can draft; got 8"),
    (measure, "--draft t5_small", "one tokenizer"),
    (measure, "--data absent.jsonl", "absent.jsonl"),
    (measure, "--texts 3 --batch 2", "texts must fill batches of 2"),
    (measure, "--tokenizer absent.model", "no tokenizer at absent.model"),
    (demo, "--tokenizer FOLDER/wrong.model", NO_MODEL),
    (audit, UNREAD, NO_MODEL),
    (audit, "--tokenizer FOLDER/wrong.model", "write both flags, or neither"),
    (measure, "--by task", "question 0 has no category: write it in its line"),
    (measure, "--specdec FOLDER/prompts.jsonl", "name a folder that is new"),
    (measure, f"{BARE} --specdec FOLDER/run", "--tokenizer, or leave --specdec out"),
    (measure, PAGE, "other.jsonl, line 1: not a measured row: row must be a text"),
    (measure, "--longest 1 --tokens 4", "or fewer: raise --longest"),
    (measure, f"{HEARS} --longest 9", "grouped as questions: leave --longest"),
    (measure, "--gammas 0", "gammas must ascend from 0"),
    (measure, f"{LONG} --tokens 5000", "--tokens can be at most"),
    # Before weights are read: of two mistakes --out is the one that is told.
    (measure, "--target absent --out FOLDER", "is a folder: name a .jsonl file"),
    (measure, "--target absent --out /dev/full", "is not an ordinary file"),
    (measure, "--target absent --out FOLDER/prompts.jsonl/a", "name another .jsonl"),
    (demo, "--target 1558M", "no models/1558M/config.json, and models has no model"),
    (demo, "--draft_model_size 124M", "(hf download openai-community/gpt2 --local-d"),
    (demo, "--models_dir FOLDER", "no FOLDER/1558M/config.json, and FOLDER has no mo"),
    (demo, "--models_dir FOLDER --target 3B", "download MODEL --local-dir FOLDER/3B"),
    (demo, "--prompt a\udcff", "UTF-8"),
    (compare, "absent.jsonl absent.jsonl", "`specjax measure --out absent.jsonl`"),
    (compare, "FOLDER FOLDER", "no file"),
]


@pytest.fixture
def told(refused, tmp_path):
    """(command, flags) -> the one line that is printed."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "def f("}\n')
    (tmp_path / "ids.jsonl").write_text('{"tokens": [1, 2]}\n')
    (tmp_path / "other.jsonl").write_text('{"row": 3}\n')
    (tmp_path / "wrong.model").write_bytes(b"\xff")

    def line(command, flags: list[str]) -> str:
        if command is measure and "--data" not in flags:
            flags = ["--data", str(prompts), *flags]
        flags = [flag.replace("FOLDER", str(tmp_path)) for flag in flags]
        return refused(command.main, flags)

    return line


def test_flags_are_refused_before_weights_are_read(told, monkeypatch):
    monkeypatch.setattr(pretrained, "load", None)
    for command, flags, message in TYPED:
        assert message in told(command, flags.split()), (command, flags)


def test_what_cannot_be_run_is_refused_before_any_compute(told, monkeypatch, tmp_path):
    monkeypatch.setattr(measure.forecast, "announce", None)
    monkeypatch.setattr(demo, "measure", None)
    monkeypatch.setattr(demo, "PATIENCE", 600.0)  # of reading weights, in seconds
    text_folders.gpt2(tmp_path / "gpt2" / "a")
    bare = text_folders.gpt2(tmp_path / "gpt2" / "bare")
    (bare / "tokenizer.json").unlink()
    for command, flags, message in READ:
        printed = told(command, flags.split())
        assert message.replace("FOLDER", str(tmp_path)) in printed, (command, flags)


# Lines of a file that `compare` refuses, as the whole text or as the fields that differ
# from a good record: (the line, what is said of it).
RECORDS = [
    ("{no json}", "not a record"),
    ("[1, 2]", "not a record (want an object"),
    ("{}", "row must be a text"),
    ('{"a": ' * 100 + "1" + "}" * 100, "a is nested too deeply"),
    ('{"row": "x", "measured": {"alpha": NaN}}', "measured.alpha is nan"),
    ({"row": 3}, "row must be a text; got 3"),
    ({"measured": None}, "measured must be an object"),
    ({"alpha": "0.6"}, "measured.alpha must be a finite number"),
    ({"alpha_se": -1}, "measured.alpha_se must be a finite number, at least 0"),
    ({"estimates": {"counts": 3}}, "measured.estimates.counts must be an object"),
    ({"estimates": {"counts": {"value": [], "se": 1}}}, "estimates.counts.value must"),
    ({"gamma": "5"}, "measured.gamma must be a whole number or a list"),
    ({"c": [0.1]}, "measured.c must be one value for each of 3 gamma"),
    ({"v": {"a": 1}}, "measured.v must be a list"),
    ({"speedup": [1, "2", 3]}, "measured.speedup[1] must be a finite number"),
    ({"speedup_ci": [[1, 1], 3, [1, 2]]}, "measured.speedup_ci[1] must be two"),
    ({"target_ms_ci": [1]}, "measured.target_ms_ci must be two finite numbers"),
    ({"protocol": None}, "measured.protocol must be an object"),
]


def test_a_bad_record_is_named_with_its_line_and_field(told, tmp_path):
    path = tmp_path / "a.jsonl"
    for line, message in RECORDS:
        if isinstance(line, dict):
            bad = copy.deepcopy(RECORD)
            bad |= {name: line[name] for name in bad.keys() & line}
            if bad["measured"]:
                bad["measured"] |= {name: line[name] for name in line.keys() - bad}
            line = json.dumps(bad)
        path.write_text(f"{json.dumps(RECORD)}\n{line}\n")
        printed = told(compare, [str(path), str(path)])
        assert f"{path}, line 2: " in printed and message in printed


def test_records_of_no_row_in_common(told, tmp_path):
    files = [str(tmp_path / f"{name}.jsonl") for name in ("A", "B")]
    write(tmp_path / "A.jsonl", RECORD, record(row="second"))
    write(tmp_path / "B.jsonl", record(row="other"))
    (tmp_path / "a.jsonl").write_text("\n")
    assert "has no record" in told(compare, ["FOLDER/a.jsonl", "FOLDER/a.jsonl"])
    message = told(compare, files)
    assert "A has small_t0_b1" in message and "B has other" in message
    assert "measure both with --name X" in message
    assert "the row 'third'" in told(compare, [*files, "--row", "third"])


def test_rounds_are_kept_until_the_whole_is_saved(tmp_path, capsys):
    """A record that cannot be written is printed, because the disk may fill up in the
    meantime."""
    saving = Saving(tmp_path / "a.jsonl")
    saving.prepare()
    assert not list(tmp_path.iterdir())  # of what is refused later nothing is left
    assert "nothing to save" in saving.left()
    for rounds in (1, 2):
        saving.keep({"rounds": rounds})
    assert str(saving.partial) in saving.left()
    assert jsonl.read(saving.partial) == [{"rounds": 2}]
    assert saving.append({"rounds": 3})
    assert jsonl.read(saving.path) == [{"rounds": 3}]
    assert list(tmp_path.iterdir()) == [saving.path]
    saving.keep(RECORD)
    saving.path.unlink()
    saving.path.mkdir()
    assert not saving.append(RECORD)
    printed = capsys.readouterr()
    assert json.loads(printed.out) == RECORD and "could not write" in printed.err
    assert jsonl.read(saving.partial) == [RECORD]


@pytest.mark.parametrize("command", DECODING)
def test_ctrl_c_is_one_line(command, monkeypatch, capsys, tmp_path):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    def leave(code):
        raise SystemExit(code)

    monkeypatch.setattr(pretrained, "load", interrupt)
    monkeypatch.setattr(console, "leave", leave)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    data = ["--data", str(tmp_path / "absent")] if command is measure else []
    with pytest.raises(SystemExit) as stopped:
        command.main(data)
    printed = capsys.readouterr().err
    assert stopped.value.code == 130
    assert printed.startswith("stopped; ") and printed.count("\n") == 1


STOPPED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job's may be ignored
sys.argv = ["specjax", "measure", *sys.argv[1:]]
from specjax.__main__ import main
sys.exit(main())
"""


@pytest.mark.slow
def test_ctrl_c_leaves_the_rounds_that_are_done(tmp_path, capsys):
    text_folders.code_pair(tmp_path, gpt.Config(8192, 16, 32, 1, 2))
    named = dict(target="m0.safetensors", draft="m1.safetensors")
    named |= dict(out="a.jsonl", data="prompts.jsonl")
    named = [f"--{flag}={tmp_path / name}" for flag, name in named.items()]
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "x ="}\n')
    few = "--gammas 1 --tokens 6 --texts 2 --rounds 300".split()
    runner = subprocess.Popen(
        [sys.executable, "-c", STOPPED, *named, *few],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("*.partial")) and time.monotonic() < deadline:
        time.sleep(0.05)
    runner.send_signal(signal.SIGINT)
    printed = runner.communicate()[1].splitlines()
    (partial,) = tmp_path.glob("*.partial")
    assert runner.returncode == 130 and "Traceback" not in "".join(printed)
    assert printed[-1] == f"stopped; what was measured is in {partial}"
    assert jsonl.read(tmp_path / "a.jsonl") == []
    assert compare.main([str(partial), str(partial)]) == 0
    (record,) = jsonl.read(partial)
    assert record["measured"]["rounds"] >= 1
